"""The words of a text: tokens, their counts, and snippets."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

# The tokenizer, as SQLite's full-text search names it: it splits at spaces and punctuation, and
# removes case, diacritics and English endings. Marks of other scripts, such as vowels, belong to
# words; those that choose the form of an emoji do not. The indexes record it: other words need a
# new format of each, whose migration empties the index.
TOKENIZER: Final = (
    *("porter", "unicode61", "remove_diacritics", "2"),
    *("categories", "L* N* Co Mn Mc", "separators", "\ufe0e\ufe0f"),
)
# Scripts without spaces between words, whose characters are words each: Thai, Lao, Burmese, Khmer,
# Japanese and Chinese.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_SEGMENTS: Final = re.compile(f"[{_UNSPACED}]|[^{_UNSPACED}]+")
# Function words, which say little about the subject of a text.
_FUNCTION_WORDS: Final = """
    a an and any are as at be been being but by can could did do does doing done for from had has
    have having he her him his how i if in into is it its me might my of on or our she should so
    some such than that the their them then there these they this those to too us was we were what
    when where which who whom whose why will with would you your"""
# The length of a snippet, and of its part before the first matching word, approximately.
_SNIPPET_BYTES: Final = 240
_SNIPPET_LEAD_BYTES: Final = 60


class Token(NamedTuple):
    """A word of a text: its place in the UTF-8 bytes, and its normalized form."""

    start: int
    stop: int
    term: str


def tokenize(text: str) -> list[Token]:
    """Split a text into words."""
    tokens: list[Token] = []
    at = 0
    for segment in _SEGMENTS.findall(text):
        data = segment.encode("utf-8", "replace")
        found = _load_tokenizer()(data, 4, None)
        tokens += [Token(at + start, at + stop, term) for start, stop, term in found]
        at += len(data)
    return tokens


def list_terms(text: str) -> list[str]:
    """List the normalized words of a text."""
    terms: list[str] = []
    for segment in _SEGMENTS.findall(text):
        data = segment.encode("utf-8", "replace")
        terms += _load_tokenizer()(data, 4, None, include_offsets=False, include_colocated=False)
    return terms


@cache
def _load_tokenizer() -> Callable[..., Any]:
    # Stores on other engines need SQLite only to search.
    import apsw  # noqa: PLC0415

    return apsw.Connection("").fts5_tokenizer(TOKENIZER[0], list(TOKENIZER[1:]))


def hash_term(term: str) -> int:
    """Return the number of a word. The indexes have numbers, so that erased words are not in them.

    Two words may have the same number: the words of entries that were found are counted again.
    """
    return zlib.crc32(term.encode())


def choose_words(query: str) -> dict[str, str]:
    """Return the normalized words of a query, each with how it was first written."""
    data = query.encode("utf-8", "replace")
    words: dict[str, str] = {}
    for start, stop, term in tokenize(query):
        words.setdefault(term, data[start:stop].decode("utf-8", "replace"))
    return words


def count_terms(text: str, terms: frozenset[str]) -> tuple[int, dict[str, int]]:
    """Count all words of a text, and each word of a query in it."""
    words = list_terms(text)
    return len(words), {term: words.count(term) for term in terms.intersection(words)}


@cache
def load_function_terms() -> frozenset[str]:
    """Return the function words, normalized."""
    return frozenset(token.term for token in tokenize(_FUNCTION_WORDS))


@lru_cache(1024)
def find_name_terms(name: str) -> frozenset[str]:
    """Return the normalized words of a name."""
    return frozenset(list_terms(name))


def build_snippet(text: str, terms: Collection[str]) -> str:
    """Cut out the part of a text with its first matching words, and put these into brackets."""
    data = text.encode("utf-8", "replace")
    tokens = [token for token in tokenize(text) if token.term in terms]
    first = tokens[0].start if tokens else 0
    start = 0 if first <= _SNIPPET_LEAD_BYTES else _find_border(data, first - _SNIPPET_LEAD_BYTES)
    stop = len(data)
    if stop - start > _SNIPPET_BYTES:
        stop = _find_border(data, start + _SNIPPET_BYTES)
    parts: list[bytes] = []
    at = start
    for token in tokens:
        if token.start < at or token.stop > stop:
            continue
        if token.start == at and parts:
            # The next character of a word in a script without spaces.
            parts[-1:] = [data[at : token.stop], b"]"]
        else:
            parts += [data[at : token.start], b"[", data[token.start : token.stop], b"]"]
        at = token.stop
    parts.append(data[at:stop])
    cut = b"".join(parts).decode("utf-8", "ignore")
    return f"{'…' if start else ''}{cut}{'…' if stop < len(data) else ''}"


def _find_border(data: bytes, near: int) -> int:
    """Return the place after the next space or, if none is near, between two characters."""
    space = data.find(b" ", near, near + _SNIPPET_LEAD_BYTES)
    if space >= 0:
        return space + 1
    while near < len(data) and data[near] & 0xC0 == 0x80:
        near += 1
    return near
