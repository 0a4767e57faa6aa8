"""The schedule explorer: races between tasks, found by a seed and brought back by it."""

from memory_contract.explorer.exploration import SCHEDULES, explore, replay
from memory_contract.explorer.loop import ExploringLoop
from memory_contract.explorer.schedules import (
    Schedule,
    ScheduleError,
    Switch,
    parsed,
    written,
)
from memory_contract.explorer.strategies import Chooser, Plain, Recorded, chooser_of

__all__ = [
    "SCHEDULES",
    "Chooser",
    "ExploringLoop",
    "Plain",
    "Recorded",
    "Schedule",
    "ScheduleError",
    "Switch",
    "chooser_of",
    "explore",
    "parsed",
    "replay",
    "written",
]
