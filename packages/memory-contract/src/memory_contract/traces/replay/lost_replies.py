"""Lost replies of a server, repeated by a proxy before each store's server."""

from __future__ import annotations

import contextlib
from typing import Final

from memory_contract.faults.proxy import Proxy, ProxyError, ProxyFault

# The requests of one call whose replies are lost, a run for each.
REQUESTS_MAX: Final = 12
NO_SERVER: Final = "the store names no server that the kit could stand before"


class LostReplies:
    """Drops the reply to the n-th request of a call when armed.

    What shares a store shares its proxy: of calls that are open together on one store, the one
    whose request is the n-th is struck.
    """

    def __init__(self, server: str | None, *, nth: int) -> None:
        self._server = server
        self._nth = nth
        self._proxies: dict[str, Proxy] = {}
        self._waiting: dict[str, int] = {}
        self.why_not = NO_SERVER if server is None else _find_obstacle(server)

    @property
    def lost(self) -> int:
        """How many replies were dropped so far."""
        return sum(len(proxy.struck) for proxy in self._proxies.values())

    def server_of(self, group: str) -> str | None:
        """Return the server URL for a group's store; None if it uses its own."""
        if self.why_not or self._server is None:
            return None
        if group not in self._proxies:
            proxy = Proxy(self._server)
            proxy.start()
            self._proxies[group] = proxy
        return self._proxies[group].url

    def arm(self, group: str) -> None:
        """Arm the fault for a call of this group."""
        self._waiting[group] = self._waiting.get(group, 0) + 1
        self._proxies[group].arm(ProxyFault("cut after", nth=self._nth))

    def disarm(self, group: str) -> None:
        """Disarm the fault so that later calls are not affected."""
        self._waiting[group] -= 1
        if not self._waiting[group]:
            self._proxies[group].heal()

    def close(self) -> None:
        """Close all proxies."""
        for proxy in self._proxies.values():
            with contextlib.suppress(Exception):
                proxy.close()


def _find_obstacle(server: str) -> str:
    try:
        Proxy(server).close()
    except ProxyError as error:
        return str(error)
    return ""
