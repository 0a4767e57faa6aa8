"""Odd manners are no failures, and a failure goes by its own name."""

import pytest

import indelible
from memory_contract import Adapter, Refused, check
from memory_contract.cases import workload
from memory_contract.cases.contents import CHANGED, overwrite_deeply
from memory_contract.cases.session_names import HOSTILE, SIMILAR
from memory_contract.goldfish.registry import build_adapter
from memory_contract.goldfish.stores import ListStore
from tests.support.kit import gate_stores as stores
from tests.support.kit.gate_stores import Filed, Sound, of_files, of_memory


def names_of(report):
    """The first failure of each case that failed: what its proof is called."""
    assert {r.verdict for r in report.results} <= {"FAIL"}, report.results
    return {result.failures[0].name for result in report.results}


# Memory that is shared with the caller


def test_everything_that_can_be_changed_is_written_over():
    nested = {"tags": ["a", {"deep": "b"}], "empty": {}, "none": None, "number": 1}
    said, cycle = stores.Said("user", "words"), []
    cycle.append(cycle)
    overwrite_deeply([nested, (said,), cycle])
    assert nested["tags"][:2] == ["a", {"deep": CHANGED, "more": CHANGED}]
    assert len(nested["tags"]) == 4
    assert nested["empty"] == {"more": CHANGED}
    assert said == stores.Said(CHANGED, CHANGED)


def test_what_refuses_to_be_changed_stays():
    message = indelible.ChatMessage(role="user", content="words")
    overwrite_deeply([message, "text", None, 7, stores.Said])
    assert (message.role, message.content) == ("user", "words")


@pytest.mark.parametrize(
    "store", [stores.Dumped, stores.CopiesOfObjects, stores.ListUnderLock, "memory:"]
)
def test_copies_may_be_changed_by_whoever_holds_them(store):
    report = check(store, cases=["reads_are_copies"], seed=1)
    assert report.verdict == "PASS", report.results


def test_objects_of_the_store_may_not():
    report = check(stores.OwnObjects, cases=["reads_are_copies"], seed=1)
    assert names_of(report) == {"alias"}


# Refusals in a race


class BusyAtTimes(ListStore):
    """Refuses every other snapshot, as a store does whose lock somebody else holds for too long."""

    asked = 0

    def snapshot(self, session):
        self.asked += 1
        if self.asked % 2:
            raise Refused("another writer holds the store")
        return super().snapshot(session)


def test_a_snapshot_that_was_refused_in_a_race_is_not_rolled_back_to():
    adapter = build_adapter(BusyAtTimes, "busy_at_times")
    report = check(adapter, cases=["snapshot_against_append"], seed=1, budget_s=0)
    assert report.verdict == "PASS", report.results


# Session ids that are paths


def test_an_id_that_leads_out_of_the_workspace_is_named(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    adapter = Adapter(open=Escaping, home=home, name="escaping")
    report = check(adapter, cases=["hostile_session_ids"], seed=1)
    assert names_of(report) == {"escapes its workspace"}
    assert "'../escaped'" in report.results[0].reason
    assert [path for path in tmp_path.rglob("*") if path != home] == []


class Escaping(Filed):
    """A file for each session, as the handle of an adapter."""

    def __init__(self, workspace):
        self._store = stores.FileForEachSession(workspace)

    def append(self, session, messages):
        said = [stores.Said(message["role"], message["content"]) for message in messages]
        self._store.add_messages(session, said)

    def read(self, session):
        return self._store.get_history(session)


class AbsoluteOnly(Escaping):
    def append(self, session, messages):
        if ".." in session:
            raise Refused("a path")
        super().append(session, messages)


def test_an_absolute_path_is_an_escape_as_well():
    report = check(of_files(AbsoluteOnly, capabilities=()), cases=["hostile_session_ids"], seed=1)
    assert names_of(report) == {"escapes its workspace"}
    assert "escaped-by-an-absolute-path" in report.results[0].reason


def test_no_id_leads_further_than_one_folder_up():
    for name in (*HOSTILE, *SIMILAR):
        assert not name.startswith(("/", "~", "..")) or name == "..\\a"
        assert "../.." not in name


def test_whoever_keeps_files_beside_the_workspace_is_not_accused():
    report = check(stores.BesideItsWorkspace, cases=["hostile_session_ids"], seed=1)
    assert report.verdict == "PASS", report.results


# What cannot be stored reaches the store


def test_the_store_itself_is_asked_what_it_makes_of_a_batch_that_it_cannot_store():
    report = check(stores.OneByOne, cases=["refused_append_leaves_nothing"], seed=1)
    assert names_of(report) == {"refused and changed"}


def test_the_store_itself_is_asked_what_it_makes_of_no_text():
    report = check(stores.Describing, cases=["unserialisable_is_refused"], seed=1)
    assert names_of(report) == {"changed content"}


# Batches that are too large


class FewAtOnce(Sound):
    def append(self, session, messages, **options):
        if len(messages) > 9:
            raise ValueError("at most 9 messages at once")
        super().append(session, messages, **options)


class FewAtOnceAndTheRestIsKept(Sound):
    def append(self, session, messages, **options):
        super().append(session, messages[:9], **options)
        if len(messages) > 9:
            raise ValueError("at most 9 messages at once")


class Moody(Sound):
    """Refuses the first large batch, and takes the next."""

    def append(self, session, messages, **options):
        if len(messages) > 9 and not getattr(self, "asked", False):
            self.asked = True
            raise ValueError("not now")
        super().append(session, messages, **options)


LARGE = ["order_in_one_instant", "batch_in_order", "long_session"]


def test_a_batch_may_be_too_large():
    report = check(of_memory(FewAtOnce), gates=["sequential", "edges"], cases=LARGE, seed=1)
    assert report.verdict == "PASS", report.results
    told = "\n".join(report.notes)
    assert "a batch of 50 is refused (ValueError: at most 9 messages at once); smaller" in told


@pytest.mark.parametrize("case", LARGE)
def test_a_batch_that_is_refused_and_kept_in_part_is_a_failure(case):
    report = check(of_memory(FewAtOnceAndTheRestIsKept), cases=[case], seed=1)
    assert {r.verdict for r in report.results} == {"FAIL"}
    assert "refused and changed" in {f.name for r in report.results for f in r.failures}


@pytest.mark.parametrize("case", LARGE)
def test_a_batch_that_is_refused_by_mood_is_a_failure(case):
    report = check(of_memory(Moody), cases=[case], seed=1)
    assert names_of(report) == {"unexpected error"}


# Nothing to do it to


class NothingThere(Sound):
    """Says so where there is nothing to take away."""

    error = Refused

    def needs(self, session):
        if not self.shown.get(session):
            raise self.error("nothing there")

    def pop(self, session):
        self.needs(session)
        return super().pop(session)

    def trim(self, session, keep):
        self.needs(session)
        super().trim(session, keep)

    def clear(self, session):
        self.needs(session)
        super().clear(session)


class NothingThereByKeyError(NothingThere):
    error = KeyError


@pytest.mark.parametrize("store", [NothingThere, NothingThereByKeyError])
def test_whoever_has_nothing_to_take_away_may_say_so(store):
    # Sessions of lists never end.
    adapter = of_memory(store, without=["ttl"])
    report = check(adapter, gates=["sequential", "lifecycle"], seed=1, budget_s=300)
    assert [r for r in report.results if r.verdict not in ("PASS", "NOT CLAIMED")] == []


# Written late, or never


class WrittenLate(Sound):
    """What was appended shows from the fourth read on."""

    def __init__(self, workspace):
        super().__init__(workspace)
        self.reads = 0

    def append(self, session, messages, **options):
        super().append(session, messages, **options)
        self.reads = 0

    def read(self, session, *, limit=None):
        self.reads += 1
        found = super().read(session, limit=limit)
        return found if self.reads > 3 else found[:-1]


class NeverWritten(Sound):
    def add(self, session, messages):
        pass


ACKNOWLEDGED = ["reads_are_copies", "same_words_twice", "capabilities_are_true"]


@pytest.mark.parametrize("case", ACKNOWLEDGED)
@pytest.mark.parametrize(
    ("store", "name"), [(WrittenLate, "late write"), (NeverWritten, "lost append")]
)
def test_what_is_not_there_goes_by_that_name(store, name, case):
    report = check(of_memory(store, capabilities=()), cases=[case], seed=1)
    assert {r.verdict for r in report.results} == {"FAIL"}
    assert {result.failures[-1].name for result in report.results} == {name}


def test_a_text_that_comes_late_goes_by_that_name():
    report = check(of_memory(WrittenLate), cases=["unicode_survives"], seed=1)
    assert names_of(report) == {"late write"}


# Slow stores


class Hourglass:
    """A clock that runs a second for each look at it."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


LONG = {
    "order_of_single_appends": "single appends: ",
    "order_in_one_instant": "appends in a burst: ",
    "short_programs": "short programs: ",
    "random_programs": "random steps: ",
    "unicode_survives": "strange texts: ",
    "hostile_session_ids": "session ids: ",
    "similar_session_ids": "session ids: ",
    "many_sessions": "sessions: ",
    "long_session": "batches of 250 in a long session: ",
    "nothing_goes_unasked": "other sessions: ",
}


@pytest.mark.parametrize("case", LONG)
def test_a_slow_store_is_asked_for_less_and_the_report_says_so(case, monkeypatch):
    monkeypatch.setattr(workload, "time", Hourglass())
    report = check(of_memory(Sound), cases=[case], seed=1)
    assert report.verdict == "PASS", report.results
    left_out = [note for note in report.notes if note.startswith(LONG[case])]
    assert left_out
    assert left_out[-1].endswith("since the store is slow")


@pytest.mark.parametrize("case", LONG)
def test_a_quick_store_is_asked_for_all(case):
    report = check(of_memory(Sound), cases=[case], seed=1)
    assert not [note for note in report.notes if note.endswith("since the store is slow")]
