"""Many threads, tasks and processes at once. The checker judges what they recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from memory_contract.calls import Call, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseVacuous
from memory_contract.cases.case import case
from memory_contract.entries import EntryIds
from memory_contract.history import OpName


class ProgramBuilder:
    """Builds the programs of a race, drawn from the seed."""

    def __init__(self, context: CaseContext) -> None:
        self._context = context
        self._ids: dict[str, Any] = {}

    def append(self, worker: str, session: str, batch: int = 1, **options: Any) -> Call:
        """An append of new entries."""
        ids = self._ids.setdefault(worker, EntryIds(worker))
        drawn = ids.draw(batch, pairs=self._context.adapter.pairs)
        return Call(op="append", session=session, ids=drawn, **options)

    def writer(
        self, worker: str, sessions: Sequence[str], appends: int, *, batch: int = 1
    ) -> Program:
        """Appends to the sessions, by chance, and reads every now and then."""
        chance, calls = self._context.random, []
        for _ in range(appends):
            session = chance.choice(sessions)
            calls.append(self.append(worker, session, batch))
            if chance.random() < 0.4:
                calls.append(Call(op="read", session=session))
        calls.append(Call(op="read", session=sessions[0]))
        return Program(worker, tuple(calls))

    def changer(self, worker: str, session: str, changes: Iterable[Call]) -> Program:
        """Makes changes, with a read after each."""
        read = Call(op="read", session=session)
        return Program(worker, tuple(call for change in changes for call in (change, read)))


@case("concurrency", catches="read-modify-write: the second writer erases the first one's turn")
def append_storm(context: CaseContext) -> None:
    """Four writers append to two sessions and read them meanwhile."""
    context.open()
    sessions, writing = [context.new_session(), context.new_session()], ProgramBuilder(context)
    context.race([writing.writer(f"w{n}", sessions, 16) for n in range(4)])
    context.read_with_fresh_client(sessions)


@case("concurrency", catches="a batch that is half there, or has a stranger in the middle")
def batch_storm(context: CaseContext) -> None:
    """Four writers append whole batches to one session while two readers watch."""
    if not context.adapter.batches:
        raise CaseNotClaimed("the store takes one message at a time: there are no batches to tear")
    context.open()
    session, writing = context.new_session(), ProgramBuilder(context)
    watching = tuple(Call(op="read", session=session) for _ in range(12))
    programs = [
        writing.writer(f"w{n}", [session], 6, batch=context.adapter.at_once(4)) for n in range(4)
    ]
    context.race([*programs, Program("r0", watching), Program("r1", watching)])
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="tables made twice: those who open a fresh store at once fail or lose",
    reach="process",
    modes=("threads", "processes"),
)
def first_open_race(context: CaseContext) -> None:
    """Six workers open a store that nobody opened before, and append at once."""
    session, writing = context.new_session(), ProgramBuilder(context)
    context.race([writing.writer(f"w{n}", [session], 3) for n in range(6)], own_handles=True)
    context.read_with_fresh_client([session])


@case("concurrency", catches="two beginnings of one session, of which one is lost")
def first_append_race(context: CaseContext) -> None:
    """Four workers write the first entries of the same new sessions, all in the same order."""
    context.open()
    sessions, writing = [context.new_session() for _ in range(6)], ProgramBuilder(context)
    context.race(
        [
            Program(
                worker,
                tuple(
                    call
                    for session in sessions
                    for call in (writing.append(worker, session), Call(op="read", session=session))
                ),
            )
            for worker in ("w0", "w1", "w2", "w3")
        ]
    )
    context.read_with_fresh_client(sessions)


@case("concurrency", catches="two pops that return the same entry", needs=["pop"])
def pop_race(context: CaseContext) -> None:
    """Four workers pop a session empty, and each of its entries comes out once."""
    store, session = context.open(), context.new_session()
    for _ in range(20):
        store.append(session)
    pops = tuple(Call(op="pop", session=session) for _ in range(6))
    context.race([Program(f"w{n}", pops) for n in range(4)])
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="an answer before the write: another handle does not see what was acknowledged",
    reach="process",
    overlaps=False,
)
def read_after_write_elsewhere(context: CaseContext) -> None:
    """What one handle was told is stored, another handle reads at once, to and fro."""
    here = context.open()
    there = context.open_in_process() if context.mode == "processes" else context.open()
    session = context.new_session()
    for _ in range(12):
        here.append(session)
        there.read(session)
        there.append(session)
        here.read(session)


@case(
    "concurrency",
    catches="entries that come back after a clear, or go with it",
    needs=["clear"],
)
def clear_against_append(context: CaseContext) -> None:
    """One worker clears a session again and again while two append to it."""
    _change_against_append(context, [Call(op="clear", session="") for _ in range(4)])


@case("concurrency", catches="a trim that takes what was appended meanwhile", needs=["trim"])
def trim_against_append(context: CaseContext) -> None:
    """One worker trims a session again and again while two append to it."""
    _change_against_append(
        context, [Call(op="trim", session="", keep=keep) for keep in (6, 3, 6, 2)]
    )


@case(
    "concurrency",
    catches="a rollback that takes along what was appended after it",
    needs=["snapshot", "rollback"],
)
def rollback_against_append(context: CaseContext) -> None:
    """One worker rolls a session back again and again while two append to it."""
    _change_against_append(context, [Call(op="rollback", session="", snapshot="s1")] * 4)


def _change_against_append(context: CaseContext, changes: Sequence[Call]) -> None:
    store, session, writing = context.open(), context.new_session(), ProgramBuilder(context)
    for _ in range(3):
        store.append(session)
    if any(change.op == "rollback" for change in changes):
        assert store.snapshot(session) == "s1"
        store.append(session)
    here = [replace(change, session=session) for change in changes]
    writers = [writing.writer(f"w{n}", [session], 8) for n in range(2)]
    context.race([writing.changer("w2", session, here), *writers])
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="a snapshot of no moment: half a batch, or an entry that came later",
    needs=["snapshot", "rollback"],
)
def snapshot_against_append(context: CaseContext) -> None:
    """One worker takes snapshots while two append batches; later each is rolled back to."""
    store, session, writing = context.open(), context.new_session(), ProgramBuilder(context)
    store.append(session)
    names = [context.new_name("s") for _ in range(4)]
    takes = [Call(op="snapshot", session=session, snapshot=name) for name in names]
    writers = [
        writing.writer(f"w{n}", [session], 6, batch=context.adapter.at_once(3)) for n in range(2)
    ]
    context.race([writing.changer("w2", session, takes), *writers])
    store.read(session)
    for name in [*names, names[0]]:
        store.rollback(session, name)
        store.read(session)


@case("concurrency", catches="a fork of no moment, or one that leaks", needs=["fork"])
def fork_against_append(context: CaseContext) -> None:
    """One worker forks a session while two append batches to it; the forks are real moments."""
    store, session, writing = context.open(), context.new_session(), ProgramBuilder(context)
    store.append(session)
    targets = [context.new_session() for _ in range(3)]
    forks = [Call(op="fork", session=session, target=target) for target in targets]
    writers = [
        writing.writer(f"w{n}", [session], 6, batch=context.adapter.at_once(3)) for n in range(2)
    ]
    context.race([writing.changer("w2", session, forks), *writers])
    for target in targets:
        store.append(target)
    context.read_with_fresh_client([session, *targets])


@case("concurrency", catches="a key that is looked up first and doubled then", needs=["keys"])
def same_key_from_many(context: CaseContext) -> None:
    """Four workers append the same entries with the same keys, as retries do; each stands once."""
    context.open()
    session, writing = context.new_session(), ProgramBuilder(context)
    appends = [writing.append("k", session, key=f"key-{n}") for n in range(8)]
    calls = tuple(call for append in appends for call in (append, Call(op="read", session=session)))
    context.race([Program(f"w{n}", calls) for n in range(4)])
    context.read_with_fresh_client([session])


@case("concurrency", catches="two writers who both expected to be the first", needs=["expected"])
def one_expected_wins(context: CaseContext) -> None:
    """Four workers append and expect the same version, round after round; one of them may."""
    store, session, writing = context.open(), context.new_session(), ProgramBuilder(context)
    store.append(session)
    for _ in range(5):
        version = store.ask("version", session)
        before = len(context.history)
        context.race(
            [
                Program(
                    worker,
                    (
                        writing.append(worker, session, expected=version),
                        Call(op="read", session=session),
                    ),
                )
                for worker in ("w0", "w1", "w2", "w3")
            ]
        )
        _expect_one_winner(context, session, before)
    context.read_with_fresh_client([session])


def _expect_one_winner(context: CaseContext, session: str, before: int) -> None:
    appends = [op for op in context.history[before:] if op.op == "append"]
    winners = [op for op in appends if op.outcome == "ok"]
    if len(winners) > 1:
        names = " and ".join(op.worker for op in winners)
        context.fail(
            "stale write accepted",
            f"{names} expected the same version of {session} and both were acknowledged",
            session=session,
        )
    if not winners:
        raise CaseVacuous("no writer was let in, although nobody else had written")


@case(
    "concurrency",
    catches="a save that quietly does nothing when many come at once",
    overlaps=False,
)
def gathered_turns_all_land(context: CaseContext) -> None:
    """Many workers save one turn each at the same moment; all of them are there afterwards."""
    context.open()
    session, writing = context.new_session(), ProgramBuilder(context)
    many = 8 if context.mode == "processes" else 24
    batch = context.adapter.at_once(2)
    context.race(
        [Program(f"w{n}", (writing.append(f"w{n}", session, batch),)) for n in range(many)]
    )
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="one user's words in another user's session",
    overlaps=False,
)
def gathered_sessions_stay_apart(context: CaseContext) -> None:
    """Conversations of many users go on at the same moment, and none hears of another."""
    store, writing = context.open(), ProgramBuilder(context)
    users = [context.new_session() for _ in range(6)]
    for session in users:
        store.append(session)
    context.race([writing.writer(f"w{n}", [session], 4) for n, session in enumerate(users)])
    context.read_with_fresh_client(users)


@case("concurrency", catches="any two operations that do not mix")
def mixed_storm(context: CaseContext) -> None:
    """Three workers do all that the store claims, by chance, on two small sessions."""
    store, writing, chance = context.open(), ProgramBuilder(context), context.random
    sessions = [context.new_session(), context.new_session()]
    snapshots: dict[str, list[str]] = {session: [] for session in sessions}
    claimed: list[OpName] = [op for op in ("pop", "trim", "clear") if context.adapter.claims([op])]
    for session in sessions:
        store.append(session)
        if context.adapter.claims(["snapshot", "rollback"]):
            snapshots[session].append(store.snapshot(session))
            claimed.append("rollback")
    programs = []
    for worker in ("w0", "w1", "w2"):
        calls: list[Call] = []
        for _ in range(8):
            session = chance.choice(sessions)
            if claimed and chance.random() < 0.25:
                op = chance.choice(claimed)
                kept = snapshots[session][0] if op == "rollback" else None
                calls.append(Call(op=op, session=session, keep=2, snapshot=kept))
            else:
                calls.append(writing.append(worker, session))
            calls.append(Call(op="read", session=session))
        programs.append(Program(worker, tuple(calls)))
    context.race(programs)
    context.read_with_fresh_client(sessions)
