"""What the schema's functions write is what each append, or the handlers, would have written."""

import itertools
import random
from collections import Counter
from contextlib import suppress

import psycopg
import pytest

import indelible
from indelible import ConflictError, FormatError, UsageError
from indelible.backends.postgres import views
from indelible.backends.postgres.append import APPEND, build_parameters, sort_appends
from indelible.backends.postgres.arrays import register_arrays
from indelible.backends.postgres.statements import PostgresContext
from indelible.core.batcher import Pending
from indelible.core.deadline import Deadline
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
SNAPSHOT = "part.log_end, part.life, part.label, part.extents, part.taken_at"
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


def send(connection, context, appends):
    """The versions that the guarded write of appends comes to."""
    params = build_parameters(context, appends)
    register_arrays(connection)
    cursor = psycopg.RawCursor(connection)
    ((versions,),) = cursor.execute(APPEND.encode(), ("1000", *params)).fetchall()
    return versions


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


def message(session, key, *, fresh=True, expected=None, text=b"x"):
    return Append(session, (Draft(Kind.MESSAGE, text),), key, fresh, expected, None)


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
    # By then one of them has expired: the guard does not hold.
    clock.now = NOW_S + 10
    appends = [
        Append(name, drafts(draw), f"k{number}", draw.random() < 0.5, None, ttl_s)
        for name in ("a", "b", "b-new", "c", "ended", "ä")
        for number in range(draw.randrange(1, 5))
    ]
    many = send(other, PostgresContext(b"many", clock), appends)
    single = [send(other, PostgresContext(b"single", clock), [one])[0] for one in appends]
    seen = [[version and version.split(".")[1:] for version in each] for each in (many, single)]
    assert seen[0] == seen[1]
    refused = [one.session for one, version in zip(appends, many, strict=True) if not version]
    assert refused == [one.session for one in appends if one.session == "ended"]
    assert stored(other, "many") == stored(other, "single")


def test_rows_are_locked_in_one_order_and_appends_of_one_session_keep_theirs():
    group = [message(name, str(nth)) for nth, name in enumerate(("b", "a", "b", "ä", "Z"))]
    ordered = sort_appends([Pending(append, Deadline(1)) for append in group])
    assert [pending.request.key for pending in ordered] == ["4", "1", "0", "2", "3"]


@pytest.mark.parametrize("vacuumed", [False, True])
def test_a_used_key_does_not_affect_the_others_of_its_group(url, other, vacuumed):
    with indelible.open(url) as store:
        store.add_message("s", "user", "first", key="used")
        if vacuumed:
            store.clear("s")
            store.add_message("s", "user", "second", key="second")
            assert store.vacuum(session_id="s", undo_window=0)
        end = store.session("s").logged
    appends = [
        message("a", "new"),
        message("s", "other", fresh=False),
        message("s", "used", fresh=False),
        message("s", "other", fresh=False),
        message("s", "last"),
    ]
    first, written, used, again, last = send(other, PostgresContext(b"", None), appends)
    assert (used, again) == (None, None)
    assert first.split(".")[2] == "1"
    assert [int(version.split(".")[2]) for version in (written, last)] == [end + 1, end + 2]


def test_a_used_key_that_was_not_looked_up_leaves_all_as_it_was(url, other):
    with indelible.open(url) as store:
        store.add_message("s", "user", "first", key="used")
    before = stored(other, "")
    with pytest.raises(psycopg.errors.UniqueViolation):
        send(other, PostgresContext(b"", None), [message("a", "new"), message("s", "used")])
    assert stored(other, "") == before


def test_a_later_append_of_a_group_sees_the_version_of_an_earlier_one(url, other):
    context = PostgresContext(b"", None)
    (first,) = send(other, context, [message("s", "1")])
    number, life, _, generation = first.split(".")
    versions = [f"{number}.{life}.{end}.{generation}" for end in (2, 3)]
    appends = [
        message("s", "2", expected=first),
        message("s", "lost", expected=first),
        message("s", "3", expected=versions[0]),
    ]
    assert send(other, context, appends) == [versions[0], None, versions[1]]
    with indelible.open(url) as store:
        assert store.session("s").version == versions[1]


@pytest.mark.parametrize("seed", range(3))
def test_guarded_writes_are_those_of_the_shared_handlers(url, other, seed, monkeypatch):
    """The same story twice, in two namespaces: once with the guarded writes, once without."""
    done = Counter()
    guarded = views._call_guarded

    def counted(db, function, *params):
        row = guarded(db, function, *params)
        done[function] += row is not None
        return row

    def refused(*_):
        pass

    for namespace, call in (("guarded", counted), ("decided", refused)):
        monkeypatch.setattr(views, "_call_guarded", call)
        draw, clock = random.Random(seed), Clock()
        with indelible.open(url, namespace=namespace, clock=clock) as store:
            tell(store, draw, clock)
            assert store.verify().ok
    quick, slow = stored(other, "guarded"), stored(other, "decided")
    assert quick == slow
    assert len(quick["journal"]) > 20
    assert any(row[-3] for row in quick["journal"]), "some views are in pieces"
    assert len(done) == 2
    assert min(done.values()) > 2


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
        other.execute("UPDATE indelible.session SET extents = '{1,0}'")
        before = stored(other, "")
        with pytest.raises(FormatError):
            store.save_snapshot("s")
        with pytest.raises(FormatError):
            store.rollback_to_snapshot("s", snapshot)
        assert stored(other, "") == before


def test_the_newest_entries_come_with_the_session_whatever_its_view(url):
    """Hidden entries between those that are asked for are neither returned nor sent."""
    with indelible.open(url) as store:
        store.add_messages("s", [{"role": "user", "content": str(n)} for n in range(40)])
        store.hide("s", [*range(5, 30), 33, 39])
        shown = [message.content for message in store.get_history("s")]
        for last in range(1, 20):
            assert [message.content for message in store.get_history("s", last=last)] == shown[
                -last:
            ]
