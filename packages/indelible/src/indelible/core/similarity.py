"""Cosine similarity of vectors."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from operator import mul
from typing import Final

# The squares of numbers between these neither overflow nor lose precision.
_LENGTH_MIN: Final = 1e-100
_LENGTH_MAX: Final = 1e100


# The similarity of vectors that cannot be compared: less than that of any others.
NOT_COMPARABLE: Final = -2.0


def compare(unit: Sequence[float], other: Sequence[float] | None) -> float:
    """Compute the cosine similarity of two vectors, if they have the same dimension."""
    if other is None or len(other) != len(unit):
        return NOT_COMPARABLE
    return compute_cosine(unit, other)


def pack_unit(vector: Sequence[float]) -> bytes:
    """Pack a vector at length 1 in single precision, as the indexes of vectors have it.

    At that length no part overflows single precision, and one that underflows makes no difference.
    """
    return struct.pack(f"<{len(vector)}f", *scale_to_unit(vector))


def unpack_unit(packed: bytes) -> tuple[float, ...]:
    """Unpack a vector."""
    return struct.unpack(f"<{len(packed) // 4}f", packed)


def round_unit(vector: Sequence[float]) -> tuple[float, ...]:
    """Scale a vector to length 1, and round it to single precision."""
    return unpack_unit(pack_unit(vector))


def compute_margin(dimension: int) -> float:
    """Compute by how much two similarities in single precision may differ if they are equal.

    With u = 2**-24, a sum of n products in single precision, in any order, is wrong by at most
    n * u / (1 - n * u) of the lengths. A cosine has three of them: the product of two vectors and
    the squares of their lengths. Rounding the vectors turns each by at most u. So it is wrong by
    less than 2 * (n + 2) * u / (1 - n * u), and the difference of two by twice that. The result is
    nearly twice that bound.
    """
    return 8 * (dimension + 8) * 2.0**-24


def compute_cosine(unit: Sequence[float], other: Sequence[float]) -> float:
    """Compute the cosine similarity of a vector of length 1 and another; 0 if that is all zeros."""
    length = math.sqrt(sum(map(mul, other, other)))
    if not _LENGTH_MIN < length < _LENGTH_MAX:
        other, length = scale_to_unit(other), 1.0
    cosine: float = sum(map(mul, unit, other)) / length
    return cosine


def scale_to_unit(vector: Sequence[float]) -> list[float]:
    """Scale a vector to length 1; dividing by the largest part first avoids over- and underflow."""
    largest = max(map(abs, vector), default=0.0)
    scaled = [number / largest for number in vector] if largest else list(vector)
    length = math.sqrt(sum(map(mul, scaled, scaled)))
    return [number / length for number in scaled] if length else scaled
