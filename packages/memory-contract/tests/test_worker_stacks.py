"""A worker that forks goes on, and one that hangs says where."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

from memory_contract import Adapter
from memory_contract.calls import Call, Program
from memory_contract.stacks import format_stack, parse_dump, read_stacks
from memory_contract.workers.pool import WorkerLost, WorkerPool

# A bound on what hangs, not on what is slow.
HANGS_S = 60.0


@dataclass
class Threaded:
    """An async store whose calls are answered by a thread: its event loop must be woken."""

    workspace: object

    async def append(self, session, messages):
        await asyncio.get_running_loop().run_in_executor(None, self._add, session, messages)

    async def read(self, session):
        return await asyncio.get_running_loop().run_in_executor(None, self._file(session).read_text)

    async def stuck(self):
        await asyncio.get_running_loop().create_future()

    def _file(self, session):
        return self.workspace / session

    def _add(self, session, messages):
        with self._file(session).open("a") as file:
            file.writelines(f"{message['content']}\n" for message in messages)


@pytest.fixture
def worker(tmp_path):
    worker_pool = WorkerPool(Adapter(open_async=Threaded, name="threaded"))
    worker = worker_pool.start_worker()
    worker.ask("open", tmp_path, "async", None)
    yield worker
    worker_pool.close()


def appends(name, *ids):
    return Program(name, tuple(Call(op="append", session="s", ids=(one,)) for one in ids))


def test_a_child_leaves_the_event_loop_of_its_parent_alone(worker):
    # The child has threads of its own only if the parent has started none.
    ours, childs = worker.ask(
        "fork", appends("parent", "p1", "p2"), appends("child", "c1"), {}, wait_s=HANGS_S
    )
    assert [op.outcome for op in ours.operations] == ["ok", "ok"]
    assert [op.outcome for op in childs.operations] == ["ok"]
    # Once more, after the child has ended.
    again, _ = worker.ask("fork", appends("parent", "p3"), appends("child"), {}, wait_s=HANGS_S)
    assert [op.outcome for op in again.operations] == ["ok"]


def test_a_worker_that_hangs_says_where_its_threads_and_tasks_stand(worker):
    with pytest.raises(WorkerLost) as caught:
        worker.ask("call", "stuck", (), {}, wait_s=1.0)
    threads = [line for line in caught.value.stacks if ", thread: " in line]
    tasks = [line for line in caught.value.stacks if ", task " in line]
    assert any("run_forever" in line for line in threads), caught.value.stacks
    assert any(line.endswith(" stuck") for line in tasks), caught.value.stacks
    assert all(line.startswith(f"process {worker.pid}, ") for line in caught.value.stacks)


def test_threads_that_stand_at_one_place_share_a_line():
    gate = threading.Event()

    def stand():
        gate.wait()

    threads = [threading.Thread(target=stand, name=f"one {n}", daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    (line,) = [each for each in read_stacks(threads[0].ident) if "stand" in each]
    gate.set()
    assert line.startswith('thread "one 0" and 2 more: ')


def test_a_dump_is_read_from_the_outermost_call_to_the_innermost():
    text = (
        'Thread 0x00007f (most recent call first):\n  File "/a/queue.py", line 3 in get\n'
        '  File "/a/store.py", line 7 in append\n\ntask "t": x.py:1 f\nnoise\n'
    )
    assert parse_dump(text, "process 1") == (
        "process 1, thread: store.py:7 append > queue.py:3 get",
        'process 1, task "t": x.py:1 f',
    )


def test_a_deep_stack_shows_its_innermost_calls():
    line = format_stack([("f.py", number, "f") for number in range(100)])
    assert line.startswith("… > ")
    assert line.endswith("f.py:99 f")
