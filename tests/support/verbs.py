"""Everything that a store can be asked, once."""

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
    snapshot = store.save_snapshot("s", label="before")
    store.trim("s", keep_last=2)
    store.rollback_to_snapshot("s", snapshot.id)
    store.undo("s")
    store.clear("s")
    store.diff_snapshots("s", snapshot.id)
    store.set_metadata("s", {"a": 1})
    store.fork("s", "t", at=snapshot.id)
    assert sorted(store.list_sessions()) == ["s", "t"]
    assert store.session("s").snapshots == 1
    assert store.verify().ok
    store.timeline("s")
    store.repair(dry_run=True)
    store.delete_snapshot("s", snapshot.id)
    store.vacuum(undo_window=0)
    store.claims()
    store.risks(sessions=True)
    store.forget("s")
    store.clear_all()
