"""Interrupts operations of a store that the checker does not know.

A process is killed at its steps, or replies of a server are lost. The case performs the operation
and judges the state afterwards.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import Final

from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseVacuous, Client
from memory_contract.cases.perturbation import draw_positions
from memory_contract.cases.proxied_store import CUTS, REQUESTS_MAX, insert_proxy
from memory_contract.faults.proxy import ProxyFault
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.workers.pool import WorkerLost

# How many kills there are.
KILLS: Final = 10


class Interruption(ABC):
    """An operation on a session or an item that can be interrupted."""

    def __init__(self, context: CaseContext) -> None:
        self.context = context

    @abstractmethod
    def prepare(self, writer: Client) -> str:
        """Prepare another session or item; returns its name."""

    @abstractmethod
    def act(self, writer: Client, name: str) -> None:
        """Perform the operation that is interrupted."""

    @abstractmethod
    def judge(self, reader: Client, name: str, acknowledged: bool, after: str) -> None:
        """Judge the state, acknowledged or not, and whether the store can still be used."""

    def kill_at_steps(self) -> None:
        """Kill processes at steps of it, as far as these touch files."""
        disk = FaultyDisk(self.context.workspace, python=True)
        writer = self.context.open_in_process(plugin=disk)
        name = self.prepare(writer)
        writer.worker.call_plugin("kill_at_step", 0)
        self.act(writer, name)
        steps: int = writer.worker.call_plugin("steps")
        _kill(writer)
        if not steps:
            raise CaseNotClaimed("no step of it touches a file")
        for step in draw_positions(self.context, steps + 1, KILLS):
            writer = self.context.open_in_process(plugin=disk)
            name = self.prepare(writer)
            writer.worker.call_plugin("kill_at_step", step)
            acknowledged = False
            with contextlib.suppress(WorkerLost):
                self.act(writer, name)
                acknowledged = True
            _kill(writer)
            with contextlib.closing(self.context.open_in_process()) as reader:
                self._judge(reader, name, acknowledged, f"a kill at step {step}")

    def lose_replies(self) -> None:
        """Lose the reply to each of its requests.

        Each time on a new handle: whether a store goes on by itself is asked by other cases.
        """
        with insert_proxy(self.context) as proxy:
            reader = self.context.open()
            for what in CUTS:
                for nth in range(1, REQUESTS_MAX + 1):
                    with contextlib.closing(self.context.open(server=proxy.url)) as writer:
                        name = self.prepare(writer)
                        before, acknowledged = len(proxy.struck), False
                        proxy.arm(ProxyFault(what, nth=nth))
                        # An error is allowed; its outcome is unknown.
                        with contextlib.suppress(Exception):
                            self.act(writer, name)
                            acknowledged = True
                        proxy.heal()
                    after = f"the reply to request {nth} was lost ({what})"
                    self._judge(reader, name, acknowledged, after)
                    if len(proxy.struck) == before:
                        break
            if not proxy.struck:
                raise CaseVacuous("no reply was lost")

    def _judge(self, reader: Client, name: str, acknowledged: bool, after: str) -> None:
        try:
            self.judge(reader, name, acknowledged, after)
        except Exception as error:  # noqa: BLE001 -- the interruption is over
            proof = f"after {after}, another handle meets {format_error(error)}"
            self.context.fail("unusable afterwards", proof, session=name)


def _kill(client: Client) -> None:
    client.worker.kill()
    client.is_open = False
