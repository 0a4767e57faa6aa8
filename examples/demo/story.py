"""The demo from the first line to the last: three acts, a summary, and what to write next."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Final, TypeVar

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

import indelible
from examples.demo import acts, prose, tables
from examples.demo.acts import Crowd, Kills, Rollback
from examples.demo.sides import Cast
from examples.demo.tables import NAIVE, OURS

T = TypeVar("T")

# Wider lines of prose are hard to read, whatever the terminal has room for.
PROSE_COLUMNS_MAX: Final = 88

NEXT_LINES: Final = """\
import indelible
memory = indelible.open("agent.db")
memory.save_context("ada", "I moved to Lisbon.", "Noted: Lisbon.")
"""
NEXT_TIMEOUT_S: Final = 60.0


def run_demo(console: Console, *, cast: Cast | None = None) -> int:
    """Tell the story; 0 if all that was shown held for indelible, else 1."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="indelible-demo-") as folder:
        stage = Stage(console, Path(folder), cast or Cast())
        stage.heading("indelible: a memory for agents that does not forget")
        stage.say(prose.OPENING)
        crowds, rollbacks, kills = stage.crowd(), stage.rollback(), stage.kills()
        stage.heading("All three")
        console.print(tables.summary_table(crowds, rollbacks, kills))
        held = [ours.held for _, ours in (crowds, rollbacks, kills)]
        stage.say(prose.verdict(held, elapsed_s=time.monotonic() - began))
        ran = stage.next_lines()
    return 0 if all(held) and ran else 1


class Stage:
    """Where the acts are played: a console to speak through, a folder, and who plays what."""

    def __init__(self, console: Console, folder: Path, cast: Cast) -> None:
        self._console = console
        self._folder = folder
        self._cast = cast
        self._columns = min(console.width, PROSE_COLUMNS_MAX)

    def crowd(self) -> tuple[Crowd, Crowd]:
        """Act 1. indelible gets as many turns as the naive store was given in the end."""
        self.heading(f"Act 1: {acts.PROCESSES} processes at once")
        self.say(prose.CROWD)
        naive = self._play(NAIVE, lambda at: acts.run_crowd_until_lost(self._cast.naive, at))
        ours = self._play(
            OURS, lambda at: acts.run_crowd(self._cast.ours, at, turns_each=naive.turns_each)
        )
        self._console.print(tables.crowd_table(naive, ours))
        self.say(prose.about_crowd(naive, ours))
        return naive, ours

    def rollback(self) -> tuple[Rollback, Rollback]:
        """Act 2."""
        self.heading("Act 2: the rollback that takes the snapshots with it")
        self.say(prose.ROLLBACK)
        naive = self._play(NAIVE, lambda at: acts.run_rollback(self._cast.naive, at))
        ours = self._play(OURS, lambda at: acts.run_rollback(self._cast.ours, at))
        self._console.print(tables.rollback_table(naive, ours))
        self.say(prose.about_rollback(naive, ours))
        return naive, ours

    def kills(self) -> tuple[Kills, Kills]:
        """Act 3."""
        self.heading("Act 3: kill -9 in the middle of a conversation")
        self.say(prose.KILLS)
        naive = self._play(NAIVE, lambda at: acts.run_kills(self._cast.naive_file, at))
        ours = self._play(OURS, lambda at: acts.run_kills(self._cast.ours, at))
        self._console.print(tables.kills_table(naive, ours))
        self.say(prose.about_kills(naive, ours))
        return naive, ours

    def next_lines(self) -> bool:
        """Show what to write next, after running it as a program and looking at what it left."""
        program = [sys.executable, "-c", NEXT_LINES]
        subprocess.run(program, cwd=self._folder, check=False, timeout=NEXT_TIMEOUT_S)
        with indelible.open(self._folder / "agent.db") as memory:
            remembered = memory.load_memory("ada")
        self.heading("Your turn")
        # Never wrapped: a reader copies these lines.
        self._console.print(Text(indent(NEXT_LINES, "    "), style="bold"), soft_wrap=True)
        self.say(prose.about_next_lines(remembered))
        return len(remembered) == 1

    def heading(self, words: str) -> None:
        """A line across."""
        self._console.print()
        self._console.print(Rule(words, align="left"), width=self._columns)

    def say(self, words: str) -> None:
        """A paragraph."""
        self._console.print(Text(words), width=self._columns)

    def _play(self, who: str, act: Callable[[Path], T]) -> T:
        folder = self._folder / who
        folder.mkdir(exist_ok=True)
        with self._console.status(f"{who}: the processes are running", spinner="line"):
            return act(folder)
