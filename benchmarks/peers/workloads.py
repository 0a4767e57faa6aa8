"""What is measured: every work, in the order of the page, and the sizes of sessions."""

from __future__ import annotations

from typing import Final

from benchmarks.peers.results import Work

SHORT: Final = 10
SIZES: Final = (100, 10_000, 100_000)
LONG, LONGEST = SIZES[1], SIZES[2]
NEWEST: Final = 20

FIRST_OPEN: Final = Work(key="first open", title="first open and first message")
APPEND: Final = Work(key="append", title=f"append one message, at {SHORT}")
TURN: Final = Work(key="turn", title="append a turn of two")
APPEND_LONGEST: Final = Work(
    key="append longest", title=f"append one message, at {LONGEST:,}"
)  # fmt: skip
LAST_LONG: Final = Work(key="last long", title=f"last {NEWEST} of {LONG:,}")
LAST_LONGEST: Final = Work(key="last longest", title=f"last {NEWEST} of {LONGEST:,}")
LOAD: Final = Work(key="load", title=f"load all {LONG:,}")
SNAPSHOTS: Final = {
    size: Work(key=f"snapshot {size}", title=f"snapshot at {size:,}") for size in SIZES
}
ROLLBACKS: Final = {
    size: Work(key=f"rollback {size}", title=f"rollback at {size:,}") for size in SIZES
}
TASKS_ONE: Final = Work(key="tasks one", title="64 tasks, one session", unit="per second")
TASKS_MANY: Final = Work(key="tasks many", title="64 tasks, one session each", unit="per second")
PROCESSES_ONE: Final = Work(
    key="processes one", title="8 processes, one session", unit="per second"
)
PROCESSES_MANY: Final = Work(
    key="processes many", title="8 processes, one session each", unit="per second"
)
RECOVERY: Final = Work(key="recovery", title="open and read after `kill -9`")
MESSAGE_BYTES: Final = Work(
    key="bytes message", title="on disk for a message, beyond its text", unit="bytes"
)
SNAPSHOT_BYTES: Final = {
    size: Work(
        key=f"bytes snapshot {size}",
        title=f"on disk for a snapshot and a rollback, at {size:,}",
        unit="bytes",
    )
    for size in SIZES
}

TABLES: Final[dict[str, tuple[Work, ...]]] = {
    "Appending": (FIRST_OPEN, APPEND, TURN, APPEND_LONGEST),
    "Reading": (LAST_LONG, LAST_LONGEST, LOAD),
    "Going back": (*SNAPSHOTS.values(), *ROLLBACKS.values()),
    "Many at once": (TASKS_ONE, TASKS_MANY, PROCESSES_ONE, PROCESSES_MANY),
    "After a kill": (RECOVERY,),
    "On disk": (MESSAGE_BYTES, *SNAPSHOT_BYTES.values()),
}
WORKS: Final = {work.key: work for works in TABLES.values() for work in works}
