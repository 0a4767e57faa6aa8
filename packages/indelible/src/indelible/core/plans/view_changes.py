"""Plans that change the view: trim, hide, clear, rollback and undo. No entry is deleted.

Each verb has a function `propose`, which reads the session and computes its new view. `_try_change`
asks the backend to apply it if the view is still the one that was read, and proposes again if it
is not. Appends do not change the view, so they cannot starve a change. A rollback is tried without
reading, since it depends on its snapshot alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, TypeVar

from indelible import view
from indelible.core import trim_rules
from indelible.core.codec import decode_row
from indelible.core.limits import (
    JOURNAL_LINES_MAX,
    JOURNAL_MAX,
    LABEL_BYTES_MAX,
    VIEW_ATTEMPTS_MAX,
)
from indelible.core.operations import (
    ChangeView,
    FindChange,
    Head,
    JournalLine,
    Read,
    ReadHead,
    ReadJournal,
    ReadOutline,
    ReadSnapshots,
    Rollback,
    SessionOutline,
    SnapshotList,
    SnapshotRecord,
)
from indelible.core.plan import Plan, perform, send_until_known
from indelible.core.plans.append import check_key, check_several
from indelible.core.plans.read import (
    MESSAGES,
    CountTokens,
    EntryDecoder,
    check_count,
    check_number,
    estimate_tokens,
    is_users,
)
from indelible.core.plans.sessions import list_all_sessions
from indelible.core.rules import (
    ROLLBACK,
    build_outside_error,
    is_inside,
    plan_rollback,
    refuse_if_moved,
    refuse_too_many_extents,
    require_active,
)
from indelible.core.settings import Settings, check_session_id, check_text, check_version
from indelible.errors import ConflictError, SnapshotNotFoundError, UsageError
from indelible.model import ChatMessage, Snapshot, Status, ViewChange


class Proposed(NamedTuple):
    """A change to make, and the state that it was computed from."""

    head: Head
    # The new view; None if there is nothing to change.
    after: view.View | None = None
    # Whether what is appended meanwhile is hidden, too.
    closes: bool = False
    # The key of the change that this one undoes.
    undoes: str | None = None


Proposal = Callable[[], Plan[Proposed]]

# Where the conversation that a trim leaves must begin.
Align = Literal["user"] | None

UNDO = "undo"
REDO = "redo"
HIDE = "hide"

# Names the newest snapshot of a session.
LATEST = "latest"
# Shorter beginnings of ids are not looked for.
SNAPSHOT_PREFIX_MIN = 4
SNAPSHOTS_NAMED_MAX = 5

# The message that opened a turn is rarely further away.
_OPENER_PAGE = 16


def trim(
    settings: Settings,
    session_id: str,
    *,
    keep_last: int | None,
    max_tokens: int | None,
    before: int | None,
    count_tokens: CountTokens | None,
    align: Align,
    dry_run: bool,
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
    if align not in ("user", None):
        raise UsageError(f'align is "user" or None, not {align!r}', value=align)

    def propose() -> Plan[Proposed]:
        outlined = yield from perform(ReadOutline(session))
        head, outline = outlined.head, outlined.entries
        if max_tokens is not None:
            tokens = yield from _build_token_counter(session, outlined, count_tokens)
            find_dropped = partial(trim_rules.find_over_budget, outline, max_tokens, tokens)
        else:
            cut = (
                trim_rules.find_cut_for_last(outline, keep_last)
                if keep_last is not None
                else trim_rules.find_cut_for_position(outline, before or 0)
            )
            find_dropped = partial(trim_rules.find_dropped_before, outline, cut)
        positions = find_dropped()
        if align is not None and positions:
            opener = yield from _find_turn_opener(session, outlined, positions)
            if opener is not None:
                positions = find_dropped((opener,))
        shown = head.visible
        dropped = view.coarsen(
            shown, view.from_positions(positions), extents_max=view.EXTENTS_MAX - 1
        )
        return Proposed(head, view.remove(head.view, head.end, dropped) if dropped else None)

    return (yield from _run_change(settings, session, "trim", propose, key, expected, dry_run))


def _find_turn_opener(
    session: str, outlined: SessionOutline, dropped: list[int]
) -> Plan[int | None]:
    """Find the user's message that opened the turn in which the conversation would begin.

    Returns its index in the outline; None if the conversation begins with a user's message, or has
    none before.
    """
    head, outline = outlined.head, outlined.entries
    first = trim_rules.find_first_kept(outline, dropped)
    if first is None:
        return None
    index_of = {entry.position: index for index, entry in enumerate(outline[: first + 1])}
    decoder = EntryDecoder(session, "quarantine")
    extents = view.from_positions(index_of)
    op = Read(
        session,
        head.freeze(extents),
        MESSAGES,
        _OPENER_PAGE,
        newest=True,
    )
    while True:
        page = yield from perform(op)
        for row in reversed(page.rows):
            message, index = decoder.decode(row), index_of[row.position]
            if (
                isinstance(message, ChatMessage)
                and is_users(message)
                and not outline[index].answers
            ):
                return None if outline[index].keep or index == first else index
        if page.resume is None:
            return None
        op = replace(op, start=page.resume)


def hide(
    settings: Settings,
    session_id: str,
    positions: Iterable[int],
    *,
    dry_run: bool = False,
    key: str | None = None,
    expected: str | None = None,
    change: str = HIDE,
) -> Plan[ViewChange]:
    """Hide certain positions."""
    session = check_session_id(session_id)
    unwanted = view.from_positions(
        check_number(position, "a position", least=0) for position in check_several(positions)
    )

    def propose() -> Plan[Proposed]:
        head = yield from perform(ReadHead(session))
        return _propose_hiding(session, head, unwanted, change)

    return (yield from _run_change(settings, session, change, propose, key, expected, dry_run))


def hide_found(
    settings: Settings, session: str, find: Callable[[], Plan[tuple[Head, view.Extents]]]
) -> Plan[ViewChange]:
    """Hide what `find` finds; it is called again if the view was changed meanwhile."""

    def propose() -> Plan[Proposed]:
        head, unwanted = yield from find()
        return _propose_hiding(session, head, unwanted, HIDE)

    return (yield from _run_change(settings, session, HIDE, propose, None, None))


def _propose_hiding(session: str, head: Head, unwanted: view.Extents, change: str) -> Proposed:
    after = view.remove(head.view, head.end, unwanted)
    if after == head.view:
        return Proposed(head)
    if change == HIDE:
        # Only a repair may exceed the limit: damaged entries must be hidden in any case.
        refuse_too_many_extents(session, view.freeze(after, head.end))
    return Proposed(head, after)


def clear(
    settings: Settings,
    session_id: str,
    *,
    dry_run: bool,
    key: str | None,
    expected: str | None,
) -> Plan[ViewChange]:
    """Hide all visible entries of a session."""
    session = check_session_id(session_id)

    def propose() -> Plan[Proposed]:
        head = yield from perform(ReadHead(session))
        return Proposed(head, view.View() if head.visible else None, closes=True)

    return (yield from _run_change(settings, session, "clear", propose, key, expected, dry_run))


def clear_all(settings: Settings) -> Plan[int]:
    """Clear every session; return how many had visible entries."""
    cleared = 0
    for name in (yield from list_all_sessions(None)):
        change = yield from clear(settings, name, dry_run=False, key=None, expected=None)
        cleared += bool(change.dropped)
    return cleared


def rollback(
    settings: Settings,
    session_id: str,
    snapshot_id: str,
    *,
    dry_run: bool,
    key: str | None,
    expected: str | None,
) -> Plan[ViewChange]:
    """Restore the view of a snapshot.

    The first attempt does not read the session. If the engine refuses it, the next one reads why.
    """
    session = check_session_id(session_id)
    first = Rollback(session, check_snapshot_name(snapshot_id), "", expected)

    def propose() -> Plan[Proposed]:
        found = yield from read_snapshots(session, (snapshot_id,))
        refuse_if_moved(session, expected, found.head.version)
        extents = plan_rollback(first, found.head, found.records[0]).extents
        return Proposed(found.head, view.View(extents), closes=True)

    return (
        yield from _run_change(settings, session, ROLLBACK, propose, key, expected, dry_run, first)
    )


def reverse(
    settings: Settings,
    session_id: str,
    change: Literal["undo", "redo"],
    *,
    dry_run: bool,
    key: str | None,
    expected: str | None,
) -> Plan[ViewChange]:
    """Restore the view before the newest change that can be undone, or undo that can be redone.

    Later appends stay visible.
    """
    session = check_session_id(session_id)
    find_line = find_undoable if change == UNDO else find_redoable

    def propose() -> Plan[Proposed]:
        journal = yield from perform(ReadJournal(session, JOURNAL_LINES_MAX))
        head = journal.head
        require_active(session, head.status)
        refuse_if_moved(session, expected, head.version)
        line = find_line(journal.lines)
        if line is None:
            raise UsageError(f"session {session!r} has nothing to {change}; nothing was changed")
        return Proposed(head, line.before, undoes=line.key)

    return (yield from _run_change(settings, session, change, propose, key, expected, dry_run))


def find_undone(lines: Sequence[JournalLine]) -> set[str]:
    """Return the keys of the changes that are undone, and not redone since.

    `lines` come newest first, so a change comes after what undid it.
    """
    undone: set[str] = set()
    for line in lines:
        if line.undone_by is not None and line.undone_by not in undone:
            undone.add(line.key)
    return undone


def find_undoable(lines: Sequence[JournalLine]) -> JournalLine | None:
    """Find the newest change that is not undone; `lines` come newest first.

    Lines that changed nothing are in the journal for their keys only, and are skipped.
    """
    undone = find_undone(lines)
    changes = [
        line for line in lines if line.change not in (UNDO, REDO) and line.before != line.after
    ]
    return next((line for line in changes[:JOURNAL_MAX] if line.key not in undone), None)


def find_redoable(lines: Sequence[JournalLine]) -> JournalLine | None:
    """Find the newest undo that is not redone; None if another change is newer than it."""
    undone = find_undone(lines)
    for line in lines:
        if line.change == UNDO and line.key not in undone:
            return line
        if line.change not in (UNDO, REDO) and line.before != line.after:
            return None
    return None


def read_snapshots(session: str, names: tuple[str, ...]) -> Plan[SnapshotList]:
    """Read snapshots by their names, in this order; see `find_snapshot`."""
    for name in names:
        check_snapshot_name(name)
    found = yield from perform(ReadSnapshots(session, names))
    require_active(session, found.head.status)
    there = {record.id: record for record in found.records}
    if not there.keys() >= set(names):
        found = yield from perform(ReadSnapshots(session))
        require_active(session, found.head.status)
        there = {name: find_snapshot(session, found.records, name) for name in names}
    records = tuple(there[name] for name in names)
    for record in records:
        # A snapshot may be newer than `head`, so only its own end is compared.
        if not is_inside(record.view, found.head.born, record.end):
            raise build_outside_error(session, f"snapshot {record.id} reaches outside of its log")
    return SnapshotList(found.head, records)


def check_snapshot_name(name: object) -> str:
    """Check what names a snapshot: its id, the beginning of it, or a label."""
    if isinstance(name, Snapshot):
        raise UsageError("expected the id of a snapshot: pass snapshot.id", value=name)
    return check_text(name, what="the id of a snapshot", bytes_max=LABEL_BYTES_MAX)


SnapshotT = TypeVar("SnapshotT", SnapshotRecord, Snapshot)


def find_snapshot(session: str, records: Sequence[SnapshotT], name: str) -> SnapshotT:
    """Find a snapshot by its id, its label, `latest`, or the beginning of its id.

    The first of these that fits decides. A name that fits several snapshots is refused.
    """
    fitting = (
        [record for record in records if record.id == name]
        or [record for record in records if record.label == name]
        or (list(records[-1:]) if name == LATEST else [])
        or [
            record
            for record in records
            if len(name) >= SNAPSHOT_PREFIX_MIN and record.id.startswith(name)
        ]
    )
    if not fitting:
        raise build_snapshot_not_found_error(session, name)
    if len(fitting) > 1:
        listed = ", ".join(record.id for record in fitting[-SNAPSHOTS_NAMED_MAX:])
        raise UsageError(
            f"{len(fitting)} snapshots of session {session!r} fit {name!r}; nothing was changed."
            f" Use an id: {listed}",
            value=name,
        )
    return fitting[0]


def build_snapshot_not_found_error(session: str, snapshot_id: str) -> SnapshotNotFoundError:
    """Build the error for an unknown snapshot of an existing session."""
    return SnapshotNotFoundError(
        f"session {session!r} has no snapshot {snapshot_id!r}; those it has can be listed",
        session=session,
        snapshot=snapshot_id,
    )


def _run_change(
    settings: Settings,
    session: str,
    change: str,
    propose: Proposal,
    key: str | None,
    expected: str | None,
    dry_run: bool = False,
    first: Rollback | None = None,
) -> Plan[ViewChange]:
    """Run a change under a key: the caller's or a new one, which an unknown outcome carries.

    With `dry_run`, only compute it. `first` is tried before the session is read.
    """
    check_version(expected)
    if dry_run:
        proposed = yield from propose()
        refuse_if_moved(session, expected, proposed.head.version)
        return _build_preview(session, change, proposed)
    used_key = settings.ids() if key is None else check_key(key)
    op = None if first is None else replace(first, key=used_key)
    return (
        yield from _try_change(session, change, used_key, propose, expected, op, key is not None)
    )


def _try_change(
    session: str,
    change: str,
    key: str,
    propose: Proposal,
    expected: str | None,
    op: ChangeView | Rollback | None,
    keyed: bool,
) -> Plan[ViewChange]:
    """Propose and apply a change until it is applied, found to have been applied, or refused.

    If the key is the caller's, the journal is searched for it first: an earlier call, or another
    one at the same time, may have applied the change.
    """
    fresh = not keyed
    for _ in range(VIEW_ATTEMPTS_MAX):
        if keyed:
            find = FindChange(session, change, key)
            done, _ = yield from send_until_known(find, key=key, session=session)
            if done is not None:
                return _build_result(session, done, replayed=True)
        try:
            if op is None:
                head, after, closes, undoes = yield from propose()
                refuse_if_moved(session, expected, head.version)
                if after is None:
                    if not keyed or head.status is not Status.ACTIVE:
                        return ViewChange(
                            session_id=session, change=change, key=key, version=head.version
                        )
                    # Record it although it changes nothing: a retry must not hide what was
                    # appended since the first attempt.
                    after, closes = head.view, False
                op = ChangeView(
                    session,
                    head.life,
                    head.generation,
                    head.vacuums,
                    change,
                    key,
                    after.extents,
                    None if closes else after.tail,
                    expected,
                    undoes=undoes,
                )
            answer, _ = yield from send_until_known(
                replace(op, fresh=fresh), key=key, session=session
            )
            return _build_result(session, answer.line, replayed=answer.replayed)
        except ConflictError as conflict:
            if conflict.reason != "view":
                raise
        # Sent before: from now on, the engine looks the key up.
        op, fresh = None, False
    raise ConflictError(
        f"others kept changing the view of session {session!r}; nothing was changed. Try again.",
        session=session,
        reason="view",
    )


def _build_result(session: str, line: JournalLine, *, replayed: bool) -> ViewChange:
    dropped, restored = _compare(line.before, line.after, line.end)
    return ViewChange(
        session_id=session,
        change=line.change,
        key=line.key,
        version=line.version,
        dropped=dropped,
        restored=restored,
        replayed=replayed,
    )


def _build_preview(session: str, change: str, proposed: Proposed) -> ViewChange:
    head = proposed.head
    after = head.view if proposed.after is None else proposed.after
    if proposed.closes:
        after = view.View(after.extents, head.end)
    dropped, restored = _compare(head.view, after, head.end)
    return ViewChange(
        session_id=session,
        change=change,
        key=None,
        version=head.version,
        dropped=dropped,
        restored=restored,
        dry_run=True,
    )


def _compare(
    before: view.View, after: view.View, end: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the positions that only the first view shows, and those that only the second does."""
    if before == after:
        return (), ()
    shown, shows = view.freeze(before, end), view.freeze(after, end)
    return (
        tuple(view.iter_positions(view.subtract(shown, shows))),
        tuple(view.iter_positions(view.subtract(shows, shown))),
    )


def _build_token_counter(
    session: str, outlined: SessionOutline, count_tokens: CountTokens | None
) -> Plan[Callable[[int], int]]:
    """Return a function from the index of an entry to its tokens, estimated or counted."""
    outline = outlined.entries
    if count_tokens is None:
        return lambda index: estimate_tokens(outline[index].size_bytes)
    head = outlined.head
    frozen = head.freeze()
    found = yield from perform(Read(session, frozen=frozen))
    counted: list[int] = []
    for row in found.rows:
        value = decode_row(row, session=session)
        if isinstance(value, ChatMessage):
            counted.append(count_tokens(value))
        else:
            counted.append(estimate_tokens(len(row.envelope)))
    return counted.__getitem__
