"""Bars as SVG, on a logarithmic scale, readable on light and on dark pages."""

from __future__ import annotations

import math
import textwrap
from xml.sax.saxutils import escape

from benchmarks.peers.figure_text import compare_with_bare, format_figure, format_ratio
from benchmarks.peers.results import Results, Work
from benchmarks.peers.roster import BARE, OURS
from benchmarks.peers.spread import Spread

WIDTH = 860
NAMES = 270
FIGURES = 190
ROW = 22
TOP = 34
FOOT = 40
# Characters of the small print in a line.
LINE = 140

# With a ground of its own: a page may be dark while the reader's system is light.
STYLE = """
  .ground { fill: #ffffff; }
  text { font: 12px sans-serif; fill: #24292f; }
  .title { font-weight: bold; font-size: 14px; }
  .figure { font-size: 11px; }
  .small { font-size: 10px; }
  .ours { fill: #0a7d4f; }
  .bare { fill: #8c959f; }
  .peer { fill: #5b7fb8; }
  .spread { stroke: #24292f; stroke-opacity: .7; stroke-width: 1.5; }
  .one { stroke: #8c959f; stroke-dasharray: 3 3; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; }
    text { fill: #d0d7de; }
    .ours { fill: #2fbf83; }
    .spread { stroke: #f0f3f6; }
  }
"""

Row = tuple[Spread, str, str]


def list_measured(results: Results, engine: str) -> str:
    """What a figure carries: versions, durability, date and command."""
    told = results.engines[engine]
    ours = results.peers.get(f"{engine} · {OURS[0]}", {}).get("versions", {})
    versions = [f"{name} {number}" for name, number in ours.items()]
    versions += [told["version"], f"Python {told['python']}"]
    return f"{', '.join(versions)}; {told['durability']}; {told['date']}, `{told['command']}`"


def draw_plot(results: Results, engine: str, work: Work) -> str:
    """A bar for each peer that has a figure, the best first: its ratio to the bare driver's."""
    rows = _rows(results, engine, work)
    ends = [end for spread, _, _ in rows for end in (spread.low, spread.high)] or [1.0]
    low, high = math.log10(min(ends)) - 0.3, math.log10(max(ends))
    reach = (WIDTH - NAMES - FIGURES) / max(high - low, 0.1)

    def at(figure: float) -> float:
        return round(NAMES + (math.log10(figure) - low) * reach, 1)

    bottom = TOP + ROW * len(rows)
    height = bottom + FOOT
    title = escape(f"{engine}: {work.title}, × bare driver (logarithmic)".replace("`", ""))
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    better = "more is better" if work.more_is_better else "less is better"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="title" x="8" y="20">{title}: {better}</text>',
        f'<line class="one" x1="{at(1)}" x2="{at(1)}" y1="{TOP - 4}" y2="{bottom}"/>',
    ]
    for number, (spread, name, told) in enumerate(rows):
        y = TOP + ROW * number
        kind = "ours" if name in OURS else "bare" if name == BARE else "peer"
        bar = f'x="{NAMES}" y="{y}" width="{at(spread.middle) - NAMES:.1f}" height="{ROW - 6}"'
        ends_at = f'x1="{at(spread.low)}" x2="{at(spread.high)}" y1="{y + 8}" y2="{y + 8}"'
        lines += [
            f'<text x="{NAMES - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" {bar} rx="2"/>',
            f'<line class="spread" {ends_at}/>',
            f'<text class="figure" x="{at(spread.high) + 6}" y="{y + 12}">{escape(told)}</text>',
        ]
    for number, line in enumerate(
        textwrap.wrap(list_measured(results, engine).replace("`", ""), LINE)
    ):
        y = bottom + 16 + 13 * number
        lines.append(f'<text class="small" x="8" y="{y}">{escape(line)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _rows(results: Results, engine: str, work: Work) -> list[Row]:
    rows: list[Row] = []
    for label, peer in results.peers.items():
        cell = results.cells.get(label, {}).get(work.key)
        if peer["engine"] != engine or cell is None or cell.median is None:
            continue
        ratio = compare_with_bare(results, label, work)
        if peer["name"] == BARE:
            rows.append(
                (Spread(middle=1.0, low=1.0, high=1.0), BARE, format_figure(cell.median, work))
            )
        elif ratio is not None and ratio.low > 0:
            told = f"{format_figure(cell.median, work)} · {format_ratio(ratio.middle)}×"
            told += f", {cell.lost:,} lost" if cell.lost else ""
            rows.append((ratio, peer["name"], told))
    return sorted(rows, key=lambda row: row[0].middle, reverse=work.more_is_better)
