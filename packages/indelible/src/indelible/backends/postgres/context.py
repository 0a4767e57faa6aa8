"""What the plans of one store share, and the tables of the plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from indelible.core.backend import Handlers
from indelible.core.checksums import compute_session_salt
from indelible.core.clock import Clock, read_clock_ms


@dataclass(frozen=True, slots=True)
class PostgresContext:
    """What the plans of one store share."""

    namespace: bytes
    # None for the server's time, which is the rule; a caller's clock is for tests.
    clock: Clock | None
    # The key that signs cursors, once it was read; a list, since the rest is frozen.
    cursor_key: list[bytes] = field(default_factory=list, repr=False)

    def now_ms(self) -> int | None:
        """The caller's time, if it has one of its own."""
        return None if self.clock is None else read_clock_ms(self.clock)

    def named(self, session: str) -> tuple[bytes, bytes]:
        """The first two parameters of most statements."""
        return self.namespace, session.encode()

    def salt(self, session: str) -> int:
        """What binds the checksums of entries to their session."""
        return compute_session_salt(self.namespace.decode(), session)


def to_milliseconds(seconds: float | None) -> int | None:
    """A time to live as statements take it."""
    return None if seconds is None else math.ceil(seconds * 1000)


# Plans that only read.
READS: Final[Handlers[PostgresContext]] = Handlers()
# Plans that run inside of a transaction.
WRITES: Final[Handlers[PostgresContext]] = Handlers()
# Plans that begin with a guarded write, which commits by itself. If it wrote nothing, they go on in
# a transaction: they load the session, and the rules decide.
GUARDED_WRITES: Final[Handlers[PostgresContext]] = Handlers()
