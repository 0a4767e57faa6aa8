"""Escapes characters that a terminal would interpret or not show: stored text may have any."""

from __future__ import annotations

import unicodedata
from functools import cache

# Controls, format characters (bidirectional and zero-width ones among them), surrogates, and
# separators of lines and paragraphs.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters and marks without a visible glyph: fillers, and selectors that can hide data. Selectors
# up to U+FE0F are kept, since emoji need them.
_UNSEEN_OTHERS = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0}) | frozenset(
    range(0xE0100, 0xE01F0)
)


@cache
def _escape(char: str) -> str:
    code = ord(char)
    if unicodedata.category(char) not in _UNSEEN_CATEGORIES and code not in _UNSEEN_OTHERS:
        return char
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_unseen(text: str) -> str:
    """Escape all invisible characters, also line breaks."""
    return "".join(map(_escape, text))
