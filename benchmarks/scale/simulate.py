"""Past one machine: conversations over N servers, from what a call costs one of them.

A server is a queue. A session lives on one server, chosen as a Redis Cluster chooses it; a call
takes the time of the server's processor that `make bench-scale` measured. Nothing else is assumed:
no network, no slow disk. So this is what could be held at most, and shows what gives in first.
"""

from __future__ import annotations

import argparse
import binascii
import heapq
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

MEASURED = Path(__file__).parents[1] / "results" / "scale.json"
SLOTS = 16384
# A turn: the agent reads what was said, and appends the question and the answer.
TURN = ("last 20", "append", "append")
SNAPSHOT_EVERY, ROLLBACK_EVERY = 10, 100
TURNS_SIMULATED = 20_000
SESSIONS_COUNTED = 200_000
WAIT_MS_MAX = 10.0
# A server that is busier than this has no room for a failover, a backup or a busy minute.
LOAD_MAX = 0.7


@dataclass(frozen=True, kw_only=True)
class World:
    """What is asked for, and of whom."""

    costs: dict[str, float]
    servers: int
    cores: int
    sessions: int
    messages: int
    turns_per_s: float
    # The share of all turns that one session takes.
    hot: float = 0.0
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What came of it."""

    load: float
    wait_ms: float
    bytes_most: float
    sessions_most: int


def choose_server(session: str, servers: int) -> int:
    """Where a session lives: the slot of its hash tag, and slots shared out in order."""
    slot = binascii.crc_hqx(f":{session}".encode(), 0) % SLOTS
    return slot * servers // SLOTS


def compute_bytes(costs: dict[str, float], messages: int) -> float:
    """What one session takes."""
    snapshots = messages / 2 / SNAPSHOT_EVERY
    return (
        costs["bytes of a session"]
        + messages * costs["bytes of a message"]
        + snapshots * costs["bytes of a snapshot"]
    )


def calls(world: World, draw: random.Random) -> Iterator[tuple[float, int, float]]:
    """Calls as they come in: when, at which server, and how long it works."""
    now = 0.0
    for turn in range(1, TURNS_SIMULATED + 1):
        now += draw.expovariate(world.turns_per_s)
        number = 0 if draw.random() < world.hot else draw.randrange(world.sessions)
        server = choose_server(f"user-{number}", world.servers)
        verbs = list(TURN)
        if turn % SNAPSHOT_EVERY == 0:
            verbs.append("snapshot")
        if turn % ROLLBACK_EVERY == 0:
            verbs.append("rollback")
        for verb in verbs:
            yield now, server, world.costs[verb] / 1e6


def run_simulation(world: World) -> Seen:
    """Let the turns come in, each server with its queue, and look at the busiest."""
    draw = random.Random(world.seed)
    free = [[0.0] * world.cores for _ in range(world.servers)]
    worked = [0.0] * world.servers
    waits: list[float] = []
    now = 0.0
    for now, server, works_s in calls(world, draw):
        began = max(now, free[server][0])
        heapq.heapreplace(free[server], began + works_s)
        worked[server] += works_s
        waits.append(began + works_s - now)
    counted = min(world.sessions, SESSIONS_COUNTED)
    lives = Counter(choose_server(f"user-{n}", world.servers) for n in range(counted))
    most = round(max(lives.values()) * world.sessions / counted)
    return Seen(
        load=max(worked) / now / world.cores,
        wait_ms=sorted(waits)[int(len(waits) * 0.99)] * 1e3,
        bytes_most=most * compute_bytes(world.costs, world.messages),
        sessions_most=most,
    )


def find_bottleneck(seen: Seen, *, memory: float) -> str:
    """What gives in first, if anything does."""
    full = seen.bytes_most / memory
    if full > 1 and full >= seen.load:
        return "memory of the fullest"
    if seen.load > LOAD_MAX:
        return "processor of the busiest"
    if seen.wait_ms > WAIT_MS_MAX:
        return "waiting"
    return "nothing"


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.simulate",
        description="How many conversations N servers hold, from the costs that were measured.",
        epilog="Example: python -m benchmarks.scale.simulate --sessions 5000000 --turns 20000",
    )
    parser.add_argument("--engine", choices=("Valkey", "PostgreSQL"), default="Valkey")
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 3, 6, 12, 24])
    parser.add_argument("--cores", type=int, help="of a server; Valkey uses 1, default 1 and 8")
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=40, help="in a session (40)")
    parser.add_argument("--turns", type=float, default=10_000, help="per second, of all (10000)")
    parser.add_argument("--hot", type=float, default=0.0, help="share of turns of one session (0)")
    parser.add_argument("--memory-gb", type=float, default=16, help="of a server, or disk (16)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measured", type=Path, default=MEASURED, help="from make bench-scale")
    asked = parser.parse_args(given)
    numbers = (*asked.servers, asked.sessions, asked.messages, asked.turns, asked.memory_gb)
    if min(numbers) <= 0 or not 0 <= asked.hot < 1 or (asked.cores or 1) < 1:
        parser.error("numbers are above 0, and --hot is a share below 1")
    if not asked.measured.exists():
        parser.error(f"{asked.measured} is not there: run make bench-scale first")
    return asked


def main(given: Sequence[str] | None = None) -> int:
    """Simulate each number of servers, and print what came of it."""
    asked = arguments(given)
    measured = json.loads(asked.measured.read_text("utf-8"))
    costs = measured["costs"][asked.engine]
    memory = asked.memory_gb * 1e9
    table = Table(
        title=f"{asked.engine}: {asked.sessions:,} sessions of {asked.messages} messages,"
        f" {asked.turns:,.0f} turns a second (measured {measured['date']})"
    )
    for heading in ("servers", "busiest", "99 % done in", "fullest", "sessions there"):
        table.add_column(heading, justify="right")
    table.add_column("breaks first")
    for servers in asked.servers:
        world = World(
            costs=costs,
            servers=servers,
            cores=asked.cores or (1 if asked.engine == "Valkey" else 8),
            sessions=asked.sessions,
            messages=asked.messages,
            turns_per_s=asked.turns,
            hot=asked.hot,
            seed=asked.seed,
        )
        seen = run_simulation(world)
        table.add_row(
            f"{servers:,}",
            f"{seen.load:.0%}",
            f"{seen.wait_ms:,.1f} ms",
            f"{seen.bytes_most / 1e9:,.1f} GB",
            f"{seen.sessions_most:,}",
            find_bottleneck(seen, memory=memory),
        )
    Console(width=None if Console().is_terminal else 110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
