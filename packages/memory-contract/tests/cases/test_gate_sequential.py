"""The gate of one caller: right stores pass all of it, each broken one fails the case it is for."""

import pytest

from memory_contract import Refused, check
from tests.support.kit import gate_stores as right
from tests.support.kit.gate_stores import Filed, Sound, of_files, of_memory
from tests.support.kit.goldfish_stores import GOLDFISH

# Stores of indelible are in `tests/contract`.
RIGHT = {
    "lists": of_memory(Sound),
    "lists_of_few_words": of_memory(Sound, capabilities=()),
    "file": of_files(Filed),
    "list_under_lock": right.ListUnderLock,
    "async_list_under_lock": right.AsyncListUnderLock,
    "turns": right.Turns,
}


@pytest.mark.parametrize("store", RIGHT)
def test_a_right_store_passes(store):
    report = check(RIGHT[store], gates=["sequential"], seed=1, budget_s=300)
    assert report.verdict == "PASS", [r for r in report.results if r.verdict == "FAIL"]


def test_keys_of_a_store_without_batches_stand_for_one_message_each():
    adapter = of_memory(Sound, batches=False)
    report = check(adapter, gates=["sequential"], seed=1, budget_s=300)
    assert report.verdict == "PASS", [r for r in report.results if r.verdict == "FAIL"]


class MissingClear(Sound):
    clear = None


class TrimThatCountsOff(Sound):
    def trim(self, session, keep):
        super().trim(session, keep + 1)


class LimitOfNothingIsAll(Sound):
    def read(self, session, *, limit=None):
        found = super().read(session)
        return found if limit is None else found[-limit:]


class ShallowCopies(Sound):
    def copied(self, value):
        return [dict(message) for message in value]


class PopThatOnlyLooks(Sound):
    def pop(self, session):
        return next(iter(self.read(session)[-1:]), None)


class ClearedForGood(Sound):
    def read(self, session, *, limit=None):
        cleared = [] in self.journal.get(session, []) or self.journal.get(session)
        return [] if cleared else super().read(session, limit=limit)


class StrandedLock(Filed):
    def append(self, session, messages):
        lock = self.path.with_suffix(".lock")
        if lock.exists():
            raise TimeoutError("locked")
        lock.touch()
        super().append(session, messages)
        lock.unlink()


class KeyOfAnySession(Sound):
    """One session's key swallows another session's append."""

    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        used = any(known == key and name != session for name, known in self.keys)
        if not used:
            super().append(session, messages, key=key, expected=expected)


class KeyMeansLittle(Sound):
    """Only the very same content is the same append."""

    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        if self.keys.get((session, key)) != messages:
            self.keys.pop((session, key), None)
            super().append(session, messages, key=key, expected=expected)


class RefusesAndStores(Sound):
    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        stale = expected is not None and expected != self.version(session)
        super().append(session, messages, key=key)
        if stale:
            raise TimeoutError("somebody wrote since")


class ListsTwice(Sound):
    def sessions(self):
        return [name for name in self.shown for _ in self.shown[name]]


class ForkThatLeaks(Sound):
    def fork(self, session, target):
        self.shown[target] = self.shown[session]


class UndoLosesLaterAppends(Sound):
    def add(self, session, messages):
        super().add(session, messages)
        for line in self.journal.get(session, []):
            del line[-len(messages) :]


# Broken in other ways than the goldfish of the same cases.
BROKEN = [
    ("capabilities_are_true", of_memory(MissingClear)),
    ("capabilities_are_true", of_memory(TrimThatCountsOff)),
    ("limit_gives_the_newest", of_memory(LimitOfNothingIsAll)),
    ("reads_are_copies", of_memory(ShallowCopies)),
    ("pop_from_the_end", of_memory(PopThatOnlyLooks)),
    ("clear_then_append", of_memory(ClearedForGood)),
    ("refused_append_leaves_nothing", of_files(StrandedLock)),
    ("same_key_once", of_memory(KeyOfAnySession)),
    ("key_with_other_content_is_refused", of_memory(KeyMeansLittle)),
    ("stale_version_is_refused", of_memory(RefusesAndStores)),
    ("sessions_are_listed", of_memory(ListsTwice)),
    ("short_programs", of_memory(ForkThatLeaks)),
    ("short_programs", of_memory(UndoLosesLaterAppends)),
]


@pytest.mark.parametrize(("case", "store"), BROKEN, ids=[f"{s.name}-{c}" for c, s in BROKEN])
def test_a_broken_store_fails_its_case(case, store):
    results = check(store, cases=[case], seed=1).results
    assert {r.verdict for r in results} == {"FAIL"}, results
    assert all(r.failures for r in results)


CONFUSING = [
    *(store for _, store in BROKEN),
    *(GOLDFISH[name].adapter for name in ("nothing_comes_back", "reversed_list")),
]


@pytest.mark.parametrize("store", CONFUSING, ids=lambda store: store.name)
def test_a_broken_store_never_confuses_the_kit(store):
    results = check(store, gates=["sequential"], seed=3, budget_s=300).results
    assert {r.verdict for r in results} <= {"FAIL", "PASS", "NOT CLAIMED"}, results


class HalfAnOffer(Sound):
    def trim(self, session, keep):
        super().trim(session, keep + 1)


class EmptyBatchRefused(Sound):
    def append(self, session, messages, **options):
        if not messages:
            raise Refused("nothing to append")
        super().append(session, messages, **options)


def test_what_is_offered_and_not_claimed_is_told_and_not_judged():
    report = check(
        of_memory(HalfAnOffer, without=["trim", "pop", "keys"]),
        cases=["capabilities_are_true"],
        seed=1,
    )
    assert report.verdict == "PASS"
    told = "\n".join(report.notes)
    assert "not claimed: trim (keep the newest n entries); tried once, it does something" in told
    assert "not claimed: pop" in told
    assert "it works" in told
    assert "not claimed: keys" in told


def test_an_empty_batch_may_be_refused():
    report = check(of_memory(EmptyBatchRefused), cases=["empty_batch_changes_nothing"], seed=1)
    assert report.verdict == "PASS"
    assert "an empty batch is refused" in report.notes


@pytest.mark.parametrize(
    ("case", "refused"),
    [
        ("refused_append_leaves_nothing", "a batch with a value that cannot be stored was refused"),
        ("unserialisable_is_refused", "after an object of a class was refused, the next append"),
    ],
)
def test_what_raises_after_a_refusal_is_told_with_the_refused_append(case, refused):
    (result,) = check(of_files(StrandedLock), cases=[case], seed=1).results
    assert refused in result.reason
    assert "TimeoutError: locked" in result.reason


class RefusesWhatItKept(Sound):
    def add(self, session, messages):
        super().add(session, messages)
        if len(self.shown[session]) > 5:
            raise Refused("too long")


def test_what_was_refused_and_kept_is_proved_by_a_read():
    result = check(of_memory(RefusesWhatItKept), cases=["random_programs"], seed=1).results[0]
    assert result.failures[0].name == "aborted read"


class BrokenList(Sound):
    def sessions(self):
        raise OSError("no index")


def test_an_error_is_told_with_the_call_that_raised_it():
    result = check(of_memory(BrokenList), cases=["sessions_are_listed"], seed=1).results[0]
    assert result.reason == "sessions raised OSError: no index"


class CountsPopsOfNothing(Sound):
    """A pop from an empty session is a change, which an undo takes back."""

    def pop(self, session):
        if not self.shown.get(session):
            self.change(session, [])
        return super().pop(session)


def test_whether_an_undo_takes_back_a_pop_of_nothing_is_not_judged():
    report = check(of_memory(CountsPopsOfNothing), cases=["short_programs"], seed=1)
    assert report.verdict == "PASS", report.results


def test_a_failed_program_is_told_step_by_step():
    report = check(of_memory(ForkThatLeaks), cases=["short_programs"], seed=1)
    proof = report.results[0].failures[-1].proof
    assert "fork, a read gave" in proof
    assert "must show" in proof


def test_the_programs_know_indelible_by_heart():
    # Nothing is left out: every short program over what indelible offers is run.
    report = check("memory:", cases=["short_programs"], seed=1)
    assert not [note for note in report.notes if "short programs" in note]
