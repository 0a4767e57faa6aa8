"""A worker that forks goes on, what hangs says where, and what is cancelled is recorded."""

import asyncio
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace

import pytest

from memory_contract import Adapter
from memory_contract.calls import Call, Program
from memory_contract.timeouts import WorkTimedOut, run_with_timeout
from memory_contract.workers.pool import WorkerLost, WorkerPool
from memory_contract.workers.races import race_tasks

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

    async def clear(self, session):
        await self.stuck()

    def wait_for(self, path):
        while not path.exists():
            time.sleep(0.001)
        return "late"

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


def test_a_worker_that_was_asked_for_its_stacks_goes_on(worker):
    worker.dump_stacks()
    log = worker.ask("run", appends("w", "a1"), {}, 0, wait_s=HANGS_S)
    assert [op.outcome for op in log.operations] == ["ok"]


def test_a_worker_that_does_not_answer_is_lost(worker):
    with pytest.raises(WorkerLost, match="did not answer for 1 s"):
        worker.ask("call", "stuck", (), {}, wait_s=1.0)


SILENT = """
from multiprocessing import Pipe
from memory_contract.workers.pool import Worker, WorkerLost

ours, theirs = Pipe()
try:
    Worker(ours, 0.1)
except WorkerLost as error:
    print(error)
"""


def test_a_worker_that_does_not_send_its_process_id_takes_nobody_along():
    # In a group of its own: what would be killed is the group of the process that waits.
    command = [sys.executable, "-c", SILENT]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, start_new_session=True)
    assert run.stdout == b"a worker process did not answer for 0 s\n"


def test_a_late_answer_is_not_that_of_the_next_question(worker, tmp_path):
    gate = tmp_path / "gate"
    with pytest.raises(WorkerLost, match="did not answer"):
        worker.ask("call", "wait_for", (gate,), {}, wait_s=0.1)
    gate.touch()
    with pytest.raises(WorkerLost, match="ended"):
        worker.ask("run", appends("w", "a1"), {}, 0, wait_s=HANGS_S)


def test_a_worker_that_owes_an_answer_is_ended_without_waiting_for_it(worker):
    worker.tell("call", "stuck", (), {})
    run_with_timeout(HANGS_S, worker.end)
    assert worker.ended


def test_work_that_does_not_end_says_where_it_stands():
    gate = threading.Event()

    def stand():
        gate.wait()

    with pytest.raises(WorkTimedOut, match=r"no end within 0 s, at .*test_workers.py:\d+ stand > "):
        run_with_timeout(0.2, stand)
    gate.set()


async def test_a_call_that_is_cancelled_right_after_its_delay_is_recorded(tmp_path):
    clear = Program("", (Call(op="clear", session="s"),))
    programs = [replace(clear, worker=f"w{n}", delay_s=n * 1e-4) for n in range(20)]
    handles = [Threaded(tmp_path)] * len(programs)
    cancels = {program.worker: 0.0 for program in programs}
    logs = await race_tasks(programs, {}, handles, cancels=cancels)
    assert [[op.worker for op in log.operations] for log in logs] == [[name] for name in cancels]
    assert {op.outcome for log in logs for op in log.operations} == {"info"}
    assert {error for log in logs for _, error, _ in log.errors} == {"CancelledError"}
