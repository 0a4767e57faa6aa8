"""The exponent of a curve: 0 is flat, 1 is linear."""

from __future__ import annotations

import math
from collections.abc import Sequence

# A curve that is ten times as high at a thousand times the size has an exponent of a third.
FLAT_MAX = 0.15
LINEAR_MAX = 1.1


def compute_exponent(sizes: Sequence[float], heights: Sequence[float]) -> float:
    """The slope of the straight line that fits best where both axes are logarithmic."""
    xs, ys = [math.log(size) for size in sizes], [math.log(max(y, 1e-12)) for y in heights]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((each - x) ** 2 for each in xs)
    return sum((one - x) * (other - y) for one, other in zip(xs, ys, strict=True)) / over


def has_exponent(shape: str, found: float) -> bool:
    """Whether a curve grows no faster than it should."""
    return found <= (FLAT_MAX if shape == "flat" else LINEAR_MAX)
