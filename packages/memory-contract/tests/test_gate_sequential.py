"""The gate of one caller: right stores pass all of it, each broken one fails the case it is for."""

import time

import pytest

import gate_stores as right
from gate_stores import Filed, Sound, of_files, of_memory
from memory_contract import Refused, check
from memory_contract.cases.catalogue import all_cases

RIGHT = {
    "memory": "memory:",
    "lists": of_memory(Sound),
    "lists_of_few_words": of_memory(Sound, capabilities=()),
    "file": of_files(Filed),
    "list_under_lock": right.ListUnderLock,
    "async_list_under_lock": right.AsyncListUnderLock,
    "turns": right.Turns,
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("store", RIGHT)
def test_a_right_store_passes(store, seed):
    report = check(RIGHT[store], gates=["sequential"], seed=seed, budget_s=300)
    assert report.verdict == "PASS", [r for r in report.results if r.verdict == "FAIL"]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_file_of_indelible_passes(seed, tmp_path):
    url = f"sqlite:///{tmp_path}/x.db"
    report = check(url, gates=["sequential"], seed=seed, budget_s=300)
    assert report.verdict == "PASS", [r for r in report.results if r.verdict == "FAIL"]


class Greeting(Sound):
    def read(self, session, *, limit=None):
        hello = [{"role": "assistant", "content": "How can I help?"}]
        return super().read(session, limit=limit) or hello


class SharedInstance(Sound):
    everybodys = {}  # noqa: RUF012 -- the very mistake

    def __init__(self, workspace):
        super().__init__(workspace)
        self.shown = self.everybodys


class MissingClear(Sound):
    clear = None


class TrimThatCountsOff(Sound):
    def trim(self, session, keep):
        super().trim(session, keep + 1)


class Amnesiac(Sound):
    def add(self, session, messages):
        pass


class Reversed(Sound):
    def add(self, session, messages):
        self.shown[session] = messages + self.shown.get(session, [])


class ByClock(Sound):
    def add(self, session, messages):
        for message in messages:
            message["at"] = int(time.time())
        super().add(session, messages)
        self.shown[session].sort(key=lambda message: (message["at"], message["content"]))


class ReversedBatch(Sound):
    def add(self, session, messages):
        super().add(session, messages[::-1])


class EmptyBatchOverwrites(Sound):
    def append(self, session, messages, **options):
        if not messages:
            self.shown[session] = []
        super().append(session, messages, **options)


class LimitFromTheStart(Sound):
    def read(self, session, *, limit=None):
        found = super().read(session)
        return found if limit is None else found[:limit]


class LimitOfNothingIsAll(Sound):
    def read(self, session, *, limit=None):
        found = super().read(session)
        return found if limit is None else found[-limit:]


class AliasIn(Sound):
    def add(self, session, messages):
        super().add(session, messages)

    def append(self, session, messages, **options):
        self.given = messages
        super().append(session, messages, **options)

    def copied(self, value):
        return value if value is getattr(self, "given", None) else super().copied(value)


class AliasOut(Sound):
    def read(self, session, *, limit=None):
        found = self.shown.setdefault(session, [])
        return found if limit is None else found[max(0, len(found) - limit) :]


class ShallowCopies(Sound):
    def copied(self, value):
        return [dict(message) for message in value]


class PopsTheOldest(Sound):
    def pop(self, session):
        found = self.shown.get(session, [])
        self.change(session, found[1:])
        return found[0] if found else None


class PopThatOnlyLooks(Sound):
    def pop(self, session):
        return next(iter(self.read(session)[-1:]), None)


class ClearsEverything(Sound):
    def clear(self, session):
        for name in list(self.shown):
            super().clear(name)


class ClearedForGood(Sound):
    def read(self, session, *, limit=None):
        cleared = [] in self.journal.get(session, []) or self.journal.get(session)
        return [] if cleared else super().read(session, limit=limit)


class HalfBatch(Sound):
    def append(self, session, messages, **options):
        for message in messages:
            if not isinstance(message["content"], str):
                raise TypeError("cannot be stored")
            super().append(session, [message], **options)


class StrandedLock(Filed):
    def append(self, session, messages):
        lock = self.path.with_suffix(".lock")
        if lock.exists():
            raise TimeoutError("locked")
        lock.touch()
        super().append(session, messages)
        lock.unlink()


class CachedReads(Filed):
    def __init__(self, workspace):
        super().__init__(workspace)
        self.cache = {}

    def append(self, session, messages):
        super().append(session, messages)
        self.cache.setdefault(session, []).extend(messages)

    def read(self, session):
        return list(self.cache.setdefault(session, super().read(session)))


class WipedOnOpen(Filed):
    def __init__(self, workspace):
        super().__init__(workspace)
        self.path.unlink(missing_ok=True)


class DedupedByContent(Sound):
    def add(self, session, messages):
        for message in messages:
            if message not in self.shown.get(session, []):
                super().add(session, [message])


class IgnoresKeys(Sound):
    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        super().append(session, messages, expected=expected)


class KeyOfAnySession(Sound):
    """One session's key swallows another session's append."""

    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        used = any(known == key and name != session for name, known in self.keys)
        if not used:
            super().append(session, messages, key=key, expected=expected)


class SwallowsOtherContent(Sound):
    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        if (session, key) not in self.keys:
            super().append(session, messages, key=key, expected=expected)


class AcknowledgesWhatWasCleared(Sound):
    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        if self.keys.get((session, key)) != messages:
            super().append(session, messages, key=key, expected=expected)


class KeyMeansLittle(Sound):
    """Only the very same content is the same append."""

    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        if self.keys.get((session, key)) != messages:
            self.keys.pop((session, key), None)
            super().append(session, messages, key=key, expected=expected)


class IgnoresVersions(Sound):
    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        super().append(session, messages, key=key)


class RefusesAndStores(Sound):
    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        stale = expected is not None and expected != self.version(session)
        super().append(session, messages, key=key)
        if stale:
            raise TimeoutError("somebody wrote since")


class ListsOnePage(Sound):
    def sessions(self):
        return super().sessions()[:10]


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


class SnapshotThatGrows(Sound):
    def rollback(self, session, snapshot):
        self.change(session, self.snapshots[snapshot])


BROKEN = [
    ("fresh_store_is_empty", of_memory(Greeting)),
    ("workspaces_stay_apart", of_memory(SharedInstance)),
    ("capabilities_are_true", of_memory(MissingClear)),
    ("capabilities_are_true", of_memory(TrimThatCountsOff)),
    ("append_then_read", of_memory(Amnesiac)),
    ("order_of_single_appends", of_memory(Reversed)),
    ("order_in_one_instant", of_memory(ByClock)),
    ("batch_in_order", of_memory(ReversedBatch)),
    ("empty_batch_changes_nothing", of_memory(EmptyBatchOverwrites)),
    ("limit_gives_the_newest", of_memory(LimitFromTheStart)),
    ("limit_gives_the_newest", of_memory(LimitOfNothingIsAll)),
    ("reads_are_copies", of_memory(AliasIn)),
    ("reads_are_copies", of_memory(AliasOut)),
    ("reads_are_copies", of_memory(ShallowCopies)),
    ("pop_from_the_end", of_memory(PopsTheOldest)),
    ("pop_from_the_end", of_memory(PopThatOnlyLooks)),
    ("clear_only_this_session", of_memory(ClearsEverything)),
    ("clear_then_append", of_memory(ClearedForGood)),
    ("refused_append_leaves_nothing", of_memory(HalfBatch)),
    ("refused_append_leaves_nothing", of_files(StrandedLock)),
    ("two_handles_one_session", of_files(CachedReads)),
    ("reopened_store_remembers", of_files(WipedOnOpen)),
    ("same_words_twice", of_memory(DedupedByContent)),
    ("same_key_once", of_memory(IgnoresKeys)),
    ("same_key_once", of_memory(KeyOfAnySession)),
    ("key_with_other_content_is_refused", of_memory(SwallowsOtherContent)),
    ("key_with_other_content_is_refused", of_memory(KeyMeansLittle)),
    ("key_of_what_was_cleared", of_memory(AcknowledgesWhatWasCleared)),
    ("stale_version_is_refused", of_memory(IgnoresVersions)),
    ("stale_version_is_refused", of_memory(RefusesAndStores)),
    ("sessions_are_listed", of_memory(ListsOnePage)),
    ("sessions_are_listed", of_memory(ListsTwice)),
    ("short_programs", of_memory(ForkThatLeaks)),
    ("short_programs", of_memory(UndoLosesLaterAppends)),
    ("random_programs", of_memory(SnapshotThatGrows)),
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("case", "store"), BROKEN, ids=[f"{s.name}-{c}" for c, s in BROKEN])
def test_a_broken_store_fails_its_case(case, store, seed):
    results = check(store, cases=[case], seed=seed).results
    assert {r.verdict for r in results} == {"FAIL"}, results
    assert all(r.failures for r in results)


def test_every_case_has_a_store_that_fails_it():
    cases = {found.name for found in all_cases() if found.gate == "sequential"}
    assert cases == {case for case, _ in BROKEN}


@pytest.mark.parametrize("store", [store for _, store in BROKEN], ids=lambda store: store.name)
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


def test_what_raises_after_a_refusal_is_told_with_the_refused_append():
    (result,) = check(
        of_files(StrandedLock), cases=["refused_append_leaves_nothing"], seed=1
    ).results
    assert "a batch with a value that cannot be stored was refused (TypeError" in result.reason
    assert "TimeoutError: locked" in result.reason


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
