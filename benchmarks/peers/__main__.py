"""Measure indelible beside its peers and the bare drivers: `make bench-peers`."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.cleanup import end_children_on_signal
from benchmarks.peers import comparison, databases, page
from benchmarks.peers.bounds import FEWEST_ROUNDS, QUICK, Bounds
from benchmarks.peers.figure_text import print_results
from benchmarks.peers.results import Results
from benchmarks.peers.roster import BARE, ENGINES, OURS, ROSTER, Entry
from benchmarks.peers.runner import Runner
from benchmarks.peers.worker_process import ENVIRONMENTS, ROOT

EVERY_SECOND: Final = "everysec"
EXAMPLES: Final = """examples:
  python -m benchmarks.peers                        everything; writes the results and the page
  python -m benchmarks.peers --quick --only redis   a look at one engine in half a minute
  python -m benchmarks.peers --only openai          whose name has it, beside indelible
  python -m benchmarks.peers --into second --compare benchmarks/results/peers-*.json.gz
"""


def parse_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", help="peers whose engine or name has this word")
    parser.add_argument("--rounds", type=int, help="so many rounds, and no more (5 to 10)")
    parser.add_argument("--quick", action="store_true", help="few calls, up to 10,000 messages")
    parser.add_argument(
        "--appendfsync", default=EVERY_SECOND, choices=["always", "everysec", "no"],
        help="of the Redis server (everysec)",
    )  # fmt: skip
    parser.add_argument("--into", type=Path, help="folder for the figures; no page is written")
    parser.add_argument(
        "--compare", type=Path, nargs="+", metavar="FILE",
        help="list what does not agree with these figures of an earlier run; exit 1 if any",
    )  # fmt: skip
    parser.add_argument("--page", action="store_true", help="only write the page again")
    given = parser.parse_args()
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds must be at least 1")
    for path in given.compare or []:
        if not path.is_file():
            parser.error(f"--compare: there is no file {path}")
    return given


def choose_peers(only: str | None) -> list[Entry]:
    """The peers that are asked for; what they are measured against is always there."""
    word = (only or "").lower()
    named = [entry for entry in ROSTER if word in entry.label.lower()]
    engines = {entry.engine for entry in named}
    return [
        entry
        for entry in ROSTER
        if entry in named or (entry.engine in engines and entry.name in (BARE, *OURS))
    ]


def main() -> int:
    """Measure, write, print."""
    given = parse_arguments()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    if given.page:
        console.print(f"page: {page.write(page.committed(), ROOT / 'docs')}")
        return 0
    entries = choose_peers(given.only)
    if not entries:
        console.print(f"no peer has the word {given.only!r} in its engine or name")
        return 2
    missing = sorted({e.environment for e in entries if not _there(e.environment)})
    if missing:
        console.print(f"not installed: {', '.join(missing)}. Run `make frameworks` first.")
        return 2
    # Now: the run may write to the same files.
    earlier = Results.together(Results.load(each) for each in given.compare or [])
    into = given.into or (page.RESULTS if _whole(given) else Path(tempfile.mkdtemp()))
    runs = []
    for engine in [each for each in ENGINES if any(e.engine == each for e in entries)]:
        with end_children_on_signal():
            found = measure_engine(
                engine, [e for e in entries if e.engine == engine], given, console
            )
        runs.append(found)
        path = into / page.file_name(engine)
        runs[-1].save(path)
        console.print(f"figures: {path}")
    results = Results.together(runs)
    print_results(results, console)
    if into == page.RESULTS:
        console.print(f"page: {page.write(page.committed(), ROOT / 'docs')}")
    if given.compare:
        return comparison.print_comparison(results, earlier, console)
    return 0


def _whole(given: argparse.Namespace) -> bool:
    """Whether the figures are those of the page: all peers of an engine, enough rounds."""
    engine = not given.only or given.only.lower() in map(str.lower, ENGINES)
    return engine and not given.quick and (given.rounds or FEWEST_ROUNDS) >= FEWEST_ROUNDS


def _there(environment: str) -> bool:
    return not environment or (ENVIRONMENTS / environment / "bin" / "python").exists()


def measure_engine(
    engine: str, entries: list[Entry], given: argparse.Namespace, console: Console
) -> Results:
    """All peers of an engine, in a folder that is thrown away."""
    bounds = QUICK if given.quick else Bounds()
    if given.rounds:
        bounds = bounds.with_rounds(given.rounds)
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    found = databases.choose_databases(engine, folder / "places", appendfsync=given.appendfsync)
    results = Results()
    columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    try:
        found.start()
        results.engines[engine] = about(found, given)
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(engine, total=None)
            begun = ""

            def tell(what: str) -> None:
                nonlocal begun
                part = what.partition(":")[0]
                progress.update(
                    task, advance=1, total=runner.steps, description=f"{engine} · {what:<70.70}"
                )
                # Where nobody sees the bar, a line for each round.
                if part != begun and not console.is_terminal:
                    console.print(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {engine} · {part}")
                begun = part

            runner = Runner(
                places=found,
                entries=entries,
                bounds=bounds,
                results=results,
                folder=folder,
                tell=tell,
            )
            runner.run()
    finally:
        found.close()
        shutil.rmtree(folder, ignore_errors=True)
    return results


def about(found: databases.Databases, given: argparse.Namespace) -> dict[str, Any]:
    """What the page says of a run."""
    load = os.getloadavg()[0]
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {
        "version": found.version(),
        "durability": found.durability,
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "command": command(given),
        "machine": f"{machine}, load {load:.1f} before it began",
        "python": platform.python_version(),
        "rounds": 0,
    }


def command(given: argparse.Namespace) -> str:
    """What to run to get such figures."""
    words = ["python -m benchmarks.peers"]
    words += [f"--only {given.only}"] if given.only else []
    words += ["--quick"] if given.quick else []
    words += [f"--rounds {given.rounds}"] if given.rounds else []
    words += [f"--appendfsync {given.appendfsync}"] if given.appendfsync != EVERY_SECOND else []
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
