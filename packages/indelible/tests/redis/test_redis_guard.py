"""The guard of an append, in Lua, applies exactly when the rules allow the append."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indelible
from indelible.backends.redis.append import build_append_call
from indelible.backends.redis.log_rows import parse_row
from indelible.backends.redis.requests import build_append
from indelible.core import rules
from indelible.core.codec import encode, encode_text
from indelible.core.limits import EXPIRED_KNOWN_S
from indelible.core.operations import Append, BeginStage, FindItems, ItemGuard, ItemPlace, ReadHead
from indelible.model import Status, StoredMemory
from indelible.view import contains, freeze

SESSION = "s"
START_S = 1_700_000_000.0
TTL_S = 100
KEYS = ("a", "b", "~made")
ITEMS = ("i", "j")


class Clock:
    now_s = START_S

    def __call__(self):
        return self.now_s


CLOCK = Clock()


@pytest.fixture(scope="module")
def store(running):
    with running.client() as client:
        client.flushall()
    with indelible.open(running.url, clock=CLOCK) as opened:
        yield opened


def build(key, *, fresh=False, expected=None, ttl_s=None, text="hi", item=None, guard=None):
    draft = encode_text("user", text) if item is None else encode(StoredMemory(id=item))
    return Append(SESSION, (draft,), key, fresh, expected, ttl_s, guard)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(KEYS), st.sampled_from([None, TTL_S])),
    st.tuples(st.just("remember"), st.sampled_from(ITEMS)),
    st.tuples(st.just("hide"), st.integers(0, 5)),
    st.tuples(st.just("erase"), st.sampled_from(ITEMS)),
    st.tuples(st.just("metadata")),
    st.tuples(st.just("clear")),
    st.tuples(st.just("vacuum")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("stage")),
    st.tuples(st.just("time"), st.sampled_from([TTL_S // 2, TTL_S, EXPIRED_KNOWN_S])),
)


def wait(_store, seconds):
    CLOCK.now_s += seconds


TAKE = {
    "append": lambda store, key, ttl_s: store._backend.perform(build(key, ttl_s=ttl_s)),
    "remember": lambda store, item: store.remember(SESSION, "text", id=item),
    "hide": lambda store, position: store.hide(SESSION, [position]),
    "erase": lambda store, item: store.erase_memory(SESSION, item),
    "metadata": lambda store: store.set_metadata(SESSION, {"a": 1}),
    "clear": lambda store: store.clear(SESSION),
    "vacuum": lambda store: store.vacuum(session_id=SESSION, undo_window=0),
    "forget": lambda store: store.forget(SESSION),
    "stage": lambda store: store._backend.perform(BeginStage(SESSION, None, None)),
    "time": wait,
}


def take(store, step):
    """One step of a session's history. What is refused in its state leaves it as it is."""
    name, *arguments = step
    with suppress(indelible.ConflictError, indelible.SessionNotFoundError):
        TAKE[name](store, *arguments)


def used_keys(store, head):
    """Which keys were used in the session's life, by trying them on a copy of nothing else."""
    if head.status is not Status.ACTIVE:
        return set()
    client = store.redis
    indexed = {key.decode() for key in client.hkeys("indelible:{:s}k")}
    in_log = {parse_row(row).key.decode() for row in client.zrange("indelible:{:s}l", 0, -1)}
    return (indexed | in_log) & set(KEYS)


def find_newest(store, head, item):
    """Where the newest visible entry of an item is, by the index."""
    page = store._backend.perform(FindItems(SESSION, ItemPlace(item, 2**32), 100))
    shown = freeze(head.view, head.end)
    visible = [
        position
        for name, position in page.places
        if name == item and contains(shown, position, position + 1)
    ]
    return visible[0] if visible else None


def rules_allow(op, head, used, newest):
    """What `rules` say of an append to a session in this state, without anything but them."""
    if op.key in used and not op.fresh:
        return False
    try:
        rules.refuse_if_moved(op.session, op.expected, head.version)
        if op.expected_item is not None:
            rules.refuse_if_item_moved(op.session, op.expected_item, newest)
        rules.refuse_if_full(op.session, head.end, len(op.drafts))
    except (indelible.ConflictError, indelible.LimitError):
        return False
    return True


def answer(store, op):
    """What the script answers to one append; None if its guard did not hold."""
    backend = store._backend
    found = backend._execute(build_append_call(backend._context, op))
    return found.decode() if isinstance(found, bytes) else None


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(STEPS, max_size=8),
    key=st.sampled_from([*KEYS, "unused", "~unused"]),
    expected=st.sampled_from([None, "current", "stale", "new"]),
    fresh=st.booleans(),
    guard=st.one_of(
        st.none(),
        st.builds(ItemGuard, st.sampled_from(ITEMS), st.one_of(st.none(), st.integers(0, 5))),
    ),
)
def test_the_guard_applies_exactly_when_the_rules_allow(
    store, running, steps, key, expected, fresh, guard
):
    CLOCK.now_s = START_S
    store.forget(SESSION)
    for step in steps:
        take(store, step)
    head = store._backend.perform(ReadHead(SESSION))
    with running.client() as client:
        store.redis = client
        used = used_keys(store, head)
        before = {name: client.dump(name) for name in client.keys("indelible:{:s}*")}
        version = {"current": head.version, "stale": "1.2.3"}.get(expected, expected)
        # Only a generated key that nobody used can be fresh.
        op = build(key, fresh=fresh and key == "~unused", expected=version, guard=guard)
        newest = None if guard is None else find_newest(store, head, guard.item)
        version_after = answer(store, op)
        allowed = rules_allow(op, head, used, newest)
        assert (version_after is not None) == allowed
        if version_after is None:
            after = {name: client.dump(name) for name in client.keys("indelible:{:s}*")}
            assert after == before, "the guard did not hold, and something was written"
            return
    after = store._backend.perform(ReadHead(SESSION))
    assert after.version == version_after
    assert after.end == head.end + 1
    assert store.verify(SESSION).ok


def call_together(client, store, ops):
    """What one call of the script answers to these appends."""
    calls = [build_append_call(store._backend._context, op) for op in ops]
    calls[0].by_text = True
    return client.execute_command(*build_append(calls))


def send_together(store, running, ops):
    """What one call of the script answers to these appends; None to refused ones."""
    with running.client() as client:
        answers = call_together(client, store, ops)
    return [each.decode() if isinstance(each, bytes) else None for each in answers]


def test_appends_of_one_call_see_the_items_of_one_another(store, running):
    store.forget(SESSION)
    ops = [
        build("a", item="i", guard=ItemGuard("i", None)),
        build("b", item="i", guard=ItemGuard("i", None)),
        build("c", item="i", guard=ItemGuard("i", 0)),
        build("d", item="j", guard=ItemGuard("i", 0)),
        build("e", item="j", guard=ItemGuard("i", 1)),
        build("f", item="i"),
        build("g", guard=ItemGuard("i", 3)),
    ]
    held = [each is not None for each in send_together(store, running, ops)]
    assert held == [True, False, True, False, True, True, True]
    places = store._backend.perform(FindItems(SESSION, ItemPlace("", 0), 10)).places
    assert places == (("i", 3), ("i", 1), ("i", 0), ("j", 2))
    assert store.verify(SESSION).ok


def test_appends_of_one_call_see_one_another(store, running):
    """In one group: the second append of a session expects the first one's version."""
    store.forget(SESSION)
    first = store.add_message(SESSION, "user", "first")
    life, end, generation = first.version.split(".")
    ops = [
        build("one", expected=first.version),
        build("two", expected=first.version),
        build("three", expected=f"{life}.{int(end) + 1}.{generation}"),
        build("one", text="again"),
    ]
    assert send_together(store, running, ops) == [
        f"{life}.{int(end) + 1}.{generation}",
        None,
        f"{life}.{int(end) + 2}.{generation}",
        None,
    ]
    assert store.verify(SESSION).ok


def test_what_depends_on_an_append_of_its_call_is_refused_by_a_full_server_with_it(store, running):
    store.forget(SESSION)
    version = store.add_message(SESSION, "user", "first").version
    ops = [build("stale", expected="1.2.3"), build("one"), build("two", expected=version)]
    with running.client() as client:
        client.config_set("maxmemory", "1")
        try:
            stale, *full = call_together(client, store, ops)
        finally:
            client.config_set("maxmemory", "0")
    assert isinstance(stale, list)
    assert [answer[:4] for answer in full] == [b"-OOM"] * 2
    assert store.session(SESSION).version == version
