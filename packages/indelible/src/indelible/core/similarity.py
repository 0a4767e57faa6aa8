"""Cosine similarity of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul


def compute_cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Compute the cosine similarity; it is 0 for a vector of zeros."""
    return math.fsum(map(mul, scale_to_unit(a), scale_to_unit(b)))


def scale_to_unit(vector: Sequence[float]) -> list[float]:
    """Scale a vector to length 1; dividing by the largest part first avoids over- and underflow."""
    largest = max(map(abs, vector), default=0.0)
    scaled = [number / largest for number in vector] if largest else list(vector)
    length = math.sqrt(sum(map(mul, scaled, scaled)))
    return [number / length for number in scaled] if length else scaled
