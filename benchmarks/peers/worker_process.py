"""A worker process seen from the runner: give an order, wait for the answer, with a bound."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.cleanup import end
from benchmarks.peers.roster import Entry

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = ROOT / ".venv-frameworks"
# Longer than any order's own limit, for a single call that does not end.
HUNG_S: Final = 90.0


class RefusedError(Exception):
    """The worker could not do it, and said why."""


class TooSlowError(Exception):
    """The worker did not answer within the bound, and was killed."""


class WorkerProcess:
    """One worker, started when it is first asked and again after it was killed."""

    def __init__(self, entry: Entry, role: Literal["serve", "crowd"], *, cwd: Path) -> None:
        self.entry = entry
        self._role = role
        self._cwd = cwd
        # What had been open, and where.
        self._opened: dict[str, str] = {}
        self._process: subprocess.Popen[str] | None = None
        # Whoever ends the worker while another waits for its answer lets that one see the end.
        self._answering = threading.RLock()

    @property
    def pid(self) -> int:
        """The worker, while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin to import; the first answer waits for it."""
        python = (
            ENVIRONMENTS / self.entry.environment / "bin" / "python"
            if self.entry.environment
            else Path(sys.executable)
        )
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        with (self._cwd / "said").open("a") as said:
            self._process = subprocess.Popen(
                [str(python), "-m", "benchmarks.peers.worker", self.entry.code, self._role],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                cwd=self._cwd,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, path)),
                    # Whoever is started again does the same again.
                    "PYTHONHASHSEED": "0",
                },
            )

    def ask(self, do: str, **order: Any) -> Any:
        """What came of an order; one that was started again opens first what had been open."""
        if self._process is None:
            self.start()
            for at, place in self._opened.items():
                self._ask("open", place=place, at=at)
        answer = self._ask(do, **order)
        if do == "open":
            self._opened[order["at"]] = order["place"]
        return answer

    def _ask(self, do: str, **order: Any) -> Any:
        with self._answering:
            return self._answer(do, order)

    def _answer(self, do: str, order: dict[str, Any]) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise RefusedError(self._last_words()) from error
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(HUNG_S):
                self.stop()
                raise TooSlowError(f"> {HUNG_S:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise RefusedError(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["result"]

    def stop(self) -> None:
        """End it and what it forked; an order that is asked later starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            end(process.pid)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            # What was not written yet is for nobody.
            with self._answering, contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _last_words(self) -> str:
        self.stop()
        said = (self._cwd / "said").read_text("utf-8", "replace").strip().splitlines()
        return f"the worker ended: {said[-1] if said else 'without a word'}"
