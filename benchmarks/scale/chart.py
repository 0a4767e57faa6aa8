"""Curves as SVG, with axes that are both logarithmic; readable on white and in the dark."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 700, 372
LEFT, RIGHT, TOP, BOTTOM = 76, 110, 40, 76
# Characters of the small print in a line.
LINE = 110
# Told apart by people who see fewer colours too; darker on white, brighter on black.
ON_WHITE = ("#0369a1", "#b45309", "#047857", "#a21caf", "#b91c1c", "#475569")
ON_BLACK = ("#38bdf8", "#f59e0b", "#34d399", "#e879f9", "#f87171", "#94a3b8")


def _colours(colours: Sequence[str]) -> str:
    """The colour of each curve and its name."""
    return " ".join(
        f"path.c{number} {{ stroke: {colour} }} text.c{number} {{ fill: {colour} }}"
        for number, colour in enumerate(colours)
    )


# With a ground of its own: a page may be dark while the reader's system is light.
STYLE = f"""
.ground {{ fill: #ffffff }}
text {{ font: 12px system-ui, sans-serif; fill: #1f2937 }}
.title {{ font-weight: 600; font-size: 14px }}
.small {{ font-size: 10px }}
.grid {{ stroke: #9ca3af; stroke-opacity: .35 }}
path {{ fill: none; stroke-width: 2 }}
{_colours(ON_WHITE)}
@media (prefers-color-scheme: dark) {{
.ground {{ fill: #0d1117 }} text {{ fill: #e5e7eb }}
{_colours(ON_BLACK)}
}}
"""


def chart(
    title: str,
    sizes: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    counted: str,
    shown: Callable[[float], str],
    below: str = "",
) -> str:
    """One picture: sizes to the right, a curve for each name, and how it was measured below."""
    every = [height for heights in curves.values() for height in heights]
    low, high = _decades(every)
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def across(size: float) -> float:
        return LEFT + (math.log10(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def down(height: float) -> float:
        share = (math.log10(height) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
    ]
    for decade in range(low, high + 1):
        y = down(10.0**decade)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        label = escape(shown(10.0**decade))
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{label}</text>')
    parts += [
        f'<text x="{across(size):.0f}" y="{HEIGHT - 56}" text-anchor="middle">{_short(size)}</text>'
        for size in sizes
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 38}" text-anchor="middle">{counted}</text>')
    parts += [
        f'<text class="small" x="8" y="{HEIGHT - 20 + 13 * number}">{escape(line)}</text>'
        for number, line in enumerate(textwrap.wrap(below, LINE))
    ]
    taken: list[float] = []
    for number, (name, heights) in enumerate(curves.items()):
        points = [(across(size), down(y)) for size, y in zip(sizes, heights, strict=True)]
        line = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path d="M{line}" class="c{number}"/>')
        at = _free(points[-1][1] + 4, taken)
        beside = f'x="{WIDTH - RIGHT + 8}" y="{at:.1f}" class="c{number}"'
        parts.append(f"<text {beside}>{escape(name)}</text>")
    return "\n".join([*parts, "</svg>\n"])


def _decades(heights: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(heights))), math.ceil(math.log10(max(heights)))
    return low, max(high, low + 1)


def _free(at: float, taken: list[float]) -> float:
    """A place for a name beside its curve, where no other name is."""
    while any(abs(at - other) < 13 for other in taken):
        at += 13
    taken.append(at)
    return at


def _short(size: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{size / unit:g}{name}"
    return f"{size:g}"
