"""Reads without a script: they see what the script sees, and leave to it what is not as usual."""

import random

import pytest

import indelible
from indelible.backends.redis.scripts import READ_BYTES, READ_ROWS
from indelible.core.operations import Read
from indelible.model import Kind

LOG = "indelible:{:s}l"


def calls(client):
    return {
        name.removeprefix("cmdstat_"): stats["calls"]
        for name, stats in client.info("commandstats").items()
    }


def grown(store, client, dice):
    """A session that lived: with tool calls, trims, rollbacks, a vacuum and lost entries."""
    store.add_message("s", "system", "be brief")
    snapshots = [store.save_snapshot("s").id]
    for number in range(60):
        throw = dice.random()
        if throw < 0.5:
            store.add_messages("s", [{"role": "user", "content": f"{number}"}] * dice.randint(1, 9))
        elif throw < 0.65:
            store.add_tool_call("s", f"c{number}", "look", {})
        elif throw < 0.75:
            store.trim("s", keep_last=dice.randint(1, 30))
        elif throw < 0.85:
            snapshots.append(store.save_snapshot("s").id)
        elif throw < 0.95:
            store.rollback_to_snapshot("s", dice.choice(snapshots))
        else:
            store.vacuum(undo_window=0)
    if dice.random() < 0.3:
        positions = [entry.position for entry in store.get_entries("s")]
        client.xdel(LOG, *(f"{position + 1}-0" for position in dice.sample(positions, 1)))


@pytest.mark.parametrize("seed", range(12))
def test_a_look_sees_what_a_script_sees(url, client, seed):
    dice = random.Random(seed)
    with indelible.open(url) as store:
        grown(store, client, dice)
        backend = store._backend
        context = backend._network.context
        for _ in range(25):
            kinds = dice.choice([None, frozenset({Kind.MESSAGE}), frozenset({Kind.TOOL_CALL})])
            limit, newest = dice.choice([None, 1, 3, 20]), dice.random() < 0.5
            # Small pages, so that a read takes several.
            context._row_bytes["s"] = READ_BYTES // dice.choice([2, 5, READ_ROWS])
            found = []
            for context.looks in (True, False):
                step = Read("s", kinds=kinds, limit=limit, newest=newest)
                first = backend.perform(step)
                step = Read("s", first.frozen, kinds, limit, newest, first.resume)
                rest = () if first.resume is None else backend.perform(step).rows
                found.append((first.rows, first.frozen, first.resume, rest))
            assert found[0] == found[1]


def test_a_plain_read_calls_no_script(url, client):
    with indelible.open(url) as store:
        store.add_messages("s", [{"role": "user", "content": "hi"}] * 300)
        client.config_resetstat()
        assert len(store.get_history("s")) == 300
        assert len(store.get_history("s", last=20)) == 20
        said = calls(client)
    assert "evalsha" not in said
    # Of the first hundred it learns how long they are, and takes the others at once.
    assert said["exec"] == 3


def test_long_entries_are_read_a_few_at_a_time(url, client):
    with indelible.open(url) as store:
        for _ in range(6):
            store.add_message("s", "user", "x" * (READ_BYTES // 2))
        store.get_history("s", last=1)
        client.config_resetstat()
        assert len(store.get_history("s")) == 6
        assert calls(client)["exec"] == 6


def test_a_user_who_may_not_begin_a_transaction_reads_by_script(url, client):
    client.acl_setuser(
        "reader",
        enabled=True,
        passwords=["+secret"],
        keys=["*"],
        commands=["+@all", "-multi"],
    )
    with indelible.open(url.replace("redis://", "redis://reader:secret@")) as store:
        store.add_message("s", "user", "hi")
        assert [each.content for each in store.get_history("s")] == ["hi"]
        client.config_resetstat()
        assert [each.content for each in store.get_history("s")] == ["hi"]
        said = calls(client)
    client.acl_deluser("reader")
    assert said["evalsha"] == 1
    assert "multi" not in said


def test_a_damaged_entry_is_loud_in_a_plain_read(url, client):
    with indelible.open(url) as store:
        store.add_message("s", "user", "hi")
        store.add_message("s", "user", "there")
        ((name, fields),) = client.xrange(LOG, count=1)
        client.delete(LOG)
        client.xadd(LOG, fields, id=name)
        client.xadd(LOG, {"t": "x", "m": "nonsense", "k": "", "e": "{}"}, id="2-0")
        with pytest.raises(indelible.CorruptEntryError) as caught:
            store.get_history("s")
    assert caught.value.details["position"] == 1
