"""The gate of lifecycles on indelible itself, and on stores that are right in other ways."""

import time
from dataclasses import replace

import pytest

from memory_contract import Adapter, check
from memory_contract.cases.catalogue import all_cases
from memory_contract.goldfish.lives import EVERYTHING
from memory_contract.goldfish.stores import ListStore, SqliteStore
from memory_contract.runner import StoreUnderTest, list_modes, run_case
from memory_contract.targets import resolve

CASES = {
    "trim_keeps_the_newest": {"trim"},
    "trim_keeps_structure": {"trim", "structure", "fields"},
    "ttl_ends_everything": {"ttl"},
    "ttl_is_never_early": {"ttl"},
    "ttl_begins_anew_as_declared": {"ttl"},
    "ttl_survives_reopening": {"ttl"},
    "new_life_is_clean": {"ttl"},
    "snapshot_is_frozen": {"snapshot", "rollback"},
    "rollback_is_exact": {"snapshot", "rollback"},
    "rollback_keeps_every_snapshot": {"snapshot", "rollback"},
    "rollback_there_and_back": {"snapshot", "rollback"},
    "fork_is_independent": {"fork"},
    "undo_takes_back": {"undo", "clear"},
    "close_is_final": set(),
    "nothing_goes_unasked": set(),
}


# Those of stores of checkpoints.
OF_CHECKPOINTS = {
    "pending_writes_are_stored_once": {"pending"},
    "prune_keeps_what_shows": {"prune", "snapshot", "rollback"},
    "kill_in_pending_writes": {"pending"},
    "kill_in_prune": {"prune"},
    "lost_reply_in_pending_writes": {"pending"},
    "lost_reply_in_prune": {"prune"},
}
# Those of stores with an audit.
OF_AUDITS = dict.fromkeys(  # noqa: RUF024 -- nobody changes it
    (
        *("every_change_leaves_a_line", "edited_audit_is_noticed"),
        *("audit_agrees_after_a_kill", "audit_agrees_after_a_lost_reply"),
    ),
    {"audit"},
)


def run(adapter, name, seed=1):
    """What a case says in every mode that the store has."""
    (case,) = [case for case in all_cases() if case.name == name]
    subject = StoreUnderTest(adapter)
    try:
        return {
            mode: known or run_case(case, mode, subject, seed=seed)
            for mode, known in list_modes(case, subject)
        }
    finally:
        subject.close()


def test_the_gate_has_these_cases():
    found = {case.name: set(case.needs) for case in all_cases() if case.gate == "lifecycle"}
    assert found == CASES | OF_CHECKPOINTS | OF_AUDITS


# That it passes is tested in tests/contract.
@pytest.mark.parametrize("url", ["memory:", "sqlite:///x.db"])
def test_indelible_is_asked_everything_in_both_flavours(url, tmp_path):
    subject = StoreUnderTest(resolve(url.replace("x.db", f"{tmp_path}/x.db")))
    try:
        asked = {
            (case.name, mode)
            for case in all_cases()
            if case.name in CASES
            for mode, known in list_modes(case, subject)
            if known is None
        }
    finally:
        subject.close()
    alone = {"ttl_survives_reopening"} if url == "memory:" else set()
    assert asked == {
        (name, mode) for name in CASES.keys() - alone for mode in ("blocking", "async")
    }


def test_nothing_is_asked_of_a_store_that_claims_nothing():
    report = check(Adapter(open=ListStore, reach="process"), gates=["lifecycle"], seed=1)
    ran = {r.case for r in report.results if r.verdict == "PASS"}
    assert ran == {name for name, needs in CASES.items() if not needs}
    assert {r.verdict for r in report.results} == {"PASS", "NOT CLAIMED"}


class SlowStore(ListStore):
    """Right, and slower than the sessions of the gate live."""

    def _locked(self):
        time.sleep(0.12)
        return super()._locked()


@pytest.mark.parametrize("name", [name for name, needs in CASES.items() if needs == {"ttl"}])
def test_a_slow_store_is_not_accused_of_anything(name):
    adapter = Adapter(
        open=SlowStore, reach="process", thread_safe=True, capabilities=EVERYTHING, ttl_s_late=0.3
    )
    verdicts = {r.verdict for r in run(adapter, name).values()}
    assert verdicts <= {"PASS", "VACUOUS", "NOT CLAIMED"}, verdicts


class NotFoundStore(ListStore):
    """Right, and raises where others answer with nothing."""

    def read(self, session, **options):
        life = self._load(session)
        if life is not None and life.ended:
            raise SessionNotFoundError(session)
        return super().read(session, **options)


class SessionNotFoundError(Exception):
    pass


@pytest.mark.parametrize("name", ["ttl_ends_everything", "ttl_begins_anew_as_declared"])
def test_that_there_is_no_such_session_is_a_right_answer_when_it_ended(name):
    adapter = Adapter(open=NotFoundStore, reach="process", capabilities=EVERYTHING, ttl_s_late=0.1)
    assert {r.verdict for r in run(adapter, name).values()} == {"PASS"}


class NeverTrimsToNothing(ListStore):
    """Right: it takes a trim to nothing for a mistake."""

    def trim(self, session, keep):
        if keep == 0:
            raise ValueError(keep)
        super().trim(session, keep)


def test_a_trim_to_nothing_may_be_refused():
    adapter = Adapter(open=NeverTrimsToNothing, reach="process", capabilities=["trim"])
    assert {r.verdict for r in run(adapter, "trim_keeps_the_newest").values()} == {"PASS"}


class RefusesWhenClosed(SqliteStore):
    """Right: after the end, every call is an error."""


class ClosesOnce(SqliteStore):
    """Right: there is nothing to close any more."""

    closed = False

    def close(self):
        if self.closed:
            raise RuntimeError("closed already")
        super().close()
        self.closed = True


class OpenForEver:
    """Right: there is nothing to close."""

    def __init__(self, workspace):
        self._store = ListStore(workspace)
        self.append, self.read = self._store.append, self._store.read


@pytest.mark.parametrize(
    ("store", "verdict"),
    [
        (RefusesWhenClosed, "PASS"),
        (ClosesOnce, "PASS"),
        (ListStore, "PASS"),
        (OpenForEver, "NOT CLAIMED"),
    ],
)
def test_closing_may_end_everything_or_nothing(store, verdict):
    adapter = Adapter(open=store, reach="process")
    assert {r.verdict for r in run(adapter, "close_is_final").values()} == {verdict}


class SlowSnapshots:
    """A handle whose snapshots take longer than the first time to live that a case tries."""

    def __init__(self, handle):
        self._handle = handle

    def __getattr__(self, name):
        return getattr(self._handle, name)

    def snapshot(self, session):
        time.sleep(0.5)
        return self._handle.snapshot(session)


def test_a_snapshot_after_the_end_begins_another_life_and_is_no_failure():
    adapter = resolve("memory:")
    slow = replace(adapter, open=lambda place: SlowSnapshots(adapter.open(place)))
    report = check(slow, cases=["ttl_ends_everything", "new_life_is_clean"], seed=1)
    assert report.verdict == "PASS", report.results
