"""The example programs, stopped with -9 in the middle, go on where they were."""

import os
import runpy
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import indelible
from indelible.adapters.langgraph import IndelibleSaver

EXAMPLES = Path(__file__).parents[4] / "examples"
CHATS = sorted(path.name for path in EXAMPLES.glob("*_chat.py"))


class Chat:
    """One run of a program, line by line."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / program), str(folder / "agent.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        begin = self.process.stdout.readline()
        assert begin.startswith("You have said "), begin
        self.said_before = int(begin.split()[3])

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def say(self, line):
        self.send(line)
        return self.process.stdout.readline().strip()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        """As a person ends it, and with all that it started."""
        self.process.stdin.close()
        code = self.process.wait(timeout=300)
        self.process.stdout.close()
        return code


@contextmanager
def running(program, folder):
    chat = Chat(program, folder)
    try:
        yield chat
    finally:
        if chat.process.poll() is None:
            chat.kill()


def told(count):
    return f"{count} things so far; the first was 'one'"


def test_there_is_an_example_for_each_framework():
    assert len(CHATS) == 7


@pytest.mark.parametrize("program", CHATS)
def test_a_chat_that_is_killed_goes_on_where_it_was(program, tmp_path):
    with running(program, tmp_path) as chat:
        assert chat.said_before == 0
        assert [chat.say("one"), chat.say("two")] == [told(1), told(2)]
        # In the middle of a turn: whether it still landed is known when it is asked for.
        chat.send("three")
        chat.kill()
    with running(program, tmp_path) as chat:
        assert chat.said_before in (2, 3)
        if chat.said_before == 2:
            assert chat.say("three") == told(3)
        assert chat.say("four") == told(4)
        assert chat.end() == 0
    with indelible.open(tmp_path / "agent.db") as store:
        assert find_said(store, program) == ["one", "two", "three", "four"]


def find_said(store, program):
    (session,) = store.list_sessions().ids
    if program == "langgraph_chat.py":
        saved = IndelibleSaver(store).get_tuple({"configurable": {"thread_id": "ana"}})
        messages = saved.checkpoint["channel_values"]["messages"]
        return [each.content for each in messages if each.type == "human"]
    return [each.content for each in store.get_history(session) if each.role == "user"]


class DyingSaver(IndelibleSaver):
    """Stores nothing more after a number of calls, like a process that was killed."""

    calls_left = 10**6

    def _pass(self):
        self.calls_left -= 1
        if self.calls_left < 0:
            raise SystemError("killed")

    def put(self, *args, **options):
        self._pass()
        return super().put(*args, **options)

    def put_writes(self, *args, **options):
        self._pass()
        return super().put_writes(*args, **options)


@pytest.mark.parametrize("calls", range(7))
def test_a_graph_that_dies_after_any_write_goes_on_where_it_was(calls, tmp_path):
    chat = runpy.run_path(str(EXAMPLES / "langgraph_chat.py"))
    thread, get_said = chat["THREAD"], chat["get_said"]

    def say(graph, text):
        graph.invoke({"messages": [("user", text)]}, thread, durability="sync")

    with indelible.open(tmp_path / "agent.db") as store:
        graph = chat["build_graph"](store)
        say(graph, "one")
        graph.checkpointer = DyingSaver(store)
        graph.checkpointer.calls_left = calls
        try:
            say(graph, "two")
        except SystemError:
            pass
        else:
            assert calls >= 5
    with indelible.open(tmp_path / "agent.db") as store:
        graph = chat["build_graph"](store)
        chat["resume"](graph)
        if get_said(graph.get_state(thread).values) == ["one"]:
            say(graph, "two")
        say(graph, "three")
        assert get_said(graph.get_state(thread).values) == ["one", "two", "three"]
