"""python -m scoreboard: try the stores, and write the page. `make scoreboard` calls it."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scoreboard import results
from scoreboard.board import ROOT, Board, say
from scoreboard.cases import GATES, SEARCH_GATE
from scoreboard.markdown_page import to_markdown
from scoreboard.results import Run
from scoreboard.stores import STORES, Store
from scoreboard.verdicts import count_compared, differences

DOCS: Final = ROOT / "docs"
# Stores wait for disks, locks and servers more than they compute.
JOBS: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Try what is asked for; 1 if a run does not agree with the one before."""
    asked = _asked(arguments)
    # As Ctrl-C does: servers are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; what was found is kept"))
    file = asked.folder / "scoreboard.json.gz"
    runs = results.read(file)
    if not asked.pages:
        chosen = _chosen(asked.only)
        began = time.monotonic()
        before = runs if asked.only or asked.gate else runs[: asked.again]

        def keep(newer: Run) -> None:
            nonlocal runs
            runs = _with(before, newer, again=asked.again, gate=asked.gate)
            results.write(file, runs)

        Board(chosen, say, keep, gate=asked.gate).run(asked.jobs)
        say(f"{len(chosen)} stores in {(time.monotonic() - began) / 60:.0f} minutes")
    (asked.folder / "scoreboard.md").write_text(to_markdown(runs), "utf-8")
    say(f"Wrote {asked.folder}/scoreboard.md and scoreboard.json.gz.")
    return _agree(runs) if len(runs) > 1 else 0


def _with(before: list[Run], newer: Run, *, again: bool, gate: str) -> list[Run]:
    """The runs that are kept: one, or two to be compared."""
    place = 1 if again and before else 0
    known = [results.merged(before[place], newer, gate)] if len(before) > place else [newer]
    return [*before[:place], *known, *before[place + 1 :]]


def _agree(runs: Sequence[Run]) -> int:
    found = list(differences(runs[0], runs[1], GATES))
    say(f"{count_compared(runs[0], runs[1], GATES)} verdicts compared, {len(found)} differ")
    for line in found:
        say(f"  {line}")
    return 1 if found else 0


def _chosen(words: Sequence[str]) -> list[Store]:
    """The stores whose id, framework or class has one of the words."""
    if not words:
        return STORES
    found = [
        store
        for store in STORES
        if any(
            word.lower() in f"{store.id} {store.framework} {store.name}".lower() for word in words
        )
    ]
    if not found:
        names = ", ".join(store.id for store in STORES)
        say(f"Nothing was run: no store is called {', '.join(words)}. There are {names}.")
        raise SystemExit(2)
    return found


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scoreboard",
        description="The contract kit on the stores that frameworks ship, as a page in docs/.",
        epilog="For example: python -m scoreboard --only langchain --only adk/sqlite",
    )
    parser.add_argument("--only", action="append", default=[], metavar="WORD",
                        help="only stores whose id, framework or class has this word; the "
                        "others keep what is known of them")  # fmt: skip
    parser.add_argument("--gate", choices=[*GATES, SEARCH_GATE], default="",
                        help="only this gate; of the others, what is known is kept")  # fmt: skip
    parser.add_argument("--again", action="store_true",
                        help="a second run: compare its verdicts with the first one's")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"how many at once ({JOBS})")
    parser.add_argument("--pages", action="store_true", help="run nothing, only write the page")
    parser.add_argument("--folder", type=Path, default=DOCS, help="where the page is (docs)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
