"""Every error answers one question first: is my data there?"""

import copy
import inspect
import pickle
import re

import pytest

from indelible import Landed, errors
from indelible.errors import (
    BusyError,
    ConflictError,
    CorruptEntryError,
    MemoryStoreError,
    OutcomeUnknownError,
    UnavailableError,
)

CLASSES = sorted(
    (
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ),
    key=lambda error: error.__name__,
)
MAY_HAVE_LANDED = {OutcomeUnknownError}
RETRYABLE = {UnavailableError, BusyError, OutcomeUnknownError}

# What an error may say of the data: it was not written, was left alone, or nobody knows.
FATES = re.compile(r"nothing was written|was not changed|may have been written", re.IGNORECASE)


def drawn_tree():
    """Class and base as the module's docstring draws them."""
    parents = {}
    path = []
    for line in errors.__doc__.splitlines():
        drawn = re.match(r"(?P<branch>(?:│   |    )*(?:├── |└── )?)(?P<name>\w+Error)\b", line)
        if drawn is None:
            continue
        depth = len(drawn["branch"]) // 4
        del path[depth:]
        assert drawn["name"] not in parents, "drawn twice"
        parents[drawn["name"]] = path[-1] if path else "Exception"
        path.append(drawn["name"])
    return parents


def example_of(kind):
    return kind("it went wrong", session="s", position=3, key="k", raw=b"\0\xff")


def test_the_drawn_tree_is_the_tree():
    assert drawn_tree() == {error.__name__: error.__base__.__name__ for error in CLASSES}


def test_every_error_has_one_root():
    assert all(issubclass(error, MemoryStoreError) for error in CLASSES)
    assert len(CLASSES) > 10


@pytest.mark.parametrize("kind", CLASSES)
def test_its_name_ends_in_error(kind):
    assert kind.__name__.endswith("Error")


@pytest.mark.parametrize("kind", CLASSES)
def test_the_first_sentence_says_what_happened_to_the_data(kind):
    assert "__doc__" in vars(kind)
    first_sentence = re.split(r"\.(?:\s|$)", kind.__doc__)[0]
    assert FATES.search(first_sentence), first_sentence


@pytest.mark.parametrize("kind", CLASSES)
def test_whether_it_landed_and_whether_to_try_again(kind):
    error = example_of(kind)
    assert error.landed is (Landed.MAYBE if kind in MAY_HAVE_LANDED else Landed.NO)
    assert error.retryable is (kind in RETRYABLE)


@pytest.mark.parametrize("kind", CLASSES)
def test_details_read_as_attributes(kind):
    error = example_of(kind)
    assert str(error) == error.message == "it went wrong"
    assert (error.session, error.position, error.key) == ("s", 3, "k")
    with pytest.raises(AttributeError, match="nothing_of_the_sort"):
        _ = error.nothing_of_the_sort
    assert not hasattr(error, "other")


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_it_crosses_process_borders_with_all_that_it_knows(kind, protocol):
    error = example_of(kind)
    twin = pickle.loads(pickle.dumps(error, protocol))
    assert type(twin) is kind
    assert str(twin) == str(error)
    assert twin.details == error.details
    assert twin.position == 3


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy])
def test_python_can_copy_it(twin_of):
    twin = twin_of(example_of(CorruptEntryError))
    assert type(twin) is CorruptEntryError
    assert (twin.message, twin.raw) == ("it went wrong", b"\0\xff")


def test_a_copy_has_a_traceback_of_its_own_and_the_same_cause():
    cause = OSError(5, "input/output error")
    with pytest.raises(OutcomeUnknownError) as caught:
        raise OutcomeUnknownError("no answer", path="a.db") from cause
    error = caught.value
    twin = error.copy(key="k")
    assert type(twin) is OutcomeUnknownError
    assert twin.__cause__ is cause
    assert twin.__traceback__ is None
    assert twin.details == {"path": "a.db", "key": "k"}
    assert error.details == {"path": "a.db"}


def test_an_error_without_details_has_none():
    error = ConflictError("moved")
    assert error.details == {}
    assert not hasattr(error, "reason")
    assert pickle.loads(pickle.dumps(error)).details == {}


def test_landed_reads_as_the_words_no_and_maybe():
    assert [str(landed) for landed in Landed] == ["no", "maybe"]
