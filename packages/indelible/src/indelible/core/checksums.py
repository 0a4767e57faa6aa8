"""Checksums of rows: they bind an entry to its position, and a row to its fields.

The checksum in an envelope covers its bytes (see `codec`), but not its position. So the row of an
entry has a second one, an integer that an engine can complete by addition when it assigns the
position:

    checksum = (salt + content) + position + written_at + deadline + generation + batch

`salt` depends on namespace and session, `content` on the envelope's checksum. Subtracting the rest
from the stored number gives `content`. If that is not the envelope's, the row was moved, swapped
with another, or damaged. This protects against damage, not against an attacker: who can write to
the database can also write checksums.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from indelible.core.codec import CHECKSUM_BYTES, CHECKSUM_FROM, CONTENT_DIGITS

# 48 bits: sums with a position and three times stay below 2**53, where Lua's numbers are exact.
CHECKSUM_BITS = 4 * CONTENT_DIGITS
CHECKSUM_MASK = (1 << CHECKSUM_BITS) - 1


@lru_cache(maxsize=1024)
def compute_session_salt(namespace: str, session: str) -> int:
    """Compute a number that differs between sessions."""
    return compute_row_checksum(namespace, session)


def parse_content_checksum(envelope: bytes) -> int:
    """Return the first 48 bits of the checksum in an envelope."""
    try:
        return int(envelope[CHECKSUM_FROM : CHECKSUM_FROM + CONTENT_DIGITS], 16)
    except ValueError:
        # Damaged bytes that are copied unchanged.
        return compute_row_checksum(envelope)


def compute_entry_checksum(salt: int, envelope: bytes, *place: int | None) -> int:
    """Compute the checksum of a row; an engine adds the parts of the place that it assigns."""
    checksum = (salt + parse_content_checksum(envelope)) & CHECKSUM_MASK
    for part in place:
        checksum += part or 0
    return checksum


def recover_content_checksum(checksum: int, salt: int, *place: int | None) -> int:
    """Compute the content checksum from the checksum of a row and all parts of its place.

    It is -1, which no content has, if one of them cannot be right.
    """
    for part in place:
        checksum -= part or 0
    return (checksum - salt) & CHECKSUM_MASK if 0 <= checksum <= CHECKSUM_MASK else -1


def split_checksums(joined: bytes) -> list[bytes]:
    """Split the checksums of several envelopes, as they are kept for the key of an append."""
    return [joined[at : at + CHECKSUM_BYTES] for at in range(0, len(joined), CHECKSUM_BYTES)]


def compute_row_checksum(*fields: str | bytes | int | None) -> int:
    """Compute 48 bits of BLAKE2b over the fields of a row, unambiguously separated."""
    # Not `repr`: its output for a character depends on the Unicode version of Python.
    digest = blake2b(ascii(fields).encode(), digest_size=CHECKSUM_BITS // 8).digest()
    return int.from_bytes(digest, "big")
