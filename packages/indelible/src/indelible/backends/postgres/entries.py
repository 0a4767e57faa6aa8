"""Columns of an entry's row that are derived from the entry."""

from __future__ import annotations

from typing import Any

from indelible.backends.postgres.arrays import BoolArray, BytesArray, IntArray, TextArray
from indelible.backends.postgres.text_index import compute_columns, format_array
from indelible.core.codec import parse_item
from indelible.core.rows import KIND_NUMBER, encode_links
from indelible.model import Kind


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
        indexed = compute_columns(kind, envelope)
        self.kinds.append(KIND_NUMBER[kind] if kind is not None else 0)
        self.keeps.append(keep)
        self.opens.append(encode_links(opens))
        self.answers.append(encode_links(answers))
        self.payloads.append(envelope)
        self.embedders.append(indexed.embedder)
        self.vectors.append(format_array(indexed.vector))
        item = parse_item(kind, envelope)
        self.items.append(None if item is None else item.encode())
        self.words.append(format_array(indexed.words) if self._search else None)
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
