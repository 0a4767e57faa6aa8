"""Step 3: a batch shows whole or not at all, with nothing of anybody else's inside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from memory_contract.checker.events import Event, SessionHistory, find_origins
from memory_contract.checker.verdict import Anomaly, Name, format_ids, is_
from memory_contract.history import Ids, Operation


def check_batches(session: SessionHistory, sessions: dict[str, SessionHistory]) -> list[Anomaly]:
    """Every sighting that shows a batch torn or mixed."""
    if all(len(entry.event.op.ids) == 1 for entry in session.entries.values()):
        return []
    cutters, whole = session.cutters(), _WholeBatches(session)
    # A forked entry may have been cut before it came.
    elsewhere = any(
        origin.cutters() or origin.keeps_last for origin in find_origins(session, sessions)
    )
    found: list[Anomaly] = []
    for op in session.reads:
        if isinstance(op.value, tuple) and not whole.is_whole(op.value):
            end = op.complete_ns or 0
            by = [cutter for cutter in cutters if cutter.lo <= end]
            found += _find_torn(session, op, op.value, cutters=by, elsewhere=elsewhere)
    for name, ids, op in session.contents:
        if whole.is_whole(ids):
            continue
        taken = [e for e in session.of("snapshot") if e.op.snapshot == name]
        end = max((event.hi for event in taken), default=op.complete_ns or 0)
        by = [cutter for cutter in cutters if cutter.lo <= end]
        found += _find_torn(session, op, ids, cutters=by, elsewhere=elsewhere or not taken)
    return found


def _find_torn(
    session: SessionHistory, op: Operation, ids: Ids, *, cutters: list[Event], elsewhere: bool
) -> Iterator[Anomaly]:
    """One sighting against the batches it shows."""
    places: dict[Event, list[int]] = {}
    for place, id_ in enumerate(ids):
        places.setdefault(session.entries[id_].event, []).append(place)
    for event, at in places.items():
        batch = event.op.ids
        if len(batch) > 1:
            inside = [id_ for id_ in ids[at[0] : at[-1]] if id_ not in batch]
            if inside:
                yield _build_interleaved(session, op, event, inside)
            elif len(at) < len(batch) and not _is_cut_by_limit(session.get_limit(op), ids, batch):
                brought = not session.entries[ids[at[0]]].own
                if not (brought and elsewhere) and not any(c.hi >= event.lo for c in cutters):
                    yield _build_torn(session, op, event, ids)


class _WholeBatches:
    """The common case, quickly: what does not break a batch at its ends or between neighbours."""

    def __init__(self, session: SessionHistory) -> None:
        batches = {entry.event.op.ids for entry in session.entries.values()}
        joined = {pair for batch in batches for pair in pairwise(batch)}
        self.not_first = {then for _, then in joined}
        self.not_last = {first for first, _ in joined}
        seen: set[tuple[str, str]] = set()
        for ids in (*(op.value for op in session.reads), *(ids for _, ids, _ in session.contents)):
            seen.update(pairwise(ids or ()))
        self.broken = {
            pair for pair in seen - joined if pair[0] in self.not_last or pair[1] in self.not_first
        }

    def is_whole(self, ids: Ids) -> bool:
        """Whether a sighting is a row of whole batches."""
        if not ids or ids[0] in self.not_first or ids[-1] in self.not_last:
            return not ids
        return not self.broken or self.broken.isdisjoint(pairwise(ids))


def _is_cut_by_limit(limit: int | None, ids: Ids, batch: Ids) -> bool:
    """A sighting of the last n may begin inside a batch, and shows its end."""
    if limit is None or len(ids) < limit:
        return False
    shown = [id_ for id_ in ids if id_ in batch]
    return ids[0] == shown[0] and tuple(shown) == batch[-len(shown) :]


def _build_interleaved(
    session: SessionHistory, op: Operation, event: Event, inside: list[str]
) -> Anomaly:
    stands = "stands" if len(inside) == 1 else "stand"
    proof = (
        f"{format_ids(inside)} {stands} between the entries of one batch in what {op.worker} saw."
    )
    other = session.entries[inside[0]].event.op
    witness = (event.op, other, op)
    return Anomaly("interleaved batch", session.name, (*event.op.ids, *inside), witness, proof)


def _build_torn(session: SessionHistory, op: Operation, event: Event, ids: Ids) -> Anomaly:
    missing = tuple(id_ for id_ in event.op.ids if id_ not in ids)
    frozen = op.op in {"snapshot", "rollback"} or op.snapshot is not None
    name: Name = "torn snapshot" if frozen else "torn batch"
    where = f"snapshot {op.snapshot}" if frozen else f"what {op.worker} saw"
    proof = (
        f"{format_ids(missing)} {is_(missing)} missing from {where}, which shows the rest of the "
        "batch; no pop or trim could have cut it."
    )
    return Anomaly(name, session.name, missing, (event.op, op), proof)
