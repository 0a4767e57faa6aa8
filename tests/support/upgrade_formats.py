"""Stores as each released format wrote them, and what today's code must find in them.

A builder belongs to the format that the code writes now. When FORMAT moves on, its golden stays as
it is, and its builder goes: nothing can write that format any more.
"""

import indelible
from indelible import NEVER, Summary

BEGIN = 1_700_000_000
AUDIT_KEY = b"a key of the tests"


class World:
    """A clock that moves a second with each look, and ids that count."""

    def __init__(self):
        self.now = BEGIN
        self.made = 0

    def clock(self):
        self.now += 1
        return float(self.now)

    def ids(self):
        self.made += 1
        return f"{self.made:016x}"


def opened(path, world=None, **options):
    world = world or World()
    return indelible.open(path, clock=world.clock, ids=world.ids, **options)


def format_1(path):
    """Everything that a store can hold."""
    with opened(path) as store:
        _with_a_past(store)
        _with_tools_and_summaries(store)
        _with_edges(store)
        # After the vacuum, so that the journal has lines.
        store.clear("for ever")
        store.undo("for ever")
        store.remember("tools", "Ana drinks coffee.", id="drink")
        store.remember("tools", "Ana drinks tea.", id="drink", source=("ana", [0]))
    with opened(path, _later(), audit=True, audit_key=AUDIT_KEY, actor="ana") as store:
        # Its audit is all that is left of it.
        store.add_message("gone", "user", "not for long")
        store.forget("gone")


def _with_a_past(store):
    """A session that was rolled back, trimmed, undone and forked."""
    store.save_context("ana", "My name is Ana.", "Nice to meet you.")
    store.save_snapshot("ana", label="first")
    store.save_context("ana", "Call me Bob.", "Hello, Bob.", key="rename")
    store.save_snapshot("ana", label="second")
    store.rollback_to_snapshot("ana", store.list_snapshots("ana")[0].id)
    store.add_message("ana", "user", "Ana it is.")
    store.trim("ana", keep_last=1)
    store.undo("ana")
    store.fork("ana", "ana-again")
    store.set_metadata("ana", {"language": "pt", "nested": {"a": [1, None]}})


def _with_tools_and_summaries(store):
    store.add_message("tools", "system", "You help.")
    store.add_tool_call("tools", "call-1", "look", {"at": "é"})
    store.add_tool_result("tools", "call-1", {"found": [1, 2.5, None, True]})
    store.add_tool_call("tools", "call-2", "wait", {})
    store.add_entries(
        "tools", [Summary(text="All is well.", covers=((0, 3),), vector=(0.6, 0.8), embedder="e")]
    )
    store.save_snapshot("tools")
    store.clear("tools")
    store.undo("tools")


def _with_edges(store):
    store.add_message("expired", "user", "gone soon", ttl=1)
    store.add_message("edge %_*?:/'\"", "user", "\u202enul \x00 and 🙂")
    store.add_message("for ever", "user", "stays", ttl=NEVER)
    for number in range(6):
        store.add_message("vacuumed", "user", f"{number}", key=f"key-{number}")
    store.trim("vacuumed", keep_last=2)
    store.vacuum(undo_window=0)


def contents(path):
    """What a reader finds, as plain values: run in another process than the one that asks."""
    with opened(path, _later(), audit=True, audit_key=AUDIT_KEY) as store:
        return {
            "sessions": sorted(store.list_sessions().ids),
            "status": store.session("expired").status.value,
            "ana": [message.content for message in store.get_history("ana")],
            "ana-again": [message.content for message in store.get_history("ana-again")],
            "metadata": store.session("ana").metadata,
            "snapshots": [each.label for each in store.list_snapshots("ana")],
            "calls": [(each.call_id, each.status.value) for each in store.get_tool_calls("tools")],
            "memories": [memory.text for memory in store.list_memories("tools")],
            "summaries": [each.summary.text for each in store.get_summaries("tools")],
            "edge": store.get_history("edge %_*?:/'\"")[0].content,
            "vacuumed": [message.content for message in store.get_history("vacuumed")],
            "found": [hit.position for hit in store.search("meeting", k=1, sessions=["ana"])],
            "audit": [(line.actor, line.change) for line in store.audit_log("gone")],
            "ok": store.verify().ok,
        }


def reindex(path):
    """Complete the index of words."""
    with opened(path, _later()) as store:
        return store.reindex().entries


def _later():
    world = World()
    world.now += 10_000
    return world


def roll_back_everything(path):
    """Each snapshot of each session in turn, and forward again to what showed before."""
    with opened(path, _later()) as store:
        before = {name: store.get_history(name) for name in store.list_sessions().ids}
        shown = []
        for name in sorted(before):
            snapshots = store.list_snapshots(name)
            now = store.save_snapshot(name, label="now")
            for snapshot in snapshots:
                store.rollback_to_snapshot(name, snapshot.id)
                shown.append((name, snapshot.label, len(store.get_entries(name))))
            store.rollback_to_snapshot(name, now.id)
        after = {name: store.get_history(name) for name in store.list_sessions().ids}
        return shown, before == after, store.verify().ok


def retry(path):
    """An append that was made before, asked for again with its key."""
    with opened(path, _later()) as store:
        # What it wrote was rolled back since.
        again = store.save_context(
            "ana", "Call me Bob.", "Hello, Bob.", key="rename", replay="hidden-ok"
        )
        return again.replayed


def migrate(path, folder, script):
    """Open with code whose newest format is one more; `script` brings a file to it."""
    import shutil
    from pathlib import Path

    from indelible.backends.sqlite import schema

    newest = schema.FORMAT + 1
    migrations = Path(folder) / "migrations"
    shutil.copytree(Path(schema.__file__).with_name("migrations"), migrations)
    (migrations / f"{newest:04}.sql").write_text(script)
    schema.FORMAT = newest
    schema.files = lambda package: Path(folder)
    return contents(path)
