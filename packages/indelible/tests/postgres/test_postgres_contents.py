"""Whatever an id or a message holds comes back as it was; whatever cannot is refused before."""

import asyncio
import io

import psycopg
import pytest

import indelible
from tests.support import postgres_server

HOSTILE = [
    "nul\0inside",
    "\0",
    "'; DROP TABLE indelible.entry; --",
    "\\x00 backslash \\",
    "%s $1 {0}",
    "tab\tnewline\n",
    "Ünïcödé 🐘 \u202e",
    "x" * 512,
    "\x7f\x80",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_an_id_may_hold_any_character(url, name):
    with indelible.open(url, namespace=name) as store, indelible.open(url) as other:
        first = store.add_message(name, "user", name, key=name)
        assert store.add_message(name, "user", name, key=name).replayed
        snapshot = store.save_snapshot(name, label=name)
        store.clear(name, key=name)
        assert store.clear(name, key=name).replayed
        store.rollback_to_snapshot(name, snapshot.id)
        assert [m.content for m in store.get_history(name)] == [name]
        assert store.list_sessions().ids == [name]
        assert store.list_sessions(prefix=name[:1]).ids == [name]
        assert store.list_snapshots(name)[0].label == name
        store.set_metadata(name, {name: name})
        assert store.session(name).metadata == {name: name}
        store.add_tool_call(name, name, name, {name: name})
        assert store.get_tool_calls(name)[0].call_id == name
        assert store.session(name).version != first.version
        assert other.list_sessions().ids == []


@pytest.fixture(scope="module")
def escaping_url():
    """A database for a role whose literals read backslashes as escapes."""
    url = postgres_server.fresh_database()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("CREATE ROLE escaping LOGIN SUPERUSER")
        owner.execute("ALTER ROLE escaping SET standard_conforming_strings = off")
        owner.execute("ALTER ROLE escaping SET escape_string_warning = off")
        # Nor is NULL what it seems in an array that is written as text.
        owner.execute("ALTER ROLE escaping SET array_nulls = off")
    return url.replace("//postgres@", "//escaping@")


def everything_of(store, session):
    """All that a copy of a session must have, too."""
    return (
        [(entry.kind, entry.value) for entry in store.get_entries(session)],
        [call.call_id for call in store.get_tool_calls(session)],
        store.session(session).metadata,
    )


@pytest.mark.parametrize("name", [*HOSTILE, "{a,b} \"q\" 'q' \\\\ NULL \\x41"])
def test_contents_are_kept_where_backslashes_are_escapes(escaping_url, name):
    name = name[:500]
    with psycopg.connect(escaping_url) as connection:
        assert connection.execute("SHOW standard_conforming_strings").fetchone() == ("off",)
    with indelible.open(escaping_url, namespace=name) as store:
        store.add_message(name, "user", name, key=name)
        store.save_context(name, name, name, key=f"2{name}", expected=store.session(name).version)
        store.add_summary(name, name, [1.0, 0.0], embedder=name)
        store.add_tool_call(name, name, name, {name: name})
        store.add_tool_result(name, name, name)
        snapshot = store.save_snapshot(name, label=name)
        store.set_metadata(name, {name: name})
        store.trim(name, keep_last=1)
        store.add_message(name, "user", name)
        store.rollback_to_snapshot(name, snapshot.id)
        expected = everything_of(store, name)
        assert [message.content for message in store.get_history(name)] == [name] * 3
        store.fork(name, "fork")
        assert everything_of(store, "fork") == expected
        exported = io.StringIO()
        store.export(exported, name)
        store.forget(name)
        exported.seek(0)
        store.import_(exported)
        assert everything_of(store, name) == expected
        assert store.list_snapshots(name)[0].label == name
        assert store.add_message(name, "user", name, key=name).replayed
        store.clear(name)
        store.vacuum(undo_window=0)
        assert store.verify().ok


def test_a_fork_is_kept_by_an_async_store_where_backslashes_are_escapes(escaping_url):
    async def work():
        async with indelible.open_async(escaping_url, namespace="async") as store:
            await store.add_message("s", "user", "a")
            await store.fork("s", "t")
            assert [message.content for message in await store.get_history("t")] == ["a"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        ("nul\0", indelible.ConflictError),
        ("ä", indelible.ConflictError),
        ("\ud800", indelible.UsageError),
        ("", indelible.UsageError),
    ],
)
def test_a_version_that_no_session_has_is_refused(url, expected, error):
    with indelible.open(url) as store:
        store.add_message("s", "user", "a")
        for append in (
            lambda: store.add_message("s", "user", "b", expected=expected),
            lambda: store.save_context("s", "b", "c", expected=expected),
            lambda: store.add_summary("s", "b", [1.0], embedder="e", expected=expected),
        ):
            with pytest.raises(error):
                append()
        assert len(store.get_entries("s")) == 1


def test_a_lone_surrogate_is_refused_where_sqlite_refuses_it(url, tmp_path):
    outcomes = []
    for target in (url, tmp_path / "agent.db"):
        with indelible.open(target) as store:
            for attempt in (
                lambda store=store: store.add_message("s", "user", "a\ud800b"),
                lambda store=store: store.add_message("\udfff", "user", "hi"),
                lambda store=store: store.add_message("s", "user", "hi", key="\ud800"),
                lambda store=store: store.set_metadata("s", {"k": "\ud800"}),
                lambda store=store: store.add_tool_call("s", "\ud800", "t", {}),
            ):
                try:
                    outcomes.append((target, type(attempt())))
                except indelible.MemoryStoreError as error:
                    outcomes.append((target, type(error)))
    half = len(outcomes) // 2
    assert [kind for _, kind in outcomes[:half]] == [kind for _, kind in outcomes[half:]]


def test_large_entries_and_batches_come_back(url):
    text = "0123456789abcdef" * 65_536 * 4
    with indelible.open(url, timeout_s=60) as store:
        store.add_message("s", "user", text)
        store.add_messages("s", [{"role": "user", "content": text[:1000]}] * 1000)
        history = store.get_history("s")
        assert history[0].content == text
        assert len(history) == 1001
        assert store.verify().ok


def test_nothing_of_a_message_is_in_an_error_of_the_server(url):
    secret = "very-private"
    with indelible.open(url) as store, psycopg.connect(url, autocommit=True) as other:
        store.add_message("s", "user", "hi")
        other.execute(
            "ALTER TABLE indelible.entry ADD CHECK (octet_length(payload) < 100) NOT VALID"
        )
        try:
            with pytest.raises(indelible.MemoryStoreBackendError) as caught:
                store.add_message("s", "user", secret * 20)
        finally:
            other.execute("ALTER TABLE indelible.entry DROP CONSTRAINT entry_payload_check")
        assert secret not in str(caught.value)
        assert secret not in repr(caught.value.details)
        assert (caught.value.code, caught.value.landed) == ("23514", "no")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP"])
def test_contents_are_kept_in_a_database_of_any_encoding(encoding):
    name = f"in_{encoding.lower()}"
    server = postgres_server.server()
    server.sql(f"DROP DATABASE IF EXISTS {name}")
    server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'")
    with indelible.open(server.url(name), audit=True, audit_key=b"a secret of the tests") as store:
        _fill(store)
    with indelible.open(server.url(name), namespace="unaudited") as store:
        _fill(store)


def _fill(store):
    name = "Ünïcödé 🐘"
    first = store.add_message(name, "user", name, key=name)
    store.add_tool_call(name, name, name, {name: name}, expected=first.version)
    store.add_tool_result(name, name, name)
    snapshot = store.save_snapshot(name, label=name)
    store.trim(name, keep_last=1)
    store.rollback_to_snapshot(name, snapshot.id)
    assert [call.call_id for call in store.get_tool_calls(name)] == [name]
    assert store.search(name)[0].position == 0
    assert store.get_history(name)[0].content == name
    assert store.verify().ok
