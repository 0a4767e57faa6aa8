"""The chain of an audit: every edit is found, and where it begins."""

import pytest

from indelible.core.audit import LineContent as Content
from indelible.core.audit import build_line, compute_hash, find_wrong_line, predict_version
from indelible.core.operations import Audited, StoredLine

KEY = b"a secret of the tests"


def chain(count, key=KEY, session="s"):
    lines = []
    for number in range(count):
        op = Audited(None, session, "ana", "append", 1, key)
        newest = lines[-1] if lines else None
        lines.append(build_line(op, newest, 1000 + number, f"1.1.{number}.0"))
    return lines


def test_a_chain_as_it_was_written_is_right():
    assert find_wrong_line(KEY, "s", []) is None
    assert find_wrong_line(KEY, "s", chain(5)) is None


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda lines: lines[1:], 0),
        (lambda lines: lines[:2] + lines[3:], 2),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 1),
        (
            lambda lines: [*lines[:3], lines[3]._replace(text=lines[3].text.replace("ana", "eve"))],
            3,
        ),
        (lambda lines: [*lines, lines[-1]._replace(number=5)], 5),
        (lambda lines: [each._replace(number=n) for n, each in enumerate(lines[1:])], 0),
    ],
    ids=["first removed", "one removed", "swapped", "changed", "repeated", "renumbered"],
)
def test_an_edit_is_found(edit, found):
    assert find_wrong_line(KEY, "s", edit(chain(5))) == found


def test_a_line_of_another_key_or_session_is_found():
    assert find_wrong_line(b"another", "s", chain(2)) == 0
    assert find_wrong_line(KEY, "t", chain(2)) == 0


def test_a_forged_line_needs_the_key():
    lines = chain(3)
    text = lines[1].text.replace("ana", "eve")
    forged = StoredLine(1, text, compute_hash(b"guessed", "s", lines[0].hash, text))
    assert find_wrong_line(KEY, "s", [lines[0], forged, lines[2]]) == 1


def test_a_tail_that_was_cut_off_is_not_found():
    """Only a kept hash shows it."""
    assert find_wrong_line(KEY, "s", chain(5)[:3]) is None


@pytest.mark.parametrize(
    ("change", "total", "version", "after"),
    [
        ("append", 2, "7.1.3.0", "7.1.5.0"),
        ("trim", 0, "7.1.3.0", "7.1.3.1"),
        ("rollback", 0, "7.1.3.4", "7.1.3.5"),
        ("set metadata", 0, "7.1.3.4", "7.1.3.4"),
        ("read", 100, "7.1.3.4", "7.1.3.4"),
        ("append", 1, "new", None),
        ("append", 1, "7.1.3.0!", None),
        ("create", 0, "new", None),
        ("forget", 0, "", None),
    ],
)
def test_the_version_after_a_change_is_predicted(change, total, version, after):
    assert predict_version(Content(0, "ana", change, total, version)) == after
