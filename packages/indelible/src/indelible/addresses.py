"""Where servers listen, and what is wrong with an address at which none is found."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

from indelible.core.backend import Address
from indelible.core.limits import FIRST_CONTACT_S

# More would make the message of an error unreadable.
_NAMED_MAX: Final = 3


class Problem(NamedTuple):
    """What is wrong at an address, and what to check."""

    text: str
    check: str


def find_problems(addresses: Sequence[Address]) -> list[Problem]:
    """Return what is wrong at these addresses; nothing as soon as one of them can be connected to.

    This tells a wrong address from a slow server: the system answers for a server that is busy.
    """
    problems: list[Problem] = []
    for address in addresses:
        problem = _try_to_connect(address, FIRST_CONTACT_S / len(addresses))
        if problem is None:
            return []
        problems.append(problem)
    return problems


def describe_strangers(addresses: Sequence[Address], engine: str, reason: str) -> list[Problem]:
    """Describe addresses that are open but do not answer as a server of this engine."""
    problems: list[Problem] = []
    for address in addresses:
        problem = _try_to_connect(address, FIRST_CONTACT_S / len(addresses))
        if problem is None:
            name = f"the socket {address}" if isinstance(address, str) else _name_port(*address)
            stranger = f"what listens there does not answer as a {engine} server ({reason})"
            check = "the port, whether the server wants TLS, and whether it is stuck"
            problem = Problem(f"{name} is open, but {stranger}", check)
        problems.append(problem)
    return problems


def join_problems(problems: Sequence[Problem]) -> tuple[str, str]:
    """Return the first problems as one text, and what to check as another."""
    named = problems[:_NAMED_MAX]
    checks = dict.fromkeys(problem.check for problem in named)
    return ", ".join(problem.text for problem in named), "; ".join(checks)


def _try_to_connect(address: Address, timeout_s: float) -> Problem | None:
    if isinstance(address, str):
        return _try_socket(address, timeout_s)
    host, port = address
    try:
        socket.create_connection(address, timeout=timeout_s).close()
    except (socket.gaierror, UnicodeError):
        return Problem(f"the host name {host!r} is not known", "the host name")
    except ConnectionRefusedError:
        text = f"nothing listens on {_name_port(host, port)}"
        return Problem(text, "the host and the port, and that the server runs")
    except OSError:
        text = f"{host} does not answer on port {port}"
        return Problem(text, "the host and the port, and whether a firewall is in between")
    return None


def _try_socket(path: str, timeout_s: float) -> Problem | None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        try:
            client.connect("\0" + path[1:] if path.startswith("@") else path)
        except OSError as error:
            text = f"no server answers at the socket {path} ({error.strerror or error})"
            return Problem(text, "its path, and that the server runs")
    return None


def _name_port(host: str, port: int) -> str:
    return f"port {port} of {host}"
