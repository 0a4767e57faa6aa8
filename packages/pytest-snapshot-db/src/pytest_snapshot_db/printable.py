"""Escapes characters that a terminal would interpret or not show: stored text may have any."""

from __future__ import annotations

import unicodedata

# Controls, format characters (bidirectional and zero-width ones among them), surrogates, and
# separators of lines and paragraphs.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters and marks without a visible glyph: fillers, and selectors that can hide data. Selectors
# up to U+FE0F are kept, since emoji need them.
_UNSEEN_OTHERS = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0}) | frozenset(
    range(0xE0100, 0xE01F0)
)


class _Escapes(dict[int, str]):
    """A table for `str.translate` that is filled on demand."""

    def __init__(self, *, kept: str = "", json: bool = False) -> None:
        super().__init__((ord(char), char) for char in kept)
        self._json = json

    def __missing__(self, code: int) -> str:
        unseen = unicodedata.category(chr(code)) in _UNSEEN_CATEGORIES or code in _UNSEEN_OTHERS
        self[code] = shown = self._escape(code) if unseen else chr(code)
        return shown

    def _escape(self, code: int) -> str:
        if self._json:
            digits = chr(code).encode("utf-16-be", "surrogatepass").hex()
            return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))
        if code < 0x100:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ONE_LINE = _Escapes()
_LINES = _Escapes(kept="\n\t")
_JSON = _Escapes(kept="\n", json=True)


def escape_unseen(text: str) -> str:
    """Escape all invisible characters, also line breaks."""
    return text.translate(_ONE_LINE)


def escape_unseen_in_lines(text: str) -> str:
    """Escape invisible characters except line breaks and tabs."""
    return text.translate(_LINES)


def escape_unseen_in_json(text: str) -> str:
    """Escape invisible characters in a JSON document, which keeps its meaning."""
    return text.translate(_JSON)
