"""What a call costs the server itself, and what a message, a session and a snapshot take there."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

import indelible
from benchmarks.conversation import TASKS, TEXT, measure_rate
from indelible import ChatMessage
from memory_contract.faults.servers.postgres import PostgresServer, list_children
from memory_contract.faults.servers.valkey import ValkeyServer

CALLS = 1500
# However slow a disk is, a verb is not called for longer.
SECONDS = 4.0
SESSIONS = 300
FEW, MANY = 1, 101
SNAPSHOTS = 300

Costs = dict[str, dict[str, float]]


class Server(NamedTuple):
    """A server: where it is, the seconds that it has worked, and the bytes that it holds."""

    name: str
    url: str
    # What it gives as it is set up here, so that nobody is warned.
    durability: str
    worked_s: Callable[[], float]
    held: Callable[[], float]


def costs(share: float) -> Costs:
    """Microseconds of the server's processor for each verb, and bytes, by engine."""
    found: Costs = {}
    for opened in (_valkey, _postgres):
        with opened() as server:
            found[server.name] = {**_worked(server, share), **_kept(server, share)}
    return found


def build_table(costs: Costs) -> Table:
    """The costs for people."""
    table = Table(title="what the server itself spends")
    table.add_column("")
    for name in costs:
        table.add_column(name, justify="right")
    for line in next(iter(costs.values())):
        unit = "bytes" if line.startswith("bytes") else "µs"
        table.add_row(line, *(f"{each[line]:,.0f} {unit}" for each in costs.values()))
    return table


def _worked(server: Server, share: float) -> dict[str, float]:
    calls = max(50, int(CALLS * share))
    with indelible.open(server.url, namespace="work", durability=server.durability) as store:
        store.add_messages("s", [ChatMessage(role="user", content=TEXT)] * 1000)
        store.add_message("s", "user", TEXT)
        snapshot = store.save_snapshot("s").id
        verbs: dict[str, Callable[[], object]] = {
            "append": lambda: store.add_message("s", "user", TEXT),
            "last 20": lambda: store.get_history("s", last=20),
            "snapshot": lambda: store.save_snapshot("s"),
            "rollback": lambda: store.rollback_to_snapshot("s", snapshot),
        }
        found = {}
        for name, verb in verbs.items():
            before, ends, called = server.worked_s(), time.monotonic() + SECONDS, 0
            while called < calls and time.monotonic() < ends:
                verb()
                called += 1
            found[name] = (server.worked_s() - before) / called * 1e6
    return {**found, "append, grouped": asyncio.run(_grouped_us(server, each=max(5, calls // 64)))}


async def _grouped_us(server: Server, *, each: int) -> float:
    opening = indelible.open_async(server.url, namespace="tasks", durability=server.durability)
    async with opening as store:
        await measure_rate(lambda: store.add_message("s", "user", TEXT), each=1)
        # Before the store is closed: what a server's process did goes away with it.
        before = server.worked_s()
        await measure_rate(lambda: store.add_message("s", "user", TEXT), each=each)
        return (server.worked_s() - before) / TASKS / each * 1e6


def _kept(server: Server, share: float) -> dict[str, float]:
    sessions, snapshots = max(20, int(SESSIONS * share)), max(20, int(SNAPSHOTS * share))
    empty = server.held()
    with indelible.open(server.url, namespace="room", durability=server.durability) as store:
        _lengthen(store, sessions, FEW)
        few = server.held()
        _lengthen(store, sessions, MANY - FEW)
        many = server.held()
        for _ in range(snapshots):
            store.save_snapshot("user-0")
        taken = server.held()
    message = (many - few) / sessions / (MANY - FEW)
    return {
        "bytes of a message": message,
        "bytes of a session": (few - empty) / sessions - FEW * message,
        "bytes of a snapshot": (taken - many) / snapshots,
        "bytes of text in a message": len(TEXT),
    }


def _lengthen(store: indelible.MemoryStore, sessions: int, messages: int) -> None:
    """In several appends, and one session after the other."""
    batch = [ChatMessage(role="user", content=TEXT)] * min(20, messages)
    for _ in range(messages // len(batch)):
        for number in range(sessions):
            store.add_messages(f"user-{number}", batch)


@contextmanager
def _valkey() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder), {"appendonly": "no"})
        try:
            server.start()
            with server.client() as client:
                yield Server(
                    "Valkey",
                    server.url,
                    "none",
                    lambda: _ran_s(server.pid),
                    lambda: float(client.info("memory")["used_memory"]),
                )
        finally:
            server.stop()


@contextmanager
def _postgres() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "server")

        def held() -> float:
            server.sql("VACUUM")
            query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
            place = " AND relnamespace = to_regnamespace('indelible')"
            return float(server.sql(query + place).strip() or 0)

        try:
            server.create()
            server.start()
            yield Server(
                "PostgreSQL",
                server.url(),
                "power",
                lambda: sum(map(_ran_s, (server.pid, *list_children(server.pid)))),
                held,
            )
        finally:
            server.kill()


def _ran_s(pid: int) -> float:
    """How long a process has run on a processor; zero for one that has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]) / 1e9
    except OSError:
        return 0.0
