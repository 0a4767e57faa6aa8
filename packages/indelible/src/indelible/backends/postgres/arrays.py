"""Arrays as binary parameters of a known type, one for each column.

How the server reads an array as text depends on settings of the role (`array_nulls`, for example).
Psycopg's own binary form of a list looks up the type of each element, which is slow and does not
work if all elements are NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, ClassVar, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

# Number of dimensions, a flag for NULLs that the server ignores, the type of the elements, their
# number, and the first index.
_HEADER: Final = Struct("!iiIii")
_LENGTH: Final = Struct("!i")
_NULL: Final = _LENGTH.pack(-1)


class Array(list[Any]):
    """The values of a column, some of which may be None."""

    def or_none(self) -> Array | None:
        """Return the array, or None if no element has a value."""
        return None if self.count(None) == len(self) else self


class BytesArray(Array):
    """A `bytea[]`."""


class IntArray(Array):
    """A `bigint[]`."""


class BoolArray(Array):
    """A `boolean[]`."""


class TextArray(Array):
    """A `text[]`."""


def _encode_bytes(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _encode_text(value: str) -> bytes:
    return _encode_bytes(value.encode())


class _ArrayDumper(Dumper):
    """Dumps an array with one dimension. Psycopg creates a dumper for each statement."""

    format = Format.BINARY
    element_oid: ClassVar[int]

    @staticmethod
    def encode(value: Any) -> bytes:
        """Return the length of an element and the element."""
        raise NotImplementedError

    def dump(self, obj: Array) -> bytes:
        """Return the header and the elements."""
        encode = self.encode
        elements = [_NULL if value is None else encode(value) for value in obj]
        return _HEADER.pack(1, 1, self.element_oid, len(obj), 1) + b"".join(elements)


def _build_dumper(name: str, encode: Callable[[Any], bytes]) -> type[_ArrayDumper]:
    element = psycopg.adapters.types[name]
    fields = {"oid": element.array_oid, "element_oid": element.oid, "encode": staticmethod(encode)}
    return type(f"{name}ArrayDumper", (_ArrayDumper,), fields)


_DUMPERS: Final = {
    BytesArray: _build_dumper("bytea", _encode_bytes),
    IntArray: _build_dumper("int8", partial(Struct("!iq").pack, 8)),
    BoolArray: _build_dumper("bool", partial(Struct("!i?").pack, 1)),
    TextArray: _build_dumper("text", _encode_text),
}


def register_arrays(connection: psycopg.Connection[Any]) -> None:
    """Let a connection send these arrays as parameters."""
    for kind, dumper in _DUMPERS.items():
        connection.adapters.register_dumper(kind, dumper)
