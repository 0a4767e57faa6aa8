"""Step 10: a store that claims to keep the newest n entries shows no more than those.

That it shows them all is asked by the other steps: to them, such a store is one of which every read
asks for the newest n, and of which an append may drop what is older.
"""

from __future__ import annotations

from memory_contract.checker.events import SessionHistory
from memory_contract.checker.verdict import Anomaly, format_ids, is_


def check_window(session: SessionHistory) -> list[Anomaly]:
    """Reads that show entries behind which as many stand as the store keeps."""
    keep, found = session.keeps_last, []
    if keep is None:
        return []
    for read in session.reads:
        old = (read.value or ())[:-keep]
        if old:
            proof = (
                f"{format_ids(old)} {is_(old)} shown to {read.worker} with {keep} newer entries,"
                f" and the store claims to keep the last {keep}."
            )
            witness = (session.entries[old[-1]].event.op, read)
            found.append(Anomaly("resurrected entry", session.name, tuple(old), witness, proof))
    return found
