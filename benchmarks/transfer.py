"""Export and import of a million entries: streamed, so the memory of the process stays flat."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import indelible
from benchmarks.measure import Result
from indelible import ChatMessage

ENTRIES = 1_000_000

# In a process of its own: what it grew by is what the work needed.
WORK = """
import sys, time
import indelible

def peak_mib():
    # Not ru_maxrss, which a process inherits from the one that started it.
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024

verb, source, target, entries = sys.argv[1:]
with indelible.open(source if verb == "export" else target, durability="process") as store:
    store.session("s")
    before, started = peak_mib(), time.perf_counter()
    report = store.export(target) if verb == "export" else store.import_(source)
    assert report.entries == int(entries)
    print(peak_mib() - before, report.entries / (time.perf_counter() - started))
"""


def all_results(folder: Path) -> Iterator[Result]:
    """Export a long session, and import it again."""
    with indelible.open(folder / "million.db", durability="process") as store:
        batch = [ChatMessage(role="user", content=f"message {n}") for n in range(1000)]
        for _ in range(ENTRIES // len(batch)):
            store.add_messages("s", batch)
    for verb, source, target in (
        ("export", "million.db", "million.jsonl"),
        ("import", "million.jsonl", "again.db"),
    ):
        paths = (str(folder / source), str(folder / target))
        command = [sys.executable, "-c", WORK, verb, *paths, str(ENTRIES)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        grown_mib, rate = map(float, done.stdout.split())
        yield Result(
            name=f"memory that an {verb} of {ENTRIES:,} entries takes",
            subject=f"{rate:,.0f} entries/s",
            baseline="",
            figure=grown_mib,
            target=64,
            bound="at most",
            unit=" MiB",
        )
