"""Whatever an id or a message holds comes back as it was; whatever cannot is refused before."""

import psycopg
import pytest

import indelible

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
        assert list(store.list_sessions()) == [name]
        assert list(store.list_sessions(prefix=name[:1])) == [name]
        assert store.list_snapshots(name)[0].label == name
        store.set_metadata(name, {name: name})
        assert store.session(name).metadata == {name: name}
        store.add_tool_call(name, name, name, {name: name})
        assert store.get_tool_calls(name)[0].call_id == name
        assert store.session(name).version != first.version
        assert list(other.list_sessions()) == []


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
