"""What a store was opened with, as far as plans care."""

from __future__ import annotations

from dataclasses import dataclass

from indelible.core.ids import Ids, random_ids
from indelible.core.limits import SESSION_ID_BYTES_MAX, TTL_S_MAX, VERSION_BYTES_MAX
from indelible.errors import LimitError, UsageError
from indelible.model import NEVER, Embedder, Never


@dataclass(frozen=True, slots=True)
class Settings:
    """The store's defaults: time to live, where ids come from, and what embeds text."""

    ttl: float | Never = NEVER
    ids: Ids = random_ids
    embedder: Embedder | None = None

    def ttl_s(self, ttl: float | Never | None) -> float | None:
        """The time to live of one append in seconds; None for no end."""
        return check_ttl_s(self.ttl if ttl is None else ttl)


def check_ttl_s(ttl: float | Never) -> float | None:
    """A time to live in seconds, or None for `NEVER`."""
    if isinstance(ttl, Never):
        return None
    if not isinstance(ttl, (int, float)) or isinstance(ttl, bool) or not ttl > 0:
        raise UsageError(f"a ttl is a number of seconds above 0, or NEVER: {ttl!r}", value=ttl)
    if ttl > TTL_S_MAX:
        raise LimitError(
            f"a ttl of {ttl} s is over the limit of {TTL_S_MAX} s; use NEVER",
            limit=TTL_S_MAX,
            actual=ttl,
        )
    return ttl


def check_text(text: object, *, what: str, bytes_max: int) -> str:
    """Non-empty text within its limit, or an error that shows what was given."""
    if not isinstance(text, str) or not text:
        raise UsageError(f"{what} is non-empty text, not {text!r}", value=text)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{what} holds a lone surrogate: {text!r}", value=text) from None
    if size > bytes_max:
        raise LimitError(
            f"{what} takes {size} bytes; the limit is {bytes_max}: {text[:40]!r}…",
            limit=bytes_max,
            actual=size,
        )
    return text


def check_version(expected: object) -> str | None:
    """A version that a caller expects, or None; what is no text was never one."""
    if expected is None:
        return None
    return check_text(expected, what="an expected version", bytes_max=VERSION_BYTES_MAX)


def check_session_id(session_id: object) -> str:
    """A session id that every engine can tell from every other."""
    if (
        type(session_id) is str
        and session_id.isascii()
        and 0 < len(session_id) <= SESSION_ID_BYTES_MAX
    ):
        return session_id
    return check_text(session_id, what="a session id", bytes_max=SESSION_ID_BYTES_MAX)
