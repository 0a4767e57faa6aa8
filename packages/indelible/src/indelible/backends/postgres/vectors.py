"""What a row says of a summary's vector, beside its payload."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from indelible.core.codec import decode
from indelible.core.similarity import scale_to_unit
from indelible.errors import CorruptEntryError, FormatError
from indelible.model import Kind, Summary

# No vector that any search would look for. Another name than NULL, which says that nobody knows.
_NONE = b""


def vector_of(kind: Kind | None, envelope: bytes) -> tuple[bytes | None, str | None]:
    """Embedder and vector of an entry, as its row has them; two times None if nothing is known.

    What cannot be read says nothing: a search then looks at the payload, and says what is wrong.
    """
    if kind is not Kind.SUMMARY:
        return None, None
    try:
        value = decode(kind, envelope, session="", position=0)
    except (CorruptEntryError, FormatError):
        return None, None
    assert isinstance(value, Summary)
    if value.vector is None or value.embedder is None:
        return _NONE, None
    vector = packed(value.vector)
    return (None, None) if vector is None else (name_of(value.embedder), vector)


def name_of(embedder: str) -> bytes:
    """An embedder's name; a query may have any, also one that could not be stored."""
    return embedder.encode("utf-8", "surrogatepass")


def packed(vector: Sequence[float]) -> str | None:
    """A vector at length one, in single precision, as the server reads an array of `real`.

    At that length no part is too large for single precision, and one that is too small for it makes
    no difference. None if there is a part that is no number.
    """
    parts = array("f", scale_to_unit(vector))
    if not all(map(math.isfinite, parts)):
        return None
    return "{" + ",".join(map(repr, parts)) + "}"
