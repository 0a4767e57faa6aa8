"""What a backend is, blocking and async, and the table of its handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from indelible.core.plan import Operation, Plan
from indelible.model import Claims

R = TypeVar("R")
C = TypeVar("C")
O = TypeVar("O", bound=Operation[Any])  # noqa: E741 (an operation)


# Where a server listens: host and port, or the path of a socket.
Address = tuple[str, int] | str


class UnreachedError(Exception):
    """Raised by `prepare`: what listens there does not answer as a server of this engine.

    Its text is what the driver said, without a password; its cause is the driver's error.
    """


class Backend(Protocol):
    """Performs operations, blocking. Creating one does not connect to a server."""

    def prepare(self) -> None:
        """Connect, and refuse an engine that cannot keep what was demanded.

        A server that never answered, in all attempts of `FIRST_CONTACT_S`, is an `UnreachedError`.
        """
        ...

    def perform(self, op: Operation[R]) -> R:
        """Perform one operation, atomically."""
        ...

    def claims(self) -> Claims:
        """Return what is promised on the engine as it is configured right now."""
        ...

    def close(self) -> None:
        """Release the engine. Closing twice is fine."""
        ...


class AsyncBackend(Protocol):
    """Performs operations, async. Creating one does not connect to a server."""

    async def prepare(self) -> None:
        """Connect, and refuse an engine that cannot keep what was demanded.

        A server that never answered, in all attempts of `FIRST_CONTACT_S`, is an `UnreachedError`.
        """
        ...

    async def perform(self, op: Operation[R]) -> R:
        """Perform one operation, atomically."""
        ...

    async def claims(self) -> Claims:
        """Return what is promised on the engine as it is configured right now."""
        ...

    async def close(self) -> None:
        """Release the engine. Closing twice is fine."""
        ...


class Handlers(Generic[C]):
    """Which function performs which operation on one engine.

    `C` is the context that the handlers of the engine share. A handler is registered where it is
    defined. It is a function, or, on Redis, a plan:

        @WRITES.handles(Append)
        def append(context: Context, op: Append) -> AppendResult: ...

        @HANDLERS.handles(Append)
        def append(context: Context, op: Append) -> Plan[AppendResult]: ...
    """

    def __init__(self) -> None:
        self._handlers: dict[type[Operation[Any]], Callable[[C, Any], Any]] = {}

    def handles(self, kind: type[O]) -> Callable[[Callable[[C, O], R]], Callable[[C, O], R]]:
        """Register the decorated function for one kind of operation."""

        def register(handler: Callable[[C, O], R]) -> Callable[[C, O], R]:
            assert kind not in self._handlers, f"{kind.__name__} has two handlers"
            self._handlers[kind] = handler
            return handler

        return register

    def __contains__(self, kind: type[Operation[Any]]) -> bool:
        return kind in self._handlers

    def find(self, op: Operation[R]) -> Callable[[C, Operation[R]], R]:
        """Return the function that performs an operation."""
        return self._handlers[type(op)]

    def plan(self, context: C, op: Operation[R]) -> Plan[R]:
        """Return the plan that performs an operation."""
        handler = self._handlers.get(type(op), _answer_default)
        plan: Plan[R] = handler(context, op)
        return plan


def _answer_default(_context: object, op: Operation[R]) -> Plan[R]:
    """Perform an operation that an engine has no handler for."""
    yield from ()
    default: R = op.default
    return default
