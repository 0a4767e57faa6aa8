"""The audit of a session: a line for each change, in a chain of keyed hashes.

A line says who changed what, when, and at which version. Its hash is an HMAC over the line before,
the session and the line itself. So `verify` detects a line that was changed, removed, added or
moved without the key. It detects that the newest lines were cut off only if it is given their hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from indelible.core import rules
from indelible.core.operations import (
    Append,
    Audited,
    ChangeView,
    DeleteSnapshot,
    Erase,
    EraseItem,
    FindItems,
    Quarantine,
    Read,
    ReadLog,
    Rollback,
    SaveSnapshot,
    SetMetadata,
    ShowStage,
    StoredLine,
)
from indelible.core.plan import Operation
from indelible.errors import MemoryStoreError, UsageError

# What a line calls a change. View changes are not here: their own name is used.
_NAMES: Final[dict[type[Operation[Any]], str]] = {
    Append: "append",
    Rollback: "rollback",
    SaveSnapshot: "save snapshot",
    DeleteSnapshot: "delete snapshot",
    SetMetadata: "set metadata",
    ShowStage: "create",
    Quarantine: "quarantine",
    EraseItem: "erase memory",
    Erase: "forget",
}
# Changes that leave the version of a session as it is; what has no name here changes its view.
_KEPT_VERSION: Final = frozenset((*_NAMES.values(), "read")) - {"append", "rollback"}
_READS: Final = (Read, ReadLog, FindItems)
# Reads are written once this many are pending: one line for each session and actor.
READS_MAX: Final = 100

# Where the key is taken from if `open` is given none.
KEY_VARIABLE: Final = "INDELIBLE_AUDIT_KEY"
# As long as a key that cannot be guessed must be, if it is random.
KEY_BYTES_MIN: Final = 16
ACTOR_CHARS_MAX: Final = 200

_LOGGER: Final = logging.getLogger("indelible.audit")

_actor: ContextVar[str | None] = ContextVar("indelible_actor", default=None)


@contextmanager
def actor(name: str) -> Iterator[None]:
    """Attribute the audited changes inside of this block to `name`."""
    token = _actor.set(_check_actor(name))
    try:
        yield
    finally:
        _actor.reset(token)


class LineContent(NamedTuple):
    """What a line says, apart from its place in the chain."""

    at_ms: int
    actor: str
    change: str
    # How many entries were appended, or reads were made.
    total: int
    # Of the session, before the change.
    version: str


def build_line(op: Audited[Any], newest: StoredLine | None, at_ms: int, version: str) -> StoredLine:
    """Build the line that follows the newest one of a session."""
    number = 0 if newest is None else newest.number + 1
    content = LineContent(at_ms, op.actor, op.name, op.count, version)
    text = json.dumps([number, *content], ensure_ascii=True, separators=(",", ":"))
    before = "" if newest is None else newest.hash
    return StoredLine(number, text, compute_hash(op.key, op.session, before, text))


def parse_line(line: StoredLine) -> LineContent:
    """Return what a line says; a `ValueError` if it is none."""
    number, *content = json.loads(line.text)
    if number != line.number:
        raise ValueError(line.text)
    return LineContent(*content)


def compute_hash(key: bytes, session: str, before: str, text: str) -> str:
    """Compute the hash of a line that follows the line with the hash `before`."""
    # Neither a hash nor a line holds a zero.
    chained = f"{before}\0{text}\0{session}".encode("utf-8", "surrogatepass")
    return hmac.new(key, chained, hashlib.sha256).hexdigest()


def find_wrong_line(key: bytes, session: str, lines: Sequence[StoredLine]) -> int | None:
    """Return the number of the first line that is not in its place, or has a wrong hash."""
    before = ""
    for number, line in enumerate(lines):
        expected = compute_hash(key, session, before, line.text)
        if line.number != number or not hmac.compare_digest(expected, line.hash):
            return number
        before = line.hash
    return None


def build_audit(asked: object, key: bytes | None, default_actor: object) -> Audit | None:
    """Check the options of an audit; None if there is to be none."""
    if not (isinstance(asked, bool) or asked == "reads"):
        raise UsageError(f'audit is True, False or "reads", not {asked!r}', value=asked)
    if asked is False:
        if key is not None or default_actor:
            raise UsageError("audit_key and actor are for audit=True; nothing was opened")
        return None
    secret = os.environ.get(KEY_VARIABLE, "").encode() if key is None else key
    if not isinstance(secret, bytes) or len(secret) < KEY_BYTES_MIN:
        raise UsageError(
            f"audit needs a secret of {KEY_BYTES_MIN} bytes or more: audit_key, or the environment"
            f" variable {KEY_VARIABLE}; nothing was opened"
        )
    return Audit(secret, _check_actor(default_actor), asked == "reads")


def _check_actor(name: object) -> str:
    if not isinstance(name, str) or len(name) > ACTOR_CHARS_MAX:
        raise UsageError(
            f"an actor is text of up to {ACTOR_CHARS_MAX} characters, not {name!r:.60}"
        )
    return name


def predict_version(content: LineContent) -> str | None:
    """Return the version that a change leaves; None if it begins or ends a life of the session."""
    try:
        life, end, generation = rules.parse_version(content.version)
    except ValueError:
        return None
    if content.change in (_NAMES[ShowStage], _NAMES[Erase]):
        return None
    if content.change == _NAMES[Append]:
        end += content.total
    elif content.change not in _KEPT_VERSION:
        generation += 1
    return rules.build_version(life, end, generation)


@dataclass(slots=True)
class Audit:
    """How a store is audited."""

    key: bytes = field(repr=False)
    actor: str
    with_reads: bool
    # Session and actor of each read whose line was not written yet. Threads share it.
    _reads: deque[tuple[str, str]] = field(default_factory=deque, repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    def wrap(self, perform: Callable[[Operation[Any]], Any]) -> Callable[[Operation[Any]], Any]:
        """Wrap `perform`: an operation that changes a session also adds a line."""

        def perform_audited(op: Operation[Any]) -> Any:
            if isinstance(op, _READS):
                self.count_reads([op.session])
            return perform(self._add_line(op))

        return perform_audited

    def count_reads(self, sessions: Iterable[str]) -> None:
        """Count a read of each of these sessions, if reads are audited."""
        if self.with_reads:
            self._reads.extend((session, self._get_actor()) for session in sessions)

    def take_reads(self, *, least: int) -> list[Audited[None]]:
        """Return the lines for reads that were not written yet, if there are that many."""
        due: Counter[tuple[str, str]] = Counter()
        if self._process != os.getpid():
            # A forked child: its parent writes these.
            self._reads.clear()
            self._process = os.getpid()
        if len(self._reads) >= least:
            with suppress(IndexError):
                while True:
                    due[self._reads.popleft()] += 1
        return [
            Audited(None, session, name, "read", count, self.key)
            for (session, name), count in due.items()
        ]

    def put_back(self, lines: Iterable[Audited[None]]) -> None:
        """Keep reads for later whose lines were not written."""
        for line in lines:
            self._reads.extend([(line.session, line.actor)] * line.count)

    def note_failure(self, line: Audited[None], error: MemoryStoreError) -> None:
        """Keep reads for later whose line was not written; drop them if a retry cannot help."""
        if error.retryable and error.landed == "no":
            self.put_back([line])
        else:
            _LOGGER.warning("a line of reads was not written: %s", type(error).__name__)

    def _add_line(self, op: Operation[Any]) -> Operation[Any]:
        if isinstance(op, ChangeView):
            name = op.change
        elif type(op) in _NAMES:
            name = _NAMES[type(op)]
        else:
            return op
        count = len(op.drafts) if isinstance(op, Append) else 0
        session: str = op.session  # type: ignore[attr-defined]
        return Audited(op, session, self._get_actor(), name, count, self.key)

    def _get_actor(self) -> str:
        return _actor.get() or self.actor
