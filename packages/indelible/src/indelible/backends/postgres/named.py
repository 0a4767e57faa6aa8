"""Statements of the hot paths: their texts, their names, and values as the server takes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

# What the server calls its types.
_TYPES: Final = {
    "boolean": 16,
    "bytea": 17,
    "bigint": 20,
    "smallint": 21,
    "integer": 23,
    "text": 25,
    "boolean[]": 1000,
    "bytea[]": 1001,
    "smallint[]": 1005,
    "integer[]": 1007,
    "text[]": 1009,
    "bigint[]": 1016,
}
# The driver's word for values that are bytes and not text.
BINARY: Final = 1


class Statement:
    """A text that is always the same, with parameters.

    Its name is made of it. So a name means the same everywhere: a server process that knows it from
    somebody else does what was meant, and not something else.
    """

    __slots__ = ("formats", "name", "text", "types")

    def __init__(self, text: str, *types: str) -> None:
        self.text = text.encode()
        self.types = [_TYPES[one] for one in types]
        self.formats = [BINARY] * len(types)
        said = b"%b %b" % (self.text, " ".join(types).encode())
        self.name = f"indelible_{blake2b(said, digest_size=8).hexdigest()}".encode()


def _function(name: str, *types: str) -> Statement:
    """A call of one of the schema's functions, with a parameter for each argument."""
    places = ", ".join(f"${nth}" for nth in range(1, len(types) + 1))
    return Statement(f"SELECT indelible.{name}({places})", *types)


APPEND: Final = _function(
    "append",
    *("bytea", "bytea", "bytea", "text", "bigint", "bigint", "text", "smallint", "boolean"),
    *("text", "text", "bytea", "bigint", "integer"),
)
APPEND_MANY: Final = _function(
    "append_many",
    *("bytea", "bigint", "bigint", "text", "bytea[]", "integer[]", "integer[]", "integer[]"),
    *("smallint[]", "boolean[]", "bytea[]", "text[]", "text[]", "bytea[]", "bigint[]"),
)
SAVE_SNAPSHOT: Final = _function(
    "save_snapshot", "bytea", "bytea", "bigint", "text", "bytea", "bytea"
)
ROLL_BACK: Final = _function(
    "roll_back", "bytea", "bytea", "bigint", "text", "text", "bytea", "bytea", "bytea"
)

# Values as the server takes them. Text goes as it is, and is ASCII, which every encoding has.
_packed_bigint: Final = struct.Struct("!q").pack
_packed_integer: Final = struct.Struct("!i").pack
_packed_smallint: Final = struct.Struct("!h").pack
integer: Final[Callable[[int], bytes]] = _packed_integer
TRUE: Final = b"\1"
FALSE: Final = b"\0"
_ABSENT: Final = _packed_integer(-1)
_ARRAY: Final = struct.Struct("!iiIii").pack


def is_sayable(version: str | None) -> bool:
    """Whether a version can be such a text: a caller may expect anything."""
    return version is None or (version.isascii() and version.isprintable())


def ascii_text(text: str | None) -> bytes | None:
    """Text of ours, or none."""
    return None if text is None else text.encode()


def bigint(number: int | None) -> bytes | None:
    """A number, or none."""
    return None if number is None else _packed_bigint(number)


def smallint(number: int) -> bytes:
    """A small number."""
    return _packed_smallint(number)


def boolean(value: bool) -> bytes:
    """Yes or no."""
    return TRUE if value else FALSE


def array(of: str, items: Sequence[bytes | None]) -> bytes:
    """Several values of a type, each with its length in front of it."""
    parts: list[Any] = [_ARRAY(1, 1, _TYPES[of], len(items), 1)]
    for item in items:
        if item is None:
            parts.append(_ABSENT)
        else:
            parts += (_packed_integer(len(item)), item)
    return b"".join(parts)


def bigints(numbers: Iterable[int]) -> bytes:
    """An array of large numbers."""
    return array("bigint", list(map(_packed_bigint, numbers)))


def integers(numbers: Iterable[int]) -> bytes:
    """An array of numbers."""
    return array("integer", list(map(_packed_integer, numbers)))
