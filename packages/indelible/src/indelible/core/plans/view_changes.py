"""Verbs that change what a session shows. They move the view; no entry is rewritten or deleted.

Each looks at the session, computes the new view, and asks for the change if the view is still the
one it looked at. Appends do not count as a change of the view, so none of these starves under load.
A rollback need not look: what it shows was written down before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from indelible import view
from indelible.core import trim_rules
from indelible.core.codec import decode
from indelible.core.limits import (
    JOURNAL_LINES_MAX,
    JOURNAL_MAX,
    PAGE_ENTRIES_MAX,
    VIEW_ATTEMPTS_MAX,
)
from indelible.core.operations import (
    ChangeView,
    FrozenView,
    Head,
    JournalLine,
    ListSessions,
    Read,
    ReadHead,
    ReadJournal,
    ReadOutline,
    ReadSnapshots,
    SessionOutline,
    SnapshotList,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.append import check_key
from indelible.core.plans.read import CountTokens, check_count, estimate_tokens
from indelible.core.rules import (
    build_outside_error,
    is_inside,
    refuse_if_moved,
    refuse_too_many_extents,
)
from indelible.core.settings import Settings, check_session_id, check_version
from indelible.errors import (
    ClosedError,
    ConflictError,
    FormatError,
    MemoryStoreBackendError,
    OutcomeUnknownError,
    SessionNotFoundError,
    SnapshotNotFoundError,
    UsageError,
)
from indelible.model import ChatMessage, Snapshot, Status, ViewChange

# Looks at the session; gives the change to ask for, or the head if there is nothing to change.
Proposal = Callable[[str], Plan[ChangeView | Head]]

UNDO = "undo"
HIDE = "hide"


def trim(
    settings: Settings,
    session_id: str,
    *,
    keep_last: int | None,
    max_tokens: int | None,
    before: int | None,
    count_tokens: CountTokens | None,
    key: str | None,
    expected: str | None,
) -> Plan[ViewChange]:
    """Let go of the front of a session, but for what must stay."""
    session = check_session_id(session_id)
    if sum(rule is not None for rule in (keep_last, max_tokens, before)) != 1:
        raise UsageError("trim takes exactly one of keep_last=, max_tokens= and before=")
    check_count(keep_last, "keep_last")
    check_count(max_tokens, "max_tokens")
    check_count(before, "before")

    def propose(operation: str) -> Plan[ChangeView | Head]:
        outlined = yield from perform(ReadOutline(session))
        head, outline = outlined.head, outlined.entries
        refuse_if_moved(session, expected, head.version)
        if keep_last is not None:
            cut = trim_rules.find_cut_for_last(outline, keep_last)
            positions = trim_rules.find_dropped_before(outline, cut)
        elif before is not None:
            cut = trim_rules.find_cut_for_position(outline, before)
            positions = trim_rules.find_dropped_before(outline, cut)
        else:
            assert max_tokens is not None
            tokens = yield from _token_counter(session, outlined, count_tokens)
            positions = trim_rules.find_over_budget(outline, max_tokens, tokens)
        shown = view.freeze(head.view, head.end)
        dropped = view.coarsen(
            shown, view.from_positions(positions), extents_max=view.EXTENTS_MAX - 1
        )
        if not dropped:
            return head
        after = view.remove(head.view, head.end, dropped)
        return _change("trim", session, head, operation, after, expected)

    return (yield from _changed(settings, session, "trim", propose, key, expected))


def hide(
    settings: Settings,
    session_id: str,
    positions: Iterable[int],
    *,
    key: str | None = None,
    expected: str | None = None,
    change: str = HIDE,
) -> Plan[ViewChange]:
    """Let go of certain positions."""
    session = check_session_id(session_id)
    unwanted = view.from_positions(check_positions(positions))

    def propose(operation: str) -> Plan[ChangeView | Head]:
        head = yield from perform(ReadHead(session))
        refuse_if_moved(session, expected, head.version)
        after = view.remove(head.view, head.end, unwanted)
        if after == head.view:
            return head
        if change == HIDE:
            # What cannot be read must go whatever it tears; what is hidden at will need not.
            refuse_too_many_extents(session, view.freeze(after, head.end))
        return _change(change, session, head, operation, after, expected)

    return (yield from _changed(settings, session, change, propose, key, expected))


def check_positions(positions: Iterable[int]) -> list[int]:
    """Positions, each a number from 0 up."""
    return [check_count(position, "a position") or 0 for position in positions]


def clear(
    settings: Settings, session_id: str, *, key: str | None, expected: str | None
) -> Plan[ViewChange]:
    """Let go of everything that a session shows."""
    session = check_session_id(session_id)

    def propose(operation: str) -> Plan[ChangeView | Head]:
        head = yield from perform(ReadHead(session))
        refuse_if_moved(session, expected, head.version)
        if not view.freeze(head.view, head.end):
            return head
        return ChangeView(
            session,
            head.life,
            head.generation,
            "clear",
            operation,
            extents=(),
            tail=None,
            expected=expected,
            vacuums=head.vacuums,
        )

    return (yield from _changed(settings, session, "clear", propose, key, expected))


def clear_all(settings: Settings) -> Plan[int]:
    """Clear every session; says how many showed anything."""
    cleared = 0
    resume: str | None = None
    while True:
        page = yield from perform(ListSessions("", resume, PAGE_ENTRIES_MAX))
        for name in page.names:
            change = yield from clear(settings, name, key=None, expected=None)
            cleared += bool(change.dropped)
        resume = page.resume
        if resume is None:
            return cleared


def rollback(
    settings: Settings,
    session_id: str,
    snapshot_id: str,
    *,
    key: str | None,
    expected: str | None,
) -> Plan[ViewChange]:
    """Show exactly what a snapshot froze. Every snapshot stays, earlier and later ones alike.

    The engine is asked for it at once. Only if it cannot do that, a look finds out why.
    """
    session = check_session_id(session_id)
    looks = not is_text(snapshot_id)

    def propose(operation: str) -> Plan[ChangeView | Head]:
        nonlocal looks
        if not looks:
            looks = True
            return ChangeView(
                session, "", 0, "rollback", operation, (), None, expected, snapshot=snapshot_id
            )
        found = yield from read_named(session, (snapshot_id,))
        head, record = found.head, found.records[0]
        refuse_if_moved(session, expected, head.version)
        frozen = view.freeze(record.view, record.end)
        return ChangeView(
            session,
            head.life,
            head.generation,
            "rollback",
            operation,
            extents=frozen,
            tail=None,
            expected=expected,
            vacuums=head.vacuums,
        )

    return (yield from _changed(settings, session, "rollback", propose, key, expected))


def undo(
    settings: Settings, session_id: str, *, key: str | None, expected: str | None
) -> Plan[ViewChange]:
    """Take back the newest change of the view that is not yet undone; later appends stay."""
    session = check_session_id(session_id)

    def propose(operation: str) -> Plan[ChangeView | Head]:
        journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
        head = journal.head
        require_active(session, head)
        refuse_if_moved(session, expected, head.version)
        line = find_undoable(journal.lines)
        if line is None:
            raise UsageError(f"session {session!r} has no change that could be undone")
        op = _change(UNDO, session, head, operation, line.before, expected)
        op.undoes = line.operation
        return op

    return (yield from _changed(settings, session, UNDO, propose, key, expected))


def find_undoable(lines: tuple[JournalLine, ...]) -> JournalLine | None:
    """The newest change that is not yet undone, of the newest ones; lines come newest first.

    A change that changed nothing, written down for the sake of its key, is none.
    """
    changes = [line for line in lines if line.change != UNDO and line.before != line.after]
    return next((line for line in changes[:JOURNAL_MAX] if line.undone_by is None), None)


def require_active(session: str, head: Head) -> None:
    """Raise if there is no session to work on."""
    if head.status is not Status.ACTIVE:
        raise SessionNotFoundError(
            f"there is no session {session!r}"
            + (": it expired" if head.status is Status.EXPIRED else ""),
            session=session,
            status=head.status,
        )


def read_named(session: str, ids: tuple[str, ...]) -> Plan[SnapshotList]:
    """The named snapshots, in this order; one that is not there is an error."""
    if any(isinstance(name, Snapshot) for name in ids):
        raise UsageError("a snapshot is named by its id: hand in snapshot.id")
    # What is no text names no snapshot, and no engine need be asked about it.
    askable = tuple(filter(is_text, ids))
    found = yield from perform(ReadSnapshots(session, askable))
    require_active(session, found.head)
    there = [record.id for record in found.records]
    for name in ids:
        if name not in there:
            raise snapshot_not_found(session, name)
    for record in found.records:
        # A snapshot may be newer than the look at the session, so only its own end is asked for.
        if not is_inside(record.view, found.head.born, record.end):
            raise build_outside_error(session, f"snapshot {record.id} reaches outside of its log")
    return found


def is_text(name: object) -> bool:
    """Whether something can be the name of anything stored."""
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def snapshot_not_found(session: str, snapshot_id: str) -> SnapshotNotFoundError:
    """The session is there; the snapshot is not."""
    return SnapshotNotFoundError(
        f"session {session!r} has no snapshot {snapshot_id!r}; list_snapshots names those it has",
        session=session,
        snapshot=snapshot_id,
    )


def _change(
    change: str,
    session: str,
    head: Head,
    operation: str,
    after: view.View,
    expected: str | None,
) -> ChangeView:
    return ChangeView(
        session,
        head.life,
        head.generation,
        change,
        operation,
        after.extents,
        after.tail,
        expected,
        vacuums=head.vacuums,
    )


def _changed(
    settings: Settings,
    session: str,
    change: str,
    propose: Proposal,
    key: str | None,
    expected: str | None,
) -> Plan[ViewChange]:
    """Ask for a change until it is done, known to be done, or refused."""
    check_version(expected)
    operation = settings.ids() if key is None else check_key(key)
    attempts = _attempts(session, change, operation, propose, expected, keyed=key is not None)
    try:
        return (yield from attempts)
    except OutcomeUnknownError as error:
        raise error.copy(key=operation, session=session) from error.__cause__


def _attempts(  # noqa: C901 (one loop, and every way out of it)
    session: str,
    change: str,
    operation: str,
    propose: Proposal,
    expected: str | None,
    *,
    keyed: bool,
) -> Plan[ViewChange]:
    unknown: OutcomeUnknownError | None = None
    for _ in range(VIEW_ATTEMPTS_MAX):
        try:
            if keyed or unknown is not None:
                done = yield from _done_before(session, change, operation)
                if done is not None:
                    return _result(session, done, replayed=True)
            proposed = yield from propose(operation)
            if isinstance(proposed, Head):
                if not keyed or proposed.status is not Status.ACTIVE:
                    return _nothing(session, change, operation, proposed)
                # Written down all the same: a retry must not find more to do than its first try.
                proposed = _change(change, session, proposed, operation, proposed.view, expected)
            proposed.fresh = not keyed and unknown is None
            answer = yield from perform(proposed)
            return _result(session, answer.line, replayed=answer.replayed)
        except ConflictError as conflict:
            if conflict.reason != "view":
                raise
        except OutcomeUnknownError as error:
            if unknown is not None or error.details.get("exhausted"):
                raise
            unknown = error
        except (MemoryStoreBackendError, FormatError, ClosedError) as error:
            if unknown is None:
                raise
            # That nothing was changed now does not say that nothing was before.
            raise unknown from error
    raise ConflictError(
        f"others kept changing what session {session!r} shows; nothing was changed. Try again.",
        session=session,
        reason="view",
    )


def _nothing(session: str, change: str, operation: str, head: Head) -> ViewChange:
    return ViewChange(session_id=session, change=change, key=operation, version=head.version)


def _done_before(session: str, change: str, operation: str) -> Plan[JournalLine | None]:
    """The line of an operation that was done, which the engine makes sure of; else None."""
    try:
        # A change that fits no session: only one that was done before has an answer.
        answer = yield from perform(ChangeView(session, "", -1, change, operation, (), None))
    except ConflictError as conflict:
        if conflict.reason != "view":
            raise
        return None
    return answer.line


def _result(session: str, line: JournalLine, *, replayed: bool) -> ViewChange:
    dropped: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    if line.before != line.after:
        before = view.freeze(line.before, line.end)
        after = view.freeze(line.after, line.end)
        dropped = tuple(view.positions(view.subtract(before, after)))
        restored = tuple(view.positions(view.subtract(after, before)))
    return ViewChange(
        session_id=session,
        change=line.change,
        key=line.operation,
        version=line.version,
        dropped=dropped,
        restored=restored,
        replayed=replayed,
    )


def _token_counter(
    session: str, outlined: SessionOutline, count_tokens: CountTokens | None
) -> Plan[Callable[[int], int]]:
    """How many tokens an entry takes: from its stored size, or counted by the caller's function."""
    outline = outlined.entries
    if count_tokens is None:
        return lambda index: estimate_tokens(outline[index].size_bytes)
    head = outlined.head
    frozen = FrozenView(head.life, view.freeze(head.view, head.end), head.version, head.vacuums)
    found = yield from perform(Read(session, frozen=frozen))
    counted: list[int] = []
    for row in found.rows:
        value = decode(
            row.kind,
            row.envelope,
            session=session,
            position=row.position,
            content=row.content,
        )
        if isinstance(value, ChatMessage):
            counted.append(count_tokens(value))
        else:
            counted.append(estimate_tokens(len(row.envelope)))
    return counted.__getitem__
