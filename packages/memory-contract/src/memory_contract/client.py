"""A handle that records what is done with it, called like a blocking one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from memory_contract.adapter import Adapter, Message
from memory_contract.calls import Call, ask, failed, succeeded
from memory_contract.entries import EntryIds
from memory_contract.history import Ids, Operation
from memory_contract.workers.pool import Worker


class ClientContext(Protocol):
    """Where a client records its calls: the context of a case."""

    adapter: Adapter
    names: dict[str, Any]

    def new_name(self, stem: str) -> str:
        """A name that was not used yet."""

    def new_session(self) -> str:
        """A session that was not used yet."""

    def record(self, operation: Operation, error: BaseException | None = None) -> Operation:
        """Keep an operation, and the error that the store raised."""

    def record_store_error(self, error: BaseException) -> None:
        """Remember that the store raised this error."""


class RemoteHandle:
    """A handle in another process, called as if it were here."""

    def __init__(self, worker: Worker, wait_s: float) -> None:
        self.worker = worker
        self._wait_s = wait_s

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return self.worker.ask("call", method, arguments, options, wait_s=self._wait_s)

        return call

    def close(self) -> None:
        """Close the handle there; the process ends."""
        self.worker.end()


class Client:
    """One caller of the store. Every call is recorded; what the store raises comes through."""

    def __init__(
        self,
        context: ClientContext,
        name: str,
        handle: Any,
        settle: Callable[[Any], Any],
        close: Callable[[], None],
    ) -> None:
        self.name = name
        self.handle = handle
        self._context = context
        self._settle = settle
        self._close = close
        self._ids = EntryIds(name)

    def append(
        self,
        session: str,
        count: int = 1,
        *,
        ids: Ids = (),
        key: str | None = None,
        expected: Any = None,
        ttl_s: float | None = None,
    ) -> Ids:
        """Append a batch of new entries (of `count` turns, where a store takes only turns).

        A store that takes no batches is given its entries one by one.
        """
        ids = ids or self.draw(count)
        batches = [ids] if self._context.adapter.batches else [(id_,) for id_ in ids]
        for batch in batches:
            self.make(
                Call(
                    op="append",
                    session=session,
                    ids=batch,
                    key=key,
                    expected=expected,
                    ttl_s=ttl_s,
                )
            )
        return ids

    def draw(self, count: int = 1) -> Ids:
        """Ids of new entries (of `count` turns, where a store takes only turns)."""
        return self._ids.draw(count, pairs=self._context.adapter.pairs)

    def read(self, session: str, *, limit: int | None = None) -> Ids:
        """The ids that the session shows."""
        seen = self.make(Call(op="read", session=session, limit=limit)).value
        assert isinstance(seen, tuple)
        return seen

    def pop(self, session: str) -> str | None:
        """The id that was taken away; None if there was none."""
        value = self.make(Call(op="pop", session=session)).value
        assert not isinstance(value, tuple)
        return value

    def trim(self, session: str, keep: int) -> None:
        """Keep the newest `keep` entries."""
        self.make(Call(op="trim", session=session, keep=keep))

    def clear(self, session: str) -> None:
        """Show nothing any more."""
        self.make(Call(op="clear", session=session))

    def snapshot(self, session: str) -> str:
        """The kit's name for a new snapshot."""
        name = self._context.new_name("s")
        self.make(Call(op="snapshot", session=session, snapshot=name))
        return name

    def rollback(self, session: str, snapshot: str) -> None:
        """Show what the snapshot showed."""
        self.make(Call(op="rollback", session=session, snapshot=snapshot))

    def fork(self, session: str) -> str:
        """The new session."""
        target = self._context.new_session()
        self.make(Call(op="fork", session=session, target=target))
        return target

    def undo(self, session: str) -> None:
        """Take the last change back."""
        self.make(Call(op="undo", session=session))

    def make(self, call: Call) -> Operation:
        """Make one call and record it."""
        context, began = self._context, time.monotonic_ns()
        try:
            answer = self._settle(ask(self.handle, call, context.names))
        except BaseException as error:
            context.record(failed(self.name, call, began, error), error)
            raise
        return context.record(succeeded(self.name, call, began, answer, context.names))

    def attempt(self, call: Call, around: Callable[[Any], Any] = lambda it: it) -> Operation:
        """Make one call of which an error is an answer as well: its record says what came of it.

        `around` is put around what is to be awaited.
        """
        context, began = self._context, time.monotonic_ns()
        try:
            answer = self._settle(around(ask(self.handle, call, context.names)))
        except Exception as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            return context.record(failed(self.name, call, began, error), error)
        return context.record(succeeded(self.name, call, began, answer, context.names))

    # Not recorded: for contents that carry no id.

    def put(self, session: str, *messages: Message, **options: Any) -> Any:
        """Append messages as they are."""
        return self.ask("append", session, list(messages), **options)

    def get(self, session: str, **options: Any) -> list[Message]:
        """Read messages as they come back."""
        return list(self.ask("read", session, **options))

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call any method of the handle; what it raises is the store's doing."""
        try:
            return self._settle(getattr(self.handle, method)(*arguments, **options))
        except BaseException as error:
            self._context.record_store_error(error)
            raise

    def close(self) -> None:
        """Close the handle; again does nothing."""
        close, self._close = self._close, lambda: None
        close()
