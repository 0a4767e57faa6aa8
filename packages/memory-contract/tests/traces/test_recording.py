"""`record(store, path)`: what stands in a trace, what never does, and what it does not disturb."""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest

import indelible
from memory_contract import Ok, Policy, Violated, explain_trace, record
from memory_contract.goldfish.stores import ListStore
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.format import (
    DroppedLines,
    OtherCall,
    TraceEnd,
    TraceHeader,
    TraceOperation,
    list_parts,
    read_trace,
    strip_fields,
)
from memory_contract.traces.recorder import get_trace_writer
from tests.support.kit import class_stores
from tests.support.kit.child_process import in_a_child
from tests.support.kit.class_stores import Kept


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


def lines(path, kind=TraceOperation):
    return [line for line in read_trace(path) if isinstance(line, kind)]


def operations(path):
    """What was done, once each: what was announced and then done stands there twice."""
    done = {(op.worker, op.invoke_ns): op for op in lines(path) if op.complete_ns is not None}
    return sorted(done.values(), key=lambda op: op.invoke_ns)


def text(path):
    return "".join(part.read_text("ascii") for part in list_parts(path))


# What is written


def test_every_verb_of_indelible_leaves_its_line(path):
    with record(indelible.open("memory:"), path) as store:
        store.add_message("s", "user", "where is my order?", key="k1")
        store.save_context("s", "hello", "hi")
        seen = store.get_history("s")
        snapshot = store.save_snapshot("s")
        store.clear("s")
        store.undo("s")
        store.rollback_to_snapshot("s", snapshot.id)
        store.fork("s", "t")
        store.trim("s", keep_last=1)
        store.get_history("s", last=1)
        store.session("s")
        store.forget("s")
    found = operations(path)
    assert [op.op for op in found] == [
        *("append", "append", "read", "snapshot", "clear", "undo", "rollback", "fork", "trim"),
        *("read", "clear"),
    ]
    first, turn, read = found[:3]
    assert (first.key, first.sizes, first.roles, first.position) == ("k1", (18,), ("user",), 0)
    assert turn.roles == ("user", "assistant")
    assert read.value == (*first.ids, *turn.ids)
    assert len(seen) == 3
    assert found[6].snapshot == found[3].snapshot == snapshot.id
    assert found[7].target == "t"
    assert (found[8].keep, found[9].limit) == (1, 1)
    assert all(op.outcome == "ok" and op.invoke_ns <= op.complete_ns for op in found)
    assert len({op.worker for op in found}) == 1
    assert [other.verb for other in lines(path, OtherCall)] == ["session"]


async def test_an_awaited_store_is_recorded_task_by_task(path):
    async with record(await indelible.open_async("memory:"), path) as store:
        assert isinstance(store, indelible.AsyncMemoryStore)
        await asyncio.gather(*(store.add_message("s", "user", f"{n}") for n in range(4)))
        await store.get_history("s")
    found = operations(path)
    assert [op.op for op in found] == ["append"] * 4 + ["read"]
    assert len({op.worker for op in found}) == 5


def test_a_class_of_messages_and_a_class_of_turns_are_recorded(path, tmp_path):
    store = record(Kept(tmp_path), path)
    assert isinstance(store, Kept)
    store.add_messages("s", (m for m in [indelible.ChatMessage(role="user", content="a")]))
    assert [m["content"] for m in store.get_history("s")] == ["a"]

    class Turns:
        def __init__(self):
            self.turns = []

        def save_context(self, session, human, ai):
            self.turns.append({"human": human, "ai": ai})

        def load_memory(self, session):
            return self.turns

    turns = record(Turns(), path)
    turns.save_context("t", "x", "y")
    turns.load_memory("t")
    get_trace_writer(store).close()
    found = operations(path)
    assert [op.op for op in found] == ["append", "read", "append", "read"]
    assert found[1].value == found[0].ids
    assert found[3].value == found[2].ids


def test_messages_among_other_entries_are_recorded_as_an_append(path):
    with record(indelible.open("memory:"), path, fresh=True) as store:
        call = indelible.ToolCall(call_id="c", name="look", arguments={})
        said = indelible.ChatMessage(role="user", content="here")
        store.add_entries("s", (value for value in [said, call]))
        assert store.get_history("s") == [said]
    append, read = operations(path)
    assert (append.op, append.roles) == ("append", ("user",))
    assert read.value == append.ids


def test_role_and_content_are_told_apart_by_their_names(path, tmp_path):
    store = record(class_stores.ContentAndRole(tmp_path), path, fresh=True)
    store.add_message("s", "a")
    store.add_message("s", "b", "assistant")
    store.add_message("s", role="user", content="c")
    store.get_history("s")
    get_trace_writer(store).close()
    assert [op.roles for op in operations(path)] == [("user",), ("assistant",), ("user",), ()]
    assert isinstance(explain_trace(path).verdict, Ok)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (class_stores.TextAlone, ("a",)),
        (class_stores.TextAndSender, ("a", "user")),
    ],
)
def test_a_message_of_an_unknown_form_accuses_nobody(path, tmp_path, kind, arguments):
    store = record(kind() if kind is class_stores.TextAlone else kind(tmp_path), path, fresh=True)
    for _ in range(3):
        store.add_message("s", *arguments)
        store.get_history("s")
    get_trace_writer(store).close()
    found = explain_trace(path)
    assert not found.names
    assert [each.session for each in found.unknown] == ["s"]


def test_a_message_beside_an_optional_role_and_content_accuses_nobody(path, tmp_path):
    class Either(class_stores.OneDict):
        def add_message(self, session_id, message=None, role="user", content=None):
            super().add_message(session_id, message or {"role": role, "content": content})

    store = record(Either(tmp_path), path, fresh=True)
    store.add_message("s", {"role": "user", "content": "a"})
    store.get_history("s")
    store.add_message("s", content="b")
    store.get_history("s")
    get_trace_writer(store).close()
    assert not explain_trace(path).names


def test_pairs_that_are_added_as_messages_accuse_nobody(path, tmp_path):
    class Pairs(Kept):
        def add_messages(self, session_id, messages):
            self.keep(session_id, [class_stores.Said(*message) for message in messages])

    store = record(Pairs(tmp_path), path, fresh=True)
    store.add_messages("s", [("user", "a")])
    store.get_history("s")
    get_trace_writer(store).close()
    assert not explain_trace(path).names


class WithOptions(class_stores.Snapshots):
    def rollback_to_snapshot(self, session_id, name, dry_run=False, reason=""):
        if not dry_run:
            super().rollback_to_snapshot(session_id, name)

    def fork(self, session_id, new_session_id, title="", at=None):
        for message in self.kept(session_id if at is None else f"{session_id}/{at}"):
            self.keep(new_session_id, [class_stores.Said(**message)])

    def pop(self, session_id, n=1):
        return class_stores.PopsMany.pop(self, session_id, n)

    def clear(self, session_id, scope="all"):
        if scope == "all":
            self.forget(session_id)


def add(store, text):
    store.add_messages("s", [class_stores.Said("user", text)])


def test_options_are_recorded_by_their_names(path, tmp_path):
    store = record(WithOptions(tmp_path), path, fresh=True)
    add(store, "a")
    snapshot = store.save_snapshot("s")
    add(store, "b")
    store.rollback_to_snapshot("s", snapshot, reason="wrong")
    store.fork("s", "t", at=str(snapshot))
    store.get_history("t")
    get_trace_writer(store).close()
    assert [(op.op, op.snapshot) for op in operations(path)] == [
        ("append", None),
        ("snapshot", str(snapshot)),
        ("append", None),
        ("rollback", str(snapshot)),
        ("fork", str(snapshot)),
        ("read", None),
    ]
    assert isinstance(explain_trace(path).verdict, Ok)


@pytest.mark.parametrize(
    "call",
    [
        lambda store, snapshot: store.rollback_to_snapshot("s", snapshot, dry_run=True),
        lambda store, snapshot: store.pop("s", 2),
        lambda store, snapshot: store.clear("s", scope="cache"),
    ],
)
def test_an_option_that_may_say_how_much_is_removed_accuses_nobody(path, tmp_path, call):
    store = record(WithOptions(tmp_path), path, fresh=True)
    add(store, "a")
    snapshot = store.save_snapshot("s")
    for text in ("b", "c"):
        add(store, text)
    call(store, snapshot)
    store.get_history("s")
    get_trace_writer(store).close()
    assert not explain_trace(path).names


@pytest.mark.parametrize("kind", [class_stores.RoleAndContent, class_stores.OneDict])
def test_one_message_at_a_time_is_recorded_however_it_is_passed(path, tmp_path, kind):
    store = record(kind(tmp_path), path)
    if kind is class_stores.RoleAndContent:
        store.add_message("s", "user", "a")
        store.add_message(session_id="s", role="user", content="a")
    else:
        store.add_message("s", {"role": "user", "content": "a"})
        store.add_message(message={"role": "user", "content": "a"}, session_id="s")
    store.get_history(session_id="s")
    get_trace_writer(store).close()
    one, two, read = operations(path)
    assert (one.op, two.op, read.op) == ("append", "append", "read")
    assert (one.roles, one.sizes) == (two.roles, two.sizes) == (("user",), (1,))
    assert read.value == (*one.ids, *two.ids)


def test_a_snapshot_that_its_caller_names_is_recorded_by_that_name(path, tmp_path):
    store = record(class_stores.NamedSnapshots(tmp_path), path)
    store.save_snapshot("s", "first")
    store.rollback_to_snapshot("s", "first")
    get_trace_writer(store).close()
    assert [(op.op, op.snapshot) for op in operations(path)] == [
        ("snapshot", "first"),
        ("rollback", "first"),
    ]


def test_a_snapshot_that_the_store_names_after_all_is_recorded_by_its_id(path, tmp_path):
    store = record(class_stores.LabelledSnapshots(tmp_path), path, fresh=True)
    add(store, "a")
    snapshot = store.save_snapshot("s", "before")
    add(store, "b")
    store.rollback_to_snapshot("s", snapshot)
    store.get_history("s")
    get_trace_writer(store).close()
    assert {op.snapshot for op in operations(path)} == {None, snapshot}
    assert isinstance(explain_trace(path).verdict, Ok)


@pytest.mark.parametrize(
    ("error", "names"), [(KeyError("s1"), {"lost snapshot"}), (KeyError("user"), set())]
)
def test_a_snapshot_that_is_no_key_any_more_is_lost(path, error, names):
    class Wiping:
        def save_context(self, session_id, human, ai): ...

        def load_memory(self, session_id):
            return []

        def save_snapshot(self, session_id):
            return "s1"

        def rollback_to_snapshot(self, session_id, snapshot):
            raise error

    store = record(Wiping(), path, fresh=True)
    with pytest.raises(KeyError):
        store.rollback_to_snapshot("s", store.save_snapshot("s"))
    get_trace_writer(store).close()
    found = explain_trace(path)
    assert found.names == names
    assert "raised: rollback_to_snapshot KeyError (1)" in render_explanation(found)


def test_a_read_that_returns_few_by_default_is_not_taken_for_a_loss(path, tmp_path):
    store = record(class_stores.TenByDefault(tmp_path), path)
    for number in range(12):
        store.add_messages("s", [class_stores.Said("user", str(number))])
    assert len(store.get_history("s")) == 10
    get_trace_writer(store).close()
    assert [op.op for op in operations(path)] == ["append"] * 12
    assert isinstance(explain_trace(path).verdict, Ok)


def test_a_history_of_langchain_is_recorded(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langchain_core.chat_history import BaseChatMessageHistory, InMemoryChatMessageHistory

        history = record(InMemoryChatMessageHistory(), path, session="user-42")
        assert isinstance(history, BaseChatMessageHistory)
        history.add_user_message("hello")
        history.add_ai_message("hi")
        assert [m.content for m in history.messages] == ["hello", "hi"]
        asyncio.run(history.aget_messages())
        history.clear()
        assert history.messages == []
    get_trace_writer(history).close()
    found = operations(path)
    assert [op.op for op in found] == ["append", "append", "read", "read", "clear", "read"]
    assert {op.session for op in found} == {"user-42"}
    assert found[2].value == found[3].value == (*found[0].ids, *found[1].ids)


async def test_a_session_of_the_openai_agents_sdk_is_recorded(path):
    from agents import SQLiteSession

    session = record(SQLiteSession("user-42"), path)
    await session.add_items([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    await session.get_items()
    popped = await session.pop_item()
    await session.clear_session()
    session.close()
    found = operations(path)
    assert [op.op for op in found] == ["append", "read", "pop", "clear"]
    assert popped["content"] == "b"
    assert found[2].value == found[1].value[1] == found[0].ids[1]


def test_what_is_no_store_is_refused_before_anything_is_written(path):
    with pytest.raises(TypeError, match="cannot record dict"):
        record({}, path)

    class Nameless:
        messages = ()

        def add_messages(self, messages): ...

        def clear(self): ...

    with pytest.raises(TypeError, match="does not say which session"):
        record(Nameless(), path)
    assert not path.exists()


# What is never written


def test_by_default_no_word_of_what_was_said_is_in_a_trace(path):
    with record(indelible.open("memory:"), path) as store:
        store.add_message("s", "user", "my card is 4111 1111 1111 1111", metadata={"note": "quiet"})
        store.get_history("s")
        with pytest.raises(indelible.UsageError):
            store.add_message("s", "", "nobody said this")
    assert not {"card", "4111", "quiet", "nobody"} & set(text(path).replace('"', " ").split())
    assert "4111 1111" not in text(path)


def test_a_hash_is_keyed_and_the_key_is_not_in_the_trace(tmp_path):
    tokens = []
    for name in ("one", "two"):
        with record(indelible.open("memory:"), tmp_path / name / "trace.jsonl") as store:
            store.add_message("s", "user", "yes")
            store.add_message("s", "user", "yes")
        first, second = operations(tmp_path / name / "trace.jsonl")
        assert first.ids == second.ids
        tokens.append(first.ids)
        key = (tmp_path / name / "trace.key").read_bytes()
        assert key.hex() not in text(tmp_path / name / "trace.jsonl")
        assert (tmp_path / name / "trace.key").stat().st_mode & 0o077 == 0
    assert tokens[0] != tokens[1]


SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "hunter2-and-more",
    "4111 1111 1111 1111",
    "s3cret!",
]


def test_what_looks_like_a_secret_is_not_even_kept_where_contents_are(path):
    said = (
        f"use {SECRETS[0]} or {SECRETS[1]} or {SECRETS[2]}, Bearer {SECRETS[3]},"
        f" password={SECRETS[4]}, card {SECRETS[5]}, redis://me:{SECRETS[6]}@host/0"
    )
    policy = Policy(contents="kept")
    with record(indelible.open("memory:"), path, policy=policy) as store:
        store.add_message("s", "user", said, metadata={"deep": [said]})
    assert [secret for secret in SECRETS if secret in text(path)] == []
    (op,) = operations(path)
    assert op.contents[0]["content"].startswith("use [secret] or [secret]")
    assert op.contents[0]["content"].endswith("@host/0")


def test_a_policy_hides_what_it_is_told_to(path):
    policy = Policy(contents="kept", hide=lambda said: said.replace("Ada", "***")[:9])
    with record(indelible.open("memory:"), path, policy=policy) as store:
        store.add_message("s", "user", "I am Ada and live in Vienna")
    (op,) = operations(path)
    assert op.contents[0]["content"] == "I am *** "
    assert op.sizes == (27,)


# What it does not disturb


def test_errors_come_through_and_say_what_they_said_of_the_data(path):
    with record(indelible.open("memory:"), path) as store:
        store.add_message("s", "user", "a", key="k")
        with pytest.raises(indelible.ConflictError):
            store.add_message("s", "user", "b", key="k")
        with pytest.raises(indelible.SnapshotNotFoundError):
            store.rollback_to_snapshot("s", "none")
        with pytest.raises(TypeError):
            store.add_message()
    found = operations(path)
    assert [(op.op, op.outcome, op.error) for op in found[1:]] == [
        ("append", "fail", "ConflictError"),
        ("rollback", "fail", "SnapshotNotFoundError"),
    ]
    assert found[2].value == "not found"


def test_a_call_that_a_store_refuses_leaves_its_trace_readable(path):
    with record(indelible.open("memory:"), path, fresh=True) as store:
        store.add_message("s", "user", "a")
        for refused in (
            lambda: store.get_history("s", last=-1),
            lambda: store.add_message("s", "user", "b", key=5),
            lambda: store.trim("s", keep_last=-1),
            lambda: store.save_snapshot(7),
        ):
            with pytest.raises(indelible.UsageError):
                refused()
        store.get_history("s")
    assert [op.op for op in operations(path)] == ["append", "read"]
    assert isinstance(explain_trace(path).verdict, Ok)


@pytest.mark.parametrize("spoil", ["key", "keep", "snapshot"])
def test_what_a_trace_cannot_hold_and_a_store_took_accuses_nobody(path, tmp_path, spoil):
    class Odd(ListStore):
        def append(self, session, messages, *, key=None):
            super().append(session, messages)

        def trim(self, session, keep):
            super().trim(session, 0)

        def snapshot(self, session):
            raise OSError("no answer")

    store = record(Odd(tmp_path), path, fresh=True)
    said = [{"role": "user", "content": "a"}]
    store.append("s", said, key=5 if spoil == "key" else None)
    if spoil == "keep":
        store.trim("s", -1)
    if spoil == "snapshot":
        with pytest.raises(OSError, match="no answer"):
            store.snapshot("s")
    assert len(store.read("s")) == (spoil != "keep")
    store.close()
    found = explain_trace(path)
    assert not found.names
    assert bool(found.unknown) == (spoil != "snapshot")


def test_a_call_never_fails_because_of_its_trace(path, caplog, monkeypatch):
    with record(indelible.open("memory:"), path) as store:
        store.add_message("s", "user", "a")
        get_trace_writer(store).flush()
        monkeypatch.setattr(os, "write", _full)
        for n in range(5):
            store.add_message("s", "user", f"{n}")
        store.clear("s")
        store.add_message("s", "user", "b")
        get_trace_writer(store).flush()
        monkeypatch.undo()
        store.add_message("s", "user", "c")
        assert [m.content for m in store.get_history("s")] == ["b", "c"]
    assert [line.dropped for line in lines(path, DroppedLines)] == [8]
    assert [record_.levelno for record_ in caplog.records] == [logging.WARNING]
    assert "not in the trace" in caplog.text
    # What was there before the disk was full is whole, and what came later too.
    assert [op.op for op in operations(path)] == ["append", "append", "read"]


def _full(*_):
    raise OSError(28, "No space left on device")


def test_where_no_trace_can_be_begun_the_store_comes_back_as_it_is(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store = indelible.open("memory:")
    assert record(store, tmp_path / "file" / "trace.jsonl") is store
    assert "nothing is recorded" in caplog.text


BUFFERED_MAX = "memory_contract.traces.recorder.trace_writer.BUFFERED_MAX"


def test_a_buffer_that_is_full_drops_lines_and_says_so(path, monkeypatch):
    monkeypatch.setattr(BUFFERED_MAX, 20)
    with record(indelible.open("memory:"), path) as store:
        writer = get_trace_writer(store)
        # The writer is kept from writing, as a busy machine would.
        with writer._file_lock:
            for n in range(50):
                store.add_message("s", "user", f"{n}")
    assert sum(line.dropped for line in lines(path, DroppedLines)) == writer.dropped == 40
    assert len(operations(path)) == 10


def test_large_reads_count_for_what_they_hold(path, monkeypatch):
    monkeypatch.setattr(BUFFERED_MAX, 30)
    with record(indelible.open("memory:"), path) as store:
        store.add_messages("s", [{"role": "user", "content": f"{n}"} for n in range(20)])
        writer = get_trace_writer(store)
        writer.flush()
        with writer._file_lock:
            for _ in range(3):
                store.get_history("s")
    assert len([op for op in operations(path) if op.op == "read"]) == 1
    assert writer.dropped == 2


def test_a_message_that_is_changed_later_is_recorded_as_it_was(path, tmp_path):
    store = record(ListStore(tmp_path), path)
    message = {"role": "user", "content": "a", "extra": {"n": 1}}
    store.append("s", [message])
    seen = store.read("s")
    message["extra"]["n"] = 2
    seen[0]["extra"]["n"] = 3
    seen.append("what is this?")
    store.close()
    append, read = operations(path)
    assert read.value == append.ids


# Files and processes


def test_files_rotate_and_the_oldest_go(tmp_path):
    folder = tmp_path / "trace"
    store = indelible.open("memory:")
    with record(store, folder, part_bytes_max=4_000, parts_max=3) as noted:
        for n in range(120):
            noted.add_message("s", "user", f"{n}")
            if n % 10 == 9:
                get_trace_writer(noted).flush()
    assert len(list_parts(folder)) == 3
    assert all(part.stat().st_size < 8_000 for part in list_parts(folder))
    headers = lines(folder, TraceHeader)
    assert [header.continued for header in headers] == [True] * 3
    assert len(lines(folder, TraceEnd)) == 3
    assert 0 < len(operations(folder)) < 120


def test_an_old_trace_is_not_overwritten(path):
    for n in range(2):
        with record(indelible.open("memory:"), path) as store:
            store.add_message("s", "user", f"{n}")
    assert len(list_parts(path)) == 2
    assert len(operations(path)) == 2


def test_the_end_of_a_process_adds_nothing_to_a_trace_that_was_closed(path):
    program = (
        "import sys, indelible, memory_contract\n"
        "with memory_contract.record(indelible.open('memory:'), sys.argv[1]) as store:\n"
        "    store.add_message('s', 'user', 'one')\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    assert list_parts(path) == [path]


def _write(path, name, count):
    with record(indelible.open("memory:"), path) as store:
        for n in range(count):
            store.add_message(name, "user", f"{n}")


def test_many_processes_write_one_folder(tmp_path):
    folder = tmp_path / "trace"
    pids = [in_a_child(lambda n=n: _write(folder, f"s{n}", 20)) for n in range(3)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
    found = operations(folder)
    assert len(found) == 60
    assert len({op.worker.partition(".")[0] for op in found}) == 3
    # One key for all of them: the same words are the same words.
    assert len({op.ids for op in found}) == 20


def test_a_child_writes_its_own_part_and_no_line_of_its_parents(tmp_path):
    folder = tmp_path / "trace"
    with record(indelible.open("memory:"), folder) as store:
        store.add_message("s", "user", "in the parent")

        def child():
            store.add_message("s", "user", "in the child")
            get_trace_writer(store).close()

        pid = in_a_child(child)
        assert os.waitpid(pid, 0)[1] == 0
    found = operations(folder)
    assert len(found) == 2
    assert {op.worker.partition(".")[0] for op in found} == {str(os.getpid()), str(pid)}


def test_what_takes_entries_away_is_known_even_of_a_process_that_is_killed(tmp_path):
    folder = tmp_path / "trace"

    def child():
        store = record(indelible.open("memory:"), folder)
        store.clear("s")
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_a_child(child), 0)
    (announced,) = lines(folder)
    assert (announced.op, announced.outcome, announced.complete_ns) == ("clear", "info", None)
    assert lines(folder, TraceEnd) == []


def test_the_lines_of_a_process_of_multiprocessing_are_written_at_its_end(tmp_path):
    folder = tmp_path / "trace"

    def work():
        # It is not closed, and ends before the lines are written in the background.
        record(indelible.open("memory:"), folder).add_message("s", "user", "a")

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert len(operations(folder)) == len(lines(folder, TraceEnd)) == 1


def test_what_a_killed_process_wrote_is_no_garbage(tmp_path):
    folder, database = tmp_path / "trace", tmp_path / "agent.db"
    indelible.open(str(database)).close()

    def child():
        record(indelible.open(str(database)), folder, fresh=True).add_message("s", "user", "a")
        # At once, before its lines are written.
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_a_child(child), 0)
    with record(indelible.open(str(database)), folder, fresh=True) as store:
        assert len(store.get_history("s")) == 1
    found = explain_trace(folder)
    assert not isinstance(found.verdict, Violated), render_explanation(found)
    assert found.metadata.unclosed == 1


def test_a_file_that_is_full_ends_when_the_next_has_begun(tmp_path):
    """While a process lives, one of its files is open: lines of it may be missing."""
    folder = tmp_path / "trace"
    store = record(indelible.open("memory:"), folder, part_bytes_max=1)
    store.add_message("s", "user", "a")
    get_trace_writer(store).flush()
    assert len(lines(folder, TraceHeader)) == len(lines(folder, TraceEnd)) + 1 > 2
    store.close()
    assert len(lines(folder, TraceHeader)) == len(lines(folder, TraceEnd))


def test_threads_are_workers(path):
    with record(indelible.open("memory:"), path) as store:
        threads = [
            threading.Thread(target=store.add_message, args=("s", "user", f"{n}")) for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = operations(path)
    assert len({strip_fields(op.ids[0]) for op in found}) == 3
    assert all(json.dumps(op.worker) for op in found)
