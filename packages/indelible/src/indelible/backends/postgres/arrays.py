"""Arrays as parameters: one for each column, of a known type, in binary.

As text, what is stored would depend on settings of the role (`standard_conforming_strings`,
`array_nulls`). Psycopg's own binary form of a list looks for the type of each element, and cannot
know the type if all elements are NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

# Dimensions, a flag for NULLs that the server does not look at, the type of the elements, their
# number, and the first index.
_HEADER: Final = Struct("!iiIii")
_LENGTH: Final = Struct("!i")
_NULL: Final = _LENGTH.pack(-1)


class Array(list[Any]):
    """The values of a column, some of which may be None."""

    type_name: ClassVar[str]
    encode: ClassVar[Callable[[Any], bytes]]

    def or_none(self) -> Array | None:
        """Return itself, or None if no element has a value."""
        return self if any(value is not None for value in self) else None


class BytesArray(Array):
    """A `bytea[]`."""

    type_name = "bytea"
    encode = bytes


class IntArray(Array):
    """A `bigint[]`."""

    type_name = "int8"
    encode = Struct("!q").pack


class BoolArray(Array):
    """A `boolean[]`."""

    type_name = "bool"
    encode = Struct("!?").pack


class TextArray(Array):
    """A `text[]`."""

    type_name = "text"
    encode = str.encode


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def __init__(self, cls: type[Array], context: Any = None) -> None:
        super().__init__(cls, context)
        element = psycopg.adapters.types[cls.type_name]
        self.oid = element.array_oid
        self._element_oid = element.oid
        self._encode = cls.encode

    def dump(self, obj: Array) -> bytes:
        """Return the binary form of an array with one dimension."""
        encode, pack_length = self._encode, _LENGTH.pack
        parts = [_HEADER.pack(1, 1, self._element_oid, len(obj), 1)]
        for value in obj:
            if value is None:
                parts.append(_NULL)
            else:
                encoded = encode(value)
                parts.append(pack_length(len(encoded)))
                parts.append(encoded)
        return b"".join(parts)


def register_arrays(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Let a connection take arrays as parameters."""
    for kind in (BytesArray, IntArray, BoolArray, TextArray):
        connection.adapters.register_dumper(kind, _ArrayDumper)
