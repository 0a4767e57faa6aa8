"""Where servers listen, and what is wrong with an address at which none is found."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import suppress
from typing import Final, NamedTuple

from indelible.core.backend import Address
from indelible.core.limits import FIRST_CONTACT_S

# More would make the message of an error unreadable.
_NAMED_MAX: Final = 3


class Problem(NamedTuple):
    """What is wrong at an address, and what to check."""

    text: str
    check: str


def find_problems(addresses: Sequence[Address], timeout_s: float) -> list[Problem]:
    """Return what is wrong at these addresses; nothing as soon as one of them can be connected to.

    This tells a wrong address from a slow server: the system answers for a server that is busy. A
    name has `timeout_s` to be resolved: the system has no timeout for that.
    """
    probes = _start_probes(addresses)
    with suppress(TimeoutError):
        ended = as_completed(probes, timeout_s + FIRST_CONTACT_S)
        if any(probe.result() is None for probe in ended):
            return []
    problems = map(_read_probe, addresses, probes)
    return [problem for problem in problems if problem is not None]


def describe_strangers(
    addresses: Sequence[Address], engine: str, reason: str, timeout_s: float
) -> list[Problem]:
    """Describe addresses that are open but do not answer as a server of this engine."""
    probes = _start_probes(addresses)
    wait(probes, timeout_s + FIRST_CONTACT_S)
    problems: list[Problem] = []
    for address, problem in zip(addresses, map(_read_probe, addresses, probes), strict=True):
        if problem is None:
            name = f"the socket {address}" if isinstance(address, str) else _name_port(*address)
            stranger = f"what listens there does not answer as a {engine} server ({reason})"
            check = "the port, whether the server wants TLS, and whether it is stuck"
            problems.append(Problem(f"{name} is open, but {stranger}", check))
        else:
            problems.append(problem)
    return problems


def join_problems(problems: Sequence[Problem]) -> tuple[str, str]:
    """Return the first problems as one text, and what to check as another."""
    named = problems[:_NAMED_MAX]
    checks = dict.fromkeys(problem.check for problem in named)
    return ", ".join(problem.text for problem in named), "; ".join(checks)


def _start_probes(addresses: Sequence[Address]) -> list[Future[Problem | None]]:
    """Begin to connect to all addresses at the same time, so that each has all of the time."""
    return [_start_probe(address) for address in addresses]


def _start_probe(address: Address) -> Future[Problem | None]:
    probe: Future[Problem | None] = Future()

    def run() -> None:
        try:
            probe.set_result(_try_to_connect(address))
        except BaseException as error:  # noqa: BLE001 (who waits raises it)
            probe.set_exception(error)

    # A daemon, so that a process need not wait for it to end.
    threading.Thread(target=run, name="indelible-probe", daemon=True).start()
    return probe


def _read_probe(address: Address, probe: Future[Problem | None]) -> Problem | None:
    if probe.done():
        return probe.result()
    name = address if isinstance(address, str) else address[0]
    check = "the host name, the name servers, and whether a firewall is in between"
    return Problem(f"{name} could not be resolved and reached in time", check)


def _try_to_connect(address: Address) -> Problem | None:
    if isinstance(address, str):
        return _try_socket(address)
    host, port = address
    try:
        socket.create_connection(address, timeout=FIRST_CONTACT_S).close()
    except (socket.gaierror, UnicodeError):
        return Problem(f"the host name {host!r} is not known", "the host name")
    except ConnectionRefusedError:
        text = f"nothing listens on {_name_port(host, port)}"
        return Problem(text, "the host and the port, and that the server runs")
    except OSError:
        text = f"{host} does not answer on port {port}"
        return Problem(text, "the host and the port, and whether a firewall is in between")
    return None


def _try_socket(path: str) -> Problem | None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(FIRST_CONTACT_S)
        try:
            client.connect("\0" + path[1:] if path.startswith("@") else path)
        except OSError as error:
            text = f"no server answers at the socket {path} ({error.strerror or error})"
            return Problem(text, "its path, and that the server runs")
    return None


def _name_port(host: str, port: int) -> str:
    return f"port {port} of {host}"
