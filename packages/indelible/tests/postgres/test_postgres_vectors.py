"""With pgvector the server names who is near; what is found is the same, to the last bit."""

import random
from contextlib import closing
from itertools import chain

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indelible
from indelible import CorruptEntryError, Summary, UsageError
from indelible.backends.postgres.search import DIMENSIONS_MAX
from indelible.backends.postgres.text_index import format_array
from indelible.core import index_search
from indelible.core.embedding import to_embedder
from indelible.core.settings import Settings
from indelible.core.similarity import compute_cosine, compute_margin, round_unit, scale_to_unit
from tests.support import postgres_server
from tests.support.postgres.vector_stores import Watch, new_session, opened
from tests.support.wait import wait_until

# Beyond single precision on either side, and where that has few bits left.
EXTREMES = (0.0, 5e-324, 1e-200, 1e-45, 2.0**-149, 1e-38, 1e38, 3.5e38, 1e200, 1.7e308)
NEARLY_ONE = (1.0, 1 + 2.0**-52, 1 - 2.0**-30, 1 + 2.0**-24, 1 - 2.0**-24)
NUMBERS = (
    st.integers(-3, 3).map(float)
    | st.sampled_from(EXTREMES)
    | st.sampled_from(NEARLY_ONE)
    | st.sampled_from(EXTREMES + NEARLY_ONE).map(lambda number: -number)
)
VECTORS = st.integers(1, 4).flatmap(lambda n: st.lists(NUMBERS, min_size=n, max_size=n))
SUMMARIES = st.lists(
    st.tuples(st.none() | VECTORS, st.sampled_from(["e", "f"])), min_size=1, max_size=10
)


@pytest.fixture(scope="module")
def url():
    """A database with the extension, in a schema that needs quotes and is on nobody's path."""
    url = postgres_server.fresh_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "odd ""place"; CREATE EXTENSION vector')
        connection.execute('ALTER EXTENSION vector SET SCHEMA "odd ""place"')
    return url


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture(scope="module")
def store(url, watch):
    with opened(url, watch) as store:
        yield store


@pytest.fixture
def plain():
    """What every engine finds."""
    with indelible.open("memory:") as store:
        yield store


@pytest.fixture
def session():
    return new_session()


@pytest.fixture
def change(url):
    """Changes rows behind the store's back."""

    def run(statement, session):
        named = "(SELECT number FROM indelible.session WHERE name = %s)"
        with psycopg.connect(url) as connection:
            done = connection.execute(f"{statement} session = {named}", (session.encode(),))
            assert done.rowcount > 0

    return run


def search(store, session, query, k=5, embedder="e"):
    """What is found, or that there is nothing to compare."""
    try:
        return store.search_summaries(session, query, k, embedder=embedder)
    except UsageError as error:
        return str(error)


def without_vectors(url, session):
    """How many summaries of a session have no vector beside them."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT count(*) FROM indelible.entry JOIN indelible.session ON number = session"
            " WHERE name = %s AND kind = 4 AND vector IS NULL",
            (session.encode(),),
        ).fetchone()[0]


@given(SUMMARIES, VECTORS, st.integers(1, 6), st.data())
@settings(deadline=None, max_examples=60)
def test_what_is_found_is_what_every_engine_finds(store, watch, summaries, query, k, data):
    session, asked = new_session(), watch.compared
    with indelible.open("memory:") as plain:
        for number, (vector, embedder) in enumerate(summaries):
            for each in (store, plain):
                each.add_summary(session, str(number), vector, embedder=vector and embedder)
        of_them = [vector for vector, _ in summaries if vector]
        for vector in (query, data.draw(st.sampled_from([query, *of_them]))):
            assert search(store, session, vector, k) == search(plain, session, vector, k)
    assert watch.compared == asked + 2


def test_what_the_server_cannot_tell_apart_is_compared_exactly(store, plain, session, monkeypatch):
    """Fifty directions that differ by less than single precision holds."""
    draw = random.Random(5)
    query, base = ([draw.uniform(-1, 1) for _ in range(32)] for _ in range(2))
    for number in range(50):
        vector = [part + draw.uniform(-1, 1) * 3e-8 for part in base]
        for each in (store, plain):
            each.add_summary(session, str(number), vector, embedder="e")
    for k in (1, 3, 10):
        assert search(store, session, query, k) == search(plain, session, query, k)
    # It is the margin that does it.
    monkeypatch.setattr(index_search, "compute_margin", lambda _: 0.0)
    assert search(store, session, query, 1) != search(plain, session, query, 1)


@pytest.mark.parametrize("dimension", [3, 384, DIMENSIONS_MAX])
@pytest.mark.parametrize("least", [-1, 0], ids=["any", "positive"])
def test_the_server_rounds_less_than_the_margin_allows(url, dimension, least):
    draw = random.Random(dimension)
    a, b = ([draw.uniform(least, 1) for _ in range(dimension)] for _ in range(2))
    ask = """
        SELECT %s::real[]::"odd ""place".vector OPERATOR("odd ""place".<=>)
            %s::real[]::"odd ""place".vector"""
    with psycopg.connect(url) as connection:
        for one, two in ((a, b), (a, a), (b, [-part for part in a])):
            sent = format_array(round_unit(one)), format_array(round_unit(two))
            (distance,) = connection.execute(ask, sent).fetchone()
            error = 1 - distance - compute_cosine(scale_to_unit(one), two)
            assert 2 * abs(error) < compute_margin(dimension)


@pytest.mark.parametrize("query", [[1.0, 0.0], [0.0, 0.0]])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_vector_of_zeros_is_found_where_others_point_away(store, plain, session, query, k):
    for vector in ([-1.0, 0.0], [-1.0, 0.1], [0.0, 0.0], [-1.0, -0.1]):
        for each in (store, plain):
            each.add_summary(session, "text", vector, embedder="e")
    assert search(store, session, query, k) == search(plain, session, query, k)


def test_nearer_vectors_of_others_do_not_count(store, session):
    for vector, embedder in (([1, 0], "e"), ([1, 0], "f"), ([1, 0, 0], "e"), ([0, 1], "e")):
        store.add_summary(session, "text", vector, embedder=embedder)
    assert [match.position for match in search(store, session, [1.0, 0.0], 2)] == [0, 3]


def test_an_append_with_a_vector_is_one_statement(store, watch, session):
    store.add_message(session, "user", "first")
    watch.steps.clear()
    store.add_summary(session, "text", [1.0, 2.0], embedder="e")
    assert len(watch.steps) == 1


def story(store, session):
    """Summaries that come and go; what is found after each change."""
    for number in range(6):
        store.add_message(session, "user", str(number))
        store.add_summary(session, str(number), [number - 2.5, 1.0], embedder="e")
    snapshot = store.save_snapshot(session)
    store.add_summary(session, "late", [1.0, 0.0], embedder="e")
    yield search(store, session, [1.0, 0.0])
    store.rollback_to_snapshot(session, snapshot.id)
    yield search(store, session, [1.0, 0.0])
    store.undo(session)
    yield search(store, session, [1.0, 0.0])
    store.fork(session, session + "-fork", at=snapshot.id)
    yield search(store, session + "-fork", [1.0, 0.0])
    store.clear(session)
    yield search(store, session, [1.0, 0.0])
    store.add_summary(session, "new", [0.0, 1.0], embedder="e")
    yield search(store, session, [1.0, 0.0])
    store.vacuum(undo_window=0)
    yield search(store, session, [1.0, 0.0])


def test_what_does_not_show_is_not_found(store, url, watch, plain, session):
    asked = watch.compared
    assert list(story(store, session)) == list(story(plain, session))
    assert watch.compared == asked + 7
    assert without_vectors(url, session) == without_vectors(url, session + "-fork") == 0


def test_a_copy_from_another_engine_is_found(store, url, watch, plain, session):
    for number in range(4):
        plain.add_summary(session, str(number), [number, 1.0], embedder="e")
    indelible.copy_sessions(plain, store)
    asked = watch.compared
    assert search(store, session, [1.0, 0.0], 2) == search(plain, session, [1.0, 0.0], 2)
    assert watch.compared == asked + 1
    assert without_vectors(url, session) == 0


def test_a_batch_with_summaries_keeps_each_at_its_place(store, url, plain, session):
    values = [
        indelible.ChatMessage(role="user", content="hi"),
        Summary(text="one", vector=(1.0, 0.0), embedder="e"),
        Summary(text="two", vector=(1.0, 1.0, 0.0), embedder="e"),
        Summary(text="three", vector=(0.0, 1.0), embedder="e"),
    ]
    for each in (store, plain):
        each.add_entries(session, values)
    for query in ([0.0, 1.0], [1.0, 0.0, 0.0]):
        assert search(store, session, query, 1) == search(plain, session, query, 1)
    assert without_vectors(url, session) == 0


def test_a_session_that_ended_and_began_again_has_its_vectors(store, url, session):
    store.add_summary(session, "old", [1.0, 0.0], embedder="e", ttl=0.001)
    wait_until(lambda: store.session(session).status is indelible.Status.EXPIRED)
    store.add_summary(session, "new", [0.0, 1.0], embedder="e")
    assert [match.summary.text for match in search(store, session, [1.0, 0.0])] == ["new"]
    assert without_vectors(url, session) == 0


NEAREST = "position = 1 AND"
DAMAGE = {
    "changed": f"UPDATE indelible.entry SET payload = payload || 'x' WHERE {NEAREST}",
    "unknown": f"UPDATE indelible.entry SET kind = 9 WHERE {NEAREST}",
    "another kind": f"UPDATE indelible.entry SET kind = 1 WHERE {NEAREST}",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_summary_is_not_passed_over(store, change, session, how):
    for number in range(4):
        store.add_summary(session, str(number), [1.0 - number % 2, 1.0], embedder="e")
    change(DAMAGE[how], session)
    with pytest.raises(CorruptEntryError) as caught:
        store.search_summaries(session, [0.0, 1.0], 1, embedder="e")
    assert caught.value.position == 1


def test_a_vacuum_in_between_is_not_fewer_matches(store, watch, url, session):
    for number in range(4):
        store.add_summary(session, str(number), [1.0, number], embedder="e")

    def vacuum():
        with indelible.open(url) as other:
            other.clear(session)
            other.add_summary(session, "after", [1.0, 9.0], embedder="e")
            other.vacuum(undo_window=0)

    watch.before = vacuum
    # A search is one state.
    assert [match.summary.text for match in search(store, session, [1.0, 0.0])] == list("0123")
    assert [match.summary.text for match in search(store, session, [1.0, 0.0])] == ["after"]


def test_a_search_that_lost_its_connection_is_made_again(store, watch, session):
    store.add_summary(session, "text", [1.0, 0.0], embedder="e")

    def cut():
        raise psycopg.OperationalError("the connection was cut")

    watch.before = cut
    asked = watch.compared
    assert [match.position for match in search(store, session, [1.0, 0.0])] == [0]
    assert watch.compared == asked + 2


class Odd:
    """An embedder whose vector no server takes."""

    name = "odd"

    def __init__(self, vector):
        self._vector = vector

    def embed(self, _text):
        return self._vector


def test_a_vector_that_no_server_takes_is_compared_by_the_store(url, session):
    watch, vector = Watch(), [1.0] * (DIMENSIONS_MAX + 1)
    with opened(url, watch, Settings(embedder=to_embedder(Odd(vector)))) as store:
        store.add_summary(session, "text", [0.5] * len(vector), embedder="odd")
        assert len(store.search_summaries(session, "anything")) == 1
    assert watch.compared == 0


@pytest.mark.parametrize("vector", [[float("nan"), 1.0], []], ids=["no number", "empty"])
def test_a_vector_without_a_direction_is_not_sent_to_the_server(url, session, vector):
    watch = Watch()
    with opened(url, watch, Settings(embedder=to_embedder(Odd(vector)))) as store:
        store.add_summary(session, "text", [0.5, 0.5], embedder="odd")
        with pytest.raises(UsageError):
            store.search_summaries(session, "anything")
    assert watch.compared == 0


def test_a_name_that_could_not_be_stored_finds_nothing(store, session):
    store.add_summary(session, "text", [1.0], embedder="e")
    with pytest.raises(UsageError, match="to compare with"):
        store.search_summaries(session, [1.0], embedder="\ud800")


async def test_an_async_store_finds_the_same(store, url, session):
    for number in range(9):
        store.add_summary(session, str(number), [number - 4.0, 1.0], embedder="e")
    async with indelible.open_async(url) as other:
        await other.add_summary(session, "its own", [1.0, 0.0], embedder="e")
        found = await other.search_summaries(session, [1.0, 0.0], 3, embedder="e")
    assert found == search(store, session, [1.0, 0.0], 3)
    assert without_vectors(url, session) == 0


def test_the_extension_may_come_and_go_while_a_store_is_open(fresh_url, session):
    watch = Watch()
    with opened(fresh_url, watch) as store, psycopg.connect(fresh_url, autocommit=True) as server:
        for number in range(4):
            store.add_summary(session, str(number), [number, 1.0], embedder="e")
        found = []
        asked = []
        for what in ("SELECT 1", "CREATE EXTENSION vector", "DROP EXTENSION vector"):
            server.execute(what)
            found.append(search(store, session, [1.0, 0.0], 2))
            asked.append(watch.compared)
    assert asked == [0, 1, 1]
    assert [match.position for match in chain(*found)] == [3, 2] * 3


def test_an_extension_that_the_role_may_not_use_is_left_alone(url, store, session):
    store.add_summary(session, "text", [1.0, 0.0], embedder="e")
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("""
            DO $$ BEGIN CREATE ROLE narrow LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
            GRANT USAGE ON SCHEMA indelible TO narrow;
            GRANT SELECT ON ALL TABLES IN SCHEMA indelible TO narrow""")
    watch = Watch()
    with closing(opened(url.replace("postgres@", "narrow@"), watch)) as other:
        assert search(other, session, [1.0, 0.0]) == search(store, session, [1.0, 0.0])
    assert watch.compared == 0


@pytest.mark.parametrize("extension", ["SELECT 1", "CREATE EXTENSION vector"])
def test_memories_are_compared_by_the_server(fresh_url, plain, extension):
    with psycopg.connect(fresh_url, autocommit=True) as server:
        server.execute(extension)
    draw = random.Random(3)
    with indelible.open(fresh_url) as store:
        for number in range(40):
            vector = [draw.uniform(-1, 1) for _ in range(8)]
            for each in (store, plain):
                each.remember(f"c{number % 3}", f"fact {number}", id=str(number), vector=vector)
        query = [draw.uniform(-1, 1) for _ in range(8)]
        for options in ({}, {"sessions": ["c1"]}, {"where": {"id": {"$gt": "3"}}}):
            found, expected = (
                [(hit.session_id, hit.position, hit.ranks) for hit in each.search(query, **options)]
                for each in (store, plain)
            )
            assert found == expected
