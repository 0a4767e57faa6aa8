"""docs/performance.md and its plots, written from a file of results and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.plots import plotted
from benchmarks.peers.results import Cell, Results, Work
from benchmarks.peers.roster import ENGINES
from benchmarks.peers.targets import judged
from benchmarks.peers.telling import Standing, cell_text, shown, standings
from benchmarks.peers.works import APPEND, LAST_LONG, LOAD, TABLES, TASKS_ONE

# Where the figures of the page are, a file for each engine.
RESULTS: Final = Path(__file__).parents[1] / "results"
PAGE: Final = "performance.md"
PLOTS: Final = "performance"
PLOTTED: Final = (APPEND, LAST_LONG, LOAD, TASKS_ONE)

INTRODUCTION: Final = """\
indelible beside the bare driver and the stores of other projects, on one machine, side by side.
This page and its plots are written by `make bench-peers`, from the figures in
`benchmarks/results/peers-*.json`. Versions of all peers stand [at the end](#how-each-was-used)."""

GLANCE: Final = """\
The better of indelible's two shells, beside the bare driver and beside the best peer of the same
durability that lost nothing. Where a peer is better, the line is **bold**."""

AIMS: Final = """\
What indelible aims at: ratios within this run, of the blocking shell where it is measured against
the bare driver. `make bench` measures them more closely, with their noise."""

HOW: Final = """## How it is measured

- Every peer runs in a worker process of its own, in its framework's locked environment. In each
  round every peer is asked once, one after the other, each time in another order. A figure is the
  median of the rounds, the lowest and the highest stand behind it. Ratios are taken within a
  round and their median is shown: what slows the machine slows both.
- A message has 118 bytes of text. Peers that block are called as they are; 64 tasks are 64
  threads for them. Peers that are awaited are awaited in one event loop. Each task and each
  process appends a few messages, for a second at most.
- An append is acknowledged when the call returns. **Lost** are acknowledged messages that a
  reader does not find afterwards; **refused** are appends that raised. Both are summed over all
  rounds. A store that loses messages, gives back other messages than the newest, or does not sync
  its files is in the tables but is never the best peer.
- "–" with a word stands where a store does not offer something, or was not ready in time. A call
  that takes longer than a second is measured in two rounds.
- First open: in a forked process that has imported the package, until the first message is
  acknowledged. Processes: eight that were forked so. After a kill: a process appends one message
  after the other and is killed; another opens the store and reads the last 20.
- On disk: the growth of the file, folder, database or append-only file over some hundred appends
  (fewer if they are slow), and over as many snapshots, each with a rollback to it.
"""


def file_name(engine: str) -> str:
    """The file of an engine's figures."""
    return f"peers-{engine.lower()}.json"


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
        _plot_name(engine, work): plotted(results, engine, work)
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
        cells += [f"{told['machine']}, Python {told['python']}", _rounds(told)]
        yield f"| {' | '.join(cells)} | `{told['command']}` |"
    yield ""
    yield "## At a glance"
    yield ""
    yield GLANCE
    for engine in _engines(results):
        yield ""
        yield f"### {engine} at a glance"
        yield ""
        yield "| work | bare driver | indelible | × bare | best peer | × best peer |"
        yield "|---|---:|---:|---:|---|---:|"
        for standing in standings(results, engine):
            yield _glance(standing)
    yield ""
    yield "## Targets"
    yield ""
    yield AIMS
    yield ""
    yield "| engine | work | figure | target | |"
    yield "|---|---|---:|---:|---|"
    for engine in _engines(results):
        for target, figure in judged(results, engine):
            cells = [engine, target.name, f"{figure:,.2f}{target.unit}"]
            cells += [f"{target.bound} {target.target:g}{target.unit}"]
            cells += ["met" if target.met(figure) else "**missed**"]
            yield f"| {' | '.join(cells)} |"
    for engine in _engines(results):
        yield from _engine_lines(results, engine)
    yield ""
    yield HOW
    yield from _peers_lines(results)
    yield ""


def _rounds(told: dict[str, Any]) -> str:
    text = f"{told['rounds']}, of appends {told['append rounds']}"
    if told["ended early"]:
        text += f"; {told['ended early']} works ended early, since the machine was busy"
    return text


def _glance(each: Standing) -> str:
    bold = "**" if each.ahead is False else ""
    best = f"{each.best_name}: {shown(each.best, each.work)}" if each.best is not None else "–"
    cells = [
        f"{bold}{each.work.title}{bold}",
        shown(each.bare, each.work) if each.bare is not None else "",
        shown(each.ours, each.work),
        f"{each.to_bare:.2f}" if each.to_bare is not None else "",
        best,
        f"{bold}{each.to_best:.2f}{bold}" if each.to_best is not None else "",
    ]
    return f"| {' | '.join(cells)} |"


def _engine_lines(results: Results, engine: str) -> Iterator[str]:
    told = results.engines[engine]
    yield ""
    yield f"## {engine}"
    yield ""
    yield f"{told['version']}; {told['durability']}. {told['date']}, `{told['command']}`."
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
            cells = results.cells.get(label, {})
            row = [cell_text(cells.get(work.key, Cell()), work) for work in works]
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
