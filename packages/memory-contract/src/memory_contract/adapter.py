"""How the kit reaches a store: a factory that other processes can import, and what it claims.

Only `append` and `read` are required. What a store offers beyond them it declares, and the kit
holds it to that; what it does not declare is not asked of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

# A key of `CAPABILITIES`.
Capability = str
CAPABILITIES: Final[dict[Capability, str]] = {
    "pop": "take the newest entry away and return it, None if there is none",
    "trim": "keep the newest n entries",
    "clear": "show nothing any more",
    "ttl": "an append says how long its session lives",
    "snapshot": "write down what a session shows now",
    "rollback": "show again what a snapshot showed",
    "fork": "copy what a session shows into a new one",
    "undo": "take the last change of what a session shows back",
    "keys": "an append with the same key again is the same append",
    "expected": "an append can demand that nobody wrote since",
    "list": "name the sessions",
    "limit": "read the newest n entries",
    "fields": "every field of a message comes back, known or not",
    "structure": "trim never splits a tool call from its result nor drops a system message",
    "checksum": "stored bytes that changed are noticed when they are read",
    "pages": "read page by page, each opened by the cursor of the one before",
    "export": "write a session out as text, and bring such a text in again",
    "search": "put texts into a session under ids, and find them by their words",
    "filter": "search only what has certain fields",
    "retract": "take what was put under an id away",
    "item_ttl": "what is put says how long it lives",
    "forget": "erase a session with everything that was derived from it",
    "embedder": "search uses an embedder, which can be made to fail",
    "pending": "store what tasks wrote for the newest state, once for each task",
    "prune": "erase the older states of a session, and nothing that it shows",
    "audit": "each change of a session leaves one line in a chain that shows edits",
}
# Who sees what was written through one handle: only that handle, every handle of the process on
# the same workspace, or every process of the machine.
Reach = Literal["handle", "process", "machine"]
Flavour = Literal["blocking", "async"]
Durability = Literal["none", "process", "power", "replicated"]
Message = dict[str, Any]
# The smallest window: one turn, which is two messages.
KEEPS_LAST_MIN: Final = 2


class Refused(Exception):  # noqa: N818 -- an answer, not a mishap
    """The store says: not done, and nothing was written."""


class NotFound(Refused):
    """The store knows no such snapshot or session."""


class Conflict(Refused):
    """The session changed since it was read, or the key was used with other messages."""


class Handle(Protocol):
    """What a factory returns: a store that is open. Any method may be a coroutine function.

    A message is a dict with at least `role` and `content`. What a method raises means that the
    outcome is unknown, unless it is a `Refused`: then nothing happened.
    """

    def append(
        self,
        session: str,
        messages: list[Message],
        *,
        key: str | None = None,
        expected: Any = None,
        ttl_s: float | None = None,
    ) -> Any:
        """Add the messages at the end, all of them or none. Only what is declared is passed."""

    def read(self, session: str, *, limit: int | None = None) -> Any:
        """What the session shows: a list of messages, oldest first."""

    # Where they are declared: pop(session), trim(session, keep), clear(session),
    # snapshot(session) -> id, rollback(session, id), fork(session, target), undo(session),
    # version(session) for `expected`, sessions() for `list`; page(session, limit, cursor=None) ->
    # (messages, next cursor or None) for `pages`; export(session) -> text and import_session(text)
    # for `export`; forget(session); close() where there is something to.
    # For `search`: put_item(session, id, text, fields=None, ttl_s=None), search(session, query,
    # limit, where=None) -> a list of {"id": ..., "text": ...}, the best first, get_item(session,
    # id) -> text or None; retract(session, id); fail_embedder(fails) for `embedder`.
    # For `pending`: put_writes(session, task, texts), and pending(session) -> pairs of task and
    # text; prune(session).
    # For `audit`: start_audit(), from which on changes by this handle leave lines; audit(session)
    # -> lines as dicts, the oldest first, each with its `hash`; verify_audit(session, head=None,
    # lines=None) -> whether the chain holds, and has the hash `head`; of `lines`, if they are given
    # in place of those that are stored.


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """A store under test.

    `open` and `open_async` are functions of a workspace (a folder that is the store's own), or the
    names of such: `"package.module:function"`. Two handles on one workspace share data as far as
    `reach` says; handles on two workspaces share nothing.

    What they return has the methods of a `Handle`, or is a store that `memory-contract check` takes
    as it is. Of the latter, the kit finds out what is not said here.
    """

    open: str | Callable[..., Any] | None = None
    # For stores that have both: `open` is the blocking one.
    open_async: str | Callable[..., Any] | None = None
    capabilities: Collection[str] = ()
    durability: Durability = "none"
    name: str = ""
    reach: Reach = "machine"
    # Whether several threads may use one handle at once. Tasks of one event loop always do.
    thread_safe: bool = False
    # Whether an append is always one user's and one assistant's message.
    pairs: bool = False
    # Whether several messages go in as one append; else the kit appends them one by one.
    batches: bool = True
    # Whether entries of appends that overlap stand in the order in which these took effect. In a
    # list of items that is sorted by keys, they do not.
    ordered: bool = True
    # How many entries of a session the store keeps, the newest ones; None if it keeps all. Such a
    # store is not asked to pop: whether an older entry shows then depends on how it left it out.
    keeps_last: int | None = None
    # The largest message that the store takes; None if it names no limit.
    message_bytes_max: int | None = None
    # Expiry: the shortest time to live, how late it may come, and what begins it anew.
    ttl_s_min: float = 0.25
    ttl_s_late: float = 1.0
    ttl_refreshed_by: Literal["append", "read", "nothing"] = "append"
    # How long an operation may wait for another's lock before it must end, one way or the other;
    # None if the store does not say.
    patience_s: float | None = None
    # Where workspaces are made; None for the system's place for temporary files.
    home: Path | None = None
    # The server that the store uses, as a URL (`redis://host:port/0`, `postgresql://...`), if
    # its factories take one as `server=`: then the kit can put a faulty one in its place.
    server: str | None = field(default=None, repr=False)
    # Called after each case with its workspace and sessions, to remove data outside of the folder.
    discard: Callable[[Path, Iterable[str]], None] | None = None
    # Capabilities that were tried already. Those that are not claimed get no further note.
    tried: Collection[str] = ()
    # What a reader of the report should know about this target.
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", frozenset(self.capabilities))
        object.__setattr__(self, "tried", frozenset(self.tried))
        if unknown := sorted(set(self.capabilities) - set(CAPABILITIES)):
            known = ", ".join(CAPABILITIES)
            raise ValueError(f"unknown capability {unknown[0]!r}; the kit knows {known}")
        for name, value, allowed in (
            ("reach", self.reach, get_args(Reach)),
            ("durability", self.durability, get_args(Durability)),
        ):
            if value not in allowed:
                raise ValueError(f"`{name}` is one of {', '.join(allowed)}, not {value!r}")
        if self.open is None and self.open_async is None:
            raise ValueError("an adapter needs `open` or `open_async`")
        if self.keeps_last is not None and self.keeps_last < KEEPS_LAST_MIN:
            raise ValueError(f"`keeps_last` is {self.keeps_last}, and a turn is {KEEPS_LAST_MIN}")

    def list_claims(self) -> dict[str, Any]:
        """The claims that differ from their defaults."""
        plain = Adapter(open=self.open, open_async=self.open_async)
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in said.items() if value != getattr(plain, name)}

    def batch_size(self, count: int) -> int:
        """How much one append takes: so many messages, else one message or one turn."""
        return 1 if self.pairs or not self.batches else count

    def claims(self, needs: Iterable[str]) -> bool:
        """Whether everything that a case needs is declared, and asked of this store."""
        return all(need in self.capabilities and self.is_asked(need) for need in needs)

    def is_asked(self, capability: Capability) -> bool:
        """Whether cases use a capability; a store that keeps the newest entries is not to pop."""
        return capability != "pop" or self.keeps_last is None

    def factory(self, flavour: Flavour | None = None) -> Callable[..., Any]:
        """Return the function that opens a handle."""
        found = self.open_async if flavour == "async" and self.open_async else self.open
        found = found or self.open_async
        assert found is not None
        return import_object(found) if isinstance(found, str) else found


def import_object(name: str) -> Any:
    """Import the object that `package.module:name` names."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(f"write package.module:name, not {name!r}")
    try:
        found = import_module(module)
    except ImportError:
        raise
    except (Exception, SystemExit) as error:
        # An error while importing a module is not a verdict on the store.
        raise ImportError(f"{type(error).__name__}: {error}") from error
    for part in path.split("."):
        found = getattr(found, part)
    return found


def import_from_here(name: str) -> Any:
    """Import an object; as with `python -m`, modules in the current folder are found."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    return import_object(name)
