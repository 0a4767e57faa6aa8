"""Calls of every verb of a store; `unit/test_verbs.py` checks that none is missing."""

import dataclasses
import inspect
import io
from functools import partial

import pytest

import indelible
from indelible.core.embedding import to_embedder

# One plain call of each verb, on an existing session and a snapshot of it. Tests of what holds for
# every verb, or for every verb of a kind, are parametrised by it.
CALLS = {
    "add_message": lambda store, s, _: store.add_message(s, "user", "hi"),
    "add_messages": lambda store, s, _: store.add_messages(s, [{"role": "user", "content": "hi"}]),
    "add_entries": lambda store, s, _: store.add_entries(s, [indelible.Summary(text="hi")]),
    "save_context": lambda store, s, _: store.save_context(s, "hi", "hello"),
    "add_tool_call": lambda store, s, _: store.add_tool_call(s, "c", "search"),
    "add_tool_result": lambda store, s, _: store.add_tool_result(s, "c", "found"),
    "add_summary": lambda store, s, _: store.add_summary(s, "hi", [1.0, 0.0]),
    "get_history": lambda store, s, _: store.get_history(s),
    "load_memory": lambda store, s, _: store.load_memory(s),
    "get_entries": lambda store, s, _: store.get_entries(s),
    "get_tool_calls": lambda store, s, _: store.get_tool_calls(s),
    "get_summaries": lambda store, s, _: store.get_summaries(s),
    "search_summaries": lambda store, s, _: store.search_summaries(s, [1.0, 0.0]),
    "search": lambda store, s, _: store.search("hi"),
    "remember": lambda store, s, _: store.remember(s, "hi", id="m"),
    "embed_missing": lambda store, s, _: _with_embedder(store).embed_missing(s),
    "get_memory": lambda store, s, _: store.get_memory(s, "m"),
    "list_memories": lambda store, s, _: store.list_memories(s),
    "memory_history": lambda store, s, _: store.memory_history(s, "m"),
    "retract": lambda store, s, _: store.retract(s, "m"),
    "refresh_ttl": lambda store, s, _: store.refresh_ttl(s, ["m"]),
    "compact_memories": lambda store, s, _: store.compact_memories(s, keep=1),
    "erase_memory": lambda store, s, _: store.erase_memory(s, "m"),
    "trim": lambda store, s, _: store.trim(s, keep_last=1),
    "hide": lambda store, s, _: store.hide(s, [0]),
    "clear": lambda store, s, _: store.clear(s),
    "clear_all": lambda store, s, _: store.clear_all(),
    "undo": lambda store, s, _: store.undo(s),
    "redo": lambda store, s, _: store.redo(s),
    "rollback_to_snapshot": lambda store, s, at: store.rollback_to_snapshot(s, at),
    "save_snapshot": lambda store, s, _: store.save_snapshot(s),
    "list_snapshots": lambda store, s, _: store.list_snapshots(s),
    "diff_snapshots": lambda store, s, at: store.diff_snapshots(s, at),
    "delete_snapshot": lambda store, s, at: store.delete_snapshot(s, at),
    "fork": lambda store, s, at: store.fork(s, f"{s}-fork", at=at),
    "session": lambda store, s, _: store.session(s),
    "set_metadata": lambda store, s, _: store.set_metadata(s, {"a": 1}),
    "list_sessions": lambda store, s, _: store.list_sessions(),
    "timeline": lambda store, s, _: store.timeline(s),
    "verify": lambda store, s, _: store.verify(s),
    "audit_log": lambda store, s, _: store.audit_log(s),
    "repair": lambda store, s, _: store.repair(s),
    "quarantined": lambda store, s, _: store.quarantined(s),
    "export": lambda store, s, _: store.export(io.StringIO(), s),
    "import_": lambda store, s, _: store.import_(io.StringIO(EMPTY_SESSION)),
    "vacuum": lambda store, s, _: store.vacuum(),
    "reindex": lambda store, s, _: store.reindex(),
    "forget": lambda store, s, _: store.forget(s),
    "claims": lambda store, s, _: store.claims(),
    "identity": lambda store, s, _: store.identity(),
    "risks": lambda store, s, _: store.risks(),
}


def _find_own(store):
    """Return the store itself; an async one may have a blocking face."""
    return vars(store).get("_store", store)


def _with_embedder(store):
    def embed(text):
        return [float(len(text)), 0.0]

    own = _find_own(store)
    own._settings = dataclasses.replace(own._settings, embedder=to_embedder(embed))
    return store


def list_parameters(verb: str) -> list[str]:
    """List what a verb takes."""
    _, *parameters = inspect.signature(getattr(indelible.MemoryStore, verb)).parameters
    return parameters


class WithOptions:
    """A store whose verbs are all called with these options."""

    def __init__(self, store, **options):
        self._store = store
        self._options = options

    def __getattr__(self, verb):
        return partial(getattr(self._store, verb), **self._options)


def _export_empty_session() -> str:
    written = io.StringIO()
    with indelible.open("memory:") as store:
        store.set_metadata("imported", {})
        store.export(written)
    return written.getvalue()


EMPTY_SESSION = _export_empty_session()


def prepare_session(store, session, verb):
    """Begin a session on which a call of this verb works; return a snapshot of it."""
    store.add_messages(session, [{"role": "user", "content": "hi"}] * 2)
    at = store.save_snapshot(session).id
    store.clear(session)
    if verb == "redo":
        store.undo(session)
    return at


def every_verb(store):
    """Call every verb, many of them with what they should return."""
    _every_verb_of_sessions(store)
    own = _find_own(store)
    settings = own._settings
    for verb, call in CALLS.items():
        call(store, f"{verb}-s", prepare_session(store, f"{verb}-s", verb))
    # Without the embedder that one of them needed.
    own._settings = settings


def _every_verb_of_sessions(store):
    for n in range(8):
        store.add_message("s", "user", f"message {n}", key=f"k{n}")
    store.add_message("s", "user", "message 0", key="k0")
    store.save_context("s", "question", "answer")
    store.add_tool_call("s", "c1", "search", {"q": 1})
    store.add_tool_result("s", "c1", "found")
    store.add_summary("s", "sum", [1.0, 0.0], covers=range(3))
    with pytest.raises(indelible.ConflictError):
        store.add_message("s", "user", "late", expected="1.1.0.0")
    assert len(store.get_history("s")) == 10
    assert len(store.get_entries("s", limit=3)) == 3
    assert store.search_summaries("s", [1.0, 0.0])[0].summary.text == "sum"
    assert store.search("sum", sessions=["s"])[0].entry.value.text == "sum"
    store.add_messages("s", [{"role": "user", "content": "one"}])
    store.add_entries("s", [indelible.ChatMessage(role="user", content="two")])
    assert store.load_memory("s")[-1] == {"human": "two", "ai": None}
    assert [call.call_id for call in store.get_tool_calls("s")] == ["c1"]
    assert [stored.summary.text for stored in store.get_summaries("s")] == ["sum"]
    snapshot = store.save_snapshot("s", label="before")
    assert [each.id for each in store.list_snapshots("s")] == [snapshot.id]
    store.trim("s", keep_last=2)
    store.rollback_to_snapshot("s", snapshot.id)
    store.undo("s")
    store.redo("s")
    store.undo("s")
    store.hide("s", [0])
    store.clear("s")
    store.diff_snapshots("s", snapshot.id)
    store.set_metadata("s", {"a": 1})
    store.fork("s", "t", at=snapshot.id)
    assert sorted(store.list_sessions().ids) == ["s", "t"]
    assert store.session("s").snapshots == 1
    _every_verb_of_memories(store)
    assert store.verify().ok
    store.timeline("s")
    assert isinstance(store.audit_log("s"), list)
    store.repair(dry_run=True)
    assert store.quarantined("s") == []
    store.delete_snapshot("s", snapshot.id)
    store.vacuum(undo_window=0)
    store.reindex(rebuild=True)
    store.claims()
    store.identity()
    store.risks(sessions=True)
    exported = io.StringIO()
    store.export(exported, "s")
    store.forget("s")
    exported.seek(0)
    assert store.import_(exported).sessions == 1
    store.clear_all()


def _every_verb_of_memories(store):
    first = store.remember("s", "drinks tea", id="drink", ttl=500, source=("s", [0]))
    store.remember("s", "drinks coffee", id="drink", expected=first.positions[0], ttl=500)
    with pytest.raises(indelible.ConflictError):
        store.remember("s", "late", id="drink", expected=indelible.ABSENT)
    assert [memory.text for memory in store.refresh_ttl("s", ["drink"])] == ["drinks coffee"]
    assert store.get_memory("s", "drink") == store.list_memories("s")[0]
    assert len(store.memory_history("s", "drink")) == 3
    with pytest.raises(indelible.UsageError, match="embedder"):
        store.embed_missing("s")
    store.compact_memories("s", keep=2)
    store.retract("s", "drink")
    store.remember("s", "secret", id="secret")
    assert store.erase_memory("s", "secret").entries == 1
