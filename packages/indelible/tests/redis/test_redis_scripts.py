"""Scripts: one call for a step, known again after the server forgot them."""

import re
from importlib.resources import files

import pytest

import indelible
from indelible.backends.redis import request_batch
from indelible.backends.redis.scripts import load_script
from indelible.core.limits import LOG_ENTRIES_MAX
from indelible.core.operations import ReadJournal


def calls(client):
    """How often each command was called from outside of a script."""
    return {
        name.removeprefix("cmdstat_"): stats["calls"]
        for name, stats in client.info("commandstats").items()
    }


def test_every_word_with_which_a_script_refuses_a_write_is_known():
    # The last line of a script says that it did its work.
    done, refused = set(), set()
    for script in files("indelible.backends.redis").joinpath("scripts").iterdir():
        for start, word in re.findall(r"(?m)^(.*)\breturn \{'(\w+)'", script.read_text("utf-8")):
            (refused if start else done).add(word)
    assert {word.decode() for word in request_batch.REFUSALS} == refused - done


def test_an_append_is_one_round_trip(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "first")
        client.config_resetstat()
        for number in range(10):
            store.add_message("s", "user", "hi", key=f"k{number}", ttl=60)
        said = calls(client)
    assert said["evalsha"] == 10
    assert "eval" not in said
    assert "keys" not in said


def test_an_append_that_is_replayed_refused_or_after_an_expiry_is_one_call(url, client):
    now_s = [1_700_000_000.0]
    with indelible.open(url, clock=lambda: now_s[0]) as store:
        version = store.add_message("s", "user", "first", key="k", ttl=10).version
        store.add_message("s", "user", "second", ttl=10)
        client.config_resetstat()
        assert store.add_message("s", "user", "first", key="k").replayed
        with pytest.raises(indelible.ConflictError):
            store.add_message("s", "user", "third", expected=version)
        now_s[0] += 10
        assert store.add_message("s", "user", "third").positions == range(2, 3)
        assert calls(client)["evalsha"] == 3


@pytest.mark.parametrize(
    "verb",
    [
        lambda store: store.get_history("s", last=5),
        lambda store: store.save_snapshot("s"),
        lambda store: store.session("s"),
        lambda store: store.get_entries("s", limit=10),
        lambda store: store.set_metadata("s", {"a": 1}),
    ],
)
def test_a_step_is_one_call(url, client, verb):
    with indelible.open(url) as store:
        for number in range(20):
            store.add_message("s", "user", str(number))
        verb(store)
        client.config_resetstat()
        verb(store)
        said = calls(client)
        assert said["evalsha"] == 1
        assert "eval" not in said


def test_a_rollback_is_one_call(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "kept")
        snapshot = store.save_snapshot("s")
        for answer in ("bad", "worse"):
            store.add_message("s", "assistant", answer)
            client.config_resetstat()
            store.rollback_to_snapshot("s", snapshot.id)
            assert calls(client).get("evalsha", 0) + calls(client).get("eval", 0) <= 2
        assert calls(client)["evalsha"] == 1
        assert [message.content for message in store.get_history("s")] == ["kept"]


@pytest.mark.parametrize("record", ["1 2", "1 2 1 0 nonsense|", "1 2 1 0 0,1;x,2|"])
def test_a_rollback_to_a_damaged_snapshot_changes_nothing(url, client, record):
    with indelible.open(url) as store:
        store.add_message("s", "user", "first")
        snapshot = store.save_snapshot("s")
        store.add_message("s", "user", "second")
        version = store.session("s").version
        client.hset("indelible:{:s}s", snapshot.id, record)
        with pytest.raises(indelible.FormatError, match="snapshot does not match its checksum"):
            store.rollback_to_snapshot("s", snapshot.id)
        assert store.session("s").version == version


def test_a_server_that_was_told_to_forget_its_scripts_gets_them_again(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "one")
        client.script_flush()
        receipt = store.add_message("s", "user", "two")
        assert not receipt.replayed
        client.script_flush()
        assert [message.content for message in store.get_history("s")] == ["one", "two"]
        client.config_resetstat()
        store.add_message("s", "user", "three")
        assert "eval" in calls(client), "its text was sent, since the flush forgot it"
        store.add_message("s", "user", "four")
        assert calls(client)["eval"] == 1, "and is known from then on"


async def test_many_tasks_at_once_after_a_flush(url, client):
    import asyncio

    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "first")
        client.script_flush()
        receipts = await asyncio.gather(
            *(store.add_message("s", "user", str(number)) for number in range(100))
        )
    assert sorted(receipt.positions.start for receipt in receipts) == list(range(1, 101))


def test_a_restarted_server_has_the_sessions_and_gets_the_scripts(start):
    server = start()
    with indelible.open(server.url) as store:
        store.add_message("s", "user", "one")
        server.restart()
        store.add_message("s", "user", "two")
        assert [message.content for message in store.get_history("s")] == ["one", "two"]


def test_a_list_sends_its_script_to_a_server_that_lost_it(url, client):
    with indelible.open(url) as store:
        for number in range(5):
            store.add_message(f"s{number}", "user", "hello")
        client.script_flush()
        client.config_resetstat()
        assert len(store.list_sessions()) == 5
    stats = client.info("commandstats")
    assert stats["cmdstat_eval"]["calls"] == 1
    assert stats["cmdstat_evalsha"]["calls"] == 4


def test_scripts_have_the_values_of_constants_in_place_of_their_names():
    text = load_script("append").text
    assert str(LOG_ENTRIES_MAX) in text
    assert "LOG_MAX" not in text


async def test_tasks_that_append_at_once_share_round_trips(url, client):
    import asyncio

    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "first")
        before = client.info("stats")["total_reads_processed"]
        await asyncio.gather(*(store.add_message("s", "user", str(n)) for n in range(200)))
        reads = client.info("stats")["total_reads_processed"] - before
    assert reads < 50, "two hundred appends in a few packets"


def test_threads_that_append_at_once_share_round_trips_and_each_has_its_receipt(url):
    import threading

    receipts = {}
    with indelible.open(url) as store:

        def work(name):
            receipts[name] = [store.add_message("s", "user", f"{name}-{n}") for n in range(50)]

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entries = store.get_entries("s", limit=1000)
    by_position = {entry.position: entry.value.content for entry in entries}
    assert sorted(by_position) == list(range(400))
    for name, own in receipts.items():
        said = [by_position[receipt.positions.start] for receipt in own]
        assert said == [f"{name}-{n}" for n in range(50)]


async def test_a_script_is_sent_again_after_a_flush_and_known_from_then_on(url, client):
    async with indelible.open_async(url) as store:
        for number in range(3):
            await store.add_message("s", "user", str(number))
        client.script_flush()
        await store.add_message("s", "user", "3")
        client.config_resetstat()
        for number in range(10):
            await store.add_message("s", "user", str(number))
        said = calls(client)
        assert said["evalsha"] == 10
        assert "eval" not in said


def test_an_append_minds_whatever_others_did_to_the_session(url):
    with indelible.open(url) as one, indelible.open(url) as two:
        one.add_message("s", "user", "a")
        one.add_message("s", "user", "b")
        two.add_message("s", "user", "c")
        two.clear("s")
        receipt = one.add_message("s", "user", "d")
        assert receipt.positions == range(3, 4)
        assert receipt.version == two.get_history("s").version
        two.add_message("s", "user", "e", ttl=100)
        one.add_message("s", "user", "f")
        assert one.session("s").expires_at is None
        two.forget("s")
        assert one.add_message("s", "user", "g").positions == range(1)
        two.add_message("s", "user", "h", ttl=0.001)
        while two.session("s").status != "expired":
            pass
        assert one.add_message("s", "user", "i", ttl=50).positions == range(2, 3)
        assert [message.content for message in two.get_history("s")] == ["i"]
        assert one.add_message("s", "user", "j", ttl=60).positions == range(3, 4)
        assert one.session("s").ttl_s > 50


def test_an_append_after_which_no_answer_came_lands_once(start):
    server = start()
    with indelible.open(server.url, timeout_s=30) as store:
        store.add_message("s", "user", "first")
        server.freeze()
        import threading

        receipts = []
        sending = threading.Thread(
            target=lambda: receipts.append(store.add_message("s", "user", "second"))
        )
        sending.start()
        server.kill()
        server.start()
        sending.join(60)
        assert receipts[0].positions == range(1, 2)
        assert len(store.get_history("s")) == 2


def test_cursors_work_again_after_the_server_lost_its_secret(url, client):
    with indelible.open(url) as one, indelible.open(url) as other:
        for number in range(4):
            one.add_message("s", "user", str(number))
        lost = one.get_entries("s", limit=2).cursor
        client.delete("indelible:secret")
        # The other one makes a new secret; whoever remembers the old one learns of it.
        made = other.get_entries("s", limit=2).cursor
        assert made != lost
        with pytest.raises(indelible.UsageError):
            other.get_entries("s", cursor=lost)
        assert len(one.get_entries("s", cursor=made)) == 2
        assert one.get_entries("s", limit=2).cursor == made


def test_reading_the_journal_does_not_look_for_what_a_vacuum_removed(url, client):
    with indelible.open(url) as store:
        for number in range(50):
            store.add_message("s", "user", str(number))
            store.clear("s")
        store.vacuum(undo_window=0)
        for number in range(3):
            store.add_message("s", "user", str(number))
            store.clear("s")
        store.undo("s")
        client.config_resetstat()
        lines = store._backend.perform(ReadJournal("s", 10)).lines
    assert [line.undone_by is None for line in lines] == [True, False, True, True]
    assert calls(client)["hget"] <= 5
