"""A caller repeats a key whose entries were hidden since: refused, unless it allows that."""

import pickle

import pytest

from indelible import (
    AsyncMemoryStore,
    ConflictError,
    MemoryStore,
    OutcomeUnknownError,
    UsageError,
)
from indelible.core.operations import Append
from tests.support.stores import call, message, said, say
from tests.support.verbs import CALLS, WithOptions, list_parameters

BATCH = [message("one"), message("two")]

# Those of memories take no `replay`: see test_memories.
APPENDS = [verb for verb in CALLS if "replay" in list_parameters(verb)]


def roll_back(store):
    """Show what showed before the append."""
    (snapshot,) = store.list_snapshots("s")
    store.rollback_to_snapshot("s", snapshot.id)


# How entries can come to be hidden.
HIDES = {
    "rollback": roll_back,
    "clear": lambda store: store.clear("s"),
    "clear_all": lambda store: store.clear_all(),
    "trim": lambda store: store.trim("s", keep_last=0),
    "hide": lambda store: store.hide("s", [1]),
    "vacuum": lambda store: (store.clear("s"), store.vacuum(undo_window=0)),
}


def refused(append):
    """The conflict that an append is refused with."""
    with pytest.raises(ConflictError) as caught:
        append()
    assert caught.value.reason == "hidden"
    return caught.value


@pytest.mark.parametrize("verb", APPENDS)
def test_every_verb_with_a_key_refuses_to_repeat_what_is_hidden(store, verb):
    def append(store, **given):
        return CALLS[verb](WithOptions(store, **given), "s", None)

    first = append(store, key="k")
    store.clear("s")
    before = store.session("s").version

    error = refused(lambda: append(store, key="k"))
    assert error.landed == "no"
    assert (error.session, error.key, error.positions) == ("s", "k", first.positions)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert store.session("s").version == before

    again = append(store, key="k", replay="hidden-ok")
    assert again == first._replace(replayed=True, visible=False)
    assert store.session("s").version == before
    store.undo("s")
    assert append(store, key="k") == first._replace(replayed=True)


@pytest.mark.parametrize("way", HIDES)
def test_however_it_was_hidden(store, way):
    say(store, "s", "before")
    store.save_snapshot("s")
    first = store.add_message("s", "user", "hi", key="k")
    HIDES[way](store)
    error = refused(lambda: store.add_message("s", "user", "hi", key="k"))
    assert error.positions == first.positions
    assert "hi" not in said(store, "s")
    store.add_message("s", "user", "hi", key="a new key")
    assert said(store, "s")[-1:] == ["hi"]


def test_a_batch_of_which_a_part_is_hidden_is_hidden(store):
    store.add_messages("s", BATCH, key="k")
    store.trim("s", keep_last=1)
    refused(lambda: store.add_messages("s", BATCH, key="k"))
    assert said(store, "s") == ["two"]


def test_other_content_is_still_reported_as_such(store):
    store.add_message("s", "user", "hi", key="k")
    store.clear("s")
    with pytest.raises(ConflictError) as caught:
        store.add_message("s", "user", "ho", key="k", replay="hidden-ok")
    assert caught.value.reason == "key"


def test_a_hidden_key_is_looked_up_before_the_expected_version(store):
    store.add_message("s", "user", "hi", key="k")
    store.clear("s")
    refused(lambda: store.add_message("s", "user", "hi", key="k", expected="stale"))


def test_a_key_of_an_expired_life_begins_anew(store, clock):
    store.add_message("s", "user", "hi", key="k", ttl=60)
    store.clear("s")
    clock.advance(61)
    receipt = store.add_message("s", "user", "hi", key="k")
    assert not receipt.replayed
    assert said(store, "s") == ["hi"]


def test_the_made_key_of_an_unknown_outcome_is_a_key_like_any_other(store):
    receipt = store.add_message("s", "user", "hi")
    store.clear("s")
    refused(lambda: store.add_message("s", "user", "hi", key=receipt.key))


def test_repair_closes_a_call_again_whose_result_was_hidden(store):
    store.add_entries("s", [call("c1")])
    snapshot = store.save_snapshot("s")
    store.repair("s")
    store.rollback_to_snapshot("s", snapshot.id)
    store.repair("s")
    assert [record.status for record in store.get_tool_calls("s")] == ["failed"]


def test_what_replay_means_is_checked(store):
    with pytest.raises(UsageError, match='replay is "visible" or "hidden-ok", not'):
        store.add_message("s", "user", "hi", key="k", replay="hidden")
    assert store.session("s").status == "new"


class LosesOneReply:
    """A blocking backend: the first append lands, somebody clears the session, no answer comes."""

    def __init__(self, store):
        self.inner = store._backend
        self.other = MemoryStore(self.inner, store._settings)
        self.lost = 0

    def perform(self, step):
        answer = self.inner.perform(step)
        if isinstance(step, Append) and not self.lost:
            self.lost += 1
            self.other.clear("s")
            raise OutcomeUnknownError("no answer came: it may have landed")
        return answer


class LosesOneReplyAsync(LosesOneReply):
    """The same, awaited."""

    def __init__(self, store):
        super().__init__(store)
        self.other = AsyncMemoryStore(self.inner, store._settings)

    async def perform(self, step):
        answer = await self.inner.perform(step)
        if isinstance(step, Append) and not self.lost:
            self.lost += 1
            await self.other.clear("s")
            raise OutcomeUnknownError("no answer came: it may have landed")
        return answer


@pytest.mark.parametrize("key", [None, "k"])
def test_the_stores_own_retry_gives_the_receipt(store, key):
    is_async = not isinstance(store, MemoryStore)
    opened = store._store if is_async else store
    lossy = LosesOneReplyAsync(opened) if is_async else LosesOneReply(opened)
    opened._backend = lossy
    receipt = store.add_message("s", "user", "hi", key=key)
    opened._backend = lossy.inner
    assert lossy.lost == 1
    assert (receipt.replayed, receipt.visible) == (True, False)
    assert said(store, "s") == []
    refused(lambda: store.add_message("s", "user", "hi", key=receipt.key))
