"""One caller at a time: what was said comes back, once, in order."""

from __future__ import annotations

from indelible.contract.cases import case
from indelible.contract.room import Room


@case("sequential", catches="nothing is read back")
def append_then_read(room: Room) -> None:
    """Append one entry and read it back."""
    store, session = room.open(), room.session()
    said = store.append(session)
    room.expect(
        store.read(session) == said,
        "lost append",
        "what was just appended does not come back",
        session=session,
    )
