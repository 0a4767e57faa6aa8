"""A run that is told to end, or whose worker is: nothing of it goes on."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.cleanup import TERMINATED
from benchmarks.peers.roster import ROSTER, SQLITE
from benchmarks.peers.worker_process import ROOT, RefusedError, WorkerProcess
from memory_contract.faults.servers.postgres import list_children
from tests.support.wait import wait_until

WAIT_S = 60.0
LOOK_AGAIN_S = 0.02


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # Whoever was left behind by a killed parent may not be collected by anyone here.
    return state != "Z"


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def started(tmp_path, *command):
    """A benchmark with its temporary files in a folder that can be looked at."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_run_that_is_told_to_end_ends_its_server_and_its_workers(tmp_path):
    # Long enough that it cannot end by itself first.
    asked = ("--only", "redis · bare", "--into", str(tmp_path / "figures"))
    run = started(tmp_path, "benchmarks.peers", *asked)
    try:

        def both():
            there = {pid: command_of(pid) for pid in list_children(run.pid)}
            words = ("valkey-server", "benchmarks.peers.worker")
            return all(any(word in each for each in there.values()) for word in words) and there

        there = wait_until(both, "a server and a worker")
        run.send_signal(signal.SIGTERM)
        assert run.wait(WAIT_S) == TERMINATED
        wait_until(lambda: not any(map(alive, there)), f"the end of {there}")
        assert not list(tmp_path.iterdir()), "its files are gone too"
    finally:
        run.kill()
        run.wait()


@pytest.mark.parametrize(
    "command",
    ["benchmarks.scale --share 0.001 --into {folder}/results", "benchmarks redis"],
)
def test_a_server_of_another_benchmark_is_ended_too(command, tmp_path):
    run = started(tmp_path, *command.format(folder=tmp_path).split())
    try:

        def server():
            return [pid for pid in list_children(run.pid) if "valkey-server" in command_of(pid)]

        there = wait_until(server, "a server")
        run.send_signal(signal.SIGTERM)
        assert run.wait(WAIT_S) == TERMINATED
        wait_until(lambda: not any(map(alive, there)), "the end of the server")
    finally:
        run.kill()
        run.wait()


def test_what_a_worker_forked_ends_with_it(tmp_path):
    entry = next(e for e in ROSTER if e.engine == SQLITE and e.code == "bare:BareSqlite")
    hand = WorkerProcess(entry, "crowd", cwd=tmp_path)
    hand.start()
    worker = hand.pid
    refused = []

    def ask():
        # Processes that append for longer than anybody waits here.
        order = {"many": False, "each": 10**9, "limit_s": 2 * WAIT_S}
        try:
            hand.ask("processes", place=str(tmp_path / "store.db"), **order)
        except RefusedError as error:
            refused.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    forked = wait_until(lambda: list(list_children(worker)), "a child")
    hand.stop()
    wait_until(lambda: not any(map(alive, [worker, *forked])), "the end of worker and child")
    asking.join(WAIT_S)
    assert refused


@pytest.mark.parametrize("role", ["serve", "crowd"])
def test_a_worker_that_never_worked_can_be_stopped(role, tmp_path):
    hand = WorkerProcess(ROSTER[0], role, cwd=tmp_path)
    hand.stop()
    hand.start()
    worker = hand.pid
    hand.stop()
    assert not alive(worker)
