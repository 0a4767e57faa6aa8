"""The settings of a store that plans need, and checks of common arguments."""

from __future__ import annotations

from dataclasses import dataclass

from indelible.core.audit import Audit
from indelible.core.codec import format_value
from indelible.core.embedding import TextEmbedder
from indelible.core.ids import Ids, random_ids
from indelible.core.limits import SESSION_ID_BYTES_MAX, TTL_S_MAX, VERSION_BYTES_MAX
from indelible.errors import LimitError, UsageError
from indelible.model import NEVER, Never


@dataclass(frozen=True, slots=True)
class Settings:
    """The default time to live, the generator of ids, the embedder, and where the data is."""

    ttl: float | Never = NEVER
    ids: Ids = random_ids
    embedder: TextEmbedder | None = None
    # For people: a URL without its password.
    target: str = ""
    # How changes are audited, if they are.
    audit: Audit | None = None

    def ttl_s(self, ttl: float | Never | None) -> float | None:
        """Return the time to live of one append in seconds; None if it never expires."""
        return check_ttl_s(self.ttl if ttl is None else ttl)


def check_ttl_s(ttl: float | Never) -> float | None:
    """Check a time to live; return None for `NEVER`."""
    if isinstance(ttl, Never):
        return None
    if not isinstance(ttl, (int, float)) or isinstance(ttl, bool) or not ttl > 0:
        raise UsageError(
            f"ttl must be a number of seconds above 0, or NEVER, not {format_value(ttl)}", value=ttl
        )
    if ttl > TTL_S_MAX:
        raise LimitError(
            f"a ttl of {ttl} s is over the limit of {TTL_S_MAX} s; use NEVER",
            limit=TTL_S_MAX,
            actual=ttl,
        )
    return ttl


def check_text(text: object, *, what: str, bytes_max: int) -> str:
    """Check that a value is non-empty text within a limit."""
    if not isinstance(text, str) or not text:
        raise UsageError(f"{what} is non-empty text, not {format_value(text)}", value=text)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        shown = format_value(text)
        raise UsageError(f"{what} holds a lone surrogate: {shown}", value=text) from None
    if size > bytes_max:
        raise LimitError(
            f"{what} takes {size} bytes; the limit is {bytes_max}: {text[:40]!r}…",
            limit=bytes_max,
            actual=size,
        )
    return text


def check_version(expected: object) -> str | None:
    """Check an expected version."""
    if expected is None:
        return None
    return check_text(expected, what="an expected version", bytes_max=VERSION_BYTES_MAX)


def check_session_id(session_id: object) -> str:
    """Check a session id."""
    if (
        type(session_id) is str
        and session_id.isascii()
        and 0 < len(session_id) <= SESSION_ID_BYTES_MAX
    ):
        return session_id
    return check_text(session_id, what="a session id", bytes_max=SESSION_ID_BYTES_MAX)
