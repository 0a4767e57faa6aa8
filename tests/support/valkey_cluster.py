"""A cluster of Valkey servers of our own: three primaries, each with a replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from memory_contract.faults.servers.ports import LOOPBACK, reserve_port
from memory_contract.faults.servers.process import LOOK_AGAIN_S, READY_S_MAX, ServerError
from memory_contract.faults.servers.valkey import ValkeyServer

PRIMARIES: Final = 3
SLOTS: Final = 16384
# A primary that is silent for this long is replaced by its replica.
NODE_TIMEOUT_MS: Final = 1000
# Where nobody is to be replaced: longer than a busy machine keeps a server waiting.
PATIENT_MS: Final = 120_000


class ValkeyCluster:
    """Three primaries and three replicas on loopback ports."""

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        self.nodes = [self._node(folder / f"node-{n}", options or {}) for n in range(2 * PRIMARIES)]

    @property
    def url(self) -> str:
        """Where its servers listen, all of them."""
        places = ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)
        return f"redis+cluster://{places}"

    @property
    def running(self) -> list[ValkeyServer]:
        """The servers that were not killed."""
        return [node for node in self.nodes if node.running]

    def start(self) -> None:
        """Start every server, and wait until all agree on who serves what."""
        for node in self.nodes:
            node.start()
        first = self.nodes[0]
        share = SLOTS // PRIMARIES
        for n, node in enumerate(self.nodes):
            with node.client() as client:
                bus = int(first.options["cluster-port"])
                client.execute_command("CLUSTER MEET", LOOPBACK, first.port, bus)
                if n < PRIMARIES:
                    last = SLOTS - 1 if n == PRIMARIES - 1 else (n + 1) * share - 1
                    client.execute_command("CLUSTER ADDSLOTSRANGE", n * share, last)
        self._until(self._all_met, "the servers did not find one another")
        for n, node in enumerate(self.nodes[PRIMARIES:]):
            primary = self._ask(self.nodes[n], "CLUSTER MYID")
            self._until(lambda node=node, to=primary: self._follows(node, to), "no replica")  # type: ignore[misc]
        self._until(self._whole, "the cluster did not become whole")

    def calm(self) -> None:
        """Let nobody be replaced because the machine is busy: for those who will kill no server.

        It is said only now, because patient servers find one another slowly.
        """
        for node in self.nodes:
            with node.client() as client:
                client.config_set("cluster-node-timeout", PATIENT_MS)

    def stop(self) -> None:
        """End every server."""
        for node in self.nodes:
            node.kill()

    def primary_of(self, key: str) -> ValkeyServer:
        """The running server that serves a key."""
        slot = int(self._ask(self.running[0], "CLUSTER KEYSLOT", key))
        for first, last, primary, *_ in self._ask(self.running[0], "CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == primary[1])
        raise ServerError(f"nobody serves slot {slot}")

    def until_whole(self) -> None:
        """Wait until every slot is served by a running server."""
        self._until(self._served, "the cluster did not recover")

    def lists(self, node: ValkeyServer) -> bool:
        """Whether any other running server has this one in its map of slots."""
        others = [each for each in self.running if each is not node]
        maps = [self._ask(each, "CLUSTER SLOTS") for each in others]
        return any(place[1] == node.port for each in maps for slots in each for place in slots[2:])

    def _node(self, folder: Path, options: Mapping[str, str]) -> ValkeyServer:
        bus = reserve_port()
        words = {
            "cluster-enabled": "yes",
            "cluster-port": str(bus),
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
            "cluster-config-file": "nodes.conf",
            # A replica that just lost its primary may take over, however old its link is.
            "cluster-replica-validity-factor": "0",
            **options,
        }
        return ValkeyServer(folder, words)

    def _ask(self, node: ValkeyServer, *command: Any) -> Any:
        with node.client() as client:
            reply = client.execute_command(*command)
        return reply.decode() if isinstance(reply, bytes) else reply

    def _info(self, node: ValkeyServer) -> dict[str, str]:
        text = self._ask(node, "CLUSTER INFO")
        if isinstance(text, dict):
            return {str(name): str(value) for name, value in text.items()}
        return dict(line.split(":", 1) for line in str(text).split() if ":" in line)

    def _all_met(self) -> bool:
        return all(
            self._info(node).get("cluster_known_nodes") == str(len(self.nodes))
            and self._info(node).get("cluster_slots_assigned") == str(SLOTS)
            for node in self.nodes
        )

    def _follows(self, node: ValkeyServer, primary: str) -> bool:
        import redis

        try:
            self._ask(node, "CLUSTER REPLICATE", primary)
        except redis.exceptions.ResponseError:
            # It has not heard of that primary yet.
            return False
        return True

    def _whole(self) -> bool:
        for node in self.nodes:
            if self._info(node).get("cluster_state") != "ok":
                return False
        for node in self.nodes[PRIMARIES:]:
            with node.client() as client:
                link = client.info("replication").get("master_link_status")
            if link != "up":
                return False
        return all(len(each) > 3 for each in self._ask(self.nodes[0], "CLUSTER SLOTS"))

    def _served(self) -> bool:
        ports = {node.port for node in self.running}
        for node in self.running:
            if self._info(node).get("cluster_state") != "ok":
                return False
            if any(each[2][1] not in ports for each in self._ask(node, "CLUSTER SLOTS")):
                return False
        return True

    def _until(self, condition: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while not condition():
            if time.monotonic() > deadline:
                raise ServerError(problem)
            time.sleep(5 * LOOK_AGAIN_S)
