"""What the history checker takes for 100,000 operations: `python -m benchmarks.checker`."""

from __future__ import annotations

import random
import time

from memory_contract import Ok, Operation, judge

OPERATIONS = 100_000
APPENDS_PER_SESSION = 64
WORKERS = 8


def history(operations: int = OPERATIONS) -> list[Operation]:
    """What a right store shows: half appends, half reads, sessions that are changed in turn."""
    rng = random.Random(7041)
    made: list[Operation] = []
    shown: list[str] = []
    session, appended = 0, 0
    for at in range(operations):
        # Each worker's calls follow one another and overlap those of the others.
        lo = at * 10
        worker, hi = f"w{at % WORKERS}", lo + 10 * WORKERS - rng.randint(1, 20)
        name = f"c-{session:04d}"
        if at % 2:
            made.append(_read(worker, name, lo, hi, shown))
            continue
        ids = tuple(f"e{at}-{n}" for n in range(rng.choice((1, 1, 1, 2))))
        shown.extend(ids)
        appended += 1
        made.append(
            Operation(
                worker=worker,
                session=name,
                op="append",
                ids=ids,
                invoke_ns=lo,
                complete_ns=hi,
                outcome="ok",
            )
        )
        if appended == APPENDS_PER_SESSION:
            session, appended, shown = session + 1, 0, []
    return made


def _read(worker: str, session: str, lo: int, hi: int, shown: list[str]) -> Operation:
    return Operation(
        worker=worker,
        session=session,
        op="read",
        invoke_ns=lo,
        complete_ns=hi,
        outcome="ok",
        value=tuple(shown),
    )


def main() -> None:
    """Judge the history three times and print the best, as the least disturbed."""
    operations = history()
    times = []
    for _ in range(3):
        began = time.process_time()
        verdict = judge(operations)
        times.append(time.process_time() - began)
        assert isinstance(verdict, Ok), verdict
    seen = sum(len(op.value or ()) for op in operations)
    print(
        f"{len(operations):,} operations that saw {seen:,} entries: {min(times):.2f} s of one core"
    )


if __name__ == "__main__":
    main()
