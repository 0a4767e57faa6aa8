"""From any engine into any other, and never into itself under another name."""

import pytest

import indelible
from indelible import UsageError
from tests.support.lived_sessions import lived, state
from tests.support.stores import EMBEDDED, ENGINES, empty_url, one_of_each_kind

# A copy joins two blocking stores.
pytestmark = pytest.mark.parametrize(
    "stores", [f"{engine}-blocking" for engine in ENGINES], indirect=True
)


def place_of(engine, stores, tmp_path):
    """Where the target is: beside the source, if they are on one server."""
    if engine == stores.engine and engine not in EMBEDDED:
        return stores.target
    (tmp_path / "target").mkdir()
    return empty_url(engine, tmp_path / "target")


@pytest.fixture(params=ENGINES)
def target(request, stores, tmp_path):
    """A store of any engine; on a server that it shares, its namespace keeps it apart."""
    where = place_of(request.param, stores, tmp_path)
    with indelible.open(where, namespace="copies", clock=stores.clock) as opened:
        yield opened


def test_a_session_is_equal_on_every_engine(store, target):
    lived(store, "one")
    store.add_entries("two", one_of_each_kind())
    store.set_metadata("three", {"only": "metadata"})
    report = indelible.copy_sessions(store, target, ["one", "two", "three"])
    assert report.ok
    assert report.sessions == 3
    for name in ("one", "two", "three"):
        assert state(target, name) == state(store, name)
    assert indelible.copy_sessions(store, target, ["one", "two", "three"]).equal == 3


def other_names(stores):
    """The place of the stores, by other ways to write it."""
    target = str(stores.target)
    if stores.engine == "sqlite":
        path = target.removeprefix("sqlite:///")
        folder, _, name = path.rpartition("/")
        return [f"{folder}/../{folder.rpartition('/')[2]}/{name}", path]
    if stores.engine == "redis":
        return [target.replace("127.0.0.1", "localhost"), f"{target}/0"]
    if stores.engine == "postgres":
        return [target.replace("127.0.0.1", "localhost"), f"{target}?application_name=other"]
    return []


def test_a_place_is_known_under_every_name_that_it_has(stores, store):
    lived(store, "s")
    before = state(store, "s")
    for name in other_names(stores):
        with indelible.open(name, clock=stores.clock) as same:
            assert same.identity() == store.identity()
            with pytest.raises(UsageError, match="same store"):
                indelible.copy_sessions(store, same)
        with indelible.open(name, namespace="elsewhere", clock=stores.clock) as other:
            assert other.identity() != store.identity()
    assert state(store, "s") == before
