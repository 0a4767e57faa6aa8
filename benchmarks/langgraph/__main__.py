"""Measure checkpointers of LangGraph side by side, and write docs/langgraph-figures.md."""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from langgraph.checkpoint.base import empty_checkpoint

import indelible
from benchmarks.langgraph import crowd
from benchmarks.langgraph.chat import THREAD, Texts, build_chat, take_turn
from benchmarks.langgraph.parts import METHODS, SaverClock
from benchmarks.langgraph.savers import Contender, open_contenders
from indelible.adapters.langgraph import IndelibleSaver, PruneReceipt

PAGE = Path(__file__).parents[2] / "docs" / "langgraph-figures.md"
# A turn "at 50" is the median of the turns around it.
AROUND = 10
ROUNDS = 15
FORKS = 20
PRUNED = 10_000
MS = 1000


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.langgraph", description=__doc__)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--into", type=Path, default=PAGE, help="the page that is written")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="langgraph-") as name:
        folder = Path(name)
        # A server may run as another user.
        folder.chmod(0o755)
        parts = [
            _HEAD.format(turns=asked.turns),
            *_measure_chats(folder, asked.turns),
            *_measure_maintenance(folder),
            crowd.measure(folder),
        ]
    asked.into.write_text("\n".join(parts) + "\n", "utf-8")
    sys.stdout.write(asked.into.read_text("utf-8"))
    return 0


_HEAD = f"""# LangGraph's checkpointers in figures

Written by `make bench-langgraph` on one machine: {platform.machine()},
Python {platform.python_version()}. Every saver takes its turns beside the others, in one run.
[LangGraph](frameworks.md#langgraph) says what ours does.

## A chat of {{turns}} turns

Two messages of 600 characters a turn; times in milliseconds, medians. Growth is the time of
a turn at the end minus that of one at the tenth part. On Redis, the size is that of the dataset
in memory; PostgreSQL keeps the space of rows that were removed until it is vacuumed. All savers
take turns and read by turns. Where the machine does other work, only the processor times, which
are those of the client, compare well.
"""


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


_PARTS = """## Where the growth of a turn comes from

The growth in processor time of LangGraph's calls of the saver, in its own threads, and of the
rest of the turn. In each turn every saver decodes the state once and serializes it twice: two
checkpoints have new messages.
"""
_WHY = """InMemorySaver handles the list of messages in one call of the serializer. Ours calls it
for each message, compares the bytes with those that are stored, and drops them: whether a message
was changed in place can only be seen there. That is about a microsecond for each message and call
of the saver, more where the caches of the processor are cold. A list that is kept serialized as a
whole, to be compared and decoded at once, was tried: that removes half of the difference, doubles
what is cached of a thread, and depends on the form of the serializer.
"""


def _measure_chats(folder: Path, turns: int) -> list[str]:
    with open_contenders(folder) as contenders:
        texts = Texts()
        clocks = [SaverClock(each.saver) for each in contenders]
        graphs = [build_chat(each.saver, texts, delta=each.delta) for each in contenders]
        sizes = [each.measure_bytes() for each in contenders]
        taken: defaultdict[int, list[Times]] = defaultdict(list)
        parts: defaultdict[int, list[dict[str, float]]] = defaultdict(list)
        for turn in range(turns):
            for number, graph in enumerate(graphs):
                clocks[number].take()
                taken[number].append(_time(partial(take_turn, graph, texts)))
                parts[number].append(clocks[number].take())
            if (turn + 1) % 50 == 0:
                _note(f"{turn + 1} turns")
        reads = _time_by_turns([partial(graph.get_state, THREAD) for graph in graphs])
        rows, by_part = [], []
        early, late = turns // 10, turns - AROUND
        for number, (contender, graph) in enumerate(zip(contenders, graphs, strict=True)):
            wall, cpu = (
                _at([each[kind] for each in taken[number]], late)
                - _at([each[kind] for each in taken[number]], early)
                for kind in range(len(Times._fields))
            )
            size = contender.measure_bytes() - sizes[number]
            rows.append(
                {
                    "": contender.name + (", DeltaChannel" if contender.delta else ""),
                    "size": f"{size / 1e6:.1f} MB" if size else "",
                    "turn": f"{_at([each[0] for each in taken[number]], late):.1f}",
                    "growth": f"{wall:.1f}",
                    "growth (processor)": f"{cpu:.1f}",
                    "get_state": f"{reads[number].wall * MS:.1f}",
                    "get_state (processor)": f"{reads[number].cpu * MS:.1f}",
                    "a fork": _measure_fork(contender, graph),
                    "after compact": _measure_compacted(contender, sizes[number]),
                }
            )
            if not contender.delta:
                by_part.append({"": contender.name, **_format_growth(parts[number], cpu, turns)})
        return [_format_table(rows), _PARTS, _format_table(by_part), _WHY]


def _format_growth(parts: list[dict[str, float]], cpu: float, turns: int) -> dict[str, str]:
    grown = {}
    for name in METHODS:
        times = [each[name] for each in parts]
        grown[name] = _at(times, turns - AROUND) - _at(times, turns // 10)
    grown["the rest"] = cpu - sum(grown.values())
    return {name: f"{each:.1f}" for name, each in grown.items()}


def _at(times: list[float], turn: int) -> float:
    return statistics.median(times[max(0, turn - AROUND) : turn + AROUND]) * MS


class Times(NamedTuple):
    """What something took, in seconds: on the clock, and of the processor."""

    wall: float
    cpu: float


def _time(work: Callable[[], object]) -> Times:
    before = time.perf_counter(), time.process_time()
    work()
    return Times(time.perf_counter() - before[0], time.process_time() - before[1])


def _time_by_turns(works: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[Times]:
    """Return the medians of several works, of which each takes its turn in every round."""
    times = [[_time(work) for work in works] for _ in range(rounds)]
    return [
        Times(*(statistics.median(kind) for kind in zip(*each, strict=True)))
        for each in zip(*times, strict=True)
    ]


def _measure_fork(contender: Contender, graph: Any) -> str:
    """Return the bytes that a branch takes which begins at an early checkpoint."""
    if contender.store is None or contender.delta:
        return ""
    past = list(graph.get_state_history(THREAD))[-30].config
    before = contender.measure_bytes()
    for _ in range(FORKS):
        graph.update_state(past, {"messages": [("user", "another way")]}, as_node="answer")
    return f"{(contender.measure_bytes() - before) / FORKS / 1024:.1f} KiB"


def _measure_compacted(contender: Contender, empty: int) -> str:
    if contender.store is None:
        return ""
    contender.saver.compact()
    return f"{(contender.measure_bytes() - empty) / 1e6:.1f} MB"


def _format_table(rows: list[dict[str, str]]) -> str:
    names = list(rows[0])
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(row.values())} |" for row in rows]
    return "\n".join(lines) + "\n"


def _measure_maintenance(folder: Path) -> list[str]:
    path = folder / "maintenance.db"
    with indelible.open(path) as store:
        saver = IndelibleSaver(store)
        texts = Texts()
        graph = build_chat(saver, texts, delta=False)
        for _ in range(200):
            take_turn(graph, texts)
        _note("a chat of 200 turns")
        numbers = iter(range(1000))
        copied, plain = _time_by_turns(
            [
                lambda: saver.copy_thread("chat", f"copy {next(numbers)}"),
                lambda: _copy_rows(path, folder / f"plain {next(numbers)}.db"),
            ]
        )
        _put_many(saver)
        _note(f"{PRUNED} checkpoints")
        receipts: list[PruneReceipt] = []
        pruned = _time(lambda: receipts.append(saver.prune(["many"])))
        assert [(each.kept, each.erased) for each in receipts] == [(1, PRUNED - 1)]
    ours, theirs = (
        f"{each.wall * MS:.0f} ms, of which the processor works {each.cpu * MS:.0f} ms"
        for each in (copied, plain)
    )
    return [
        "## Maintenance, on SQLite\n",
        f"- `copy_thread` of 200 turns: {ours}.",
        f"  A copy of its rows into another file by SQL: {theirs}.",
        f"  The processor works {copied.cpu / plain.cpu:.1f} times as long.",
        f"- `prune` of {PRUNED:,} checkpoints to the newest: {pruned.wall:.2f} s, of which the",
        f"  processor works {pruned.cpu:.2f} s.\n",
    ]


def _copy_rows(source: Path, target: Path) -> None:
    connection = apsw.Connection(str(target))
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("ATTACH ? AS source", (str(source),))
    connection.execute(
        "CREATE TABLE entry AS SELECT * FROM source.entry WHERE id >> 32 ="
        " (SELECT number FROM source.session WHERE name = '~thread/chat')"
    )
    connection.close()


def _put_many(saver: IndelibleSaver) -> None:
    config: Any = {"configurable": {"thread_id": "many", "checkpoint_ns": ""}}
    for number in range(PRUNED):
        checkpoint = empty_checkpoint()
        versions: Any = {"messages": f"{number:032}.0"}
        checkpoint["channel_versions"] = versions
        checkpoint["channel_values"] = {"messages": [f"message {at} " * 10 for at in range(20)]}
        checkpoint["channel_values"]["messages"][number % 20] = f"changed {number} " * 10
        config = saver.put(config, checkpoint, {"source": "loop", "step": number}, versions)


if __name__ == "__main__":
    sys.exit(main())
