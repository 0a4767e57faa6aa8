"""Checksums of rows: what is moved, swapped or changed no longer fits."""

import pytest

from indelible.core.checksums import (
    compute_entry_checksum,
    compute_row_checksum,
    compute_session_salt,
    parse_content_checksum,
    recover_content_checksum,
)
from indelible.core.codec import decode_row, encode_text
from indelible.core.operations import StoredEntry
from indelible.errors import CorruptEntryError

ENVELOPE = encode_text("user", "hello").envelope
SALT = compute_session_salt("", "ana")
# Position, times, generation and batch.
PLACE = (7, 1_700_000_000_000, 1_800_000_000_000, 3, 2)


def test_a_row_at_its_place_gives_its_content_back():
    checksum = compute_entry_checksum(SALT, ENVELOPE, *PLACE)
    assert recover_content_checksum(checksum, SALT, *PLACE) == parse_content_checksum(ENVELOPE)


def test_an_engine_may_add_the_place_itself():
    added = compute_entry_checksum(SALT, ENVELOPE) + sum(PLACE)
    assert added == compute_entry_checksum(SALT, ENVELOPE, *PLACE)
    assert added < 2**53


@pytest.mark.parametrize("part", range(len(PLACE)))
def test_a_row_whose_place_has_one_other_bit_does_not_fit(part):
    checksum = compute_entry_checksum(SALT, ENVELOPE, *PLACE)
    for bit in range(63):
        other = [value ^ ((number == part) << bit) for number, value in enumerate(PLACE)]
        assert recover_content_checksum(checksum, SALT, *other) != parse_content_checksum(ENVELOPE)


@pytest.mark.parametrize(("namespace", "session"), [("", "ben"), ("other", "ana"), ("a", "na")])
def test_a_row_of_another_session_does_not_fit(namespace, session):
    checksum = compute_entry_checksum(SALT, ENVELOPE, *PLACE)
    salt = compute_session_salt(namespace, session)
    assert recover_content_checksum(checksum, salt, *PLACE) != parse_content_checksum(ENVELOPE)


def test_an_entry_that_was_written_for_another_place_cannot_be_read():
    other = encode_text("user", "bye")
    content = parse_content_checksum(ENVELOPE)
    with pytest.raises(CorruptEntryError, match="another place"):
        decode_row(StoredEntry(7, other.kind, 0, other.envelope, content), session="ana")


def test_damaged_bytes_have_a_checksum_too():
    assert parse_content_checksum(b"") != parse_content_checksum(b'{"sum":"zz')


def test_fields_are_told_apart():
    assert compute_row_checksum("a", "bc") != compute_row_checksum("ab", "c")
    assert compute_row_checksum(1) != compute_row_checksum("1")
    assert compute_row_checksum(None) != compute_row_checksum("None")
    assert compute_row_checksum(b"a") != compute_row_checksum("a")
    assert compute_row_checksum("\ud800") == compute_row_checksum("\ud800")


def test_a_checksum_is_the_same_on_every_python_and_in_every_release():
    # The last character came with Unicode 15, which Python 3.11 does not know yet.
    fields = ("ana", "é", "\U0001fae8", b"\x00\xff", 0, -7, 2**53, None)
    assert compute_row_checksum(*fields) == 191_379_925_989_387
    assert compute_session_salt("", "\U0001fae8") == 266_734_623_264_116


def test_rows_without_a_checksum_are_read_as_they_are():
    draft = encode_text("user", "hello")
    assert StoredEntry(0, draft.kind, 0, draft.envelope).content is None
