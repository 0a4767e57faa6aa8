"""A worker process seen from the runner: give an order, wait for the answer, with a bound."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.peers.roster import Entry

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = ROOT / ".venv-frameworks"
# Longer than any order's own limit, for a single call that does not end.
HUNG_S: Final = 90.0


class RefusedError(Exception):
    """The worker could not do it, and said why."""


class TooSlowError(Exception):
    """The worker did not answer within the bound, and was killed."""


class Hand:
    """One worker, started when it is first asked and again after it was killed."""

    def __init__(self, entry: Entry, role: Literal["serve", "crowd"], *, cwd: Path) -> None:
        self.entry = entry
        self._role = role
        self._cwd = cwd
        self._place: str | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin to import; the first answer waits for it."""
        python = (
            ENVIRONMENTS / self.entry.environment / "bin" / "python"
            if self.entry.environment
            else Path(sys.executable)
        )
        path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        with (self._cwd / "said").open("a") as said:
            self._process = subprocess.Popen(
                [str(python), "-m", "benchmarks.peers.worker", self.entry.code, self._role],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                cwd=self._cwd,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
            )

    def ask(self, do: str, **order: Any) -> Any:
        """What came of an order; one that was started again opens first what had been open."""
        if self._process is None:
            self.start()
            if self._place is not None and do != "open":
                self._ask("open", place=self._place)
        answer = self._ask(do, **order)
        if do == "open":
            self._place = order["place"]
        return answer

    def _ask(self, do: str, **order: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise RefusedError(self._last_words()) from error
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(HUNG_S):
                self.stop()
                raise TooSlowError(f"> {HUNG_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise RefusedError(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["result"]

    def stop(self) -> None:
        """End it; an order that is asked later starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _last_words(self) -> str:
        self.stop()
        said = (self._cwd / "said").read_text("utf-8", "replace").strip().splitlines()
        return f"the worker ended: {said[-1] if said else 'without a word'}"
