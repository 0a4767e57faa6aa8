"""Plans that change the view: trim, hide, clear, rollback and undo. No entry is deleted.

Each verb has a function `propose`, which reads the session and computes the change. `_try_change`
asks the backend to apply it if the view is still the one that was read, and proposes again if it
is not. Appends do not change the view, so they cannot starve a change. A rollback is tried without
reading, since it depends on its snapshot alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

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
    FindChange,
    FrozenView,
    Head,
    JournalLine,
    ListSessions,
    Read,
    ReadHead,
    ReadJournal,
    ReadOutline,
    ReadSnapshots,
    Rollback,
    SessionOutline,
    SnapshotList,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.append import check_key
from indelible.core.plans.read import CountTokens, check_count, estimate_tokens
from indelible.core.rules import (
    ROLLBACK,
    build_outside_error,
    is_inside,
    plan_rollback,
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

# Given a key, reads the session and returns the change to make, or the head if there is none.
Proposal = Callable[[str], Plan[ChangeView | Rollback | Head]]

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
    """Hide the oldest entries of a session, except those that must stay."""
    session = check_session_id(session_id)
    if sum(rule is not None for rule in (keep_last, max_tokens, before)) != 1:
        raise UsageError("trim takes exactly one of keep_last=, max_tokens= and before=")
    check_count(keep_last, "keep_last")
    check_count(max_tokens, "max_tokens")
    check_count(before, "before")

    def propose(new_key: str) -> Plan[ChangeView | Rollback | Head]:
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
            tokens = yield from _build_token_counter(session, outlined, count_tokens)
            positions = trim_rules.find_over_budget(outline, max_tokens, tokens)
        shown = view.freeze(head.view, head.end)
        dropped = view.coarsen(
            shown, view.from_positions(positions), extents_max=view.EXTENTS_MAX - 1
        )
        if not dropped:
            return head
        after = view.remove(head.view, head.end, dropped)
        return _build_change("trim", session, head, new_key, after, expected)

    return (yield from _run_change(settings, session, "trim", propose, key, expected))


def hide(
    settings: Settings,
    session_id: str,
    positions: Iterable[int],
    *,
    key: str | None = None,
    expected: str | None = None,
    change: str = HIDE,
) -> Plan[ViewChange]:
    """Hide certain positions."""
    session = check_session_id(session_id)
    unwanted = view.from_positions(check_positions(positions))

    def propose(new_key: str) -> Plan[ChangeView | Rollback | Head]:
        head = yield from perform(ReadHead(session))
        refuse_if_moved(session, expected, head.version)
        after = view.remove(head.view, head.end, unwanted)
        if after == head.view:
            return head
        if change == HIDE:
            # Only a repair may exceed the limit: damaged entries must be hidden in any case.
            refuse_too_many_extents(session, view.freeze(after, head.end))
        return _build_change(change, session, head, new_key, after, expected)

    return (yield from _run_change(settings, session, change, propose, key, expected))


def check_positions(positions: Iterable[int]) -> list[int]:
    """Check that each position is a number from 0 up."""
    return [check_count(position, "a position") or 0 for position in positions]


def clear(
    settings: Settings, session_id: str, *, key: str | None, expected: str | None
) -> Plan[ViewChange]:
    """Hide all visible entries of a session."""
    session = check_session_id(session_id)

    def propose(new_key: str) -> Plan[ChangeView | Rollback | Head]:
        head = yield from perform(ReadHead(session))
        refuse_if_moved(session, expected, head.version)
        if not view.freeze(head.view, head.end):
            return head
        return ChangeView(
            session,
            head.life,
            head.generation,
            head.vacuums,
            "clear",
            new_key,
            extents=(),
            tail=None,
            expected=expected,
        )

    return (yield from _run_change(settings, session, "clear", propose, key, expected))


def clear_all(settings: Settings) -> Plan[int]:
    """Clear every session; return how many had visible entries."""
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
    """Restore the view of a snapshot.

    The first attempt does not read the session. If the engine refuses it, the next one reads why.
    """
    session = check_session_id(session_id)
    tried = not is_text(snapshot_id)

    def propose(new_key: str) -> Plan[ChangeView | Rollback | Head]:
        nonlocal tried
        op = Rollback(session, snapshot_id, new_key, expected)
        if not tried:
            tried = True
            return op
        found = yield from read_snapshots(session, (snapshot_id,))
        refuse_if_moved(session, expected, found.head.version)
        return plan_rollback(op, found.head, found.records[0])

    return (yield from _run_change(settings, session, ROLLBACK, propose, key, expected))


def undo(
    settings: Settings, session_id: str, *, key: str | None, expected: str | None
) -> Plan[ViewChange]:
    """Undo the newest change of the view that is not undone yet; later appends stay visible."""
    session = check_session_id(session_id)

    def propose(new_key: str) -> Plan[ChangeView | Rollback | Head]:
        journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
        head = journal.head
        require_active(session, head)
        refuse_if_moved(session, expected, head.version)
        line = find_undoable(journal.lines)
        if line is None:
            raise UsageError(f"session {session!r} has no change to undo; nothing was changed")
        return replace(
            _build_change(UNDO, session, head, new_key, line.before, expected), undoes=line.key
        )

    return (yield from _run_change(settings, session, UNDO, propose, key, expected))


def find_undoable(lines: tuple[JournalLine, ...]) -> JournalLine | None:
    """Find the newest change that is not undone yet; `lines` come newest first.

    Lines that changed nothing are in the journal for their keys only, and are skipped.
    """
    changes = [line for line in lines if line.change != UNDO and line.before != line.after]
    return next((line for line in changes[:JOURNAL_MAX] if line.undone_by is None), None)


def require_active(session: str, head: Head) -> None:
    """Raise if the session is new or expired."""
    if head.status is not Status.ACTIVE:
        raise SessionNotFoundError(
            f"there is no session {session!r}"
            + (": it expired" if head.status is Status.EXPIRED else ""),
            session=session,
            status=head.status,
        )


def read_snapshots(session: str, ids: tuple[str, ...]) -> Plan[SnapshotList]:
    """Read snapshots by their ids, in this order; an unknown id is an error."""
    if any(isinstance(name, Snapshot) for name in ids):
        raise UsageError("expected the id of a snapshot: pass snapshot.id")
    # Ids that are not valid text cannot exist; do not send them to the engine.
    valid = tuple(filter(is_text, ids))
    found = yield from perform(ReadSnapshots(session, valid))
    require_active(session, found.head)
    there = [record.id for record in found.records]
    for name in ids:
        if name not in there:
            raise build_snapshot_not_found_error(session, name)
    for record in found.records:
        # A snapshot may be newer than `head`, so only its own end is compared.
        if not is_inside(record.view, found.head.born, record.end):
            raise build_outside_error(session, f"snapshot {record.id} reaches outside of its log")
    return found


def is_text(name: object) -> bool:
    """Return whether a value is text that can be encoded, as every stored name is."""
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def build_snapshot_not_found_error(session: str, snapshot_id: str) -> SnapshotNotFoundError:
    """Build the error for an unknown snapshot of an existing session."""
    return SnapshotNotFoundError(
        f"session {session!r} has no snapshot {snapshot_id!r}; list_snapshots returns those it has",
        session=session,
        snapshot=snapshot_id,
    )


def _build_change(
    change: str,
    session: str,
    head: Head,
    key: str,
    after: view.View,
    expected: str | None,
) -> ChangeView:
    return ChangeView(
        session,
        head.life,
        head.generation,
        head.vacuums,
        change,
        key,
        after.extents,
        after.tail,
        expected,
    )


def _run_change(
    settings: Settings,
    session: str,
    change: str,
    propose: Proposal,
    key: str | None,
    expected: str | None,
) -> Plan[ViewChange]:
    """Run a change under a key: the caller's or a new one, which an unknown outcome carries."""
    check_version(expected)
    used_key = settings.ids() if key is None else check_key(key)
    attempts = _try_change(session, change, used_key, propose, expected, keyed=key is not None)
    try:
        return (yield from attempts)
    except OutcomeUnknownError as error:
        raise error.copy(key=used_key, session=session) from error.__cause__


def _try_change(  # noqa: C901 (one loop, and every way out of it)
    session: str,
    change: str,
    key: str,
    propose: Proposal,
    expected: str | None,
    *,
    keyed: bool,
) -> Plan[ViewChange]:
    """Propose and apply a change until it is applied, found to have been applied, or refused.

    The journal is searched for the key first if the change may have been applied already: the key
    is the caller's, or the outcome of an earlier attempt is unknown.
    """
    unknown: OutcomeUnknownError | None = None
    for _ in range(VIEW_ATTEMPTS_MAX):
        fresh = not keyed and unknown is None
        try:
            if not fresh:
                done = yield from perform(FindChange(session, change, key))
                if done is not None:
                    return _build_result(session, done, replayed=True)
            proposed = yield from propose(key)
            if isinstance(proposed, Head):
                if not keyed or proposed.status is not Status.ACTIVE:
                    return ViewChange(
                        session_id=session, change=change, key=key, version=proposed.version
                    )
                # Record it although it changes nothing: a retry must not hide what was appended
                # since the first attempt.
                proposed = _build_change(change, session, proposed, key, proposed.view, expected)
            answer = yield from perform(replace(proposed, fresh=fresh))
            return _build_result(session, answer.line, replayed=answer.replayed)
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
            # This attempt changed nothing, but the one before may have.
            raise unknown from error
    raise ConflictError(
        f"others kept changing the view of session {session!r}; nothing was changed. Try again.",
        session=session,
        reason="view",
    )


def _build_result(session: str, line: JournalLine, *, replayed: bool) -> ViewChange:
    dropped: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    if line.before != line.after:
        before = view.freeze(line.before, line.end)
        after = view.freeze(line.after, line.end)
        dropped = tuple(view.iter_positions(view.subtract(before, after)))
        restored = tuple(view.iter_positions(view.subtract(after, before)))
    return ViewChange(
        session_id=session,
        change=line.change,
        key=line.key,
        version=line.version,
        dropped=dropped,
        restored=restored,
        replayed=replayed,
    )


def _build_token_counter(
    session: str, outlined: SessionOutline, count_tokens: CountTokens | None
) -> Plan[Callable[[int], int]]:
    """Return a function from the index of an entry to its tokens, estimated or counted."""
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
