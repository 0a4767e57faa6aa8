"""One call, from its first attempt to its outcome: what is known of it, and what to send next."""

from __future__ import annotations

from redis import exceptions as theirs

from indelible.backends.redis.calls import ScriptCall
from indelible.backends.redis.errors import (
    Next,
    UnconfirmedError,
    build_refused_error,
    build_unknown_error,
    build_unreachable_error,
    choose_next,
)
from indelible.errors import MemoryStoreError


class Attempts:
    """Remembers whether an attempt may have landed: then no later refusal says that none did."""

    __slots__ = ("_call", "_shown", "by_text")

    def __init__(self, call: ScriptCall, *, shown: str) -> None:
        self._call = call
        self._shown = shown
        # Whether the next attempt sends the script's text.
        self.by_text = False

    def choose_error(self, error: MemoryStoreError) -> MemoryStoreError:
        """The error to end with: what was sent before may have landed, whatever is said now."""
        if self._call.lost is None:
            return error
        return build_unknown_error(self._call.lost, shown=self._shown)

    def note_lost(self, error: BaseException, *, sent: bool) -> MemoryStoreError:
        """The connection failed. Returns the error to end with if there is no time left."""
        # redis-py takes it for a broken connection when a server says that it is loading its file.
        if sent and self._call.write and not isinstance(error, theirs.BusyLoadingError):
            self._note_maybe_landed(error)
        return self.choose_error(build_unreachable_error(error, shown=self._shown))

    def note_refused(self, reply: Exception) -> MemoryStoreError | None:
        """The server said no. Returns None if the next attempt can go at once."""
        if isinstance(reply, UnconfirmedError):
            self._note_maybe_landed(reply)
            return self.choose_error(build_unknown_error(reply, shown=self._shown))
        then = choose_next(reply)
        if then is Next.SEND_TEXT and not self.by_text:
            self.by_text = True
            return None
        self.by_text = False
        problem = self.choose_error(
            build_refused_error(reply, shown=self._shown, session=self._call.session)
        )
        if then is Next.RAISE:
            raise problem
        return problem

    def _note_maybe_landed(self, error: BaseException) -> None:
        lost = self._call.lost if isinstance(self._call.lost, UnconfirmedError) else error
        self._call.mark_lost(lost)
        if not self._call.repeatable:
            raise build_unknown_error(error, shown=self._shown)
