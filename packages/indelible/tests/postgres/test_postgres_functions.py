"""What functions of the schema do in one step is what the plans would have done, to the byte."""

import itertools
import random
from collections import Counter
from contextlib import suppress

import psycopg
import pytest

import indelible
from indelible import ConflictError, FormatError, UsageError, view
from indelible.backends.postgres import engine
from indelible.backends.postgres.named import APPEND_MANY
from indelible.backends.postgres.sending import _many, _one_by_one, statement_of, versions_of
from indelible.backends.postgres.sessions import Context
from indelible.backends.postgres.statements import Call, DoAlone
from indelible.core.operations import Append, Draft
from indelible.model import Kind

NOW_S = 1_800_000_000.0
ROWS = """
    SELECT own.name, {columns} FROM indelible.{table} AS part
    JOIN indelible.session AS own ON own.number = part.session
    WHERE own.namespace = %s ORDER BY own.name, {order}"""
ENTRY = """part.position, part.written_at, part.deadline, part.generation, part.life, part.batch,
    part.kind, part.keep, part.key, part.opens, part.answers, part.payload"""
LINE = """part.generation, part.log_end, part.tail_before, part.tail_after, part.life, part.change,
    part.extents_before, part.extents_after, part.changed_at"""
SNAPSHOT = "part.log_end, part.tail, part.life, part.label, part.extents, part.taken_at"
OF_TABLE = {
    "entry": (ENTRY, "part.position"),
    "journal": (LINE, "part.life, part.generation"),
    "snapshot": (SNAPSHOT, "part.number"),
}
SESSIONS = """
    SELECT name, log_end, deadline, born, generation, tail, life, staged, extents
    FROM indelible.session WHERE namespace = %s ORDER BY name"""


@pytest.fixture
def other(url):
    with indelible.open(url), psycopg.connect(url, autocommit=True) as connection:
        yield connection


def stored(connection, namespace):
    """All that a namespace holds, but for numbers and ids that are drawn anew."""
    found = {"session": connection.execute(SESSIONS, (namespace.encode(),)).fetchall()}
    for table, (columns, order) in OF_TABLE.items():
        query = ROWS.format(columns=columns, table=table, order=order)
        found[table] = connection.execute(query, (namespace.encode(),)).fetchall()
    return found


class Clock:
    def __init__(self):
        self.now = NOW_S

    def __call__(self):
        return self.now


def sent(connection, statement):
    if isinstance(statement, DoAlone):
        cursor = psycopg.RawCursor(connection)
        return cursor.execute(statement.text.encode(), statement.params).fetchall()
    assert isinstance(statement, Call)
    function = statement.statement
    result = connection.pgconn.exec_params(
        function.text, statement.values, function.types, function.formats, 1
    )
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result)
    return result.get_value(0, 0).decode()


def drafts(draw):
    return tuple(
        Draft(
            draw.choice([Kind.MESSAGE, Kind.TOOL_CALL]),
            draw.randbytes(draw.randrange(1, 40)),
            draw.random() < 0.3,
            ("ä", "b") if draw.random() < 0.3 else (),
            ("c",) if draw.random() < 0.3 else (),
        )
        for _ in range(draw.choice([1, 1, 1, 2, 5]))
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ttl_s", [None, 60])
def test_many_appends_are_what_each_would_have_been_alone(url, other, seed, ttl_s):
    draw = random.Random(seed)
    clock = Clock()
    for namespace in ("many", "single"):
        with indelible.open(url, namespace=namespace, clock=clock) as store:
            clock.now = NOW_S
            for name in "abc":
                store.add_message(name, "user", "first", key="k", ttl=ttl_s)
            store.clear("a")
            store.add_message("ended", "user", "first", key="k", ttl=1)
    # By then one of them has ended: somebody must look.
    clock.now = NOW_S + 10
    steps = [
        Append(name, drafts(draw), f"k{number}", True, None, ttl_s)
        for name in ("a", "b", "b-new", "c", "ended", "ä")
        for number in range(draw.randrange(1, 5))
    ]
    many = _many(Context(b"many", clock), steps, "1000")
    assert many.statement is APPEND_MANY
    single = _one_by_one(Context(b"single", clock), steps, "1000")
    answers = [versions_of(steps, sent(other, statement)) for statement in (many, single)]
    shown = [[version and version.split(".")[1:] for version in versions] for versions in answers]
    assert shown[0] == shown[1]
    assert [step.session for step, said in zip(steps, shown[0], strict=True) if not said] == [
        step.session for step in steps if step.session == "ended"
    ]
    assert stored(other, "many") == stored(other, "single")


@pytest.mark.parametrize("vacuumed", [False, True])
def test_a_used_key_among_many_leaves_all_as_it_was(url, other, vacuumed):
    with indelible.open(url) as store:
        store.add_message("s", "user", "first", key="used")
        if vacuumed:
            store.clear("s")
            assert store.vacuum(session_id="s", undo_window=0)
    before = stored(other, "")
    steps = [
        Append(name, (Draft(Kind.MESSAGE, b"x"),), key, True, None, None)
        for name, key in (("a", "new"), ("s", "other"), ("s", "used"))
    ]
    statement = statement_of(Context(b"", None), steps, wait_s=1)
    with pytest.raises(psycopg.errors.UniqueViolation):
        sent(other, statement)
    assert stored(other, "") == before


@pytest.mark.parametrize("seed", range(3))
def test_snapshots_and_rollbacks_at_once_are_those_of_the_plans(url, other, seed, monkeypatch):
    """The same story twice, in two namespaces: once with the shortcuts, once without."""
    done = Counter()
    counting = {step: counted(done, shortcut) for step, shortcut in engine._AT_ONCE.items()}
    for namespace, shortcuts in (("quick", counting), ("slow", {})):
        monkeypatch.setattr(engine, "_AT_ONCE", shortcuts)
        draw, clock = random.Random(seed), Clock()
        with indelible.open(url, namespace=namespace, clock=clock) as store:
            tell(store, draw, clock)
            assert store.verify().ok
    quick, slow = stored(other, "quick"), stored(other, "slow")
    assert quick == slow
    assert len(quick["journal"]) > 20
    assert any(row[-3] for row in quick["journal"]), "some views are in pieces"
    assert min(done["save_snapshot"], done["roll_back"]) > 2, "some needed no look"


def counted(done, shortcut):
    def plan(*asked):
        answer = yield from shortcut(*asked)
        done[shortcut.__name__] += answer is not None
        return answer

    return plan


def tell(store, draw, clock):
    taken = []
    keys = map(str, itertools.count())
    store.add_message("s", "user", "first", key=next(keys))
    for _ in range(60):
        clock.now += 0.5
        match draw.choice(["append", "append", "snapshot", "rollback", "rollback", "hide", "undo"]):
            case "append":
                texts = [{"role": "user", "content": "x"}] * draw.choice([1, 2, 90])
                store.add_messages("s", texts, key=next(keys))
            case "snapshot":
                taken.append(store.save_snapshot("s", label=draw.choice([None, "ä"])).id)
            case "rollback" if taken:
                expected = draw.choice([None, store.session("s").version])
                store.rollback_to_snapshot("s", draw.choice(taken), expected=expected)
            case "hide":
                store.hide("s", [draw.randrange(store.session("s").logged)])
            case "undo":
                # There may be nothing to undo.
                with suppress(UsageError):
                    store.undo("s")


def test_a_rollback_with_a_version_that_moved_is_a_conflict(url):
    with indelible.open(url) as store:
        store.add_message("s", "user", "a")
        snapshot, version = store.save_snapshot("s").id, store.session("s").version
        store.add_message("s", "user", "b")
        for expected in (version, "nothing of ours", "ä\0"):
            with pytest.raises(ConflictError):
                store.rollback_to_snapshot("s", snapshot, expected=expected)
        assert len(store.get_history("s")) == 2


def test_a_damaged_view_is_not_copied_into_a_snapshot(url, other):
    with indelible.open(url) as store:
        store.add_message("s", "user", "a")
        snapshot = store.save_snapshot("s").id
        other.execute("UPDATE indelible.session SET extents = '\\x0100'")
        before = stored(other, "")
        with pytest.raises(FormatError):
            store.save_snapshot("s")
        with pytest.raises(FormatError):
            store.rollback_to_snapshot("s", snapshot)
        assert stored(other, "") == before


def test_the_server_reads_and_writes_views_as_we_do(other):
    draw = random.Random(7)

    def last_stop(data):
        return other.execute("SELECT indelible.last_stop(%b)", (data,)).fetchone()[0]

    for _ in range(200):
        sizes = [draw.choice([1, 2, 127, 128, 300, 70_000]) for _ in range(2 * draw.randrange(6))]
        at, extents = draw.choice([0, 5]), []
        for gap, length in zip(sizes[::2], sizes[1::2], strict=True):
            extents.append((at + gap, at + gap + length))
            at += gap + length
        data = view.encode(tuple(extents))
        assert last_stop(data) == (extents[-1][1] if extents else 0)
    for _ in range(300):
        data = bytes(draw.choice([0, 1, 2, 127, 128, 255]) for _ in range(draw.randrange(1, 7)))
        try:
            extents = view.decode(data)
        except FormatError:
            assert last_stop(data) is None
        else:
            assert last_stop(data) == extents[-1][1]
    for number in (0, 1, 127, 128, 16_383, 16_384, 2**32):
        (said,) = other.execute("SELECT indelible.varint(%s)", (number,)).fetchone()
        assert view.encode(((number, number + 1),)) == said + b"\1"
