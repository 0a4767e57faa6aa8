"""The audit of a session: a line for each change, which nobody can change unseen."""

import asyncio
import dataclasses
import io
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import apsw
import pytest

import indelible
from indelible import BusyError, ClosedError, ConflictError, OutcomeUnknownError, UsageError
from indelible.core.audit import build_audit
from indelible.core.operations import (
    Audited,
    BeginStage,
    DropStage,
    Erase,
    ListAudits,
    ReadAudit,
    SaveSnapshot,
    ShowStage,
    StoredLine,
)
from indelible.core.plan import perform
from indelible.testing.faults import MemoryFaults
from tests.support.stores import ENGINES, Blocking, Clock, empty_url, said, say

KEY = b"a secret of the tests"


@pytest.fixture
def store(make_store):
    return make_store(audit=True, audit_key=KEY, actor="ana")


def inner(store):
    return store._store if isinstance(store, Blocking) else store


def changes(store, session="s"):
    return [line.change for line in store.audit_log(session)]


def findings(store, session="s", **options):
    return [finding.what for finding in store.verify(session, **options).findings]


def test_each_change_is_a_line(store, clock):
    say(store, "s", "one", "two")
    store.save_context("s", "three", "four")
    snapshot = store.save_snapshot("s")
    store.trim("s", keep_last=1)
    store.rollback_to_snapshot("s", snapshot.id)
    store.undo("s")
    store.set_metadata("s", {"a": 1})
    store.delete_snapshot("s", snapshot.id)
    lines = store.audit_log("s")
    made = ["append", "append", "append", "save snapshot", "trim", "rollback", "undo"]
    assert [line.change for line in lines] == [*made, "set metadata", "delete snapshot"]
    assert [line.number for line in lines] == list(range(9))
    assert [line.count for line in lines[:3]] == [1, 1, 2]
    assert {line.actor for line in lines} == {"ana"}
    assert {line.at.timestamp() for line in lines} == {clock()}
    assert lines[0].version == "new"
    assert lines[-1].version == store.session("s").version
    assert findings(store) == []
    assert store.audit_log("s", last=2) == lines[-2:]
    assert store.audit_log("s", last=99) == lines
    assert store.audit_log("s", last=0) == store.audit_log("never", last=1) == []


def test_a_line_names_its_actor(store):
    with indelible.actor("bob"):
        store.add_message("s", "user", "one")
        with indelible.actor("eve"):
            store.add_message("s", "user", "two")
    store.add_message("s", "user", "three")
    assert [line.actor for line in store.audit_log("s")] == ["bob", "eve", "ana"]


def test_what_changes_nothing_is_no_line(store):
    store.add_message("s", "user", "one", key="k")
    store.add_message("s", "user", "one", key="k")
    store.clear("s", dry_run=True)
    with pytest.raises(ConflictError):
        store.add_message("s", "user", "late", expected="1.1.0.0")
    store.get_history("s")
    store.forget("other")
    assert changes(store) == ["append"]
    assert changes(store, "other") == []


def test_a_lost_reply_is_one_line(store):
    faults = MemoryFaults()
    faults.watch(inner(store))
    faults.lose_next_reply("add_message")
    with pytest.raises(OutcomeUnknownError):
        store.add_message("s", "user", "one", key="k")
    assert store.add_message("s", "user", "one", key="k").replayed
    assert changes(store) == ["append"]


def test_a_forgotten_session_leaves_its_lines(store):
    store.add_message("s", "user", "secret")
    store.forget("s")
    lines = store.audit_log("s")
    assert [line.change for line in lines] == ["append", "forget"]
    assert lines[-1].version == ""
    store.add_message("s", "user", "again")
    assert changes(store) == ["append", "forget", "append"]
    assert findings(store) == []


def test_neither_vacuum_nor_a_new_life_removes_lines(store, clock):
    say(store, "s", "one", "two", ttl=10)
    store.clear("s")
    store.vacuum(undo_window=0)
    clock.advance(200_000)
    store.vacuum(undo_window=0)
    store.add_message("s", "user", "three")
    assert changes(store) == ["append", "append", "clear", "append"]
    assert findings(store) == []


def test_a_fork_begins_an_audit_of_its_own(store):
    store.add_message("s", "user", "one")
    store.fork("s", "t")
    assert changes(store) == ["append"]
    assert changes(store, "t") == ["create"]


def test_memories_are_audited(store):
    store.remember("s", "tea", id="drink")
    store.retract("s", "drink")
    store.erase_memory("s", "drink")
    assert changes(store) == ["append", "append", "erase memory"]


def test_a_kept_hash_proves_the_lines_up_to_it(store):
    say(store, "s", "one", "two")
    kept = store.audit_log("s")[-1].hash
    store.clear("s")
    assert findings(store, head=kept) == []
    (found,) = findings(store, head="0" * 64)
    assert "no line with the given hash" in found


def set_audit(store, audit):
    """Open the store again, as it were; memory would be lost."""
    inner(store)._settings = dataclasses.replace(inner(store)._settings, audit=audit)


def test_a_change_without_audit_is_found(store):
    audit = inner(store)._settings.audit
    # What follows the line that begins a session cannot be told.
    say(store, "s", "one", "two")
    assert findings(store) == []
    set_audit(store, None)
    store.add_message("s", "user", "unseen")
    set_audit(store, audit)
    for _ in range(2):
        (found,) = findings(store)
        assert "changed after line 1 of its audit" in found
        store.add_message("s", "user", "three")


def test_another_key_verifies_nothing(store):
    store.add_message("s", "user", "one")
    set_audit(store, build_audit(True, b"not the secret of it", ""))
    (found,) = findings(store)
    assert "line 0 of its audit" in found


@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
def test_a_retried_snapshot_that_begins_a_life_is_a_line(engine, tmp_path):
    clock = Clock()
    save = SaveSnapshot("s", "id", None, None, fresh=True)
    url = empty_url(engine, tmp_path)
    with indelible.open(url, audit=True, audit_key=KEY, clock=clock) as store:
        store.add_message("s", "user", "one", ttl=10)
        store._run(perform(save))
        clock.advance(11)
        store._run(perform(dataclasses.replace(save, fresh=False)))
        assert changes(store) == ["append", "save snapshot", "save snapshot"]
        assert [snapshot.id for snapshot in store.list_snapshots("s")] == ["id"]


SAVE = SaveSnapshot("s", "id", None, None)
EXPIRING_CHANGES = {
    "append": lambda store: store.add_message("s", "user", "two", ttl=10),
    "metadata": lambda store: store.set_metadata("s", {"a": 1}),
    "a retried snapshot": lambda store: store._run(perform(SAVE)),
}


@pytest.mark.parametrize("change", EXPIRING_CHANGES)
@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
def test_the_line_of_a_change_during_which_a_session_expires_fits(engine, change, tmp_path):
    clock = Clock()
    readings = 0

    def expire():
        nonlocal readings
        readings -= 1
        if readings == 0:
            clock.advance(20)
        return clock()

    url = empty_url(engine, tmp_path)
    with indelible.open(url, audit=True, audit_key=KEY, clock=expire) as store:
        for jump in range(1, 8):
            store.forget("s")
            store.add_message("s", "user", "one", ttl=10)
            store._run(perform(SAVE))
            lines, readings = len(store.audit_log("s")), jump
            EXPIRING_CHANGES[change](store)
            expired, readings = readings <= 0, 0
            added = changes(store)[lines:]
            assert findings(store) == []
            if change == "a retried snapshot":
                begun = expired and bool(store.list_snapshots("s"))
                assert added == ["save snapshot"] * begun


def test_an_export_carries_the_lines(store):
    say(store, "s", "one", "two")
    written = io.StringIO()
    store.export(written, "s")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    exported = [line["audit"] for line in lines if "audit" in line]
    assert [line["hash"] for line in exported] == [line.hash for line in store.audit_log("s")]
    with indelible.open("memory:", audit=True, audit_key=KEY, actor="bob") as other:
        written.seek(0)
        other.import_(written)
        copied = other.audit_log("s")
        assert [line.change for line in copied] == ["append", "append", "create"]
        assert copied[1].hash == exported[1]["hash"]
        assert copied[2].actor == "bob"
        assert findings(other, head=exported[1]["hash"]) == []


def export(store, session):
    written = io.StringIO()
    store.export(written, session)
    written.seek(0)
    return written


def test_a_session_that_is_imported_again_keeps_all_its_lines(store):
    say(store, "s", "one", "two")
    written = export(store, "s")
    store.clear("s")
    store.forget("s")
    store.import_(written)
    assert changes(store) == ["append", "append", "clear", "forget", "create"]
    assert findings(store) == []


def test_an_import_with_too_many_lines_is_refused(store, monkeypatch):
    say(store, "s", "one", "two")
    written = io.StringIO()
    store.export(written, "s")
    written.seek(0)
    monkeypatch.setattr("indelible.core.import_checks.IMPORT_AUDIT_MAX", 1)
    with (
        indelible.open("memory:") as other,
        pytest.raises(indelible.FormatError, match="more than 1 lines of an audit"),
    ):
        other.import_(written)


@pytest.mark.parametrize("limit", ["IMPORT_AUDIT_MAX", "IMPORT_SNAPSHOTS_MAX", "EXTENTS_MAX"])
def test_what_could_not_be_imported_is_not_exported(store, monkeypatch, limit):
    say(store, "short", "one")
    say(store, "long", "one", "two", "three", "four")
    store.save_snapshot("long")
    store.save_snapshot("long")
    store.hide("long", [1, 3])
    monkeypatch.setattr(f"indelible.core.plans.transfer.{limit}", 1)
    with pytest.raises(indelible.LimitError, match="session 'long' has") as refused:
        export(store, "long")
    assert refused.value.limit == 1
    written = io.StringIO()
    report = store.export(written)
    assert [finding.session_id for finding in report.skipped] == ["long"]
    written.seek(0)
    with indelible.open("memory:") as other:
        other.import_(written)
        assert other.list_sessions().ids == ["short"]


def test_an_import_that_would_drop_lines_is_refused(store):
    say(store, "s", "one", "two")
    own = export(store, "s")
    store.forget("s")
    before = store.audit_log("s")
    with indelible.open("memory:", audit=True, audit_key=KEY) as other:
        say(other, "s", "another")
        foreign = export(other, "s")
    with pytest.raises(ConflictError) as refused:
        store.import_(foreign)
    assert refused.value.reason == "audit"
    assert store.audit_log("s") == before
    assert store.list_sessions().ids == []
    store.import_(own)
    assert said(store, "s") == ["one", "two"]


def test_a_whole_store_is_verified_with_the_audits_of_sessions_that_are_gone(store, clock):
    say(store, "here", "one")
    say(store, "forgotten", "one")
    store.forget("forgotten")
    say(store, "expired", "one", ttl=10)
    clock.advance(11)
    report = store.verify()
    assert (report.ok, report.sessions) == (True, 1)
    set_audit(store, build_audit(True, b"not the secret of it", ""))
    wrong = {finding.session_id for finding in store.verify().findings}
    assert wrong == {"here", "forgotten", "expired"}


@pytest.mark.parametrize(
    "change",
    [
        {"number": 7},
        {"hash": "short"},
        {"hash": 5},
        {"text": ""},
        {"text": "x" * 9000},
        {"text": "a\0b"},
    ],
    ids=str,
)
def test_an_import_refuses_lines_that_no_store_wrote(change):
    written = io.StringIO()
    with indelible.open("memory:", audit=True, audit_key=KEY) as store:
        store.add_message("s", "user", "one")
        store.export(written, "s")
    edited = []
    for line in written.getvalue().splitlines():
        fields = json.loads(line)
        if "audit" in fields:
            fields["audit"].update(change)
        edited.append(json.dumps(fields))
    with indelible.open("memory:") as other, pytest.raises(indelible.FormatError):
        other.import_(io.StringIO("\n".join(edited)))


def test_reads_are_noted_together(make_store):
    store = make_store(audit="reads", audit_key=KEY, actor="ana")
    store.add_message("s", "user", "one")
    for _ in range(100):
        store.get_history("s")
    append, reads = store.audit_log("s")
    assert (append.change, reads.change, reads.actor) == ("append", "read", "ana")
    assert reads.count == 100


def test_a_search_reads_the_sessions_that_it_finds_something_in(make_store):
    store = make_store(audit="reads", audit_key=KEY)
    store.add_message("found", "user", "green tea")
    store.add_message("other", "user", "coffee")
    store.add_summary("summed", "about tea", [1.0, 0.0], embedder="e")
    for _ in range(50):
        assert {hit.session_id for hit in store.search("green")} == {"found"}
        assert store.search_summaries("summed", [1.0, 0.0], embedder="e")
    assert changes(store, "other") == ["append"]
    for name in ("found", "summed"):
        assert [(line.change, line.count) for line in store.audit_log(name)][1:] == [("read", 50)]


def test_closing_notes_the_last_reads(make_store, reopened, stores):
    if stores.engine == "memory":
        pytest.skip("it ends with its store")
    store = make_store(audit="reads", audit_key=KEY)
    store.add_message("s", "user", "one")
    store.get_history("s")
    again = reopened(store, audit=True, audit_key=KEY)
    assert [(line.change, line.count) for line in again.audit_log("s")] == [
        ("append", 1),
        ("read", 1),
    ]
    assert findings(again) == []


def test_notes_of_a_session_that_is_not_there_do_not_collide(make_store, stores):
    """No row of a session is there to be locked; the line itself must be."""
    if stores.engine == "memory":
        pytest.skip("it has one store")
    many = [make_store(audit="reads", audit_key=KEY, actor=f"reader {n}") for n in range(4)]
    ready = Barrier(len(many))

    def close(store):
        store.get_history("s")
        ready.wait()
        store.close()

    with ThreadPoolExecutor(len(many)) as threads:
        list(threads.map(close, many))
    store = make_store(audit=True, audit_key=KEY)
    assert {line.actor for line in store.audit_log("s")} == {f"reader {n}" for n in range(4)}
    assert findings(store) == []


def test_a_cancelled_call_leaves_the_reads_that_it_has_not_noted_to_the_next(monkeypatch):
    async def main():
        store = await indelible.open_async("memory:", audit="reads", audit_key=KEY)
        names = [f"session {number}" for number in range(100)]
        for name in names:
            await store.get_history(name)
        perform, noting = store._backend.perform, asyncio.Event()

        async def hang(op):
            noting.set()
            await perform(op)
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(store._backend, "perform", hang)
            call = asyncio.create_task(store.list_sessions())
            await noting.wait()
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
        await store.get_history("the hundredth again")
        await store.list_sessions()
        noted = [await store.audit_log(name) for name in names]
        await store.close()
        return noted

    assert [len(lines) for lines in asyncio.run(main())] == [1] * 100


@pytest.mark.parametrize("times", [1, 99], ids=["once", "for ever"])
def test_a_session_that_is_changed_meanwhile_is_verified(monkeypatch, times):
    with indelible.open("memory:", audit=True, audit_key=KEY) as store:
        say(store, "s", "one", "two")
        perform, left = store._backend.perform, [None] * times

        def append_behind(op):
            result = perform(op)
            if isinstance(op, ReadAudit) and op.start == 0 and left:
                left.pop()
                store.add_message("s", "user", "meanwhile")
            return result

        monkeypatch.setattr(store._backend, "perform", append_behind)
        assert findings(store) == []
        assert len(left) < times


def test_reads_that_cannot_be_noted_fail_no_call(monkeypatch):
    store = indelible.open("memory:", audit="reads", audit_key=KEY)
    perform = store._backend.perform

    def refuse_notes(op):
        if isinstance(op, Audited) and op.change is None:
            raise BusyError("not now")
        return perform(op)

    store.add_message("s", "user", "one")
    for _ in range(100):
        store.get_history("s")
    monkeypatch.setattr(store._backend, "perform", refuse_notes)
    assert store.add_message("s", "user", "two").positions == range(1, 2)
    monkeypatch.undo()
    assert changes(store) == ["append", "append", "read"]
    store.close()
    with pytest.raises(ClosedError):
        store.get_history("s")
    store.close()


def test_a_repair_is_audited(tmp_path):
    path = tmp_path / "agent.db"
    with indelible.open(path, audit=True, audit_key=KEY) as store:
        say(store, "s", "one", "two")
    with apsw.Connection(str(path)) as file:
        file.execute("UPDATE entry SET payload = x'00' WHERE id = (SELECT min(id) FROM entry)")
    with indelible.open(path, audit=True, audit_key=KEY) as store:
        store.repair("s")
        assert changes(store) == ["append", "append", "quarantine", "repair"]
        assert [what for what in findings(store) if "audit" in what] == []


def test_the_key_may_be_in_the_environment(monkeypatch):
    monkeypatch.setenv("INDELIBLE_AUDIT_KEY", KEY.decode())
    with indelible.open("memory:", audit=True) as store:
        store.add_message("s", "user", "one")
        assert findings(store) == []


@pytest.mark.parametrize(
    "options",
    [
        {"audit": True},
        {"audit": True, "audit_key": b"short"},
        {"audit": "writes", "audit_key": KEY},
        {"audit": 0, "audit_key": KEY},
        {"audit_key": KEY},
        {"actor": "ana"},
        {"audit": True, "audit_key": KEY, "actor": "a" * 300},
    ],
    ids=str,
)
def test_wrong_options_are_refused(monkeypatch, options):
    monkeypatch.delenv("INDELIBLE_AUDIT_KEY", raising=False)
    with pytest.raises(UsageError):
        indelible.open("memory:", **options)


def test_the_key_is_nowhere_to_be_seen():
    with indelible.open("memory:", audit=True, audit_key=KEY) as store:
        assert KEY.decode() not in repr(store._settings)
        assert KEY.decode() not in repr(store)


@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
def test_an_import_that_is_refused_at_its_last_step_leaves_no_line(engine, tmp_path, monkeypatch):
    with indelible.open("memory:", audit=True, audit_key=KEY) as other:
        say(other, "s", "one", "two")
        written = export(other, "s")
        lines = tuple(other._backend.perform(ReadAudit("s", 0, 10)))
    with indelible.open(empty_url(engine, tmp_path), audit=True, audit_key=KEY) as store:
        own = store._backend.perform

        def lose_stage(op):
            if isinstance(op, Audited) and isinstance(op.change, ShowStage):
                own(DropStage(op.session, op.change.stage))
            return own(op)

        with monkeypatch.context() as patched:
            patched.setattr(store._backend, "perform", lose_stage)
            with pytest.raises(ConflictError):
                store.import_(written)
        assert own(ListAudits()) == ()
        written.seek(0)
        store.import_(written)
        assert own(ReadAudit("s", 0, 2)) == lines
        assert changes(store) == ["append", "append", "create"]
        assert findings(store) == []


@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
def test_imported_lines_must_equal_those_that_are_there(engine, tmp_path):
    lines = tuple(StoredLine(number, f"line {number}", f"{number:064x}") for number in range(4))
    with indelible.open(empty_url(engine, tmp_path)) as store:
        own = store._backend.perform

        def show(*audit):
            stage = own(BeginStage("s", None, None, 0))
            try:
                own(ShowStage("s", stage.life, b"{}", audit=audit))
            finally:
                own(DropStage("s", stage.life))
                own(Erase("s"))

        for count in (2, 1, 4, 0):
            show(*lines[:count])
        for other in ((*lines[:2], lines[3]), lines[1:]):
            with pytest.raises(ConflictError) as refused:
                show(*other)
            assert (refused.value.reason, refused.value.landed) == ("audit", "no")
        assert own(ReadAudit("s", 0, 10)) == lines
