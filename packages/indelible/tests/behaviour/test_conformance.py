"""Every engine answers every operation as the reference does, which is the memory backend.

Random programs of operations are performed on both, and each result or error is compared. Only
what an engine is free to choose is left out: the tokens of lives, checksums that it keeps for
itself, and the places from which it cannot erase.
"""

import collections
import dataclasses
import itertools

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import indelible
from indelible import ChatMessage, Kind, MemoryStoreError, Status, StoredMemory, ToolCall
from indelible.core import operations
from indelible.core.audit import Audit, parse_line
from indelible.core.codec import encode
from indelible.core.operations import (
    Append,
    Audited,
    BeginStage,
    ChangeView,
    CheckEngine,
    CheckSession,
    DeleteSnapshot,
    DropStage,
    Erase,
    EraseItem,
    EraseResult,
    FindChange,
    FindItems,
    FindMatches,
    FindRisks,
    FrozenView,
    Head,
    Identify,
    IndexText,
    ItemGuard,
    ItemPlace,
    ListAudits,
    ListSessions,
    LogPage,
    LogRow,
    Quarantine,
    Read,
    ReadAudit,
    ReadCursorKey,
    ReadFound,
    ReadHead,
    ReadJournal,
    ReadLog,
    ReadOutline,
    ReadQuarantine,
    ReadSnapshots,
    Reclaim,
    Rollback,
    SaveSnapshot,
    Scrub,
    SessionOrder,
    SessionPage,
    SetMetadata,
    ShowStage,
    Stage,
    StageRows,
    StoredEntry,
    StoredLine,
)
from indelible.core.plan import Operation
from indelible.core.rules import NEW_VERSION
from indelible.core.session_list import ORDERS, parse_where
from indelible.view import View, freeze, iter_positions, normalize
from tests.support.stores import STORES, Clock, Stores

# What an engine is free to choose, by field: see the docstrings of the operations.
FREE = {
    (StoredEntry, "content"),
    (LogRow, "content"),
    (EraseResult, "kept"),
    (EraseResult, "snapshots"),  # those of an earlier life go when it ends, or when it is erased
    (Head, "snapshots"),  # unless it was asked for
    (SessionPage, "resume"),
}
# Answers that are about the engine itself.
OWN = {FindRisks, Identify, ReadCursorKey, Scrub, CheckEngine}
# Those about an index that not every engine has.
OWN |= {FindMatches, ReadFound, IndexText}

SESSIONS = st.sampled_from(["a", "a", "b", "b", "c"])
STAGED = st.sampled_from(["b", "c", "c"])
KEYS = st.sampled_from(["k1", "k2", "k3"])
SNAPSHOTS = st.sampled_from(["s1", "s2"])
TTL = st.sampled_from([None, None, 5.0])
TEXTS = st.sampled_from(["one", "two", "three"])
ITEMS = st.sampled_from(["i", "j", "ja", "\U0001f600"])

AUDIT = Audit(b"a key of the test", "ana", with_reads=False)

_programs = itertools.count()


class Engine:
    """A backend, and what it has said so far: later operations refer to it."""

    def __init__(self, perform, prefix):
        self._perform = perform
        self.prefix = prefix
        # Tokens in the order in which they appeared: they are compared by their number.
        self.lives = {}
        self.heads = collections.defaultdict(list)
        self.frozen, self.stages = [], []
        # Sessions with a life that may end.
        self.perishable = set()

    def name(self, session):
        return self.prefix + session

    def perform(self, op):
        """Return the answer in a form that can be compared between engines."""
        change = op.change if isinstance(op, Audited) else op
        if isinstance(change, BeginStage) or getattr(change, "ttl_s", None) is not None:
            self.perishable.add(op.session)
        self.is_ordered = getattr(op, "order", None) is not None
        try:
            result = self._perform(op)
        except MemoryStoreError as error:
            return type(error).__name__, error.details.get("reason")
        if isinstance(op, ListAudits):
            return sorted(name for name in result if name.startswith(self.prefix))
        self._remember(op, result)
        if isinstance(change, Reclaim | Erase) and op.session in self.perishable:
            # Entries of an earlier life or a lost stage go when it ends, or in the next vacuum.
            return result.journal_lines if isinstance(op, Reclaim) else result.forks
        snapshots = result.snapshots if getattr(op, "count_snapshots", False) else None
        return self._normalize(result), snapshots

    def _remember(self, op, result):
        if isinstance(result, Stage):
            self.stages.append((result.life, result.first))
        head = result if isinstance(result, Head) else getattr(result, "head", None)
        if head is not None:
            self.heads[op.session].append(head)
        if isinstance(op, Erase):
            self.heads.pop(op.session, None)
        if isinstance(getattr(result, "frozen", None), FrozenView):
            self.frozen.append(result.frozen)

    def _normalize(self, value):
        if isinstance(value, StoredLine):
            content = parse_line(value)._asdict()
            version = content.pop("version") or NEW_VERSION
            return value.number, content, self._normalize_token("version", version)
        if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
            names = getattr(value, "_fields", None) or value.__dataclass_fields__
            fields = {
                name: getattr(value, name) for name in names if (type(value), name) not in FREE
            }
            if isinstance(value, SessionPage) and not self.is_ordered:
                fields["sessions"] = tuple(sorted(value.sessions, key=lambda each: each.name))
            if isinstance(value, LogPage) and value.resume == value.head.end:
                # The next page would be empty: to know that is optional.
                fields["resume"] = None
            return type(value).__name__, {
                name: self._normalize_token(name, each) or self._normalize(each)
                for name, each in fields.items()
            }
        if isinstance(value, tuple):
            return tuple(self._normalize(each) for each in value)
        return value.removeprefix(self.prefix) if isinstance(value, str) else value

    def _normalize_token(self, field, token):
        """Replace a life, alone or in a version, by the number under which it appeared."""
        if field == "version" and token != NEW_VERSION:
            life, end, generation = token.rsplit(".", 2)
            return self._number(life), end, generation
        return self._number(token) if field == "life" and token else None

    def _number(self, life):
        return f"life {self.lives.setdefault(life, len(self.lives))}"


# Commands: each builds an operation from what the engine has said.


def pick(values, index):
    return values[-1 - index % len(values)] if values else None


def drafts(texts):
    values = [ChatMessage(role="user", content=text) for text in texts]
    if len(texts) > 2:
        values.append(ToolCall(call_id="c1", name="search"))
    return tuple(encode(value) for value in values)


def expected_version(engine, session, choice):
    if choice in ("current", "stale"):
        head = pick(engine.heads[engine.name(session)], 0 if choice == "current" else 3)
        return None if head is None else head.version
    return choice


def memories(items):
    return tuple(encode(StoredMemory(id=item, value=n)) for n, item in enumerate(items))


def remember(engine, session, items, key, guarded, position):
    guard = ItemGuard(items[0], position) if guarded else None
    fresh = key.startswith("generated")
    return Append(engine.name(session), memories(items), key, fresh, None, None, guard)


def find_items(engine, session, item, position, limit):
    return FindItems(engine.name(session), ItemPlace(item, position), limit)


def erase_item(engine, session, item):
    return EraseItem(engine.name(session), item, encode(StoredMemory()).envelope)


def append(engine, session, texts, key, choice, ttl_s):
    fresh = key.startswith("generated")
    return Append(
        engine.name(session),
        drafts(texts),
        key,
        fresh,
        expected_version(engine, session, choice),
        ttl_s,
    )


def read(engine, session, index, kinds, limit, newest, start):
    frozen = None if index is None else pick(engine.frozen, index)
    return Read(engine.name(session), frozen, kinds, limit, newest, start)


def change_view(engine, session, index, cut, open_tail, key, choice, undoes):
    engine.perform(ReadHead(engine.name(session)))
    head = pick(engine.heads[engine.name(session)], index)
    shown = [(start, start + 1) for start in iter_positions(freeze(head.view, head.end))]
    return ChangeView(
        engine.name(session),
        head.life,
        head.generation,
        head.vacuums,
        "hide",
        key,
        normalize(extent for number, extent in enumerate(shown) if number != cut),
        None if open_tail else head.end,
        expected_version(engine, session, choice),
        undoes=undoes,
    )


def rollback(engine, session, snapshot, key, choice):
    version = expected_version(engine, session, choice)
    return Rollback(engine.name(session), snapshot, key, version)


def save_snapshot(engine, session, snapshot, label, ttl_s, choice):
    version = expected_version(engine, session, choice)
    return SaveSnapshot(engine.name(session), snapshot, label, ttl_s, False, version)


def erase(engine, session, choice):
    return Erase(engine.name(session), expected_version(engine, session, choice))


def audited(engine, command):
    build, *arguments = command
    return AUDIT._add_line(build(engine, *arguments))


def begin_stage(engine, session, origin, ttl_s, first):
    forked_from = None if origin is None else engine.name(origin)
    return BeginStage(engine.name(session), forked_from, ttl_s, first)


def stage_rows(engine, session, index, count):
    stage = pick(engine.stages, index)
    if stage is None:
        return ReadHead(engine.name(session))
    life, first = stage
    return StageRows(engine.name(session), life, build_rows(first, count))


def build_rows(first, count):
    draft = encode(ChatMessage(role="user", content="staged"))
    kind, envelope, keep, opens, answers = draft
    return tuple(
        LogRow(position, kind, 1_000, None, 1, 0, keep, None, opens, answers, envelope)
        for position in range(first, first + count)
    )


IMPORTED = (StoredLine(0, '[0,1,"ana","append",1,"new"]', "0" * 64),)


def show_stage(engine, session, index, count, closed, audited):
    stage = pick(engine.stages, index)
    if stage is None:
        return ReadHead(engine.name(session))
    life, first = stage
    view = View(((first, first + 1),), first + count) if closed and count > 1 else None
    rows = build_rows(first, count)
    audit = IMPORTED if audited else ()
    return ShowStage(
        engine.name(session), life, b'{"of":"stage"}', view=view, rows=rows, audit=audit
    )


def drop_stage(engine, session, index):
    stage = pick(engine.stages, index)
    life = stage[0] if stage else "unknown"
    return DropStage(engine.name(session), life)


def list_sessions(engine, dead, where, order, limit):
    return ListSessions(engine.prefix, None, limit if order else 10, dead, where=where, order=order)


def set_metadata(engine, session, metadata, choice, ttl_s, replaces):
    version = expected_version(engine, session, choice)
    return SetMetadata(engine.name(session), metadata, version, ttl_s, replaces)


def quarantine(engine, session):
    """Only of a session that was there: a plan has found a damaged entry in it."""
    name = engine.name(session)
    active = [head for head in engine.heads[name] if head.status is Status.ACTIVE]
    if not active:
        return ReadHead(name)
    return Quarantine(name, ((active[-1].born, "unreadable", b"bytes"),))


def command(build, *arguments):
    return st.tuples(st.just(build), *arguments)


def plain(kind, *arguments):
    """A command that needs a session and nothing that was said before."""

    def build(engine, session, *values):
        return kind(engine.name(session), *values)

    return command(build, SESSIONS, *arguments)


FILTERS = [
    (),
    (),
    parse_where({"metadata.a": 1}),
    parse_where({"metadata.a": {"$exists": False}}),
    parse_where({"status": {"$in": ["new", "expired"]}}),
    parse_where({"entries": {"$gt": 1}}),
]
SMALL = st.integers(0, 3)
# Mostly the newest of what was said.
RECENT = st.sampled_from([0, 0, 0, 1, 2])
VERSIONS = st.sampled_from([None, None, "current", "stale", "new"])
GENERATED = st.uuids().map(lambda each: f"generated-{each}")
COMMANDS = {
    Append: command(
        append,
        SESSIONS,
        st.lists(TEXTS, min_size=1, max_size=3),
        st.one_of(KEYS, GENERATED),
        VERSIONS,
        TTL,
    ),
    ReadHead: plain(ReadHead, st.booleans()),
    Read: command(
        read,
        SESSIONS,
        st.one_of(st.none(), SMALL),
        st.sampled_from([None, frozenset({Kind.MESSAGE}), frozenset({Kind.TOOL_CALL})]),
        st.sampled_from([None, 1, 2]),
        st.booleans(),
        st.sampled_from([None, 0, 2, 5]),
    ),
    FindItems: command(
        find_items, SESSIONS, ITEMS, st.sampled_from([0, 1, 3, 2**32]), st.integers(1, 4)
    ),
    EraseItem: command(erase_item, SESSIONS, ITEMS),
    ReadOutline: plain(ReadOutline),
    ChangeView: command(
        change_view,
        SESSIONS,
        RECENT,
        SMALL,
        st.booleans(),
        KEYS,
        VERSIONS,
        st.one_of(st.none(), KEYS),
    ),
    Rollback: command(rollback, SESSIONS, SNAPSHOTS, KEYS, VERSIONS),
    FindChange: plain(FindChange, st.sampled_from(["hide", "rollback"]), KEYS),
    ReadJournal: plain(ReadJournal, st.integers(1, 5)),
    SaveSnapshot: command(
        save_snapshot, SESSIONS, SNAPSHOTS, st.sampled_from([None, "label"]), TTL, VERSIONS
    ),
    ReadSnapshots: plain(ReadSnapshots, st.sampled_from([None, ("s1",), ("s2", "none")])),
    DeleteSnapshot: plain(DeleteSnapshot, SNAPSHOTS),
    SetMetadata: command(
        set_metadata,
        SESSIONS,
        st.sampled_from([b"{}", b'{"a":1}']),
        VERSIONS,
        TTL,
        st.sampled_from([None, b"{}", b'{"a":1}']),
    ),
    ListSessions: command(
        list_sessions,
        st.booleans(),
        st.sampled_from(FILTERS),
        st.one_of(st.none(), st.builds(SessionOrder, st.sampled_from(ORDERS), st.booleans())),
        st.integers(1, 3),
    ),
    ReadLog: plain(ReadLog, SMALL, st.integers(1, 4)),
    BeginStage: command(
        begin_stage, STAGED, st.sampled_from([None, "a"]), TTL, st.sampled_from([None, 0, 20])
    ),
    StageRows: command(stage_rows, STAGED, RECENT, st.integers(1, 3)),
    ShowStage: command(show_stage, STAGED, RECENT, st.integers(1, 3), st.booleans(), st.booleans()),
    DropStage: command(drop_stage, STAGED, RECENT),
    Reclaim: plain(Reclaim, st.sampled_from([0, 10**15]), st.booleans()),
    Erase: command(erase, SESSIONS, VERSIONS),
    CheckSession: plain(CheckSession, st.booleans()),
    Quarantine: command(quarantine, SESSIONS),
    ReadQuarantine: plain(ReadQuarantine),
}
AUDITED = [Append, EraseItem, ChangeView, Rollback, SaveSnapshot, DeleteSnapshot, SetMetadata]
COMMANDS[Audited] = command(
    audited, st.one_of([COMMANDS[kind] for kind in (*AUDITED, ShowStage, Erase)])
)
COMMANDS[ReadAudit] = plain(ReadAudit, st.sampled_from([None, 0, 1]), st.integers(1, 9))
COMMANDS[ListAudits] = command(lambda _engine: ListAudits())
TICK = st.tuples(st.just(None), st.sampled_from([1, 4, 6, 200_000]))
# Drawn more often than the others: otherwise most programs work on empty sessions.
OFTEN = {
    Append: 8,
    Audited: 8,
    ReadAudit: 3,
    Read: 3,
    ChangeView: 8,
    Rollback: 3,
    SaveSnapshot: 3,
    Reclaim: 4,
} | {
    BeginStage: 3,
    StageRows: 3,
    ShowStage: 3,
}
REMEMBER = command(
    remember,
    SESSIONS,
    st.lists(ITEMS, min_size=1, max_size=2),
    st.one_of(KEYS, GENERATED),
    st.booleans(),
    st.one_of(st.none(), SMALL),
)
DRAWN = [COMMANDS[kind] for kind in COMMANDS for _ in range(OFTEN.get(kind, 1))] + [REMEMBER] * 5
PROGRAMS = st.lists(
    st.integers(0, len(DRAWN)).flatmap(lambda number: [*DRAWN, TICK][number]),
    min_size=20,
    max_size=60,
)


@pytest.fixture(scope="module", params=[name for name in STORES if not name.startswith("memory")])
def engine(request, tmp_path_factory):
    opened = Stores(request.param, tmp_path_factory.mktemp("conformance"))
    store = opened.open()
    yield opened.clock, getattr(store, "_loop_run", None) or store._backend.perform
    opened.close()


@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(PROGRAMS)
def test_every_answer_is_that_of_the_reference(engine, program):
    clock, perform = engine
    prefix = f"{next(_programs)}/"
    reference_clock = Clock()
    reference_clock.now_s = clock.now_s
    reference_store = indelible.open("memory:", clock=reference_clock)
    tried = Engine(perform, prefix)
    reference = Engine(reference_store._backend.perform, prefix)
    for build, *arguments in program:
        if build is None:
            clock.advance(*arguments)
            reference_clock.advance(*arguments)
            continue
        op = build(reference, *arguments)
        note(str(op))
        assert tried.perform(build(tried, *arguments)) == reference.perform(op)


def test_entries_of_an_earlier_life_are_no_vacuum_of_this_one(engine):
    """Some engines free them when the next life begins, others in a vacuum of it."""
    clock, perform = engine
    tried = Engine(perform, f"{next(_programs)}/")
    tried.perform(append(tried, "a", ["one", "two"], "k1", None, 5.0))
    clock.advance(6)
    for key in ("k1", "k2"):
        tried.perform(append(tried, "a", ["three"], key, None, None))
    perform(Reclaim(tried.name("a"), 0, False))
    assert perform(ReadHead(tried.name("a"))).vacuums == 0


def test_a_copy_was_last_active_when_its_newest_entry_was_written(engine):
    """Clocks may go back, so that an earlier entry may have a later time."""
    _, perform = engine
    name = f"{next(_programs)}/a"
    stage = perform(BeginStage(name, None, None))
    one, two = build_rows(stage.first, 2)
    rows = one._replace(written_at_ms=5_000), two._replace(written_at_ms=4_000)
    shown = perform(ShowStage(name, stage.life, b"{}", created_at_ms=1, rows=rows))
    assert shown.last_activity_ms == perform(ReadHead(name)).last_activity_ms == 4_000


def test_no_operation_is_left_out():
    """An operation is in the programs, or it asks about the engine itself."""
    every = {
        kind
        for kind in vars(operations).values()
        if isinstance(kind, type) and issubclass(kind, Operation) and kind is not Operation
    }
    assert COMMANDS.keys() | OWN == every


# Fields that have one value in all programs, by their operation. All others are drawn.
NOT_DRAWN: dict[type, set[str]] = {
    # A key or an id that is drawn may have been used.
    ChangeView: {"change", "fresh"},
    Rollback: {"fresh"},
    SaveSnapshot: {"fresh"},
    EraseItem: {"envelope"},
    # What an import brings: `test_hostile_imports.py` and `test_moving.py` have more of it.
    ShowStage: {"metadata", "generation", "created_at_ms", "snapshots", "journal"},
    # The everyday programs list one page; damage is made behind the engine's back; and where
    # `scan_max` ends a page depends on the engine.
    ListSessions: {"prefix", "resume", "damaged", "scan_max"},
    # What a line says, and whose it is: `test_audit.py`.
    Audited: {"actor", "key"},
}


def test_no_field_of_an_operation_is_left_out():
    """A field has two values at least somewhere in the programs, or it is named above."""
    drawn = collections.defaultdict(set)

    @settings(
        max_examples=1000, derandomize=True, deadline=None, database=None, phases=[Phase.generate]
    )
    @given(PROGRAMS)
    def draw(program):
        with indelible.open("memory:") as store:
            engine = Engine(store._backend.perform, "")
            for build, *arguments in program:
                if build is not None:
                    op = build(engine, *arguments)
                    engine.perform(op)
                    for field in dataclasses.fields(op):
                        drawn[type(op), field.name].add(repr(getattr(op, field.name)))

    draw()
    constant = {
        (kind, field.name)
        for kind in COMMANDS
        for field in dataclasses.fields(kind)
        if len(drawn[kind, field.name]) < 2
    }
    assert constant == {(kind, name) for kind, names in NOT_DRAWN.items() for name in names}
