"""Ids are encoded, never joined; a list is made by SCAN and loses nobody."""

import hashlib
import itertools

import pytest
from redis.crc import key_slot

import indelible
from indelible.backends.redis import keys
from indelible.core.limits import SESSION_ID_BYTES_MAX

HOSTILE = [
    "{a}", "}{", "a}b{c", "*", "a*", "[a-z]", "a?c", "\\*", "a:b", ":", "%", "%7b", "a%", " ", "\n",
    "\0", "é", "\N{GRINNING FACE}", "h", "}h", "{}", "a b", "ключ", "x" * SESSION_ID_BYTES_MAX,
    "\0" * SESSION_ID_BYTES_MAX, "$6\r\nFLUSHALL\r\n",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_reads_back_and_shares_one_slot(name):
    made = keys.build_keys("ns}{", name)
    assert keys.parse_session(made.head.encode()) == name
    parts = [made.head[:-1] + part for part in keys.PARTS]
    assert len({key_slot(part.encode()) for part in parts}) == 1
    assert made.head.count("{") == made.head.count("}") == 1


def test_hostile_ids_are_sessions_of_their_own(url):
    with indelible.open(url) as store:
        for number, name in enumerate(HOSTILE):
            store.add_message(name, "user", str(number))
        for number, name in enumerate(HOSTILE):
            assert [message.content for message in store.get_history(name)] == [str(number)]
        assert sorted(store.list_sessions(limit=1000).ids) == sorted(HOSTILE)
        for name in HOSTILE:
            found = store.list_sessions(prefix=name, limit=1000)
            assert sorted(found.ids) == sorted(each for each in HOSTILE if each.startswith(name))


@pytest.mark.parametrize(("one", "two"), [("a", "a:b"), ("", ":"), ("a:", "a"), ("*", "a")])
def test_no_two_namespaces_meet(url, one, two):
    with indelible.open(url, namespace=one) as first, indelible.open(url, namespace=two) as second:
        first.add_message("b:c", "user", "mine")
        first.add_message("c", "user", "mine")
        second.add_message("c", "user", "other")
        assert sorted(second.list_sessions().ids) == ["c"]
        assert sorted(first.list_sessions().ids) == ["b:c", "c"]
        second.forget("c")
        assert len(first.get_history("c")) == 1


def pages(store, **options):
    found, cursor = [], None
    while True:
        page = store.list_sessions(cursor=cursor, **options)
        assert len(page) <= options["limit"]
        found += page.ids
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 7, 100, 1000])
def test_a_list_in_pages_names_everyone_once(url, client, limit):
    client.mset({f"foreign:{number}": "x" for number in range(300)})
    with indelible.open(url) as store:
        names = {f"user-{number}" for number in range(120)}
        for name in names:
            store.add_message(name, "user", "hi")
        assert sorted(pages(store, limit=limit)) == sorted(names)
        ones = sorted(name for name in names if name.startswith("user-1"))
        assert sorted(pages(store, limit=limit, prefix="user-1")) == ones


def test_a_list_names_whoever_stays_while_the_table_grows_and_shrinks(url, client):
    with indelible.open(url) as store:
        stay = {f"stay-{number}" for number in range(50)}
        for name in stay:
            store.add_message(name, "user", "hi")
        found, cursor, turn = set(), None, 0
        while True:
            page = store.list_sessions(limit=3, cursor=cursor)
            found |= set(page.ids)
            cursor = page.cursor
            if cursor is None:
                break
            if turn % 2:
                client.delete(*client.keys("filler:*"))
            else:
                client.mset({f"filler:{turn}:{number}": "x" for number in range(2000)})
            turn += 1
        assert stay <= found


def test_a_list_hides_no_name_whose_short_hash_is_that_of_another(url):
    names = find_collision()
    with indelible.open(url) as store:
        for name in names:
            store.add_message(name, "user", "x")
        assert sorted(pages(store, limit=1)) == sorted(names)


def find_collision():
    """Find two names that share 32 bits of their hash."""
    known = {}
    for name in map(str, itertools.count()):
        digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
        if known.setdefault(digest, name) != name:
            return known[digest], name
    raise AssertionError("unreachable")


def test_a_list_begins_again_on_a_server_that_was_restarted(start):
    server = start(appendfsync="no")
    with indelible.open(server.url) as store:
        names = {f"s{number}" for number in range(60)}
        for name in names:
            store.add_message(name, "user", "hi")
        first = store.list_sessions(limit=20)
        server.restart()
        rest, cursor = set(), first.cursor
        while cursor is not None:
            page = store.list_sessions(limit=20, cursor=cursor)
            rest |= set(page.ids)
            cursor = page.cursor
        assert set(first.ids) | rest == names


@pytest.mark.parametrize("cursor", ["x", "!!!", "WzFd", "bnVsbA=="])
def test_what_is_no_cursor_is_refused(url, cursor):
    with indelible.open(url) as store, pytest.raises(indelible.UsageError):
        store.list_sessions(cursor=cursor)
