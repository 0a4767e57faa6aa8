"""Steps 0 and 1: the record is sound, and every id that was seen is one that could be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from memory_contract.checker.events import Event, SessionHistory, find_origins
from memory_contract.checker.verdict import Anomaly, Name, quote_name
from memory_contract.history import CORRUPTED, Ids, Operation, find_problem


def find_harness_error(operations: list[Operation]) -> str | None:
    """Why the record cannot be judged at all; None if it can."""
    owner: dict[str, tuple[str, str | None, Ids]] = {}
    keys: dict[tuple[str, str, str], Ids] = {}
    lanes: dict[str, list[Operation]] = {}
    for op in operations:
        if problem := find_problem(op):
            return f"an operation of {op.worker} is wrong: {problem}"
        if op.op != "expire":
            lanes.setdefault(op.worker, []).append(op)
        if op.key is not None and keys.setdefault((op.session, op.op, op.key), op.ids) != op.ids:
            name = quote_name(op.session)
            return f"key {op.key} of session {name} was used for two different batches"
        if op.op == "append":
            mark = (op.session, op.key, op.ids)
            if len(set(op.ids)) < len(op.ids):
                return f"a batch of {op.worker} holds one id twice"
            for id_ in op.ids:
                if owner.setdefault(id_, mark) is not mark and (
                    op.key is None or owner[id_] != mark
                ):
                    return f"id {id_} was appended twice without a common key"
    return _find_overlap_in_lane(lanes)


def _find_overlap_in_lane(lanes: dict[str, list[Operation]]) -> str | None:
    for worker, ops in lanes.items():
        ops.sort(key=lambda op: (op.invoke_ns, op.complete_ns or 0))
        end = -1
        for op in ops:
            if op.invoke_ns < end:
                return f"worker {worker} had two operations open at once"
            # A call that never came back says nothing about its worker's next life.
            end = op.complete_ns or end
    return None


def is_key_outlived(session: SessionHistory, sessions: dict[str, SessionHistory]) -> bool:
    """Whether a key may have been forgotten between two attempts, here or before a fork."""
    return any(_has_outlived_key(each) for each in (session, *find_origins(session, sessions)))


def _has_outlived_key(session: SessionHistory) -> bool:
    expiries = session.of("expire")
    return any(
        len(event.attempts) > 1
        and any(
            expiry.within(event.lo, max(Event(op).hi for op in event.attempts))
            for expiry in expiries
        )
        for events in session.events.values()
        for event in events
    )


def find_strange_ids(session: SessionHistory, sessions: dict[str, SessionHistory]) -> list[Anomaly]:
    """Every id that cannot stand where it was seen; what holds one is left out of later steps."""
    found: list[Anomaly] = []
    for op, ids in _iter_suspects(session):
        if anomalies := list(_find_strange(op, ids, session, sessions)):
            found += anomalies
            session.reads = [read for read in session.reads if read is not op]
            session.contents = [c for c in session.contents if c[2] is not op]
    return found


def _iter_suspects(session: SessionHistory) -> Iterator[tuple[Operation, Ids]]:
    """Each sighting in which something is strange at first sight; the common case is quick."""
    entries = session.entries
    arrivals = {id_: entry.lo for id_, entry in entries.items()}
    everything: Iterable[tuple[Operation, Ids]] = [
        *((op, op.value) for op in session.reads if isinstance(op.value, tuple)),
        *((op, ids) for _, ids, op in session.contents),
        *((e.op, (e.op.value,)) for e in session.of("pop") if isinstance(e.op.value, str)),
    ]
    for op, ids in everything:
        if not ids:
            continue
        known = arrivals.keys() >= set(ids)
        twice = len(set(ids)) < len(ids)
        if not known or twice or max(map(arrivals.__getitem__, ids)) > (op.complete_ns or 0):
            yield op, ids


def _find_strange(
    op: Operation, ids: Ids, session: SessionHistory, sessions: dict[str, SessionHistory]
) -> Iterator[Anomaly]:
    name, entries = session.name, session.entries
    for id_, times in Counter(ids).items():
        entry = entries.get(id_)
        if entry is None:
            yield _build_unknown(op, id_, session, sessions)
        elif entry.lo > (op.complete_ns or 0) >= entry.event.lo:
            yield _build_leak(op, id_, entry.event.op, name)
        elif entry.lo > (op.complete_ns or 0):
            proof = f"{id_} was seen by {op.worker} before its append was invoked."
            yield Anomaly("future read", name, (id_,), (op, entry.event.op), proof)
        elif times > 1:
            tried = entry.event.attempts
            again = len(tried) > 1
            how = f"{len(tried)} attempts with one key" if again else "one append"
            proof = f"{id_} stands {times} times in what {op.worker} saw; it came from {how}."
            kind: Name = "duplicate after retry" if again else "duplicate"
            yield Anomaly(kind, name, (id_,), (*tried, op), proof)


def _build_unknown(
    op: Operation, id_: str, session: SessionHistory, sessions: dict[str, SessionHistory]
) -> Anomaly:
    name = session.name
    if id_.startswith(CORRUPTED):
        whole = id_.removeprefix(CORRUPTED)
        origin = session.entries.get(whole)
        witness = (origin.event.op, op) if origin else (op,)
        proof = f"{whole} came back to {op.worker} with another checksum or type than it had."
        return Anomaly("corrupted entry", name, (whole,), witness, proof)
    if (failed := session.failed.get(id_)) is not None:
        proof = f"{id_} was seen by {op.worker}, but its append was reported as failed."
        return Anomaly("aborted read", name, (id_,), (failed, op), proof)
    for other in sessions.values():
        found = other.entries.get(id_)
        origin_op = found.event.op if found else other.failed.get(id_)
        if other is not session and origin_op is not None:
            return _build_leak(op, id_, origin_op, name)
    proof = f"{id_} was seen by {op.worker}, and nobody ever appended it."
    return Anomaly("garbage read", name, (id_,), (op,), proof)


def _build_leak(op: Operation, id_: str, origin: Operation, name: str) -> Anomaly:
    proof = (
        f"{id_} was appended to session {quote_name(origin.session)} and seen in"
        f" {quote_name(name)}; "
        "no fork could have brought it there."
    )
    return Anomaly("cross-session leak", name, (id_,), (origin, op), proof)
