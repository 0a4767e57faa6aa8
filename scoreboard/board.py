"""All stores, some at once, each in a process of its framework's environment."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from memory_contract.results import CONTRACT_VERSION
from scoreboard.cases import BUDGET_S, ROUNDS, SEARCH_GATE, SEED, STORE_S_MAX
from scoreboard.results import Outcome, Run, outcome_of
from scoreboard.servers import start_servers
from scoreboard.stores import Store

ROOT: Final = Path(__file__).parent.parent
# How often a person who waits is told how far it is.
TELL_S: Final = 15.0
# How long a try that is stopped may take to end what it started.
ENDING_S_MAX: Final = 10.0
# Of what a failed try printed, the last lines.
LINES_MAX: Final = 3

Say = Callable[[str], None]
Keep = Callable[[Run], None]


class Board:
    """The stores that are being tried, and how far each is."""

    def __init__(self, stores: Sequence[Store], say: Say, keep: Keep, *, gate: str = "") -> None:
        self._stores = stores
        # The only gate that is asked, or all.
        self._gate = gate
        self._say = say
        # Called with all that is known after each store: a run that is stopped loses little.
        self._keep = keep
        # How many cases of a store are done, and the last of them.
        self._cases: dict[str, tuple[int, str]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._processes: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, jobs: int) -> None:
        """Try all of them."""
        ended = threading.Event()
        teller = threading.Thread(target=self._tell, args=(ended,), daemon=True)
        teller.start()
        pool = ThreadPoolExecutor(jobs)
        try:
            list(pool.map(self._run, self._stores))
        except BaseException:
            # Those that did not begin are left; those that did are ended, and their servers too.
            self._stopped = True
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(self._processes):
                # Asked first: it ends servers of its own.
                process.terminate()
                threading.Timer(ENDING_S_MAX, process.kill).start()
            raise
        finally:
            pool.shutdown()
            ended.set()
            teller.join()

    def _known(self) -> Run:
        return Run(
            date=datetime.now(UTC).date().isoformat(),
            contract=CONTRACT_VERSION,
            seed=SEED,
            budget_s=BUDGET_S,
            rounds=ROUNDS,
            machine=describe_machine(),
            outcomes=dict(self._outcomes),
        )

    def _tell(self, ended: threading.Event) -> None:
        while not ended.wait(TELL_S):
            with self._lock:
                now = ", ".join(
                    f"{name} ({count}, after {case})" for name, (count, case) in self._cases.items()
                )
            self._say(f"... {len(self._outcomes)} of {len(self._stores)} done; now {now}")

    def _run(self, store: Store) -> None:
        began = time.monotonic()
        found = Outcome(not_run=store.not_run) if store.not_run else self._try(store)
        if self._stopped:
            return
        with self._lock:
            self._cases.pop(store.id, None)
            self._outcomes[store.id] = found
            self._keep(self._known())
            place = f"{len(self._outcomes):>2} of {len(self._stores)}"
        failed = sum(seen.verdict == "FAIL" for seen in found.seen)
        passed = sum(seen.verdict == "PASS" for seen in found.seen)
        what = f"NOT RUN: {found.not_run}" if found.not_run else f"{passed} PASS, {failed} FAIL"
        self._say(f"{place}  {store.id:<34} {what}  ({time.monotonic() - began:.0f} s)")

    def _try(self, store: Store) -> Outcome:
        python = ROOT / store.folder / "bin" / "python"
        if not python.exists():
            return Outcome(not_run=f"there is no {store.folder}: make frameworks")
        kinds = {store.server} if store.server is not None else set()
        with (
            tempfile.TemporaryDirectory(prefix="indelible-board-") as folder,
            start_servers(kinds) as told,
        ):
            # Servers that the kit starts there are not root, and must be able to enter.
            Path(folder).chmod(0o755)
            answer = Path(folder) / "outcome.json"
            errors = Path(folder) / "errors"
            command = [
                str(python),
                "-W",
                "ignore",
                "-m",
                "scoreboard.worker",
                store.id,
                str(answer),
                SEARCH_GATE if store.only_search else self._gate,
            ]
            paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
            environment = {
                **os.environ,
                **told,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "TMPDIR": folder,
            }
            with errors.open("w") as stderr:
                self._watch(store, command, environment, stderr.fileno())
            if not answer.exists():
                last = errors.read_text("utf-8", "replace").strip().splitlines()[-LINES_MAX:]
                return Outcome(not_run=" / ".join(last) or "it did not end in time")
            return outcome_of(json.loads(answer.read_text("utf-8")))

    def _watch(
        self, store: Store, command: list[str], environment: dict[str, str], stderr: int
    ) -> None:
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process:
            self._processes.add(process)
            late = threading.Timer(STORE_S_MAX, process.kill)
            late.start()
            try:
                assert process.stdout is not None
                # Stores print, too: what has no tab is theirs.
                cases = (line.split("\t")[1] for line in process.stdout if line.count("\t") == 2)
                for count, case in enumerate(cases, 1):
                    with self._lock:
                        self._cases[store.id] = count, case
            finally:
                late.cancel()
                self._processes.discard(process)


def describe_machine() -> str:
    """What it ran on, as far as that matters."""
    return f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def say(line: str) -> None:
    """A line for a person."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
