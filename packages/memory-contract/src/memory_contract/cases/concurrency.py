"""Many threads, tasks and processes at once. The checker judges what they recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from memory_contract.calls import Call, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseVacuous
from memory_contract.cases.case import case
from memory_contract.cases.workload import build_append
from memory_contract.history import OpName

WORKERS: Final = ("w0", "w1", "w2", "w3")


def build_writer(
    context: CaseContext, worker: str, sessions: Sequence[str], appends: int, *, batch: int = 1
) -> Program:
    """Appends to the sessions, by chance, and reads every now and then."""
    chance, calls = context.random, []
    for _ in range(appends):
        session = chance.choice(sessions)
        calls.append(build_append(context, session, batch, worker=worker))
        if chance.random() < 0.4:
            calls.append(Call(op="read", session=session))
    return Program(worker, (*calls, Call(op="read", session=sessions[0])))


def build_writers(
    context: CaseContext, count: int, sessions: Sequence[str], appends: int, *, batch: int = 1
) -> list[Program]:
    """So many workers that append to the sessions and read them."""
    return [build_writer(context, f"w{n}", sessions, appends, batch=batch) for n in range(count)]


def read_after_each(worker: str, calls: Sequence[Call]) -> Program:
    """Makes calls, and reads the session after each."""
    reads = [(call, Call(op="read", session=call.session)) for call in calls]
    return Program(worker, tuple(call for both in reads for call in both))


@case("concurrency", catches="read-modify-write: the second writer erases the first one's turn")
def append_storm(context: CaseContext) -> None:
    """Four writers append to two sessions and read them meanwhile."""
    sessions = [context.new_session(), context.new_session()]
    context.race(build_writers(context, 4, sessions, 16))
    context.read_with_fresh_client(sessions)


@case("concurrency", catches="a batch that is torn, or interleaved with another")
def batch_storm(context: CaseContext) -> None:
    """Four writers append whole batches to one session while two readers watch."""
    if not context.adapter.batches:
        raise CaseNotClaimed("the store takes one message at a time: there are no batches to tear")
    session = context.new_session()
    watching = tuple(Call(op="read", session=session) for _ in range(12))
    writers = build_writers(context, 4, [session], 6, batch=4)
    context.race([*writers, Program("r0", watching), Program("r1", watching)])
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="racing schema creation: processes that open a new store at once fail or lose entries",
    reach="process",
    modes=("threads", "processes"),
)
def first_open_race(context: CaseContext) -> None:
    """Six workers open a store that nobody opened before, and append at once."""
    session = context.new_session()
    context.race(build_writers(context, 6, [session], 3), own_handles=True)
    context.read_with_fresh_client([session])


@case("concurrency", catches="a session that two writers create at once, and one loses its entries")
def first_append_race(context: CaseContext) -> None:
    """Four workers write the first entries of the same new sessions, all in the same order."""
    sessions = [context.new_session() for _ in range(6)]
    programs = []
    for worker in WORKERS:
        appends = [build_append(context, session, worker=worker) for session in sessions]
        programs.append(read_after_each(worker, appends))
    context.race(programs)
    context.read_with_fresh_client(sessions)


@case("concurrency", catches="two pops that return the same entry", needs=["pop"])
def pop_race(context: CaseContext) -> None:
    """Four workers pop a session empty, and each of its entries comes out once."""
    store, session = context.open(), context.new_session()
    for _ in range(20):
        store.append(session)
    pops = (Call(op="pop", session=session),) * 2
    # In several races: on a store that locks, the first worker would pop all of its entries alone.
    for _ in range(3):
        context.race([Program(worker, pops) for worker in WORKERS])
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="an early acknowledgement: another handle does not see the entry",
    reach="process",
    overlaps=False,
)
def read_after_write_elsewhere(context: CaseContext) -> None:
    """Append on one handle and read on another at once, in both directions."""
    here = context.open()
    there = context.open_in_process() if context.mode == "processes" else context.open()
    session = context.new_session()
    for writer, reader in ((here, there), (there, here)) * 6:
        # Twice, since an append of its own may clear a reader's cache.
        for _ in range(2):
            writer.append(session)
            reader.read(session)


@case(
    "concurrency",
    catches="entries that come back after a clear, or go with it",
    needs=["clear"],
)
def clear_against_append(context: CaseContext) -> None:
    """One worker appends and clears a session by turns while two append to it."""
    _change_against_append(context, [Call(op="clear", session="")] * 4)


@case("concurrency", catches="a trim that takes what was appended meanwhile", needs=["trim"])
def trim_against_append(context: CaseContext) -> None:
    """One worker appends and trims a session by turns while two append to it."""
    trims = [Call(op="trim", session="", keep=keep) for keep in (6, 3, 6, 2)]
    _change_against_append(context, trims)


@case(
    "concurrency",
    catches="a rollback that takes along what was appended after it",
    needs=["snapshot", "rollback"],
)
def rollback_against_append(context: CaseContext) -> None:
    """One worker appends and rolls a session back by turns while two append to it."""
    _change_against_append(context, [Call(op="rollback", session="", snapshot="s1")] * 4)


def _change_against_append(context: CaseContext, changes: Sequence[Call]) -> None:
    store, session = context.open(), context.new_session()
    for _ in range(3):
        store.append(session)
    if changes[0].op == "rollback":
        assert store.snapshot(session) == "s1"
        store.append(session)
    calls: list[Call] = []
    for change in changes:
        # What it appends takes as long as what others do, so that its changes are spread among it.
        calls += [build_append(context, session, worker="w2"), replace(change, session=session)]
    context.race([read_after_each("w2", calls), *build_writers(context, 2, [session], 8)])
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="a snapshot that is not one state: half a batch, or a later entry",
    needs=["snapshot", "rollback"],
)
def snapshot_against_append(context: CaseContext) -> None:
    """One worker takes snapshots while two append batches; later each is rolled back to."""
    store, session = context.open(), context.new_session()
    store.append(session)
    names = [context.new_name("s") for _ in range(4)]
    takes = [Call(op="snapshot", session=session, snapshot=name) for name in names]
    writers = build_writers(context, 2, [session], 6, batch=3)
    context.race([read_after_each("w2", takes), *writers])
    store.read(session)
    # Snapshots that were refused have no name.
    taken = [name for name in names if name in context.names]
    for name in taken + taken[:1]:
        store.rollback(session, name)
        store.read(session)


@case(
    "concurrency",
    catches="a fork that is not one state of its source, or that leaks",
    needs=["fork"],
)
def fork_against_append(context: CaseContext) -> None:
    """One worker forks a session while two append batches to it; each fork is one state."""
    store, session = context.open(), context.new_session()
    store.append(session)
    targets = [context.new_session() for _ in range(3)]
    forks = [Call(op="fork", session=session, target=target) for target in targets]
    writers = build_writers(context, 2, [session], 6, batch=3)
    context.race([read_after_each("w2", forks), *writers])
    for target in targets:
        store.append(target)
    context.read_with_fresh_client([session, *targets])


@case(
    "concurrency",
    catches="a key that is checked before the write instead of with it",
    needs=["keys"],
)
def same_key_from_many(context: CaseContext) -> None:
    """Four workers append the same entries with the same keys, as retries do; each stands once."""
    session = context.new_session()
    appends = [replace(build_append(context, session), key=f"key-{n}") for n in range(8)]
    context.race([read_after_each(worker, appends) for worker in WORKERS])
    context.read_with_fresh_client([session])


@case("concurrency", catches="two writers that both pass the version check", needs=["expected"])
def one_expected_wins(context: CaseContext) -> None:
    """Four workers append and expect the same version, round after round; one succeeds."""
    store, session = context.open(), context.new_session()
    store.append(session)
    for _ in range(5):
        version = store.ask("version", session)
        before = len(context.history)
        calls = [build_append(context, session, worker=worker) for worker in WORKERS]
        appends = [[replace(call, expected=version)] for call in calls]
        context.race(list(map(read_after_each, WORKERS, appends)))
        made = [op for op in context.history[before:] if op.op == "append"]
        winners = [op.worker for op in made if op.outcome == "ok"]
        if not winners:
            raise CaseVacuous("no writer was let in, although nobody else had written")
        proof = f"{' and '.join(winners)} expected the same version of {session}, and nobody was"
        right = len(winners) == 1
        context.expect(right, "stale write accepted", f"{proof} refused", session=session)
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="an append that is silently dropped under load",
    overlaps=False,
)
def gathered_turns_all_land(context: CaseContext) -> None:
    """Many workers save one turn each at the same moment; all of them are there afterwards."""
    session = context.new_session()
    many = 8 if context.mode == "processes" else 24
    calls = {f"w{n}": build_append(context, session, 2, worker=f"w{n}") for n in range(many)}
    context.race([Program(worker, (call,)) for worker, call in calls.items()])
    context.read_with_fresh_client([session])


@case(
    "concurrency",
    catches="one user's messages in another user's session",
    overlaps=False,
)
def gathered_sessions_stay_apart(context: CaseContext) -> None:
    """Append to the sessions of many users at once: none shows another's entries."""
    store = context.open()
    users = [context.new_session() for _ in range(6)]
    for session in users:
        store.append(session)
    context.race([build_writer(context, f"w{n}", [user], 4) for n, user in enumerate(users)])
    context.read_with_fresh_client(users)


@case("concurrency", catches="any two operations that conflict")
def mixed_storm(context: CaseContext) -> None:
    """Three workers run random claimed operations on two small sessions."""
    store, chance = context.open(), context.random
    sessions = [context.new_session(), context.new_session()]
    snapshots: dict[str, str] = {}
    claimed: list[OpName] = [op for op in ("pop", "trim", "clear") if context.claims(op)]
    for session in sessions:
        store.append(session)
        if context.claims("snapshot", "rollback"):
            snapshots[session] = store.snapshot(session)
            claimed.append("rollback")
    programs = []
    for worker in WORKERS[:3]:
        calls: list[Call] = []
        for _ in range(8):
            session = chance.choice(sessions)
            if claimed and chance.random() < 0.25:
                op = chance.choice(claimed)
                kept = snapshots[session] if op == "rollback" else None
                calls.append(Call(op=op, session=session, keep=2, snapshot=kept))
            else:
                calls.append(build_append(context, session, worker=worker))
        programs.append(read_after_each(worker, calls))
    context.race(programs)
    context.read_with_fresh_client(sessions)
