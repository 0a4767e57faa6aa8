"""Nothing that a terminal acts on, turns around or does not show gets through."""

import json
import sys
import unicodedata

import pytest

from indelible.printable import escape_unseen, escape_unseen_in_json, escape_unseen_in_lines

UNSEEN = [
    *("\x00", "\x07", "\x08", "\r", "\x1b", "\x7f", "\x85", "\x9b", "\x9d"),
    *("\u00ad", "\u061c", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f"),
    *("\u202a", "\u202e", "\u2028", "\u2029", "\u2060", "\u2066", "\u2069", "\ufeff"),
    *("\u3164", "\ufff9", "\ud800", "\U000e0041", "\U000e0100"),
]


@pytest.mark.parametrize("char", UNSEEN, ids=ascii)
def test_what_cannot_be_seen_is_escaped(char):
    for escape in (escape_unseen, escape_unseen_in_lines):
        shown = escape(f"a{char}b")
        assert char not in shown
        assert shown.isascii()
        assert shown == f"a{char}b".encode("unicode_escape").decode().replace("\\r", "\\x0d")


def test_every_character_is_either_shown_or_escaped():
    for code in range(sys.maxunicode + 1):
        shown = escape_unseen(chr(code))
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert shown.startswith("\\"), hex(code)
        else:
            assert shown == chr(code) or len(shown) > 5, hex(code)


def test_what_can_be_seen_stays():
    text = "Grüße, 你好, مرحبا, 👍🏽 ❤️ 1\t2"
    assert escape_unseen_in_lines(text) == text


def test_lines_stay_where_there_may_be_lines():
    assert escape_unseen_in_lines("a\n\tb") == "a\n\tb"
    assert escape_unseen("a\n\tb") == "a\\x0a\\x09b"


@pytest.mark.parametrize("char", [*UNSEEN, "ü", "👍"], ids=ascii)
def test_json_means_the_same_and_is_safe_to_print(char):
    document = json.dumps({"text": f"a{char}b"}, ensure_ascii=False, indent=2)
    shown = escape_unseen_in_json(document)
    assert json.loads(shown) == {"text": f"a{char}b"}
    assert char not in shown or char in "ü👍"
