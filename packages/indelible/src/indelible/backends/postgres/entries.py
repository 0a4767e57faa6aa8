"""The columns of entries that the client computes, as one array for each column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from indelible.backends.postgres.arrays import (
    Array,
    BoolArray,
    BytesArray,
    IntArray,
    TextArray,
)
from indelible.backends.postgres.text_index import compute_columns, format_array
from indelible.core.codec import parse_item
from indelible.core.operations import Draft, LogRow
from indelible.core.rows import KIND_NUMBER, encode_links

# Kind, keep, opens, answers, payload, embedder, vector, item, words, checksum.
_TYPES: Final[tuple[type[Array], ...]] = (
    *(IntArray, BoolArray, TextArray, TextArray, BytesArray),
    *(BytesArray, TextArray, BytesArray, TextArray, IntArray),
)


def build_entry(entry: Draft | LogRow, checksum: int, *, search: bool) -> tuple[Any, ...]:
    """Build the columns of an entry. A copied entry may be damaged and have no kind."""
    kind, envelope = entry.kind, entry.envelope
    indexed = compute_columns(kind, envelope, search=search)
    item = parse_item(kind, envelope)
    return (
        KIND_NUMBER[kind] if kind is not None else 0,
        entry.keep,
        encode_links(entry.opens),
        encode_links(entry.answers),
        envelope,
        indexed.embedder,
        format_array(indexed.vector),
        None if item is None else item.encode(),
        format_array(indexed.words),
        checksum,
    )


def build_arrays(entries: Iterable[tuple[Any, ...]]) -> tuple[Array | None, ...]:
    """Build the parameters for entries; None for a column without values."""
    columns = zip(*entries, strict=True)
    return tuple(kind(values).or_none() for kind, values in zip(_TYPES, columns, strict=True))
