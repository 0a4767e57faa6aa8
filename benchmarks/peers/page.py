"""docs/performance.md and its plots, written from a file of results and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.peers.bounds import FEWEST_ROUNDS, Bounds
from benchmarks.peers.figure_text import Standing, format_cell, format_figure, list_standings
from benchmarks.peers.plots import draw_plot, list_measured
from benchmarks.peers.questions import OWN_BYTES
from benchmarks.peers.results import Results, Work
from benchmarks.peers.roster import ENGINES
from benchmarks.peers.spread import LEAST, Spread
from benchmarks.peers.targets import Target, judge_targets
from benchmarks.peers.workloads import APPEND, LAST_LONG, LOAD, LONGEST, SHORT, TABLES, TASKS_ONE

# Where the figures of the page are, a file for each engine.
RESULTS: Final = Path(__file__).parents[1] / "results"
PAGE: Final = "performance.md"
PLOTS: Final = "performance"
PLOTTED: Final = (APPEND, LAST_LONG, LOAD, TASKS_ONE)

INTRODUCTION: Final = """\
indelible beside the bare driver and the stores of other projects, on one machine, side by side.
This page and its plots are written by `make bench-peers`, from the figures in
`benchmarks/results/peers-*.json.gz`. Versions of all peers are [at the end](#how-each-was-used)."""

GLANCE: Final = """\
The better of indelible's two shells, beside the bare driver and beside the best peer of the same
durability that lost nothing. Where a peer is better, the line is **bold**. Behind a ratio stands
[its spread](#how-it-is-measured)."""

AIMS: Final = """\
What indelible aims at: ratios within this run, of the blocking shell where it is measured against
the bare driver. `make bench` measures them more closely, with their noise."""

HOW: Final = f"""## How it is measured

- Every peer runs in a worker process of its own, in its framework's locked environment. A round
  asks all peers for all works; there are at least {FEWEST_ROUNDS}, spread over the whole run, so
  that they see the machine in all its moods. Within a round every peer is asked for a few short
  batches of calls, in turns and each time in another order; the middle batch is the round's
  figure. The first call of a batch is not counted. Before each work the disk is synced.
- A figure is the median of the rounds. **Ratios** (×) are taken within a round, and their median is
  shown: what slows the machine slows both. The **spread** in brackets tells where the figure of
  another run is to be expected: from the lowest round to the highest, and a part of their distance
  beyond (half of it with five rounds, a quarter with ten); at least {LEAST:.0%} either way. Two
  runs agree if their spreads meet: `python -m benchmarks.peers --into DIR --compare FILE …`
  measures again, lists every figure for which they do not, and exits 1 if there is one.
- In the tables of an engine, the bare driver has times and their spread; everybody else has a time
  and, with its spread, the ratio to the bare driver. Bytes are counted, and have no ratio.
- A message has {OWN_BYTES} bytes of text. Peers that block are called as they are; 64 tasks are 64
  threads for them. Peers that are awaited are awaited in one event loop. Tasks and processes append
  for a fraction of a second.
- An append at {SHORT} goes to a new session of {SHORT} messages. It is measured right beside the
  one at {LONGEST:,}, in turns, and their ratio is taken within a round as well.
- An append is acknowledged when the call returns. **Lost** are acknowledged messages that a
  reader does not find afterwards; **refused** are appends that raised. Both are summed over all
  rounds. A store that loses messages, gives back other messages than the newest, or does not sync
  its files is in the tables but is never the best peer.
- "–" with a word stands where a store does not offer something, or was not ready in time. A call
  that takes more than {Bounds().slow_s:.0f} seconds is **asked once**: what it took is told,
  and not compared.
- First open: in a forked process that has imported the package, until the first message is
  acknowledged. Processes: eight that were forked so. After a kill: a process appends one message
  after the other and is killed; another opens the store and reads the last 20.
- On disk: the growth of the database (its pages, those in SQLite's log counted once), folder or
  append-only file over some hundred appends (fewer if they are slow), by their number; and over as
  many snapshots, each with a rollback to it. A round adds to what the rounds before have weighed.
  Of a message, the {OWN_BYTES} bytes of its text are
  taken off, and nothing else, from every peer alike: role, time, key, checksum, names of JSON, row
  and index are what stays.
- All stores are filled before the first round. PostgreSQL is vacuumed, analyzed and checkpointed
  then, and makes no upkeep of its own while it is measured.
"""


def file_name(engine: str) -> str:
    """The file of an engine's figures."""
    return f"peers-{engine.lower()}.json.gz"


def committed() -> Results:
    """The figures that the page is made from."""
    paths = [RESULTS / file_name(engine) for engine in ENGINES]
    return Results.together(Results.load(path) for path in paths if path.is_file())


def write(results: Results, docs: Path) -> Path:
    """Write the page and its plots; where the page is."""
    (docs / PLOTS).mkdir(exist_ok=True)
    for name, svg in plots(results).items():
        (docs / PLOTS / name).write_text(svg, "utf-8")
    (docs / PAGE).write_text(text(results), "utf-8")
    return docs / PAGE


def plots(results: Results) -> dict[str, str]:
    """Every plot by its file's name."""
    return {
        _plot_name(engine, work): draw_plot(results, engine, work)
        for engine in _engines(results)
        for work in PLOTTED
    }


def text(results: Results) -> str:
    """The whole page."""
    return "\n".join(_lines(results))


def _engines(results: Results) -> list[str]:
    return [engine for engine in ENGINES if engine in results.engines]


def _plot_name(engine: str, work: Work) -> str:
    return f"{engine.lower()}-{work.key.replace(' ', '-')}.svg"


def _lines(results: Results) -> Iterator[str]:
    yield "# Performance"
    yield ""
    yield INTRODUCTION
    yield ""
    yield "| engine | date | durability | machine | rounds | command |"
    yield "|---|---|---|---|---|---|"
    for engine in _engines(results):
        told = results.engines[engine]
        cells = [told["version"], told["date"], told["durability"]]
        cells += [f"{told['machine']}, Python {told['python']}", str(told["rounds"])]
        yield f"| {' | '.join(cells)} | `{told['command']}` |"
    yield ""
    yield "## At a glance"
    yield ""
    yield GLANCE
    for engine in _engines(results):
        yield ""
        yield f"### {engine} at a glance"
        yield ""
        yield _measured(results, engine)
        yield ""
        yield "| work | bare driver | indelible | × bare | best peer | × best peer |"
        yield "|---|---:|---:|---:|---|---:|"
        for standing in list_standings(results, engine):
            yield _glance(standing)
    yield ""
    yield "## Targets"
    yield ""
    yield AIMS
    for engine in _engines(results):
        yield ""
        yield f"### Targets: {engine}"
        yield ""
        yield _measured(results, engine)
        yield ""
        yield "| work | figure | target | |"
        yield "|---|---:|---:|---|"
        for target, spread in judge_targets(results, engine):
            yield _aim(target, spread)
    for engine in _engines(results):
        yield from _engine_lines(results, engine)
    yield ""
    yield HOW
    yield from _peers_lines(results)
    yield ""


def _measured(results: Results, engine: str) -> str:
    """What every figure carries: versions, durability, date and command."""
    return f"{list_measured(results, engine)}."


def _aim(target: Target, spread: Spread) -> str:
    low, high = (f"{figure:,.2f}" for figure in (spread.low, spread.high))
    cells = [target.name, f"{spread.middle:,.2f}{target.unit} ({low} – {high})"]
    cells += [f"{target.bound} {target.target:g}{target.unit}", target.verdict(spread)]
    return f"| {' | '.join(cells)} |"


def _glance(each: Standing) -> str:
    bold = "**" if each.ahead is False else ""
    best = (
        f"{each.best_name}: {format_figure(each.best, each.work)}" if each.best is not None else "–"
    )
    cells = [
        f"{bold}{each.work.title}{bold}",
        format_figure(each.bare, each.work) if each.bare is not None else "",
        format_figure(each.ours, each.work),
        each.bare_text,
        best,
        f"{bold}{each.best_text}{bold}" if each.best_text else "",
    ]
    return f"| {' | '.join(cells)} |"


def _engine_lines(results: Results, engine: str) -> Iterator[str]:
    yield ""
    yield f"## {engine}"
    yield ""
    yield _measured(results, engine)
    for work in PLOTTED:
        yield ""
        yield f"![{engine}: {work.title}]({PLOTS}/{_plot_name(engine, work)})"
    peers = {label: peer for label, peer in results.peers.items() if peer["engine"] == engine}
    for title, works in TABLES.items():
        yield ""
        yield f"### {title}: {engine}"
        yield ""
        yield f"| | {' | '.join(work.title for work in works)} |"
        yield "|---" * (len(works) + 1) + "|"
        for label, peer in peers.items():
            row = [format_cell(results, label, work) for work in works]
            yield f"| {peer['name']} | {' | '.join(each.replace('|', '/') for each in row)} |"


def _peers_lines(results: Results) -> Iterator[str]:
    yield "## How each was used"
    for engine in _engines(results):
        yield ""
        yield f"On {engine}:"
        yield ""
        for peer in results.peers.values():
            if peer["engine"] != engine:
                continue
            versions = ", ".join(f"{name} {number}" for name, number in peer["versions"].items())
            prepared = f" Long sessions: {peer['prepared']}." if peer["prepared"] else ""
            keeps = f" Keeps {peer['keeps']} messages." if peer["keeps"] else ""
            yield f"- **{peer['name']}** ({versions}): {peer['used']}.{prepared}{keeps}"
