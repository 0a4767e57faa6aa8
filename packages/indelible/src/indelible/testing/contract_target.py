"""The contract kit's target for indelible: every backend that `indelible.open` knows, by URL.

A named file is never touched: the kit creates new ones in the same folder, so on the same file
system. On a server it works in namespaces of its own, which it erases afterwards.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import indelible
from indelible.connect import Storage, find_engine, find_file
from indelible.core.limits import BUSY_TIMEOUT_S
from indelible.core.redaction import redact_url
from indelible.session_copy import iter_session_ids
from memory_contract.adapter import CAPABILITIES, Adapter, Message
from memory_contract.calls import format_error
from memory_contract.handles import then
from memory_contract.results import Unreachable
from memory_contract.targets import TargetError

# Suffixes of database files.
FILES: Final = {".db", ".sqlite", ".sqlite3"}
# indelible has no `pop`; its checkpointer has a target of its own.
_OFFERED: Final = frozenset(CAPABILITIES) - {"pop", "pending", "prune"}
# Under faults, calls wait until their deadline; a short one makes the cases faster.
BAD_DAY_TIMEOUT_S: Final = 2.0
# On a busy machine, creating the tables may exceed that deadline: retry.
OPENINGS_MAX: Final = 5
# The audit of the kit's stores, where it asks for one.
AUDIT: Final[dict[str, Any]] = {"audit": True, "audit_key": b"no secret of anybody", "actor": "kit"}
# Dimensions of the embedder of the kit's stores.
VECTOR_SIZE: Final = 16


def find_adapter(target: str) -> Adapter | None:
    """Return the adapter of a target that names a store of indelible; None for any other."""
    if ":" in target:
        ours = target == "memory:" or "://" in target
    else:
        # A database file, not a module without a class.
        ours = Path(target).suffix in FILES or Path(target).is_file()
    if not ours:
        return None
    try:
        return build_adapter(target)
    except indelible.UsageError as error:
        raise TargetError(error.message) from error


def build_adapter(url: str) -> Adapter:
    """Build the adapter of indelible on an engine."""
    opener = OpenUrl(url)
    common: dict[str, Any] = {
        "open": opener,
        "open_async": OpenUrl(url, awaited=True),
        "capabilities": _OFFERED,
        "name": redact_url(url),
        "thread_safe": True,
        # Expiry is decided when a session is read, so it is not late.
        "ttl_s_late": 0.25,
        "patience_s": 3 * BUSY_TIMEOUT_S,
    }
    if find_engine(url).storage is Storage.MEMORY:
        return Adapter(**common, reach="handle")
    if (path := opener.path) is not None:
        return Adapter(**common, durability="power", home=path.absolute().parent)
    try:
        with indelible.open(url) as store:
            claims = store.claims()
    except indelible.UsageError:
        raise
    except Exception as error:
        raise Unreachable(f"the store cannot be opened: {format_error(error)}") from error
    simulated = ("simulated: this is no real server",) if claims.simulated else ()
    return Adapter(
        **common,
        durability=claims.durability.value,
        server=url,
        discard=SessionEraser(url),
        notes=simulated,
    )


@dataclass(frozen=True, slots=True)
class OpenUrl:
    """Opens indelible on a workspace: a file in it, or the namespace of its name."""

    # It may hold a password.
    url: str = field(repr=False)
    awaited: bool = False

    @property
    def path(self) -> Path | None:
        """The file that the URL names, if it names one."""
        return find_file(self.url)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that keep no state until a store is opened, so that workers may be forked."""
        return (__name__, find_engine(self.url).module)

    def __call__(self, workspace: Path, *, server: str | None = None) -> Any:
        """Open a handle, or return an awaitable of it; `server` replaces the URL."""
        target, options = self._place(workspace)
        options = {**options, "embedder": WordEmbedder()}
        if server is not None:
            target, options = server, {**options, "timeout_s": BAD_DAY_TIMEOUT_S}
        open_store = _open_async_with_retries if self.awaited else _open_with_retries
        reopen = partial(open_store, target, options | AUDIT)
        opened = open_store(target, options)
        return then(opened, lambda store: StoreHandle(store, options["embedder"], reopen))

    def _place(self, workspace: Path) -> tuple[str, dict[str, Any]]:
        engine = find_engine(self.url)
        if engine.storage is Storage.MEMORY:
            return self.url, {}
        if self.path is not None:
            return f"{engine.schemes[0]}:///{workspace}/store.db", {}
        return self.url, {"namespace": _build_namespace(workspace)}


def _open_with_retries(target: str, options: dict[str, Any]) -> indelible.MemoryStore:
    for _ in range(OPENINGS_MAX - 1):
        with contextlib.suppress(indelible.UnavailableError):
            return indelible.open(target, **options)
    return indelible.open(target, **options)


async def _open_async_with_retries(
    target: str, options: dict[str, Any]
) -> indelible.AsyncMemoryStore:
    for _ in range(OPENINGS_MAX - 1):
        with contextlib.suppress(indelible.UnavailableError):
            return await indelible.open_async(target, **options)
    return await indelible.open_async(target, **options)


def _build_namespace(workspace: Path) -> str:
    return f"indelible-check-{workspace.name}"


@dataclass(frozen=True, slots=True)
class SessionEraser:
    """Erases what a case wrote on a server."""

    url: str = field(repr=False)

    def __call__(self, workspace: Path, sessions: Iterable[str]) -> None:
        """Forget every session of the workspace's namespace, also those that expired."""
        with indelible.open(self.url, namespace=_build_namespace(workspace)) as store:
            for session in {*iter_session_ids(store, expired=True), *sessions}:
                with contextlib.suppress(indelible.UsageError, indelible.LimitError):
                    store.forget(session)


class WordEmbedder:
    """Counts words by their hash; it can be made to fail."""

    name = "words"

    def __init__(self) -> None:
        self.fails = False

    def embed(self, text: str) -> list[float]:
        """Compute the vector of a text."""
        if self.fails:
            raise ConnectionError("the embedder was made to fail")
        vector = [0.0] * VECTOR_SIZE
        for word in text.split():
            vector[zlib.crc32(word.encode()) % VECTOR_SIZE] += 1.0
        return vector


class StoreHandle:
    """The kit's verbs on a store; awaitables of an async store are passed on."""

    def __init__(
        self, store: Any, embedder: WordEmbedder, reopen: Callable[[], Any] | None = None
    ) -> None:
        self._store = store
        self._embedder = embedder
        # Opens the store again, with an audit.
        self._reopen = reopen

    def append(
        self,
        session: str,
        messages: list[Message],
        *,
        key: str | None = None,
        expected: str | None = None,
        ttl_s: float | None = None,
    ) -> Any:
        """Add messages."""
        batch = [indelible.ChatMessage(**message) for message in messages]
        return self._store.add_messages(session, batch, key=key, expected=expected, ttl=ttl_s)

    def read(self, session: str, *, limit: int | None = None) -> Any:
        """Return the messages."""
        return then(self._store.get_history(session, last=limit), _to_kit_messages)

    def trim(self, session: str, keep: int) -> Any:
        """Keep the last messages."""
        return self._store.trim(session, keep_last=keep, align=None)

    def clear(self, session: str) -> Any:
        """Hide all messages."""
        return self._store.clear(session)

    def undo(self, session: str) -> Any:
        """Undo the last change."""
        return self._store.undo(session)

    def snapshot(self, session: str) -> Any:
        """Save a snapshot; return its id."""
        return then(self._store.save_snapshot(session), lambda snapshot: snapshot.id)

    def rollback(self, session: str, snapshot: str) -> Any:
        """Restore the view of a snapshot."""
        return self._store.rollback_to_snapshot(session, snapshot)

    def fork(self, session: str, target: str) -> Any:
        """Copy into a new session."""
        return self._store.fork(session, target)

    def version(self, session: str) -> Any:
        """Return the version, for `expected`."""
        return then(self._store.session(session), lambda info: info.version)

    def page(self, session: str, limit: int, cursor: str | None = None) -> Any:
        """Return a page of messages, and the cursor of the next."""
        page = self._store.get_entries(session, kinds=["message"], limit=limit, cursor=cursor)
        return then(page, lambda found: (_to_kit_messages([e.value for e in found]), found.cursor))

    def export(self, session: str) -> Any:
        """Export a session as text."""
        lines = io.StringIO()
        return then(self._store.export(lines, session), lambda _: lines.getvalue())

    def import_session(self, text: str) -> Any:
        """Import such a text."""
        return self._store.import_(io.StringIO(text))

    def sessions(self) -> Any:
        """List the ids of all sessions."""
        page = self._store.list_sessions()
        return (
            _list_sessions_async(self._store, page)
            if inspect.isawaitable(page)
            else list(iter_session_ids(self._store))
        )

    def put_item(
        self,
        session: str,
        item: str,
        text: str,
        fields: dict[str, Any] | None = None,
        ttl_s: float | None = None,
    ) -> Any:
        """Remember a text."""
        return self._store.remember(session, text, id=item, metadata=fields, ttl=ttl_s)

    def get_item(self, session: str, item: str) -> Any:
        """Return the text of a memory."""
        return then(self._store.get_memory(session, item), lambda found: found and found.text)

    def search(
        self, session: str, query: str, limit: int, where: dict[str, Any] | None = None
    ) -> Any:
        """Find memories."""
        paths = {f"metadata.{name}": value for name, value in (where or {}).items()}
        hits = self._store.search(
            query, sessions=[session], kinds=["memory"], k=limit, where=paths or None
        )
        return then(
            hits,
            lambda found: [{"id": h.entry.value.id, "text": h.entry.value.text} for h in found],
        )

    def retract(self, session: str, item: str) -> Any:
        """Retract a memory."""
        return self._store.retract(session, item)

    def forget(self, session: str) -> Any:
        """Erase a session."""
        return self._store.forget(session)

    def fail_embedder(self, fails: bool) -> None:
        """Let the embedder fail, or work again."""
        self._embedder.fails = fails
        # Its warnings are expected here.
        logging.getLogger("indelible.embedding").disabled = fails

    def start_audit(self) -> Any:
        """Open the store again, with an audit."""
        assert self._reopen is not None
        before, opened = self._store, self._reopen()
        if inspect.isawaitable(opened):
            return self._start_audit_async(opened)
        self._store = opened
        return before.close()

    async def _start_audit_async(self, opened: Awaitable[Any]) -> None:
        before, self._store = self._store, await opened
        await before.close()

    def audit(self, session: str) -> Any:
        """Return the lines of the audit, as they are exported."""
        return then(self.export(session), lambda text: _split_audit(text)[1])

    def verify_audit(
        self, session: str, head: str | None = None, lines: list[dict[str, Any]] | None = None
    ) -> Any:
        """Whether the audit holds; that of a copy, if it has other lines."""
        if lines is None:
            return then(self._store.verify(session, head=head), lambda report: report.ok)
        return then(self.export(session), lambda text: _verify_copy(text, session, head, lines))

    def close(self) -> Any:
        """Close the store."""
        return self._store.close()


def _split_audit(exported: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """The lines of an export without those of the audit, and what these say."""
    lines = [json.loads(line) for line in exported.splitlines()]
    others = [line for line in lines if "audit" not in line]
    return others, [line["audit"] for line in lines if "audit" in line]


def _verify_copy(
    exported: str, session: str, head: str | None, lines: list[dict[str, Any]]
) -> bool:
    """Import a session with other lines of its audit, and verify them. A refusal is a notice."""
    *others, end = _split_audit(exported)[0]
    text = "\n".join(map(json.dumps, [*others, *({"audit": line} for line in lines), end]))
    with indelible.open("memory:", **AUDIT) as copy:
        try:
            copy.import_(io.StringIO(text))
        except indelible.FormatError:
            return False
        return copy.verify(session, head=head).ok


def _to_kit_messages(history: list[indelible.ChatMessage]) -> list[Message]:
    # The kit expects the field, also if there is no content.
    return [{"content": None} | message.model_dump(exclude_unset=True) for message in history]


async def _list_sessions_async(store: Any, first: Any) -> list[str]:
    page = await first
    found: list[str] = page.ids
    while page.cursor is not None:
        page = await store.list_sessions(cursor=page.cursor)
        found += page.ids
    return found
