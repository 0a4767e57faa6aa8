"""Errors of the server, told apart by class and code."""

import pytest
from redis import exceptions as theirs

from indelible import (
    BusyError,
    FormatError,
    Landed,
    MemoryStoreBackendError,
    OutcomeUnknownError,
    UnavailableError,
)
from indelible.backends.redis.errors import (
    Next,
    UnconfirmedError,
    build_refused_error,
    build_unknown_error,
    build_unreachable_error,
    choose_next,
    parse_code,
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("OOM command not allowed", "OOM"),
        ("@user_script: 82: -OOM command not allowed", "OOM"),
        ("WRONGTYPE Operation against a key", "WRONGTYPE"),
        ("something else", ""),
        ("", ""),
    ],
)
def test_the_code_stands_before_the_words(text, code):
    assert parse_code(theirs.ResponseError(text)) == code


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (theirs.BusyLoadingError("x"), Next.WAIT),
        (theirs.ReadOnlyError("x"), Next.WAIT),
        (theirs.ClusterDownError("x"), Next.WAIT),
        (theirs.TryAgainError("x"), Next.WAIT),
        (theirs.ResponseError("NOREPLICAS Not enough good replicas"), Next.WAIT),
        (theirs.ResponseError("@user_script: 3: -READONLY no"), Next.WAIT),
        (theirs.MovedError("1 host:1"), Next.MOVE),
        (theirs.AskError("1 host:1"), Next.MOVE),
        (theirs.OutOfMemoryError("x"), Next.RAISE),
        (theirs.ResponseError("unknown command"), Next.RAISE),
    ],
)
def test_what_passes_by_itself_is_waited_for(error, then):
    assert choose_next(error) is then


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (theirs.OutOfMemoryError("x"), UnavailableError),
        (theirs.ResponseError("@user_script: 82: -OOM no"), UnavailableError),
        (theirs.AuthenticationError("x"), MemoryStoreBackendError),
        (theirs.NoPermissionError("x"), MemoryStoreBackendError),
        (theirs.ResponseError("WRONGTYPE x"), FormatError),
        (theirs.ResponseError("MISCONF x"), UnavailableError),
        (theirs.ResponseError("ERR x"), MemoryStoreBackendError),
    ],
)
def test_a_refusal_wrote_nothing(error, ours):
    translated = build_refused_error(error, shown="redis://host")
    assert type(translated) is ours
    assert translated.landed is Landed.NO
    assert translated.__cause__ is error


def test_what_never_reached_the_server_wrote_nothing():
    assert type(build_unreachable_error(theirs.ConnectionError("x"), shown="s")) is UnavailableError
    assert type(build_unreachable_error(OSError("x"), shown="s")) is UnavailableError
    for error in (theirs.MaxConnectionsError("x"), BusyError("x")):
        busy = build_unreachable_error(error, shown="s")
        assert type(busy) is BusyError
        assert "exhausted" in str(busy)


def test_what_was_sent_may_have_landed():
    for error in (theirs.TimeoutError("x"), UnconfirmedError("x")):
        translated = build_unknown_error(error, shown="s")
        assert type(translated) is OutcomeUnknownError
        assert translated.landed is Landed.MAYBE
        assert translated.retryable
