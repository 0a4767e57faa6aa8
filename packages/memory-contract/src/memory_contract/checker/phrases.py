"""Names and numbers in a proof, so that every sentence of it reads well."""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_WIDTH: Final = 40
_IDS_MAX: Final = 8


def quote_name(session: str) -> str:
    """A session's name; one that is empty, odd or long stands in quotes."""
    if _PLAIN.fullmatch(session):
        return session
    text = ascii(session)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 4]}...{text[-1]}"


def format_ids(ids: Sequence[str]) -> str:
    """Ids in a row; of many, the first ones, the last one and their number."""
    if len(ids) <= _IDS_MAX:
        return " ".join(ids)
    return f"{' '.join(ids[:3])} … {ids[-1]} ({len(ids)} entries)"


def was(ids: Sized) -> str:
    """`was` for one, `were` for more."""
    return "was" if len(ids) == 1 else "were"


def is_(ids: Sized) -> str:
    """`is` for one, `are` for more."""
    return "is" if len(ids) == 1 else "are"
