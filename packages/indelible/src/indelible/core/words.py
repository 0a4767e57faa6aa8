"""The words of a text: how they are compared, counted, and shown in a snippet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

# The tokenizer, as SQLite's full-text search names it: words between spaces and signs, without
# diacritics and case, and without English endings. Indexes record it; another one needs new
# formats, whose migrations empty them.
TOKENIZER: Final = ("porter", "unicode61", "remove_diacritics", "2")
# Function words, which say nothing about a subject.
_FUNCTION_WORDS: Final = """
    a an and any are as at be been being but by can could did do does doing done for from had has
    have having he her him his how i if in into is it its me might my of on or our she should so
    some such than that the their them then there these they this those to too us was we were what
    when where which who whom whose why will with would you your"""
# About how long a snippet is, and what comes before its first matching word.
_SNIPPET_BYTES: Final = 240
_SNIPPET_LEAD_BYTES: Final = 60


class Token(NamedTuple):
    """A word of a text: its bytes in UTF-8, and what it is compared by."""

    start: int
    stop: int
    term: str


def tokenize(text: str) -> list[Token]:
    """Split a text into words."""
    return [Token(*found) for found in _load_tokenizer()(text.encode("utf-8", "replace"), 4, None)]


def list_terms(text: str) -> list[str]:
    """List the words of a text as they are compared."""
    data = text.encode("utf-8", "replace")
    terms: list[str] = _load_tokenizer()(
        data, 4, None, include_offsets=False, include_colocated=False
    )
    return terms


@cache
def _load_tokenizer() -> Callable[..., Any]:
    # SQLite is only imported by those who use it or search.
    import apsw  # noqa: PLC0415

    return apsw.Connection("").fts5_tokenizer(TOKENIZER[0], list(TOKENIZER[1:]))


def choose_words(query: str) -> dict[str, str]:
    """Return the words of a query: how each is compared, and how it was written first."""
    data = query.encode("utf-8", "replace")
    words: dict[str, str] = {}
    for start, stop, term in tokenize(query):
        words.setdefault(term, data[start:stop].decode("utf-8", "replace"))
    return words


def count_terms(text: str, terms: frozenset[str]) -> tuple[int, dict[str, int]]:
    """Count the words of a text, and those of a query in it."""
    words = list_terms(text)
    # In one order, so that sums over them are the same whenever they are.
    return len(words), {term: words.count(term) for term in sorted(terms.intersection(words))}


@cache
def load_function_terms() -> frozenset[str]:
    """Return the function words as they are compared."""
    return frozenset(token.term for token in tokenize(_FUNCTION_WORDS))


@lru_cache(1024)
def find_name_terms(name: str) -> frozenset[str]:
    """Return the words of a name."""
    return frozenset(list_terms(name))


def build_snippet(text: str, terms: Collection[str]) -> str:
    """Cut the part out of a text with its first matching words, which are in brackets."""
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
        parts += [data[at : token.start], b"[", data[token.start : token.stop], b"]"]
        at = token.stop
    parts.append(data[at:stop])
    cut = b"".join(parts).decode("utf-8", "ignore")
    return f"{'…' if start else ''}{cut}{'…' if stop < len(data) else ''}"


def _find_border(data: bytes, near: int) -> int:
    """Return a place at a space or, if there is none near, between two characters."""
    space = data.find(b" ", near, near + _SNIPPET_LEAD_BYTES)
    if space >= 0:
        return space + 1
    while near < len(data) and data[near] & 0xC0 == 0x80:
        near += 1
    return near
