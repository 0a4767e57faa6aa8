"""A session that went through everything, and what must be equal of its copies."""

import io

from indelible import (
    ChatMessage,
)


def lived(store, session="origin"):
    """A session with rollbacks, trims, forks, tool calls, vectors, keys and metadata."""
    store.add_message(session, "system", "be kind \u0000 ✓ 🙂", pinned=True)
    store.save_context(session, "q1", "a1", key="turn-1")
    first = store.save_snapshot(session, label="first")
    store.add_tool_call(session, "c1", "search", {"q": "x", "n": 2**70})
    store.add_tool_result(session, "c1", ["found", 0.1])
    store.add_summary(session, "so far", [0.1, 0.2, 0.3], covers=range(3), embedder="e5")
    store.save_snapshot(session)
    store.rollback_to_snapshot(session, first.id)
    store.add_messages(
        session, [ChatMessage(role="user", content=[{"type": "text", "text": "hi"}])]
    )
    store.undo(session)
    store.trim(session, keep_last=2, align=None)
    store.save_context(session, "q2", "a2")
    store.set_metadata(session, {"user": "ann", "nested": {"empty": {}}})
    return session


def exported(store, session_id=None):
    lines = io.StringIO()
    store.export(lines, session_id)
    lines.seek(0)
    return lines


def state(store, session):
    """All that must be equal of two sessions; versions are the engine's own."""
    info = store.session(session)
    return {
        "history": store.get_history(session),
        "entries": list(store.get_entries(session)),
        "snapshots": store.list_snapshots(session),
        "timeline": store.timeline(session).entries,
        "changes": store.timeline(session).changes,
        "calls": store.get_tool_calls(session),
        "info": (info.metadata, info.created_at, info.expires_at, info.entries, info.logged),
    }
