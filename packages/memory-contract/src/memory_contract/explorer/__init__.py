"""The schedule explorer: races between tasks, found by a seed and brought back by it."""

from memory_contract.explorer.exploration import SCHEDULES, explore, replay
from memory_contract.explorer.loop import ExploringLoop
from memory_contract.explorer.schedules import (
    Schedule,
    ScheduleError,
    Switch,
    format_schedule,
    parse_schedule,
)
from memory_contract.explorer.strategies import Chooser, PlainOrder, RecordedOrder, build_chooser

__all__ = [
    "SCHEDULES",
    "Chooser",
    "ExploringLoop",
    "PlainOrder",
    "RecordedOrder",
    "Schedule",
    "ScheduleError",
    "Switch",
    "build_chooser",
    "explore",
    "format_schedule",
    "parse_schedule",
    "replay",
]
