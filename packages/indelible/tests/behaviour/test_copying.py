"""Copying from store to store: an equal session on any engine, once, whenever it is done again."""

import io

import pytest

import indelible
from indelible import (
    ConflictError,
    FormatError,
    SessionList,
    SessionNotFoundError,
    Severity,
    UnavailableError,
    UsageError,
)
from tests.support.lived_sessions import exported, lived, state
from tests.support.stores import EMBEDDED, empty_url, one_of_each_kind, said

# A copy joins two blocking stores.
pytestmark = pytest.mark.parametrize(
    "stores", [f"{engine}-blocking" for engine in EMBEDDED], indirect=True
)


@pytest.fixture(params=EMBEDDED)
def target(request, clock, tmp_path):
    (tmp_path / "target").mkdir()
    url = empty_url(request.param, tmp_path / "target")
    with indelible.open(url, clock=clock) as opened:
        yield opened


def told(report):
    """The counts of a report: copied, equal, and what differs or went on."""
    return report.sessions, report.equal, report.differ, report.changed


class Through:
    """A store whose verbs call `before(verb, …)` and `after(verb, …)`; both may raise."""

    def __init__(self, store, before=None, after=None):
        self._store, self._before, self._after = store, before, after

    def __getattr__(self, verb):
        method = getattr(self._store, verb)

        def call(*args, **options):
            if self._before is not None:
                self._before(verb, *args)
            done = method(*args, **options)
            if self._after is not None:
                self._after(verb, *args)
            return done

        return call


def test_a_copy_holds_all_that_the_source_holds(store, target):
    for name in ("one", "two"):
        lived(store, name)
    store.add_entries("three", one_of_each_kind())
    store.fork("three", "four")
    store.clear("four")
    store.set_metadata("five", {"only": "metadata"})
    report = indelible.copy_sessions(store, target)
    assert report.ok
    assert told(report) == (5, 0, (), ())
    assert (report.entries, report.snapshots, report.findings) == (32, 4, ())
    assert target.list_sessions().ids == store.list_sessions().ids
    for name in store.list_sessions().ids:
        assert state(target, name) == state(store, name)
    assert exported(target).getvalue() == exported(store).getvalue()
    nearest = [one.search_summaries("three", [1, 0], embedder="e") for one in (store, target)]
    assert nearest[0] == nearest[1] != []
    for one in (store, target):
        one.undo("four")
    assert target.get_tool_calls("four") == store.get_tool_calls("four")


def test_a_copy_that_is_done_again_finds_everything_there(store, target):
    lived(store)
    indelible.copy_sessions(store, target)
    before = exported(target).getvalue()
    report = indelible.copy_sessions(store, target)
    assert report.ok
    assert told(report) == (0, 1, (), ())
    assert exported(target).getvalue() == before


@pytest.mark.parametrize(
    "differ",
    [
        lambda store: store.add_message("s", "user", "more"),
        lambda store: store.clear("s"),
        lambda store: store.save_snapshot("s"),
        lambda store: store.set_metadata("s", {"other": True}),
    ],
    ids=["entries", "view", "snapshots", "metadata"],
)
def test_what_is_there_and_differs_is_named_and_stays(store, target, differ):
    lived(store, "s")
    lived(store, "t")
    indelible.copy_sessions(store, target, ["s"])
    differ(target)
    before = state(target, "s")
    report = indelible.copy_sessions(store, target)
    assert not report.ok
    assert told(report) == (1, 0, ("s",), ())
    assert state(target, "s") == before
    assert state(target, "t") == state(store, "t")


def test_what_is_in_the_target_alone_stays_there(store, target):
    target.add_message("mine", "user", "hello")
    lived(store)
    assert indelible.copy_sessions(store, target).ok
    assert said(target, "mine") == ["hello"]


def test_sessions_may_be_named_or_begin_with_a_prefix(store, target):
    for name in ("a/1", "a/2", "b/1", "b/2"):
        store.add_message(name, "user", name)
    assert indelible.copy_sessions(store, target, prefix="a/").sessions == 2
    assert indelible.copy_sessions(store, target, iter(["b/2", "b/2"])).sessions == 1
    assert sorted(target.list_sessions().ids) == ["a/1", "a/2", "b/2"]


def test_a_session_that_is_not_there_is_refused_before_anything_is_copied(store, target):
    store.add_message("s", "user", "hello")
    with pytest.raises(SessionNotFoundError):
        indelible.copy_sessions(store, target, ["s", "nobody"])
    assert target.list_sessions().ids == []


def test_a_copy_onto_itself_and_two_ways_to_choose_are_refused(store, target):
    with pytest.raises(UsageError):
        indelible.copy_sessions(store, store)
    with pytest.raises(UsageError):
        indelible.copy_sessions(store, target, ["s"], prefix="s")
    with pytest.raises(UsageError):
        indelible.copy_sessions(store, target, "s")


def test_keys_that_a_vacuum_left_are_told_of_since_they_stay_behind(store, target):
    lived(store, "s")
    for number in range(3):
        store.add_message("s", "user", f"{number}", key=f"k{number}")
    store.trim("s", keep_last=1)
    for snapshot in store.list_snapshots("s"):
        store.delete_snapshot("s", snapshot.id)
    removed = store.vacuum(undo_window=0).entries
    assert removed
    report = indelible.copy_sessions(store, target)
    (finding,) = report.findings
    assert (finding.session_id, finding.severity) == ("s", Severity.WARNING)
    assert f"keys of {removed} entries" in finding.what
    assert report.ok


def test_a_dry_run_counts_and_compares_and_changes_nothing(store, target):
    for name in ("one", "two", "three"):
        lived(store, name)
    indelible.copy_sessions(store, target, ["one", "two"])
    target.add_message("two", "user", "more")
    before = exported(target).getvalue()
    report = indelible.copy_sessions(store, target, dry_run=True)
    assert report.dry_run
    assert told(report) == (1, 1, ("two",), ())
    assert (report.entries, report.snapshots) == (9, 2)
    assert exported(target).getvalue() == before


def test_time_to_live_goes_along_and_what_expired_does_not(store, target, clock):
    store.add_message("gone", "user", "hello", ttl=10)
    store.add_message("short", "user", "hello", ttl=100)
    store.add_message("long", "user", "hello")
    clock.advance(50)
    report = indelible.copy_sessions(store, target)
    assert (report.sessions, report.expired, report.ok) == (2, 1, True)
    assert indelible.copy_sessions(store, target, prefix="g").expired == 1
    assert target.session("gone").status == "new"
    assert target.session("short").expires_at == store.session("short").expires_at
    clock.advance(50)
    assert target.session("short").status == "expired"
    assert said(target, "long") == ["hello"]
    with pytest.raises(SessionNotFoundError, match="it expired"):
        indelible.copy_sessions(store, target, ["short"])


def test_a_session_without_entries_keeps_its_time_though_the_clock_moves_on(
    make_store, target, clock
):
    store = make_store(ttl=1000)
    store.set_metadata("s", {"user": "ann"})

    def later(verb, *args):
        clock.advance(0.007)

    assert indelible.copy_sessions(store, Through(target, before=later)).ok
    assert indelible.copy_sessions(store, Through(target, before=later)).equal == 1
    moved = target.session("s").expires_at - store.session("s").expires_at
    assert abs(moved.total_seconds()) < 1


@pytest.mark.parametrize("settled", [0, 1], ids=["before it is copied", "before it is read back"])
def test_a_session_that_expires_under_way_is_told_of(store, target, clock, settled):
    store.add_message("s", "user", "hello", ttl=10)

    def expire(verb, *args):
        if verb == "export":
            clock.advance(11)

    ends = [(Through(store, before=expire), target), (store, Through(target, before=expire))]
    report = indelible.copy_sessions(*ends[settled])
    (finding,) = report.findings
    assert (finding.session_id, finding.severity) == ("s", Severity.WARNING)
    assert "expired" in finding.what
    assert report.sessions == settled
    assert target.list_sessions().ids == []


def test_a_session_that_is_lost_from_the_target_is_an_error(store, target):
    lived(store, "s")
    report = indelible.copy_sessions(
        store, target, progress=lambda session_id, entries: target.forget("s")
    )
    (finding,) = report.findings
    assert (finding.session_id, finding.severity) == ("s", Severity.ERROR)
    assert not report.ok


def test_what_changes_in_the_source_under_way_is_named(store, target):
    for name in ("one", "two", "three", "four"):
        lived(store, name)
    settled = []

    def go_on(name, entries):
        if len(settled) == 3:
            store.add_message("one", "user", "more")
            store.save_snapshot("two")
            store.forget("three")
        settled.append(name)

    report = indelible.copy_sessions(store, target, progress=go_on)
    assert not report.ok
    assert set(report.changed) == {"one", "two", "three"}
    assert (report.sessions, report.differ, report.findings) == (4, (), ())


def test_a_change_before_the_export_is_in_the_copy_and_not_told(store, target):
    lived(store, "s")
    changes = iter([True])

    def change(verb, *args):
        if verb == "export" and next(changes, False):
            store.add_message("s", "user", "just in time")

    assert indelible.copy_sessions(Through(store, before=change), target).ok
    assert state(target, "s") == state(store, "s")


def test_what_reads_back_differently_is_an_error(store, target):
    lived(store, "s")
    lived(store, "t")

    def spoil(verb, *args):
        if verb == "import_":
            for name in target.list_sessions(prefix="s").ids:
                target.add_message(name, "user", "who was that?")

    report = indelible.copy_sessions(store, Through(target, after=spoil))
    (finding,) = report.findings
    assert (finding.session_id, finding.severity) == ("s", Severity.ERROR)
    assert not report.ok


def test_two_copies_at_once_bring_a_session_once(store, target):
    lived(store, "s")

    def be_faster(verb, *args):
        if verb == "import_" and target.session("s").status == "new":
            indelible.copy_sessions(store, target)

    report = indelible.copy_sessions(store, Through(target, before=be_faster))
    assert report.ok
    assert told(report) == (0, 1, (), ())
    assert state(target, "s") == state(store, "s")


def test_one_session_that_cannot_be_copied_does_not_keep_back_the_others(store, target):
    for name in ("one", "two", "three"):
        lived(store, name)

    def refuse(verb, *args):
        if verb == "export" and args[1] == "two":
            raise ConflictError("others kept changing it", session="two", reason="view")

    report = indelible.copy_sessions(Through(store, before=refuse), target)
    (finding,) = report.findings
    assert (finding.session_id, finding.severity) == ("two", Severity.ERROR)
    assert report.sessions == 2
    assert sorted(target.list_sessions().ids) == ["one", "three"]


# It is asked who it is; three sessions are looked for and imported, and then read back.
CALLS = 10


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(CALLS + 1))
def test_a_copy_that_loses_its_engine_at_any_call_is_finished_by_doing_it_again(
    store, target, call, when
):
    for name in ("one", "two", "three"):
        lived(store, name)
    calls = iter(range(call))

    def lose(verb, *args):
        if next(calls, None) is None:
            if verb == "import_" and when == "before":
                # What a server that is lost half way keeps of an import.
                with pytest.raises(FormatError, match="cut off"):
                    target.import_(io.StringIO("".join(args[0].readlines()[:5])))
            raise UnavailableError("the server went away")

    lost = Through(target, **{when: lose})
    if call == CALLS:
        assert told(indelible.copy_sessions(store, lost)) == (3, 0, (), ())
    else:
        with pytest.raises(UnavailableError) as caught:
            indelible.copy_sessions(store, lost)
        there = len(target.list_sessions())
        # One may have come in without a word.
        assert caught.value.copied in {there, there - (when == "after")}
        assert told(indelible.copy_sessions(store, target)) == (3 - there, there, (), ())
    assert exported(target).getvalue() == exported(store).getvalue()


class Repeating(Through):
    """A store whose lists name a session again, as Redis may if others are added meanwhile."""

    def list_sessions(self, **options):
        page = self._store.list_sessions(**options)
        return SessionList([*page, *page[:1]], page.cursor)


def test_a_session_that_is_listed_twice_is_copied_and_counted_once(store, target):
    for name in ("one", "two"):
        lived(store, name)
    assert told(indelible.copy_sessions(Repeating(store), target)) == (2, 0, (), ())
