"""The record of a writer, which survives its process.

Each call is written before it is made, so that every entry of a killed process was announced. Its
answer is written together with the next call; if the process is killed before that, the outcome of
the call is unknown, which may hide a defect but never causes a false alarm.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from memory_contract.history import Ids, Operation, OpName, Outcome


class Record:
    """The file of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._answers: list[str] = []
        self._calls = 0

    def begin(
        self,
        worker: str,
        session: str,
        op: OpName,
        *,
        ids: Ids = (),
        keep: int = 0,
        snapshot: str = "",
        key: str = "",
    ) -> int:
        """Announce a call; return its number."""
        self._calls += 1
        fields = (worker, session, op, ",".join(ids), str(keep), snapshot, key)
        line = f"?{self._calls}\t{time.monotonic_ns()}\t" + "\t".join(fields) + "\n"
        os.write(self._file, ("".join(self._answers) + line).encode())
        self._answers.clear()
        return self._calls

    def end(self, call: int, outcome: Outcome, value: Ids | None = None) -> None:
        """Note the result of a call; it is written with the next one."""
        seen = "-" if value is None else ",".join(value)
        self._answers.append(f"!{call}\t{time.monotonic_ns()}\t{outcome}\t{seen}\n")

    def close(self) -> None:
        """Write the last answers."""
        os.write(self._file, "".join(self._answers).encode())
        os.close(self._file)


def parse_record(path: Path) -> Iterator[Operation]:
    """Yield the calls of a record in the order in which they were made."""
    begun: dict[str, list[str]] = {}
    ended: dict[str, list[str]] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            # The last one may be cut short: the process was.
            if line.endswith("\n"):
                call, *fields = line[1:-1].split("\t")
                (begun if line[0] == "?" else ended)[call] = fields
    for call, (began, worker, session, op, ids, keep, snapshot, key) in begun.items():
        end, outcome, value = ended.get(call, ("", "info", "-"))
        yield Operation(
            worker=worker,
            session=session,
            op=op,  # type: ignore[arg-type]
            invoke_ns=int(began),
            complete_ns=int(end) if end else None,
            outcome=outcome,  # type: ignore[arg-type]
            ids=_split(ids),
            keep=int(keep) if op == "trim" else None,
            snapshot=snapshot or None,
            key=key or None,
            value=None if value == "-" else _split(value),
        )


def _split(text: str) -> Ids:
    return tuple(text.split(",")) if text else ()
