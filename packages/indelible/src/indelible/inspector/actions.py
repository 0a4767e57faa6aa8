"""The changes that `--write` allows. Each is previewed, confirmed, and refused on an old page."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

from indelible.errors import SessionNotFoundError, UsageError
from indelible.inspector.pages import Fields, Shown, get_field, parse_position, read_extents
from indelible.inspector.rows import build_rows
from indelible.inspector.templating import build_link
from indelible.model import Status, ViewChange
from indelible.store_async import AsyncMemoryStore
from indelible.view import from_positions, take_last

# Entries that a preview shows; it counts the others.
PREVIEW_ENTRIES: Final = 50
# Forms that are recognised when they are sent again.
SENT_MAX: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A change: the label of its button, its fields, and what is shown afterwards."""

    title: str
    # The message on the next page.
    done: str
    takes: tuple[str, ...] = ()
    # It cannot be undone: a box must be ticked.
    final: bool = False


ACTIONS: Final = {
    "rollback": Action(
        title="Roll back",
        done="Rolled back. What was hidden can be brought back by an undo.",
        takes=("snapshot",),
    ),
    "undo": Action(title="Undo the newest change", done="Undone."),
    "redo": Action(title="Redo what was undone", done="Redone."),
    "snapshot": Action(title="Save a snapshot", done="The snapshot was saved."),
    "fork": Action(title="Fork into a new session", done="This is the copy.", takes=("snapshot",)),
    "retract": Action(title="Retract a memory", done="Retracted.", takes=("memory",)),
    "forget": Action(
        title="Erase this session for good", done="The session was erased.", final=True
    ),
}
VIEW_CHANGES: Final = ("rollback", "undo", "redo")


@dataclass(kw_only=True, slots=True)
class Actions:
    """Previews and performs changes of a store."""

    store: AsyncMemoryStore
    # The page that followed each of the newest forms. Each form has a unique key.
    sent: dict[frozenset[tuple[str, str]], str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def preview(self, fields: Fields) -> Shown:
        """Show what a change would do; `expected` is the version that it applies to."""
        name, action = _find_action(fields)
        session = get_field(fields, "id")
        info = await self.store.session(session)
        if info.status is not Status.ACTIVE:
            raise SessionNotFoundError(f"there is no session {session!r}", session=session)
        shown: Shown = {
            "info": info,
            "name": name,
            "action": action,
            "taken": {field: fields.get(field, "") for field in action.takes},
            "expected": info.version,
            "key": secrets.token_urlsafe(16),
            "change": None,
            "rows": [],
            "memory": None,
        }
        if name in VIEW_CHANGES:
            change = await self._change_view(name, fields, dry_run=True)
            shown |= {"change": change, "expected": change.version}
            shown["rows"] = await self._preview_rows(session, change)
        if name == "retract":
            memory = await self.store.get_memory(session, get_field(fields, "memory"))
            if memory is None:
                raise UsageError("this memory does not exist any more: nothing to retract")
            shown |= {"memory": memory, "expected": str(memory.position)}
        return shown

    async def perform(self, fields: Fields) -> str:
        """Make the change, unless the session changed since the preview; return the next page.

        A form that is sent twice, as by a double click, is one change.
        """
        form = frozenset(fields.items())
        async with self.lock:
            if form not in self.sent:
                self.sent[form] = await self._perform(fields)
                while len(self.sent) > SENT_MAX:
                    del self.sent[next(iter(self.sent))]
            return self.sent[form]

    async def _perform(self, fields: Fields) -> str:
        name, action = _find_action(fields)
        if action.final and fields.get("sure") != "yes":
            raise UsageError("nothing was erased: tick the box if you are sure")
        session, expected = get_field(fields, "id"), get_field(fields, "expected")
        match name:
            case "fork":
                session, at = get_field(fields, "new_id"), fields.get("snapshot") or None
                await self.store.fork(get_field(fields, "id"), session, at=at, expected=expected)
            case "retract":
                memory, version = get_field(fields, "memory"), parse_position(expected)
                await self.store.retract(session, memory, expected=version)
                return build_link("/memory", id=session, memory=memory, done=name)
            case "snapshot":
                label = fields.get("label", "").strip() or None
                await self.store.save_snapshot(session, label=label, expected=expected)
            case "forget":
                await self.store.forget(session, expected=expected)
                return build_link("/", done=name)
            case _:
                key = get_field(fields, "key")
                await self._change_view(name, fields, expected=expected, key=key)
        return build_link("/session", id=session, done=name)

    async def _change_view(self, name: str, fields: Fields, **options: Any) -> ViewChange:
        session = get_field(fields, "id")
        if name == "rollback":
            snapshot = get_field(fields, "snapshot")
            return await self.store.rollback_to_snapshot(session, snapshot, **options)
        return await (self.store.undo if name == "undo" else self.store.redo)(session, **options)

    async def _preview_rows(self, session: str, change: ViewChange) -> list[Any]:
        """Build rows of the entries that would be shown or hidden, with their signs."""
        restored = set(change.restored)
        page = take_last(from_positions((*change.dropped, *change.restored)), PREVIEW_ENTRIES)
        rows = build_rows(await read_extents(self.store, session, page))
        for row in rows:
            row.sign = "+" if row.position in restored else "-"
        return rows


def _find_action(fields: Fields) -> tuple[str, Action]:
    name = get_field(fields, "do")
    if name not in ACTIONS:
        raise UsageError("there is no such change")
    return name, ACTIONS[name]
