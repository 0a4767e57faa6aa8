"""Keys that somebody else changed: values are bound to their session, place and fields."""

import pytest

import indelible
from indelible import ConflictError, CorruptEntryError, FormatError
from indelible.backends.redis.keys import VIEW_FIELDS
from indelible.core.codec import CHECKSUM_FROM, CHECKSUM_TO
from tests.support.redis_writers import texts

HEAD_FIELDS = ("state", "end", "deadline", "activity", "sum")
HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL, QUARANTINE, ITEMS = (
    f"indelible:{{:s}}{part}" for part in "hvlksjqi"
)


@pytest.fixture
def store(url):
    with indelible.open(url) as opened:
        yield opened


def dump(client):
    return {key: client.dump(key) for key in client.keys("indelible:{:s}*")}


def fill(store):
    """A session that has every kind of key but a quarantine."""
    for number in range(3):
        store.add_message("s", "user", f"text {number}", key=f"k{number}")
    snapshot = store.save_snapshot("s", label="three")
    store.add_message("s", "user", "a bad answer")
    store.rollback_to_snapshot("s", snapshot.id)
    store.add_message("s", "user", "text 4")
    store.clear("s")
    store.undo("s")
    store.set_metadata("s", {"name": "Ann"})
    return snapshot


def rewrite(client, change, log=LOG):
    """Put a log back with other rows: `change` gets them as lists of words, the envelope last."""
    rows = [row.split(b" ", 7) for row in client.zrange(log, 0, -1)]
    change(rows)
    client.delete(log)
    client.zadd(log, {b" ".join(row): position for position, row in enumerate(rows)})


def hold_to_damage(store, client, url):
    """Everything that would read or change the session refuses; nothing of it is changed."""
    left = dump(client)
    assert {finding.session_id for finding in store.verify().findings} == {"s"}
    assert not store.verify("s").ok
    with indelible.open(url) as fresh:
        for opened in (store, fresh):
            for attempt in (
                lambda opened=opened: opened.session("s"),
                lambda opened=opened: opened.get_history("s"),
                lambda opened=opened: opened.get_entries("s"),
                lambda opened=opened: opened.save_snapshot("s"),
                lambda opened=opened: opened.clear("s"),
                lambda opened=opened: opened.undo("s"),
                lambda opened=opened: opened.set_metadata("s", {}),
                lambda opened=opened: opened.vacuum(undo_window=0, session_id="s"),
            ):
                with pytest.raises(FormatError, match=r"session 's' is damaged.*nothing was"):
                    attempt()
    assert dump(client) == left


@pytest.mark.parametrize("ttl", [None, 1000])
@pytest.mark.parametrize("field", HEAD_FIELDS)
def test_a_head_that_was_changed_is_found(store, client, url, field, ttl):
    fill(store)
    store.add_message("s", "user", "last", ttl=ttl)
    before = client.hget(HEAD, field)
    for value in (b"1", b"", b"7", b"-1", b"x", b"99999999999999", b"\xff"):
        if value != before:
            client.hset(HEAD, field, value)
            hold_to_damage(store, client, url)
            refuse_appends(store, client)
    client.hset(HEAD, field, before)
    assert store.verify().ok


def refuse_appends(store, client):
    left = dump(client)
    for append in (
        lambda: store.add_message("s", "user", "more"),
        lambda: store.add_message("s", "user", "more", ttl=1000),
        lambda: store.add_message("s", "user", "text 0", key="k0"),
        lambda: store.save_context("s", "a", "b"),
    ):
        with pytest.raises(FormatError, match="damaged"):
            append()
    assert dump(client) == left


@pytest.mark.parametrize("field", HEAD_FIELDS)
def test_a_head_that_lost_a_field_is_found(store, client, url, field):
    fill(store)
    client.hdel(HEAD, field)
    hold_to_damage(store, client, url)


@pytest.mark.parametrize("field", VIEW_FIELDS)
def test_a_view_that_was_changed_is_found(store, client, url, field):
    fill(store)
    for value in ("1", "0,1", "", '{"name":"Ben"}', "x"):
        before = client.dump(VIEW)
        if client.hget(VIEW, field) == value.encode():
            continue
        client.hset(VIEW, field, value)
        hold_to_damage(store, client, url)
        with pytest.raises(FormatError):
            store.add_message("s", "user", "text 0", key="k0")
        client.hdel(VIEW, field)
        hold_to_damage(store, client, url)
        client.restore(VIEW, 0, before, replace=True)
    assert store.verify().ok


def test_a_view_of_an_earlier_state_or_of_another_session_is_found(store, client, url):
    fill(store)
    store.add_message("t", "user", "hi")
    now = client.dump(VIEW)
    store.clear("s")
    for other in (now, client.dump("indelible:{:t}v")):
        client.restore(VIEW, 0, other, replace=True)
        hold_to_damage(store, client, url)


def swap_payloads(rows):
    rows[1][7], rows[2][7] = rows[2][7], rows[1][7]


def swap_rows(rows):
    rows[1], rows[2] = rows[2], rows[1]


def later(rows):
    rows[1][0] = b"%d" % (int(rows[1][0]) + 60_000)


def no_stamp(rows):
    rows[1][:4] = [b"x"]


def short_stamp(rows):
    del rows[1][3]


def empty_payload(rows):
    rows[1][7] = rows[1][7][: int(rows[1][5])]


def empty_meta(rows):
    rows[1][4] = b""


def larger_batch(rows):
    rows[1][4] = b"107"


def few_fields(rows):
    del rows[1][4:]


def longer_key(rows):
    rows[1][5] = b"%d" % (int(rows[1][5]) + 1)


def no_bytes_of_text(rows):
    rows[1][4] = b"\xff\xfe"


@pytest.mark.parametrize(
    "change",
    [
        swap_payloads,
        swap_rows,
        later,
        no_stamp,
        short_stamp,
        empty_payload,
        empty_meta,
        larger_batch,
        few_fields,
        longer_key,
        no_bytes_of_text,
    ],
    ids=lambda change: change.__name__,
)
def test_an_entry_that_was_changed_or_moved_is_damaged(store, client, change):
    for number in range(5):
        store.add_message("s", "user", f"text {number}")
    rewrite(client, change)
    for read in (store.get_history, store.get_entries):
        with pytest.raises(CorruptEntryError) as caught:
            read("s")
        assert caught.value.position == 1
    assert {1} <= {finding.position for finding in store.verify().findings} <= {1, 2}
    history = store.get_history("s", on_corrupt="quarantine")
    assert {1} <= {bad.position for bad in history.corrupt} <= {1, 2}
    assert [message.content for message in history][-2:] == ["text 3", "text 4"]
    # Views in pieces are read by a script.
    store.hide("s", [3])
    with pytest.raises(CorruptEntryError):
        store.get_history("s")
    store.repair("s")
    assert texts(store, "s")[-1:] == ["text 4"]
    assert {1} <= {bad.position for bad in store.quarantined("s")} <= {1, 2}
    assert {finding.severity for finding in store.verify().findings} == {"warning"}


def test_an_entry_of_another_session_does_not_pass(store, client):
    store.add_message("s", "user", "mine")
    store.add_message("t", "user", "theirs")
    client.zunionstore(LOG, ["indelible:{:t}l"])
    with pytest.raises(CorruptEntryError):
        store.get_history("s")
    assert not store.verify().ok


def test_a_copy_of_the_newest_entry_is_found(store, client, url):
    store.add_message("s", "user", "once")
    client.zadd(LOG, {client.zrange(LOG, 0, 0)[0] + b" ": 1})
    for attempt in (
        lambda: store.get_history("s"),
        lambda: store.add_message("s", "user", "more"),
    ):
        with pytest.raises(FormatError):
            attempt()
        assert not store.verify().ok
    assert client.zcard(LOG) == 2


def test_a_snapshot_that_was_changed_is_found(store, client):
    snapshot = fill(store)
    record = client.hget(SNAPSHOTS, snapshot.id)
    for value in (record.replace(b"three", b"seven"), record[14:], b"", b"x" * 40, b"\xff"):
        client.hset(SNAPSHOTS, snapshot.id, value)
        left = dump(client)
        for attempt in (
            lambda: store.rollback_to_snapshot("s", snapshot.id),
            lambda: store.list_snapshots("s"),
            lambda: store.fork("s", "t", at=snapshot.id),
            lambda: store.vacuum(undo_window=0, session_id="s"),
        ):
            with pytest.raises(FormatError, match="checksum"):
                attempt()
        assert dump(client) == left
        assert any(
            "snapshot" in finding.what and "checksum" in finding.what
            for finding in store.verify().findings
        )
    # The bytes of one snapshot do not pass for another's either.
    client.hset(SNAPSHOTS, snapshot.id, record)
    other = store.save_snapshot("s")
    client.hset(SNAPSHOTS, other.id, record)
    with pytest.raises(FormatError):
        store.rollback_to_snapshot("s", other.id)


def test_a_line_of_the_journal_that_was_changed_is_found(store, client):
    fill(store)
    for name, value in client.hgetall(JOURNAL).items():
        client.hset(JOURNAL, name, value[:-1] + (b"0" if value[-1:] != b"0" else b"1"))
        left = dump(client)
        with pytest.raises(FormatError, match="journal"):
            store.timeline("s")
        with pytest.raises(FormatError, match="journal"):
            store.undo("s")
        with pytest.raises(FormatError, match="journal"):
            store.vacuum(undo_window=0, session_id="s")
        assert not store.verify().ok
        assert dump(client) == left
        client.hset(JOURNAL, name, value)
    assert store.verify().ok


def test_a_key_of_a_caller_that_was_changed_is_found(store, client):
    fill(store)
    one, two = client.hmget(USED, "k0", "k1")
    for value in (two, b"", one[:-1] + b"x", b"\xff"):
        client.hset(USED, "k0", value)
        left = dump(client)
        with pytest.raises(FormatError, match="key of its callers"):
            store.add_message("s", "user", "text 0", key="k0")
        assert dump(client) == left
        (finding,) = store.verify().findings
        assert "'k0'" in finding.what
        assert store.add_message("s", "user", "text 1", key="k1").replayed


def test_a_quarantine_that_was_changed_is_found(store, client):
    fill(store)
    rewrite(client, empty_payload)
    store.repair("s")
    ((name, value),) = client.hgetall(QUARANTINE).items()
    client.hset(QUARANTINE, name, value + b"!")
    with pytest.raises(FormatError, match="quarantine"):
        store.quarantined("s")
    assert not store.verify().ok


def test_what_was_imported_forked_vacuumed_or_expired_is_whole(store, client, tmp_path):
    fill(store)
    store.save_context("s", "one", "two", key="batch")
    file = tmp_path / "export.jsonl"
    store.export(file, session_id="s")
    store.fork("s", "t")
    store.vacuum(undo_window=0)
    assert store.verify().ok
    store.forget("s")
    store.import_(file)
    assert store.verify().ok
    assert store.add_message("s", "user", "text 1", key="k1").replayed
    store.add_message("t", "user", "soon", ttl=0.001)
    assert store.verify().ok
    assert texts(store, "s")[-2:] == ["one", "two"]


@pytest.mark.parametrize("key", [HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL])
def test_a_key_of_another_type_is_found(store, client, key):
    fill(store)
    store.add_message("t", "user", "fine")
    client.delete(key)
    client.set(key, "somebody else's")
    assert not store.verify().ok
    assert texts(store, "t") == ["fine"]
    assert sorted(store.list_sessions().ids) == ["s", "t"]
    # A list does not look at the other keys.
    if key in (HEAD, VIEW):
        for order in (None, "-last_activity"):
            assert store.list_sessions(where={"status": "damaged"}, order=order).ids == ["s"]
    left = dump(client)
    for attempt in (
        lambda: store.session("s"),
        lambda: store.save_snapshot("s"),
        lambda: store.clear("s"),
        lambda: store.set_metadata("s", {}),
    ):
        with pytest.raises(FormatError):
            attempt()
    assert dump(client) == left


def test_keys_that_only_look_like_ours_are_passed_over(store, client):
    store.add_message("s", "user", "hi")
    for name in (b"indelible:{:%ff}h", b"indelible:{:a b}h", b"indelible:{:\xff}v"):
        client.hset(name, "life", "1")
    assert store.list_sessions().ids == ["s"]
    assert store.verify().ok
    assert store.forget("s").forks == ()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("1", "older.*[Ee]xport"),
        ("2", "older.*[Ee]xport"),
        ("3", "older.*[Ee]xport"),
        ("4", "older.*[Ee]xport"),
        ("5", "older.*[Ee]xport"),
        ("6", "older.*[Ee]xport"),
        ("8", "newer"),
        ("x", "not indelible's"),
    ],
)
def test_a_server_of_another_format_is_left_alone(url, client, found, said):
    client.set("indelible:format", found)
    with pytest.raises(FormatError, match=said):
        indelible.open(url)
    assert client.keys() == [b"indelible:format"]


@pytest.mark.parametrize("links", [b"[", b"5", b'[["a"]]', b"[[1], []]", b'[["\xff"], []]'])
def test_damaged_ids_of_tool_calls_are_said_by_a_trim(store, client, links):
    """What a trim may hide depends on them. Reading does not."""
    for _ in range(3):
        store.add_message("s", "user", "hello")

    def change(rows):
        # The key of the append stands before them.
        size = int(rows[1][5])
        rest = rows[1][7]
        rows[1][6:] = [b"%d" % len(links), rest[:size] + links + rest[size:]]

    rewrite(client, change)
    assert texts(store, "s") == ["hello"] * 3
    with pytest.raises(CorruptEntryError, match="entry 1 of session 's' is damaged"):
        store.trim("s", keep_last=1)


def test_a_key_whose_entry_was_lost_is_damage_and_not_unused(store, client):
    store.add_message("s", "user", "one", key="k1")
    store.add_message("s", "user", "two")
    assert client.zremrangebyscore(LOG, 0, 0) == 1
    left = dump(client)
    with pytest.raises(FormatError, match="an entry of the append is missing"):
        store.add_message("s", "user", "one", key="k1")
    assert dump(client) == left


def test_a_vacuum_removes_keys_that_it_does_not_keep(store, client, monkeypatch):
    monkeypatch.setattr("indelible.backends.redis.maintenance.KEYS_KEPT", 2)
    for number in range(4):
        store.add_message("s", "user", f"text {number}", key=f"k{number}")
    store.trim("s", keep_last=0, align=None)
    store.vacuum(undo_window=0, session_id="s")
    assert sorted(client.hkeys(USED)) == [b"k2", b"k3"]
    assert store.verify("s").ok
    assert store.add_message("s", "user", "text 2", key="k2", replay="hidden-ok").replayed


def test_a_vacuum_seals_no_damaged_key(store, client):
    store.add_messages("s", [{"role": "user", "content": text} for text in "abc"], key="k1")
    store.add_message("s", "user", "last")
    store.hide("s", [0])
    client.hset(USED, "k1", client.hget(USED, "k1")[:-1] + b"7")
    left = dump(client)
    with pytest.raises(FormatError, match="key of its callers does not match its checksum"):
        store.vacuum(undo_window=0, session_id="s")
    assert dump(client) == left


@pytest.mark.parametrize("checksum", [b"\xff" * 16, b" " * 16], ids=["no text", "spaces"])
def test_a_vacuum_keeps_the_key_of_a_damaged_entry(store, client, checksum):
    store.add_messages("s", [{"role": "user", "content": text} for text in "abc"], key="k1")
    store.add_message("s", "user", "last")
    store.hide("s", [0])

    def damage(rows):
        envelope = rows[1][7]
        rows[1][7] = envelope[:CHECKSUM_FROM] + checksum + envelope[CHECKSUM_TO:]

    rewrite(client, damage)
    for _ in range(2):
        with pytest.raises(ConflictError, match="other content"):
            store.add_messages("s", [{"role": "user", "content": text} for text in "abc"], key="k1")
        store.vacuum(undo_window=0, session_id="s")
    assert client.zcount(LOG, 0, 0) == 0
