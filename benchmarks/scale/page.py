"""docs/scale.md and its pictures, written from what was measured and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import format_seconds
from benchmarks.pages import DOCS, format_row, replace_section
from benchmarks.scale import growth_curves
from benchmarks.scale.chart import chart
from benchmarks.scale.growth_curves import Growth, Point
from benchmarks.scale.simulate import (
    LOAD_MAX,
    World,
    compute_bytes,
    find_bottleneck,
    run_simulation,
)
from benchmarks.scale.slope import compute_exponent

PAGE = DOCS / "scale.md"
PICTURES = "pictures"
BYTES = ("file", "memory")
COUNTS = ("pieces",)
MEMORY = 16e9
CORES = {"Valkey": 1, "PostgreSQL": 8}
# What the page asks of each number of servers.
SESSIONS, MESSAGES, TURNS_PER_S = 5_000_000, 40, 20_000
SERVERS = (1, 3, 6, 12, 24)


Grown = Sequence[tuple[Growth, Sequence[Point]]]


def plain(grown: Grown) -> dict[str, list[dict[str, float]]]:
    """The curves as they are kept, by name."""
    return {
        growth.name: [{"size": point.size, **point.seen} for point in points]
        for growth, points in grown
    }


def parse_growth(found: Mapping[str, Any]) -> Grown:
    """The curves as they were kept."""
    return [
        (growth, [_point(each) for each in found["growth"][growth.name]])
        for growth in growth_curves.ALL
        if growth.name in found["growth"]
    ]


def _point(kept: Mapping[str, float]) -> Point:
    return Point(int(kept["size"]), {name: kept[name] for name in kept if name != "size"})


def write(found: Mapping[str, Any], docs: Path) -> None:
    """Write the page and its pictures into a folder."""
    (docs / PICTURES).mkdir(parents=True, exist_ok=True)
    for name, picture in pictures(found).items():
        (docs / PICTURES / name).write_text(picture, "utf-8")
    (docs / PAGE.name).write_text(text(found), "utf-8")


def text(found: Mapping[str, Any]) -> str:
    """The page, with new figures in its parts."""
    page = PAGE.read_text("utf-8")
    page = replace_section(page, "growth", format_growth(parse_growth(found), found))
    page = replace_section(page, "costs", format_costs(found["costs"], found))
    return replace_section(page, "simulation", format_simulated(found["costs"], found))


def pictures(found: Mapping[str, Any]) -> dict[str, str]:
    """Every picture by its file's name: what calls take, and what is taken of disk and memory."""
    drawn = {}
    for growth, points in parse_growth(found):
        names = list(points[0].seen)
        timed = [name for name in names if name not in (*BYTES, *COUNTS)]
        sizes = [point.size for point in points]
        for kind, title, which, unit in (
            ("cost", "Cost of a call", timed, format_seconds),
            ("room", "Bytes", list(BYTES), format_size),
        ):
            drawn[f"{_stem(growth)}-{kind}.svg"] = chart(
                f"{title}: {growth.name}",
                sizes,
                {name: [point.seen[name] for point in points] for name in which},
                counted=growth.counted,
                shown=unit,
                below=format_measured(found).replace("`", "").strip(),
            )
    return drawn


def _stem(growth: Growth) -> str:
    return "scale-" + growth.name.replace(" ", "-")


def format_growth(grown: Grown, about: Mapping[str, Any]) -> str:
    """Every curve as a row, with its exponent."""
    parts = [format_measured(about)]
    for growth, points in grown:
        stem = f"{PICTURES}/{_stem(growth)}"
        sizes = [point.size for point in points]
        rows = [
            f"**{growth.name.capitalize()}**, by {growth.counted}:\n",
            format_row(["", *(f"{size:,}" for size in sizes), "exponent", "should be"]),
            format_row(["---", *["---:"] * (len(sizes) + 1), "---"]),
        ]
        for name in points[0].seen:
            heights = [point.seen[name] for point in points]
            cells = [format_value(name, height) for height in heights]
            slope = f"{compute_exponent(sizes, heights):+.2f}"
            rows.append(format_row([name, *cells, slope, growth.shapes.get(name, "linear")]))
        pictures = (
            f"\n![What a call costs, {growth.name}]({stem}-cost.svg)"
            f"\n![What it takes of disk and memory, {growth.name}]({stem}-room.svg)\n"
        )
        parts.append("\n".join([*rows, pictures]))
    return "\n".join(parts)


def format_costs(costs: Mapping[str, Mapping[str, float]], about: Mapping[str, Any]) -> str:
    """What a server spends and keeps, and what follows for one of them."""
    engines = list(costs)
    rows = [format_row(["of a server", *engines]), format_row(["---", *["---:"] * len(engines)])]
    for line in costs[engines[0]]:
        unit = "" if line.startswith("bytes") else " µs"
        rows.append(format_row([line, *(f"{costs[name][line]:,.0f}{unit}" for name in engines)]))
    for verb in ("append", "append, grouped", "last 20"):
        each = [CORES[name] * 1e6 / costs[name][verb] for name in engines]
        rows.append(format_row([f"{verb}: at most, a second", *(f"{rate:,.0f}" for rate in each)]))
    held = [MEMORY / compute_bytes(dict(costs[name]), MESSAGES) for name in engines]
    rows.append(
        format_row(
            [f"sessions of {MESSAGES} messages in 16 GB", *(f"{many:,.0f}" for many in held)]
        )
    )
    return "\n".join([format_measured(about), *rows, ""])


def format_simulated(costs: Mapping[str, Mapping[str, float]], about: Mapping[str, Any]) -> str:
    """What numbers of servers hold, by simulation; and the same with one session that is hot."""
    rows = [
        format_row(["engine", "servers", "busiest", "99 % done in", "fullest", "breaks first"]),
        format_row(["---", *["---:"] * 4, "---"]),
    ]
    for engine, hot in (("Valkey", 0.0), ("PostgreSQL", 0.0), ("Valkey", 0.2)):
        for servers in SERVERS:
            seen = run_simulation(
                World(
                    costs=dict(costs[engine]),
                    servers=servers,
                    cores=CORES[engine],
                    sessions=SESSIONS,
                    messages=MESSAGES,
                    turns_per_s=TURNS_PER_S,
                    hot=hot,
                )
            )
            rows.append(
                format_row(
                    [
                        f"{engine}, one session has {hot:.0%}" if hot else engine,
                        str(servers),
                        f"{seen.load:.0%}",
                        f"{seen.wait_ms:,.1f} ms",
                        f"{seen.bytes_most / 1e9:,.1f} GB",
                        find_bottleneck(seen, memory=MEMORY),
                    ]
                )
            )
    asked = (
        f"{SESSIONS:,} sessions of {MESSAGES} messages, {TURNS_PER_S:,} turns a second, servers of"
        f" 16 GB that should be at most {LOAD_MAX:.0%} busy:\n"
    )
    return "\n".join([format_measured(about), asked, *rows, ""])


def format_measured(about: Mapping[str, Any]) -> str:
    """When, what, how durable, and by which command."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    where = f"{about['machine']}; " if "machine" in about else ""
    return f"{about['date']}; {versions}; {about['durability']}; {where}`{about['command']}`.\n"


def format_value(name: str, height: float) -> str:
    """A number with its unit."""
    if name in BYTES:
        return format_size(height)
    return f"{height:,.0f}" if name in COUNTS else format_seconds(height)


def format_size(size: float) -> str:
    """Bytes for people."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:,.3g} {name}"
    return f"{size:,.0f} B"
