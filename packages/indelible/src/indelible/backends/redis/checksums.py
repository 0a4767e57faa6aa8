"""Checksums of a session's head and view, as the scripts compute them (see sums.lua).

Scripts check what they read. Reads without a script check the head and the view here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1

_DIGITS = 12


def _digest(*fields: bytes) -> bytes:
    # What servers offer to scripts; it is no signature.
    return sha1(b"\n".join(fields), usedforsecurity=False).hexdigest()[:_DIGITS].encode()


def head_is_sound(name: bytes, head: Sequence[bytes | None]) -> bool:
    """Whether a head, its fields in the order of `HEAD_FIELDS`, is as it was written."""
    state, end, deadline, summed = head
    if state is None or end is None or deadline is None or summed is None:
        return False
    try:
        return int(_digest(name, state), 16) + int(end) + int(deadline or 0) == int(summed)
    except ValueError:
        return False


def view_is_sound(
    name: bytes, life: bytes, generation: bytes, view: Sequence[bytes | None]
) -> bool:
    """Whether a view, its fields in the order of `VIEW_FIELDS`, is as it was written."""
    *fields, summed = view
    covered = [field for field in fields if field is not None]
    return len(covered) == len(fields) and summed == _digest(name, life, generation, *covered)
