"""Proxy faults as values, and the queue in which they wait for their requests."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self, get_args

What = Literal["cut before", "cut after", "cut midway", "delay", "freeze", "slice", "answer"]
ANYTHING: Final = "*"
# Names for the beginning of a connection, so that faults can strike it like a request.
CONNECT: Final = "CONNECT"
STARTUP: Final = "STARTUP"


class ProxyFaultError(ValueError):
    """A fault was described wrongly."""


@dataclass(frozen=True, slots=True)
class ProxyFault:
    """Strikes the n-th request of a name, and those after it until it struck `times` times.

    - `cut before`: the connection ends, and the server never hears of the request;
    - `cut after`: the server does it, and the connection ends before a byte of the reply;
    - `cut midway`: half of the reply comes through;
    - `delay`: the reply comes `seconds` later;
    - `freeze`: nothing goes on until the proxy is healed;
    - `slice`: the reply comes in pieces of a few bytes;
    - `answer`: the server never hears of the request, and the proxy refuses it with `reply`: an
      error of Redis such as `OOM ...`, or an SQLSTATE.

    The name is a command of Redis (`EVALSHA`), the first word of an SQL statement (`INSERT`),
    `CONNECT` or, on PostgreSQL, `STARTUP`; `*` is any request but those by which clients introduce
    themselves.
    """

    what: What
    on: str = ANYTHING
    nth: int = 1
    # 0 is without end.
    times: int = 1
    seconds: float = 0.0
    reply: str = ""

    def __post_init__(self) -> None:
        if self.what not in get_args(What):
            raise ProxyFaultError(f"there is no fault {self.what!r}")
        if self.nth < 1 or self.times < 0 or self.seconds < 0:
            raise ProxyFaultError(
                "requests are counted from 1, and nothing takes less than no time"
            )
        if (self.what == "answer") != bool(self.reply):
            raise ProxyFaultError("a fault has a reply if it is an answer, and only then")
        object.__setattr__(self, "on", self.on.upper())

    @classmethod
    def parse(cls, what: What, words: str) -> Self:
        """From `NAME`, `NAME:N`, and for a delay or an answer `NAME:N=VALUE`."""
        place, _, value = words.partition("=")
        name, _, nth = place.partition(":")
        if not name or (nth and not nth.isdigit()):
            raise ProxyFaultError(f"write NAME or NAME:N, such as EVALSHA:3, not {words!r}")
        number = int(nth or 1)
        if what == "delay":
            try:
                return cls(what, name, number, seconds=float(value))
            except ValueError:
                raise ProxyFaultError(f"write NAME:N=SECONDS, not {words!r}") from None
        if what == "answer":
            if not value:
                raise ProxyFaultError(f"write NAME:N=REPLY, such as SET:1=OOM, not {words!r}")
            return cls(what, name, number, reply=value)
        if value:
            raise ProxyFaultError(f"nothing follows NAME:N, not {words!r}")
        return cls(what, name, number)


class ProxyFaultEvent(NamedTuple):
    """A fault that struck: which request, from when, until when; None if it lasts."""

    fault: ProxyFault
    name: str
    began_ns: int
    ended_ns: int | None


class FaultQueue:
    """Faults that wait for their requests. Any thread may arm them; the proxy's thread matches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Each with how many requests it let pass, and how often it struck.
        self._armed: list[tuple[ProxyFault, list[int]]] = []
        self._struck: list[ProxyFaultEvent] = []
        # Requests that were matched and passed on, or refused.
        self.passed = 0

    def arm(self, *faults: ProxyFault) -> None:
        """Count requests for these faults from now on."""
        with self._lock:
            self._armed += [(fault, [0, 0]) for fault in faults]

    def disarm(self) -> None:
        """Drop all faults, so that every request passes."""
        with self._lock:
            self._armed.clear()

    def match(self, name: str, *, chatter: bool = False) -> ProxyFault | None:
        """The fault that strikes a request of this name now, if any. All faults count the request.

        `*` does not match `chatter`, which clients send about themselves.
        """
        found: ProxyFault | None = None
        with self._lock:
            for fault, counts in self._armed:
                if fault.on != name and (chatter or fault.on != ANYTHING):
                    continue
                counts[0] += 1
                spent = fault.times and counts[1] >= fault.times
                if found is None and counts[0] >= fault.nth and not spent:
                    counts[1] += 1
                    found = fault
        return found

    def strike(self, fault: ProxyFault, name: str, began_ns: int, *, lasting: bool = False) -> None:
        """Record that a fault struck."""
        ended_ns = None if lasting else time.monotonic_ns()
        with self._lock:
            self._struck.append(ProxyFaultEvent(fault, name, began_ns, ended_ns))

    @property
    def struck(self) -> list[ProxyFaultEvent]:
        """The faults that struck so far."""
        with self._lock:
            return list(self._struck)
