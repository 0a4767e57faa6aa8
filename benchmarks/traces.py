"""What recording adds to an append on Redis, and what explaining a day of a service takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import indelible
from benchmarks.conversation import TEXT
from benchmarks.measure import Result, compare
from memory_contract import record
from memory_contract.faults.servers.valkey import ValkeyServer
from memory_contract.traces.format import TraceHeader, TraceOperation, format_line

OPERATIONS = 1_000_000
# Of a conversation: each append is followed by a read of its last entries, as an agent does it.
APPENDS_PER_SESSION = 24
READ = 12
WORKERS = 16

_EXPLAIN = """
import json, resource, sys, time
from memory_contract import Ok, explain_trace
began = time.process_time()
found = explain_trace(sys.argv[1])
assert isinstance(found.verdict, Ok), found.verdict
print(json.dumps({
    "s": time.process_time() - began,
    "kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    "operations": found.verdict.scope.operations,
}))
"""


def all_results(folder: Path) -> Iterator[Result]:
    """Every figure of this file."""
    yield recorded_beside_bare(folder)
    yield from explained(folder)


def recorded_beside_bare(folder: Path) -> Result:
    """An append of a recorded store, beside one of the same store unrecorded."""
    server = ValkeyServer(folder / "recorded", {"appendonly": "no"})
    server.start()
    try:
        bare = indelible.open(server.url, durability="none")
        noted = record(indelible.open(server.url, durability="none"), folder / "trace")
        with bare, noted:
            # In turns that are long enough for the lines to be written in each of them.
            return compare(
                "recorded append on Redis, against one that is not recorded",
                lambda: noted.add_message("s", "user", TEXT),
                lambda: bare.add_message("s", "user", TEXT),
                at_most=1.3,
                calls=800,
                seconds=10,
            )
    finally:
        server.stop()


def explained(folder: Path) -> Iterator[Result]:
    """A million operations beside a quarter of that: four times the work, and how much memory."""
    few, many = (_explained(folder, n) for n in (OPERATIONS // 4, OPERATIONS))
    yield Result(
        name=f"explain {OPERATIONS:,} operations, against a quarter of them: time",
        subject=f"{many['s']:.0f} s",
        baseline=f"{few['s']:.0f} s",
        figure=many["s"] / few["s"],
        # Linear is four; what is above is the machine's.
        target=5.0,
        bound="at most",
    )
    yield Result(
        name=f"explain {OPERATIONS:,} operations, against a quarter of them: memory",
        subject=f"{many['kb'] / 1024:.0f} MiB",
        baseline=f"{few['kb'] / 1024:.0f} MiB",
        figure=many["kb"] / few["kb"],
        # It holds one bucket of sessions at a time, however many there are.
        target=2.0,
        bound="at most",
    )


def _explained(folder: Path, operations: int) -> dict[str, float]:
    path = folder / f"{operations}.jsonl"
    with path.open("w", encoding="ascii") as file:
        file.write(format_line(TraceHeader(fresh=True)) + "\n")
        file.writelines(format_line(line) + "\n" for line in service(operations))
        file.write('{"closed": 0}\n')
    ran = subprocess.run(
        [sys.executable, "-c", _EXPLAIN, str(path)], check=True, capture_output=True, text=True
    )
    path.unlink()
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def service(operations: int) -> Iterator[TraceOperation]:
    """What a right store shows under many conversations at once."""
    shown_: dict[int, list[str]] = {}
    for at in range(operations // 2):
        session = at % WORKERS + at // (WORKERS * APPENDS_PER_SESSION) * WORKERS
        if session not in shown_:
            shown_.pop(session - WORKERS, None)
            shown_[session] = []
        token = f"{at:012x}"
        shown_[session].append(token)
        began = at * 4_000
        name, worker = f"user-{session}", f"{session % 4}.1-t{session % WORKERS}"
        yield TraceOperation(
            session=name,
            worker=worker,
            outcome="ok",
            op="append",
            invoke_ns=began,
            complete_ns=began + 1_500,
            verb="add_message",
            ids=(token,),
            sizes=(120,),
            roles=("user",),
        )
        yield TraceOperation(
            session=name,
            worker=worker,
            outcome="ok",
            op="read",
            invoke_ns=began + 2_000,
            complete_ns=began + 3_500,
            verb="get_history",
            limit=READ,
            value=tuple(shown_[session][-READ:]),
        )
