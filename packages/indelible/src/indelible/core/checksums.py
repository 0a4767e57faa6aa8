"""Checksums of stored rows: an entry is bound to its place, a session's row to its fields.

An envelope carries a checksum of its own bytes (see `codec`), which says nothing about where it
stands. So each entry's row has a second one, an integer that every engine can complete by addition
when it draws the position:

    checksum = (salt + content) + position + written_at + deadline + generation + batch

`salt` comes from namespace and session, `content` from the envelope's own checksum. Taking the
place away from the stored number gives `content` back. If that is not what the envelope says, then
the row was moved, swapped with another, or damaged. These are checks against damage: whoever can
write to the database can also write checksums.
"""

from __future__ import annotations

from hashlib import blake2b

from indelible.core.codec import CHECKSUM_FROM, CONTENT_DIGITS

# 48 bits: sums with a position and three times stay below 2**53, where Lua's numbers are exact.
CHECKSUM_BITS = 4 * CONTENT_DIGITS
CHECKSUM_MASK = (1 << CHECKSUM_BITS) - 1


def compute_session_salt(namespace: str, session: str) -> int:
    """A number that tells the entries of one session from those of every other."""
    return compute_row_checksum(namespace, session)


def parse_content_checksum(envelope: bytes) -> int:
    """The first 48 bits of the checksum that an envelope carries."""
    try:
        return int(envelope[CHECKSUM_FROM : CHECKSUM_FROM + CONTENT_DIGITS], 16)
    except ValueError:
        # Damaged bytes that are copied as they are.
        return compute_row_checksum(envelope)


def compute_entry_checksum(
    salt: int,
    envelope: bytes,
    *,
    position: int = 0,
    written_at_ms: int = 0,
    deadline_ms: int | None = None,
    generation: int = 0,
    batch: int = 0,
) -> int:
    """The checksum of an entry's row; an engine that draws the rest itself adds that to it."""
    content = (salt + parse_content_checksum(envelope)) & CHECKSUM_MASK
    return content + position + written_at_ms + (deadline_ms or 0) + generation + batch


def recover_content_checksum(
    checksum: int,
    salt: int,
    *,
    position: int,
    written_at_ms: int,
    deadline_ms: int | None,
    generation: int,
    batch: int,
) -> int:
    """The content checksum that a row's checksum stands for, if the row is where it was written."""
    place = position + written_at_ms + (deadline_ms or 0) + generation + batch
    return (checksum - place - salt) & CHECKSUM_MASK


def compute_row_checksum(*fields: str | bytes | int | None) -> int:
    """48 bits of BLAKE2b over a row's fields; each is told apart from its neighbours."""
    # Not `repr`, which shows a character as it is once Python's Unicode tables know it: a newer
    # Python would compute something else.
    digest = blake2b(ascii(fields).encode(), digest_size=CHECKSUM_BITS // 8).digest()
    return int.from_bytes(digest, "big")
