"""Threads that LangGraph's own savers stored, brought into indelible."""

import sqlite3
import subprocess
import sys

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

import indelible
from indelible import FormatError, UnavailableError, UnsupportedError
from indelible.adapters.langgraph import IndelibleSaver
from indelible.adapters.langgraph_import import import_threads, open_source
from tests.support import postgres_server
from tests.support.adapters.graphs import GRAPHS, THREAD, describe


def fill_sqlite(tmp_path, work):
    path = tmp_path / "checkpoints.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    work(SqliteSaver(connection))
    connection.close()
    return str(path)


def fill_postgres(tmp_path, work):
    url = postgres_server.fresh_database()
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        work(saver)
    return url


SOURCES = {"sqlite": fill_sqlite, "postgres": fill_postgres}


def run_import(store, source, **options):
    with open_source(source) as opened:
        return import_threads(IndelibleSaver(store), opened, **options)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", SOURCES)
def test_every_state_of_a_thread_comes_over(store, tmp_path, kind, name):
    build, run = GRAPHS[name]
    states = []

    def work(saver):
        graph = build().compile(checkpointer=saver)
        run(graph)
        states.append(describe(graph))

    source = SOURCES[kind](tmp_path, work)
    told = []
    dry = run_import(store, source, dry_run=True)
    assert (dry.threads, dry.dry_run, store.list_sessions()) == (1, True, [])
    report = run_import(store, source, progress=lambda thread, count: told.append((thread, count)))
    assert (report.ok, report.threads, report.equal) == (True, 1, 0)
    assert told[-1] == ("t", report.checkpoints)
    assert dry.checkpoints == report.checkpoints
    graph = build().compile(checkpointer=IndelibleSaver(store))
    assert describe(graph) == states[0]
    again = run_import(store, source)
    assert (again.ok, again.threads, again.checkpoints, again.equal) == (True, 0, 0, 1)


def put_chain(saver, count, thread="t"):
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    for number in range(1, count + 1):
        versions = {"messages": str(number)}
        checkpoint = empty_checkpoint() | {"id": f"{number:04}", "channel_versions": versions}
        checkpoint["channel_values"] = {
            "messages": [f"{at} {'word ' * 200}" for at in range(number)]
        }
        config = saver.put(config, checkpoint, {"step": number}, versions)


@pytest.mark.parametrize("kind", SOURCES)
def test_writes_come_over_in_the_order_of_their_tasks(store, tmp_path, kind):
    writes = [("messages", "first"), ("__interrupt__", "second")]

    def work(saver):
        put_chain(saver, 1)
        newest = saver.get_tuple(THREAD).config
        # Tasks are ordered by their paths, not by their ids.
        saver.put_writes(newest, writes, "z", "path 1")
        saver.put_writes(newest, [("messages", "third")], "a", "path 2")

    run_import(store, SOURCES[kind](tmp_path, work))
    saver = IndelibleSaver(store)
    newest = saver.get_tuple(THREAD)
    expected = [("z", "__interrupt__", "second"), ("z", "messages", "first")]
    expected.append(("a", "messages", "third"))
    assert newest.pending_writes == expected
    saver.put_writes(newest.config, writes, "z", "path 1")
    assert saver.get_tuple(THREAD).pending_writes == expected, "each is stored once"


def test_a_file_from_before_tasks_had_paths_is_imported(store, tmp_path):
    def work(saver):
        put_chain(saver, 2)
        saver.put_writes(saver.get_tuple(THREAD).config, [("messages", "a")], "task")
        saver.conn.execute("ALTER TABLE writes DROP COLUMN task_path")

    report = run_import(store, fill_sqlite(tmp_path, work))
    assert (report.ok, report.checkpoints) == (True, 2)
    found = IndelibleSaver(store).get_tuple(THREAD)
    assert found.pending_writes == [("task", "messages", "a")]


def test_a_backup_of_a_file_is_imported(store, tmp_path):
    source = fill_sqlite(tmp_path, lambda saver: put_chain(saver, 2))
    backup = str(tmp_path / "backup.db")
    connection = sqlite3.connect(source)
    # Unlike the file, it has no write-ahead log.
    connection.execute("VACUUM INTO ?", (backup,))
    connection.close()
    assert run_import(store, backup).checkpoints == 2


def test_an_interrupted_import_is_completed(store, tmp_path):
    source = fill_sqlite(tmp_path, lambda saver: put_chain(saver, 6))

    def stop(_thread, count):
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_import(store, source, progress=stop)
    report = run_import(store, source)
    assert (report.threads, report.checkpoints) == (1, 3)
    found = IndelibleSaver(store).list(THREAD)
    assert [each.checkpoint["id"] for each in found] == [f"{n:04}" for n in range(6, 0, -1)]
    values = [entry for entry in store.get_entries("~thread/t") if entry.kind == "value"]
    assert len(values) == 6, "each message once"


def test_a_thread_with_other_checkpoints_is_left_as_it_is(store, tmp_path):
    def work(saver):
        put_chain(saver, 2)
        put_chain(saver, 1, "other")

    source = fill_sqlite(tmp_path, work)
    put_chain(IndelibleSaver(store), 3)
    report = run_import(store, source)
    assert (report.ok, report.differ, report.threads) == (False, ("t",), 1)


def test_a_checkpoint_that_differs_is_an_error(store, tmp_path):
    source = fill_sqlite(tmp_path, lambda saver: put_chain(saver, 2))
    versions = {"messages": "1"}
    checkpoint = empty_checkpoint() | {"id": "0001", "channel_versions": versions}
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    IndelibleSaver(store).put(config, checkpoint, {"step": 1}, versions)
    with pytest.raises(FormatError, match="does not read back"):
        run_import(store, source)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("missing.db", UnavailableError),
        ("x" * 300, UnavailableError),
        ("mysql://localhost/x", UnsupportedError),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(source, error):
    with pytest.raises(error), open_source(source):
        pass


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "text.db").write_text("no database " * 100)
    with (
        pytest.raises(UnavailableError, match="cannot be read"),
        open_source(str(tmp_path / "text.db")),
    ):
        pass


def test_the_command_imports_and_reports(tmp_path):
    source = fill_sqlite(tmp_path, lambda saver: put_chain(saver, 3))
    command = [sys.executable, "-m", "indelible", "import-langgraph", source]
    target = str(tmp_path / "agent.db")
    for said in ("Imported 1 thread with 3 checkpoints.", "1 thread already there, and equal."):
        done = subprocess.run(
            [*command, "--url", target, "--yes"], capture_output=True, text=True, check=True
        )
        assert said in done.stdout
    with indelible.open(target) as store:
        assert len(list(IndelibleSaver(store).list(THREAD))) == 3
