"""The schedule explorer: races between tasks, found by a seed and brought back by it."""

from indelible.contract.explorer.choosing import Chooser, Plain, Recorded, chooser_of
from indelible.contract.explorer.exploring import SCHEDULES, explore, replay
from indelible.contract.explorer.loop import ExploringLoop
from indelible.contract.explorer.schedules import (
    Schedule,
    ScheduleError,
    Switch,
    parsed,
    written,
)

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
