"""Columns of an entry's row that are derived from the entry."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, Final

from indelible.backends.postgres.arrays import BoolArray, BytesArray, IntArray, TextArray
from indelible.backends.postgres.text_index import compute_words, format_words
from indelible.core.codec import decode, parse_item
from indelible.core.rows import KIND_NUMBER, encode_links
from indelible.core.similarity import scale_to_unit
from indelible.errors import CorruptEntryError, FormatError
from indelible.model import Kind, Summary

# The embedder of a summary without a vector. NULL means that it is unknown whether it has one.
_NO_EMBEDDER: Final = b""


class EntryColumns:
    """Entries as the server takes them: an array for each column."""

    def __init__(self, *, search: bool) -> None:
        """With `search`, they are indexed by their words."""
        self._search = search
        self.kinds = IntArray()
        self.keeps = BoolArray()
        self.opens = TextArray()
        self.answers = TextArray()
        self.payloads = BytesArray()
        self.embedders = BytesArray()
        self.vectors = TextArray()
        self.items = BytesArray()
        self.words = TextArray()
        self.checksums = IntArray()

    def add(
        self,
        kind: Kind | None,
        keep: bool,
        opens: tuple[str, ...],
        answers: tuple[str, ...],
        envelope: bytes,
        checksum: int,
    ) -> None:
        """Add an entry. The kind is None if that of a copied entry is damaged."""
        embedder, vector = build_vector_columns(kind, envelope)
        self.kinds.append(KIND_NUMBER[kind] if kind is not None else 0)
        self.keeps.append(keep)
        self.opens.append(encode_links(opens))
        self.answers.append(encode_links(answers))
        self.payloads.append(envelope)
        self.embedders.append(embedder)
        self.vectors.append(vector)
        item = parse_item(kind, envelope)
        self.items.append(None if item is None else item.encode())
        self.words.append(format_words(compute_words(kind, envelope)) if self._search else None)
        self.checksums.append(checksum)

    def build_params(self) -> tuple[Any, ...]:
        """The columns in the order in which statements take them; NULL for one without values."""
        return (
            self.kinds,
            self.keeps,
            self.opens.or_none(),
            self.answers.or_none(),
            self.payloads,
            self.embedders.or_none(),
            self.vectors.or_none(),
            self.items.or_none(),
            self.words.or_none(),
            self.checksums,
        )


def build_vector_columns(kind: Kind | None, envelope: bytes) -> tuple[bytes | None, str | None]:
    """Embedder and vector of a summary, as its row has them; None for both if they are unknown.

    They are unknown if the envelope is damaged: a search then reads the payload, and raises.
    """
    if kind is not Kind.SUMMARY:
        return None, None
    try:
        value = decode(kind, envelope, session="", position=0)
    except (CorruptEntryError, FormatError):
        return None, None
    assert isinstance(value, Summary)
    if value.vector is None or value.embedder is None:
        return _NO_EMBEDDER, None
    vector = pack_vector(value.vector)
    return (None, None) if vector is None else (encode_embedder(value.embedder), vector)


def encode_embedder(embedder: str) -> bytes:
    """An embedder's name; a query may have any, also one that could not be stored."""
    return embedder.encode("utf-8", "surrogatepass")


def pack_vector(vector: Sequence[float]) -> str | None:
    """A vector at length one, in single precision, as the server reads an array of `real`.

    At that length no part is too large for single precision, and one that is too small for it makes
    no difference. None if there is a part that is no number.
    """
    parts = array("f", scale_to_unit(vector))
    if not all(map(math.isfinite, parts)):
        return None
    return "{" + ",".join(map(repr, parts)) + "}"
