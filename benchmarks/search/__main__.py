"""Measure search, and write the figures into docs/search-figures.md."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import apsw
import psycopg

import indelible
from benchmarks.search import latency, recall
from benchmarks.search.latency import Size
from benchmarks.search.minilm import MiniLM
from benchmarks.search.recall import Recall
from memory_contract.faults.servers.postgres import PostgresServer

PAGE = Path(__file__).parents[2] / "docs" / "search-figures.md"
SIZES = (10_000, 100_000, 1_000_000)


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="conversations in the form of LoCoMo")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="entries, at most")
    parser.add_argument(
        "--stores",
        type=Path,
        help="where large stores are kept: those that are there are measured and not built again",
    )
    parser.add_argument("--into", type=Path, default=PAGE, help="the page that is written")
    asked = parser.parse_args()
    sizes = [entries for entries in SIZES if entries <= asked.largest]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="search-")))
        # The server may run as somebody who cannot enter the folder of another.
        folder.chmod(0o755)
        kept = folder if asked.stores is None else asked.stores.absolute()
        kept.mkdir(parents=True, exist_ok=True)
        server = PostgresServer(kept / "server", settings={"shared_buffers": "128MB"})
        if not (kept / "server").exists():
            server.create()
        server.start()
        stack.callback(server.kill)
        parts = [_HEAD.format(postgres=_ask_version(server))]
        if asked.data is not None:
            parts.append(_format_recall(_measure_recall(folder, server, asked.data)))
        parts.append(_LATENCY)
        for engine, measure in (
            ("SQLite", partial(latency.measure_size, kept)),
            ("PostgreSQL", partial(latency.measure_size_on_postgres, server)),
        ):
            rows = [measure(entries, _tell(f"{engine}, {entries} entries")) for entries in sizes]
            parts.append(_format_sizes(engine, rows))
    asked.into.write_text("\n".join(parts), "utf-8")
    sys.stdout.write(asked.into.read_text("utf-8"))
    return 0


def _ask_version(server: PostgresServer) -> str:
    with psycopg.connect(server.url()) as connection:
        return connection.info.parameter_status("server_version") or ""


_HEAD = f"""# Search in figures

Written by `make bench-search DATA=path` on one machine: {platform.machine()},
Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, PostgreSQL {{postgres}}.
[Search](how-to/search.md) says what they mean.
"""


_LATENCY = """## How long it takes

Words by Zipf's law, queries of three to eight words: processor time in milliseconds,
that of the server included, at the median and the 95th percentile. What the index adds to an
append is in [how fast it is](how-fast.md).
"""


def _measure_recall(folder: Path, server: PostgresServer, data: Path) -> dict[str, Recall]:
    conversations = recall.load(data)
    messages, memories = recall.fill_messages, recall.fill_memories
    measured: dict[str, Recall] = {}
    for name, fill, target, options in (
        ("messages, by SQLite's index", messages, folder / "index.db", {}),
        ("messages, by PostgreSQL's index", messages, server.fresh_url(), {}),
        ("messages, ranked by reading", messages, folder / "reading.db", {"search": False}),
        ("memories, by SQLite's index", memories, folder / "memories.db", {}),
        (
            f"memories, by words and by {MiniLM.name}",
            memories,
            folder / "vectors.db",
            {"embedder": MiniLM()},
        ),
    ):
        with indelible.open(target, **options) as store:
            places = fill(store, conversations)
            measured[name] = recall.measure(store, conversations, places, _tell(name))
    return measured


def _tell(what: str) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if sys.stderr.isatty() or done % max(1, total // 10) == 0:
            sys.stderr.write(f"\r{what}: {100 * done // total} %")
            sys.stderr.write("\n" if done >= total else "")

    return tell


def _format_recall(measured: dict[str, Recall]) -> str:
    lines = [
        "## What is found\n",
        "Questions on conversations in the form of LoCoMo; each turn is a message, or a memory.",
        "Messages are found by words alone, with their neighbours and authors. A session is ranked",
        "by its best turn. Each search asks for 100 hits, which ranks more matches than to ask for",
        "ten. The constants of the ranking were chosen on conversations of LoCoMo; on",
        "the file that they were chosen on, expect more than on others.\n",
        "| | questions | of | recall@5 | recall@10 | hit@10 | MRR |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in measured.items():
        for kind, scores in (("turns", found.turns), ("sessions", found.sessions)):
            figures = " | ".join(f"{score:.3f}" for score in scores)
            lines.append(f"| {name} | {found.questions} | {kind} | {figures} |")
    return "\n".join(lines) + "\n"


def _format_sizes(engine: str, sizes: list[Size]) -> str:
    lines = [
        f"| {engine} | in a session of 1,000 | in ten of them | in the store | size | the index |",
        "|---|---|---|---|---|---|",
    ]
    for size in sizes:
        times = " | ".join(
            f"{each.median:.1f}, {each.p95:.1f}" for each in (size.session, size.group, size.store)
        )
        megabytes = f"{size.megabytes:.0f} MB | {size.index_megabytes:.0f} MB"
        lines.append(f"| {size.entries:,} | {times} | {megabytes} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
