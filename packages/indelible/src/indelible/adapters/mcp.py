"""indelible as a server of the Model Context Protocol: memory as tools, over stdio.

indelible mcp agent.db --session user-42

The model is not trusted: it works on one session, cannot store system messages, undoes and retracts
only what was done through these tools, and gets answers of limited size. The session is also the
collection of its memories.
"""

from __future__ import annotations

import functools
import inspect
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Literal, ParamSpec, TypeVar

from indelible import (
    AsyncMemoryStore,
    Entries,
    Entry,
    MemoryStoreError,
    Snapshot,
    UsageError,
    __version__,
)
from indelible.adapters.conversations import get_message, iter_pages, retry
from indelible.adapters.forms import get_text
from indelible.core.extras import need_extra
from indelible.core.limits import (
    MCP_ANSWER_CHARS_MAX,
    MCP_ITEMS_MAX,
    MCP_TEXT_CHARS_MAX,
)
from indelible.core.plans.view_changes import find_snapshot
from indelible.core.redaction import redact
from indelible.model import (
    Change,
    Kind,
    Memory,
    Status,
    StoredMemory,
    Summary,
    Timeline,
    ViewChange,
)
from indelible.view import iter_positions

with need_extra("mcp"):
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        # Its name until 2.0.
        from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[attr-defined, no-redef]
        from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found, no-redef]

# The prefix of all keys and ids of memories that are used here. So a model can neither use a key of
# the application, nor replace its memories, nor undo changes of others, also after a restart.
KEY_PREFIX: Final = "mcp:"
INSTRUCTIONS: Final = """\
Memory that is not lost. Facts: remember what stays true, recall it in any later conversation, and \
retract what has become wrong. Conversation: add_message stores what was said, and history and \
search read it back. Take a snapshot before something risky; rollback shows that state again, of \
facts and conversation, and undo takes a rollback back. Nothing is ever deleted by these tools. \
Answers are limited in size: where there is more, they say how to get it."""

P = ParamSpec("P")
T = TypeVar("T")
# Without "system": text of a model must not become an instruction for the next one.
Role = Literal["user", "assistant", "tool"]
Item = dict[str, Any]
_READABLE: Final = (Kind.MESSAGE, Kind.SUMMARY)


def build_server(
    store: AsyncMemoryStore, *, session: str, any_session: bool = False
) -> MCPServer[Any]:
    """Build a server whose tools work on one session of a store, or on all with `any_session`."""
    options: dict[str, Any] = {"instructions": INSTRUCTIONS, "log_level": "ERROR"}
    if "version" in inspect.signature(MCPServer).parameters:
        # Servers before 2.0 report the version of the package mcp.
        options["version"] = __version__
    server = MCPServer("indelible", **options)
    for tool in Tools(store, session, any_session=any_session).list_tools():
        server.tool()(_report_errors(tool))
    return server


def _report_errors(tool: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Wrap a tool so that errors of the store are reported to the model."""

    @functools.wraps(tool)
    async def call(*given: P.args, **named: P.kwargs) -> T:
        try:
            return await tool(*given, **named)
        except MemoryStoreError as error:
            raise ToolError(redact(str(error))[:MCP_TEXT_CHARS_MAX]) from error

    return call


class Tools:
    """The tools; their names, parameters and docstrings are what a model sees."""

    def __init__(self, store: AsyncMemoryStore, session: str, *, any_session: bool = False) -> None:
        self._store = store
        self._session = session
        self._any_session = any_session

    def list_tools(self) -> list[Any]:
        """List the tools."""
        return [
            self.remember,
            self.recall,
            self.retract,
            self.add_message,
            self.history,
            self.read,
            self.search,
            self.snapshot,
            self.snapshots,
            self.rollback,
            self.undo,
        ]

    def _check_session(self, session: str) -> str:
        """Return the session of a call, or raise if the model may not use it."""
        name = session or self._session
        if name != self._session and not self._any_session:
            raise UsageError(
                f"this server works on session {self._session!r} alone: nothing was done. Leave"
                " session out"
            )
        return name

    async def remember(self, text: str, id: str = "", session: str = "") -> dict[str, Any]:  # noqa: A002 (what a model calls it)
        """Remember a fact. It is safe on disk when this returns.

        With the id of one that you remembered before, it takes the place of that one.
        """
        name = self._check_session(session)
        if not text.strip() or len(text) > MCP_TEXT_CHARS_MAX:
            raise UsageError(
                f"a memory is a text of 1 to {MCP_TEXT_CHARS_MAX} characters, not {len(text)}:"
                " nothing was done"
            )
        own_id = id or secrets.token_hex(4)
        receipt = await self._store.remember(name, text, id=KEY_PREFIX + own_id)
        return {"session": name, "id": own_id, "position": receipt.positions[0]}

    async def recall(
        self, query: str = "", limit: int = 10, skip: int = 0, session: str = ""
    ) -> dict[str, Any]:
        """The remembered facts that fit a query best; without one all, newest first.

        Those without an id are not yours: you cannot replace or retract them.
        Where more are left, the answer says `skip`: give it back to get those.
        """
        name, count, start = (
            self._check_session(session),
            _check_count(limit, "limit"),
            max(0, skip),
        )
        if query.strip():
            hits = await self._store.search(
                query, sessions=[name], kinds=[Kind.MEMORY], k=count + 1, offset=start
            )
            found: list[Entry] | list[Memory] = [hit.entry for hit in hits]
        else:
            found = (await self._list_memories(name))[start : start + count + 1]
        items, taken = _take_fitting(map(_build_memory_item, found[:count]))
        answer: dict[str, Any] = {"session": name, "memories": items}
        if taken < len(found):
            answer["skip"] = start + taken
        return answer

    async def _list_memories(self, session: str) -> list[Memory]:
        """List all memories, newest first."""
        pages = iter_pages(functools.partial(self._store.list_memories, session))
        found = [memory async for page in pages for memory in page]
        return sorted(found, key=lambda memory: memory.position, reverse=True)

    async def retract(self, id: str, session: str = "") -> dict[str, Any]:  # noqa: A002
        """Take back a fact that you remembered: it is not recalled any more."""
        name = self._check_session(session)
        receipt = await self._store.retract(name, KEY_PREFIX + id)
        return {"session": name, "id": id, "retracted": len(receipt.positions) > 0}

    async def add_message(
        self, content: str, role: Role = "user", session: str = "", key: str = ""
    ) -> dict[str, Any]:
        """Store a message. It is safe on disk when this returns.

        With a key of your own, doing the same again stores nothing twice.
        """
        name = self._check_session(session)
        receipt = await self._store.add_message(
            name, role, content, key=f"{KEY_PREFIX}{key}" if key else None
        )
        return {
            "session": name,
            "position": receipt.positions[0],
            "already_there": receipt.replayed,
        }

    async def history(self, last: int = 20, before: int = -1, session: str = "") -> dict[str, Any]:
        """The newest messages of a session, oldest of them first.

        Where older ones are left, the answer says `before`: give it back to get those.
        """
        name, count = self._check_session(session), _check_count(last, "last")
        if before < 0:
            found = await self._store.get_entries(name, kinds=[Kind.MESSAGE], last=count + 1)
            status, entries = found.status, list(found)
        else:
            status, entries = await self._read_before(name, count + 1, before)
        items, taken = _take_fitting(map(_build_item, reversed(entries[-count:])))
        answer: dict[str, Any] = {"session": name, "status": status.value, "messages": items[::-1]}
        if taken < len(entries):
            answer["before"] = items[-1]["position"]
        return answer

    async def _read_before(
        self, session: str, count: int, before: int
    ) -> tuple[Status, list[Entry]]:
        newest: deque[Entry] = deque(maxlen=count)
        async for page in self._iter_entries(session, [Kind.MESSAGE]):
            newest.extend(entry for entry in page if entry.position < before)
            if page and page[-1].position >= before:
                break
        return page.status, list(newest)

    def _iter_entries(self, session: str, kinds: Sequence[Kind]) -> AsyncIterator[Entries]:
        return iter_pages(functools.partial(self._store.get_entries, session, kinds=kinds))

    async def read(self, position: int, offset: int = 0, session: str = "") -> dict[str, Any]:
        """One message or summary, where history or search showed only its beginning.

        Where more is left, the answer says `offset`: give it back to get the rest.
        """
        name = self._check_session(session)
        async for page in self._iter_entries(name, _READABLE):
            if page and page[-1].position >= position:
                break
        entry = next((each for each in page if each.position == position), None)
        if entry is None:
            raise UsageError(f"session {name!r} shows nothing at position {position}")
        role, text = _get_role_and_text(entry)
        end = max(0, offset) + MCP_TEXT_CHARS_MAX
        answer: dict[str, Any] = {"session": name, "position": position, "role": role}
        answer["content"] = text[max(0, offset) : end]
        if end < len(text):
            answer["offset"] = end
        return answer

    async def search(
        self, query: str, limit: int = 10, before: int = -1, session: str = ""
    ) -> dict[str, Any]:
        """Messages and summaries of a session that hold every word of the query, newest first.

        Where older ones are left, the answer says `before`: give it back to get those.
        """
        name, words = self._check_session(session), query.casefold().split()
        count = _check_count(limit, "limit")
        if not words:
            raise UsageError("query names at least one word to look for")
        newest: deque[Entry] = deque(maxlen=count + 1)
        found = 0
        async for page in self._iter_entries(name, _READABLE):
            for entry in page:
                if all(word in _get_role_and_text(entry)[1].casefold() for word in words):
                    found += 1
                    if before < 0 or entry.position < before:
                        newest.append(entry)
        matches = list(newest)[::-1]
        items, taken = _take_fitting(map(_build_item, matches[:count]))
        answer: dict[str, Any] = {"session": name, "found": found, "matches": items}
        if taken < len(matches):
            answer["before"] = items[-1]["position"]
        return answer

    async def snapshot(self, label: str = "", session: str = "") -> dict[str, Any]:
        """Save the current state of a session, so that rollback can restore it."""
        name = self._check_session(session)
        taken = await self._store.save_snapshot(name, label=label or None)
        return {"session": name, "snapshot_id": taken.id, "entries": taken.entries}

    async def snapshots(self, last: int = 20, skip: int = 0, session: str = "") -> dict[str, Any]:
        """The newest snapshots of a session, oldest of them first.

        Where older ones are left, the answer says `skip`: give it back to get those.
        """
        name, count = self._check_session(session), _check_count(last, "last")
        newest = (await self._store.list_snapshots(name))[::-1]
        start = max(0, skip)
        found = [
            {
                "snapshot_id": each.id,
                "label": each.label,
                "taken_at": each.taken_at.isoformat(),
                "entries": each.entries,
            }
            for each in newest[start : start + count]
        ]
        found, _ = _take_fitting(found, "label")
        answer: dict[str, Any] = {"session": name, "snapshots": found[::-1]}
        if start + len(found) < len(newest):
            answer["skip"] = start + len(found)
        return answer

    async def rollback(self, snapshot_id: str, session: str = "") -> dict[str, Any]:
        """Show exactly what a snapshot froze. Later messages are hidden, not deleted.

        `snapshot_id` may also be a label, or "latest". It does not bring back
        what others than you have hidden since.
        """
        name = self._check_session(session)

        async def change(timeline: Timeline, key: str) -> ViewChange:
            snapshot = find_snapshot(name, timeline.snapshots, snapshot_id)
            _refuse_foreign_rollback(timeline, snapshot)
            return await self._store.rollback_to_snapshot(
                name, snapshot.id, key=key, expected=timeline.info.version
            )

        return await self._change_view(name, change)

    async def undo(self, session: str = "") -> dict[str, Any]:
        """Take back the newest rollback that was done with these tools."""
        name = self._check_session(session)

        async def change(timeline: Timeline, key: str) -> ViewChange:
            newest = timeline.undo
            if newest is None or not _is_ours(newest):
                by = "none" if newest is None else f"a {newest.change} by another writer"
                raise UsageError(
                    f"the newest change of session {name!r} is {by}: there is nothing to undo here,"
                    " and nothing was changed"
                )
            return await self._store.undo(name, key=key, expected=timeline.info.version)

        return await self._change_view(name, change)

    async def _change_view(
        self, session: str, change: Callable[[Timeline, str], Awaitable[ViewChange]]
    ) -> dict[str, Any]:
        """Change the view, based on the state that was read; read again if it changed."""

        async def attempt() -> ViewChange:
            timeline = await self._store.timeline(session)
            return await change(timeline, KEY_PREFIX + secrets.token_hex(8))

        done = await retry(session, attempt)
        return {
            "session": session,
            "hidden": len(done.dropped),
            "shown_again": len(done.restored),
        }


def _is_ours(change: Change) -> bool:
    return change.key.startswith(KEY_PREFIX)


def _refuse_foreign_rollback(timeline: Timeline, snapshot: Snapshot) -> None:
    """Raise if a rollback would bring back what an operator or the application hid or retracted."""
    frozen = set(iter_positions(snapshot.extents))
    written = [
        each.entry
        for each in timeline.entries
        if each.visible and each.entry.position not in frozen and isinstance(each.entry, Entry)
    ]
    if any(
        isinstance(entry.value, StoredMemory) and not entry.value.id.startswith(KEY_PREFIX)
        for entry in written
    ):
        raise UsageError(
            f"another writer has remembered or retracted something since snapshot {snapshot.id!r}:"
            " these tools do not take that back, and nothing was changed"
        )
    hidden = {each.entry.position for each in timeline.entries if not each.visible}
    back = hidden & frozen
    # Newest first: the last change that hid a message decides.
    for change in timeline.changes:
        if _is_ours(change):
            back.difference_update(change.dropped)
        elif not back.isdisjoint(change.dropped):
            break
    if back:
        raise UsageError(
            f"snapshot {snapshot.id!r} holds {len(back)} messages that another writer has hidden"
            " since: these tools do not bring them back, and nothing was changed"
        )


def _get_role_and_text(entry: Entry) -> tuple[str, str]:
    """Return the role and the text of an entry."""
    if isinstance(entry.value, Summary):
        return "summary", entry.value.text
    message = get_message(entry)
    return message.role, get_text(message)


def _build_item(entry: Entry) -> Item:
    """Build the item of a message in an answer; long text is cut."""
    role, text = _get_role_and_text(entry)
    return {"position": entry.position, "role": role, **_cut(text)}


def _cut(text: str) -> Item:
    item: Item = {"content": text[:MCP_TEXT_CHARS_MAX]}
    if len(text) > MCP_TEXT_CHARS_MAX:
        item |= {"cut_off": True, "chars": len(text)}
    return item


def _build_memory_item(memory: Entry | Memory) -> Item:
    """Build the item of a memory in an answer; only those of these tools have an id."""
    stored = memory.value if isinstance(memory, Entry) else memory
    assert isinstance(stored, StoredMemory | Memory)
    text = stored.text
    if text is None:
        text = json.dumps(stored.value, ensure_ascii=False)
    item = _cut(text)
    if stored.id.startswith(KEY_PREFIX):
        item["id"] = stored.id.removeprefix(KEY_PREFIX)
    return item | {"written_at": memory.written_at.isoformat(timespec="seconds")}


def _take_fitting(items: Iterable[Item], text: str = "content") -> tuple[list[Item], int]:
    """Take the first items whose texts fit into an answer; return them and their number."""
    fitting: list[Item] = []
    chars = 0
    for item in items:
        chars += len(item[text] or "")
        if fitting and chars > MCP_ANSWER_CHARS_MAX:
            break
        fitting.append(item)
    return fitting, len(fitting)


def _check_count(number: int, what: str) -> int:
    if not 1 <= number <= MCP_ITEMS_MAX:
        raise UsageError(f"{what} is from 1 to {MCP_ITEMS_MAX}, not {number}", value=number)
    return number


async def serve(store: AsyncMemoryStore, *, session: str, any_session: bool = False) -> None:
    """Answer over stdin and stdout until the other side closes them."""
    await build_server(store, session=session, any_session=any_session).run_stdio_async()
