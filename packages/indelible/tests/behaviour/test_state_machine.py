"""Any sequence of operations, on each store, against sessions made of plain lists."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from indelible import (
    NEVER,
    ConflictError,
    SessionNotFoundError,
    SnapshotNotFoundError,
    Status,
    UsageError,
)
from indelible.core.limits import EXPIRED_KNOWN_S
from tests.support.stores import STORES, Stores, message, say, shown, unsynced

SESSIONS = ["a", "b", "c", "d"]
TTL_S = 10


@dataclass
class Life:
    """What shows, what showed before each change, and what was written down."""

    deadline_s: float | None
    shown: list = field(default_factory=list)
    changes: list = field(default_factory=list)
    # What showed before each undo, and the change that it took back.
    undone: list = field(default_factory=list)
    snapshots: dict = field(default_factory=dict)
    receipts: dict = field(default_factory=dict)
    forked_from: str | None = None

    def change(self, after, end):
        self.changes.append((self.shown, end))
        self.undone.clear()
        self.shown = after


@dataclass
class Session:
    """A log that never forgets, and the life that it lives now."""

    log: list = field(default_factory=list)
    life: Life | None = None

    def status(self, now_s):
        if self.life is None:
            return Status.NEW
        deadline_s = self.life.deadline_s
        if deadline_s is None or now_s < deadline_s:
            return Status.ACTIVE
        return Status.EXPIRED if now_s < deadline_s + EXPIRED_KNOWN_S else Status.NEW


PICK = st.integers(0, 99)
# Most of it happens to one session, so that its states meet.
NAMES = st.sampled_from(["a", "a", "a", *SESSIONS])
ROLES = st.sampled_from(["user", "user", "user", "system"])
TTLS = st.sampled_from([None, None, None, NEVER, 3])


class Machine(RuleBasedStateMachine):
    """Does everything twice: to a store and to the lists."""

    kind: str

    @initialize()
    def open(self):
        self.directory = Path(tempfile.mkdtemp(prefix="indelible-"))
        self.stores = Stores(self.kind, self.directory)
        # No power fails here, so that no step need wait for the disk.
        self.options = {"ttl": TTL_S, **unsynced(self.stores.target)}
        self.store = self.stores.open(**self.options)
        self.sessions = {name: Session() for name in SESSIONS}
        self.counted = 0

    def teardown(self):
        self.stores.close()
        shutil.rmtree(self.directory)

    # What the lists say

    @property
    def now_s(self):
        return self.stores.clock.now_s

    def is_active(self, name):
        return self.sessions[name].status(self.now_s) is Status.ACTIVE

    def living(self, name):
        session = self.sessions[name]
        if not self.is_active(name):
            session.life = Life(self.now_s + TTL_S)
        return session, session.life

    def next_text(self):
        self.counted += 1
        return str(self.counted)

    def logged(self, name, values, ttl):
        """Put values at the end of the log; their positions."""
        session, life = self.living(name)
        first = len(session.log)
        session.log += values
        positions = range(first, len(session.log))
        life.shown = [*life.shown, *positions]
        ttl_s = TTL_S if ttl is None else ttl
        life.deadline_s = None if ttl_s is NEVER else self.now_s + ttl_s
        return positions

    # What is done to both

    @rule(name=NAMES, role=ROLES, ttl=TTLS)
    def append(self, name, role, ttl):
        text = self.next_text()
        (receipt,) = say(self.store, name, text, role=role, ttl=ttl)
        assert receipt.positions == self.logged(name, [message(text, role=role)], ttl)
        assert receipt.version == self.store.session(name).version

    @rule(name=NAMES, count=st.integers(1, 4), ttl=TTLS)
    def append_a_batch_with_a_key(self, name, count, ttl):
        values = [message(self.next_text()) for _ in range(count)]
        key = f"key {self.counted}"
        receipt = self.store.add_messages(name, values, key=key, ttl=ttl)
        assert receipt.positions == self.logged(name, values, ttl)
        self.sessions[name].life.receipts[key] = (receipt, values)

    @rule(name=NAMES, pick=PICK)
    def retry(self, name, pick):
        life = self.sessions[name].life
        if not self.is_active(name) or not life.receipts:
            return
        key = sorted(life.receipts)[pick % len(life.receipts)]
        first, values = life.receipts[key]
        visible = set(first.positions) <= set(life.shown)
        again = self.store.add_messages(name, values, key=key, ttl=NEVER, replay="hidden-ok")
        assert again == first._replace(replayed=True, visible=visible)
        if not visible:
            with pytest.raises(ConflictError, match="hidden"):
                self.store.add_messages(name, values, key=key, ttl=NEVER)
        with pytest.raises(ConflictError, match="key"):
            self.store.add_message(name, "user", "something else", key=key)

    @rule(name=NAMES, stale=st.booleans())
    def append_with_an_expected_version(self, name, stale):
        version = self.store.session(name).version
        if stale:
            self.append(name, "user", None)
            with pytest.raises(ConflictError):
                self.store.add_message(name, "user", "late", expected=version)
        else:
            text = self.next_text()
            receipt = self.store.add_message(name, "user", text, expected=version)
            assert receipt.positions == self.logged(name, [message(text)], None)

    @rule(name=NAMES, keep_last=st.integers(0, 5))
    def trim(self, name, keep_last):
        change = self.store.trim(name, keep_last=keep_last)
        if not self.is_active(name):
            assert change.dropped == ()
            return
        session, life = self.living(name)
        old = life.shown[: max(0, len(life.shown) - keep_last)]
        dropped = [position for position in old if session.log[position].role != "system"]
        assert list(change.dropped) == dropped
        if dropped:
            life.change([p for p in life.shown if p not in dropped], len(session.log))

    @rule(name=NAMES, positions=st.lists(st.integers(0, 20), max_size=3))
    def hide(self, name, positions):
        change = self.store.hide(name, positions)
        if not self.is_active(name):
            assert change.dropped == ()
            return
        session, life = self.living(name)
        dropped = [position for position in life.shown if position in positions]
        assert list(change.dropped) == dropped
        if dropped:
            life.change([p for p in life.shown if p not in dropped], len(session.log))

    @rule(name=NAMES)
    def clear(self, name):
        change = self.store.clear(name)
        if not self.is_active(name):
            assert change.dropped == ()
            return
        session, life = self.living(name)
        assert list(change.dropped) == life.shown
        if life.shown:
            life.change([], len(session.log))

    @rule(name=NAMES)
    def save_snapshot(self, name):
        snapshot = self.store.save_snapshot(name)
        _, life = self.living(name)
        assert snapshot.id not in life.snapshots
        life.snapshots[snapshot.id] = life.shown

    @rule(name=NAMES, pick=PICK)
    def roll_back(self, name, pick):
        if not self.is_active(name):
            with pytest.raises(SessionNotFoundError):
                self.store.rollback_to_snapshot(name, "any")
            return
        session, life = self.living(name)
        if not life.snapshots:
            with pytest.raises(SnapshotNotFoundError):
                self.store.rollback_to_snapshot(name, "any")
            return
        snapshot_id, frozen = list(life.snapshots.items())[pick % len(life.snapshots)]
        change = self.store.rollback_to_snapshot(name, snapshot_id)
        assert list(change.dropped) == [p for p in life.shown if p not in frozen]
        assert list(change.restored) == [p for p in frozen if p not in life.shown]
        if frozen != life.shown:
            life.change(frozen, len(session.log))

    @rule(name=NAMES, pick=PICK)
    def delete_snapshot(self, name, pick):
        if self.is_active(name) and self.sessions[name].life.snapshots:
            snapshots = self.sessions[name].life.snapshots
            gone = list(snapshots)[pick % len(snapshots)]
            self.store.delete_snapshot(name, gone)
            del snapshots[gone]

    @rule(name=NAMES)
    def undo(self, name):
        if not self.is_active(name):
            with pytest.raises(SessionNotFoundError):
                self.store.undo(name)
            return
        session, life = self.living(name)
        if not life.changes:
            with pytest.raises(UsageError):
                self.store.undo(name)
            return
        change = self.store.undo(name)
        taken_back = life.changes.pop()
        before, end_then = taken_back
        life.undone.append((life.shown, len(session.log), taken_back))
        after = [*before, *range(end_then, len(session.log))]
        assert list(change.dropped) == [p for p in life.shown if p not in after]
        assert list(change.restored) == [p for p in after if p not in life.shown]
        life.shown = after

    @rule(name=NAMES)
    def redo(self, name):
        if not self.is_active(name):
            with pytest.raises(SessionNotFoundError):
                self.store.redo(name)
            return
        session, life = self.living(name)
        if not life.undone:
            with pytest.raises(UsageError):
                self.store.redo(name)
            return
        change = self.store.redo(name)
        before, end_then, taken_back = life.undone.pop()
        life.changes.append(taken_back)
        after = [*before, *range(end_then, len(session.log))]
        assert list(change.dropped) == [p for p in life.shown if p not in after]
        assert list(change.restored) == [p for p in after if p not in life.shown]
        life.shown = after

    @rule(name=NAMES, copy_name=NAMES, pick=PICK)
    def fork(self, name, copy_name, pick):
        refusal = None
        if name == copy_name:
            refusal = ConflictError
        elif not self.is_active(name):
            refusal = SessionNotFoundError
        elif self.is_active(copy_name):
            refusal = ConflictError
        if refusal is not None:
            with pytest.raises(refusal):
                self.store.fork(name, copy_name)
            return
        original, life = self.living(name)
        states = [(None, life.shown), *life.snapshots.items()]
        at, frozen = states[pick % len(states)]
        info = self.store.fork(name, copy_name, at=at)
        _, copied = self.living(copy_name)
        copied.forked_from = name
        self.logged(copy_name, [original.log[position] for position in frozen], None)
        assert info.logged == len(frozen)

    @rule(seconds=st.sampled_from([1, 1, 3, 7, TTL_S, EXPIRED_KNOWN_S]))
    def let_time_pass(self, seconds):
        self.stores.clock.advance(seconds)

    @precondition(lambda self: self.stores.engine != "memory")
    @rule()
    def reopen(self):
        self.store = self.stores.reopen(self.store, **self.options)

    # What must agree after each

    @invariant()
    def every_session_is_what_the_lists_say(self):
        for name, session in self.sessions.items():
            status = session.status(self.now_s)
            life = session.life if status is Status.ACTIVE else Life(None)
            history = self.store.get_history(name)
            assert history.status is status
            assert history == [session.log[position] for position in life.shown]
            assert shown(self.store, name) == life.shown
            taken = self.store.list_snapshots(name)
            assert [(s.id, s.entries) for s in taken] == [
                (snapshot_id, len(frozen)) for snapshot_id, frozen in life.snapshots.items()
            ]
            info = self.store.session(name)
            assert (info.status, info.entries) == (status, len(life.shown))
            assert (info.snapshots, info.forked_from) == (len(taken), life.forked_from)
            assert info.version == history.version

    @invariant()
    def the_active_sessions_are_listed(self):
        assert sorted(self.store.list_sessions().ids) == list(filter(self.is_active, SESSIONS))


@pytest.mark.parametrize("kind", STORES)
def test_any_sequence_of_operations_agrees_with_plain_lists(kind):
    run_state_machine_as_test(
        type("Machine", (Machine,), {"kind": kind}),
        settings=settings(
            # The cheapest store pays for the breadth: syncs and round trips add up.
            max_examples=120 if kind == "memory-blocking" else 12,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
