"""Columns of an entry's row that are derived from the entry."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from indelible.backends.postgres.arrays import BoolArray, BytesArray, IntArray, TextArray
from indelible.backends.postgres.text_index import compute_words, format_words
from indelible.core.codec import parse_indexed, parse_item
from indelible.core.rows import KIND_NUMBER, encode_links
from indelible.core.similarity import pack_unit, unpack_unit
from indelible.model import Kind

# Dimensions, a flag, the type of the elements, their number and the first index.
_ARRAY_HEADER: Final = 20
_WITH_VECTOR: Final = frozenset({Kind.SUMMARY, Kind.MEMORY})


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
    """Embedder and vector of an entry, as its row has them; None for both if it has none."""
    indexed = parse_indexed(kind, envelope) if kind in _WITH_VECTOR else None
    if indexed is None or indexed.vector is None or indexed.embedder is None:
        return None, None
    return encode_embedder(indexed.embedder), format_vector(indexed.vector)


def encode_embedder(embedder: str) -> bytes:
    """An embedder's name; a query may have any, also one that could not be stored."""
    return embedder.encode("utf-8", "surrogatepass")


def format_vector(vector: Sequence[float]) -> str:
    """Format a vector at length 1, in single precision, as the server reads an array of `real`."""
    return "{" + ",".join(map(repr, unpack_unit(pack_unit(vector)))) + "}"


def parse_vector(sent: bytes) -> tuple[float, ...]:
    """Parse an array of `real` in the server's binary form: a header, then a length before each."""
    return struct.unpack("!" + "4xf" * ((len(sent) - _ARRAY_HEADER) // 8), sent[_ARRAY_HEADER:])
