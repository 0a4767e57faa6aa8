"""Bars as SVG, on a logarithmic scale, readable on light and on dark pages."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from benchmarks.peers.results import Results, Work
from benchmarks.peers.roster import BARE, OURS
from benchmarks.peers.telling import shown

WIDTH = 760
NAMES = 270
FIGURES = 120
ROW = 22
TOP = 34

STYLE = """
  text { font: 12px sans-serif; fill: #24292f; }
  .title { font-weight: bold; font-size: 14px; }
  .figure { font-size: 11px; }
  .ours { fill: #0a7d4f; }
  .bare { fill: #8c959f; }
  .peer { fill: #5b7fb8; }
  .spread { stroke: #24292f; stroke-opacity: .6; }
  @media (prefers-color-scheme: dark) {
    text { fill: #d0d7de; }
    .ours { fill: #2fbf83; }
    .spread { stroke: #f0f3f6; }
  }
"""


def plotted(results: Results, engine: str, work: Work) -> str:
    """A bar for each peer that has a figure, the best first, with a line for the spread."""
    rows = []
    for label, peer in results.peers.items():
        cell = results.cells.get(label, {}).get(work.key)
        if peer["engine"] == engine and cell and cell.median is not None and cell.spread:
            rows.append((cell.median, cell.spread, peer["name"], cell.lost))
    rows.sort(key=lambda row: row[0], reverse=work.more_is_better)
    positive = [figure for _, spread, _, _ in rows for figure in spread if figure > 0] or [1.0]
    low, high = math.log10(min(positive)) - 0.3, math.log10(max(positive))
    reach = (WIDTH - NAMES - FIGURES) / max(high - low, 0.1)

    def at(figure: float) -> float:
        return round(NAMES + (math.log10(max(figure, 10**low)) - low) * reach, 1)

    height = TOP + ROW * len(rows) + 10
    title = escape(f"{engine}: {work.title} (logarithmic scale)".replace("`", ""))
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="20">{title}</text>',
    ]
    for number, (median, (least, most), name, lost) in enumerate(rows):
        y = TOP + ROW * number
        kind = "ours" if name in OURS else "bare" if name == BARE else "peer"
        told = shown(median, work) + (f", {lost:,} lost" if lost else "")
        bar = f'x="{NAMES}" y="{y}" width="{at(median) - NAMES:.1f}" height="{ROW - 6}"'
        lines += [
            f'<text x="{NAMES - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" {bar} rx="2"/>',
            f'<line class="spread" x1="{at(least)}" x2="{at(most)}" y1="{y + 8}" y2="{y + 8}"/>',
            f'<text class="figure" x="{at(most) + 6}" y="{y + 12}">{escape(told)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
