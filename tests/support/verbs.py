"""Every verb of a store, called at least once; `unit/test_verbs.py` checks that none is missing."""

import io

import pytest

import indelible


def every_verb(store):
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
    assert sorted(store.list_sessions()) == ["s", "t"]
    assert store.session("s").snapshots == 1
    assert store.verify().ok
    store.timeline("s")
    store.repair(dry_run=True)
    assert store.quarantined("s") == []
    store.delete_snapshot("s", snapshot.id)
    store.vacuum(undo_window=0)
    store.claims()
    store.identity()
    store.risks(sessions=True)
    exported = io.StringIO()
    store.export(exported, "s")
    store.forget("s")
    exported.seek(0)
    assert store.import_(exported).sessions == 1
    store.clear_all()
