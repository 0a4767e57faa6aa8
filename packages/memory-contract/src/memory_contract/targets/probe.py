"""Probes a store before it is judged, in temporary folders.

A factory declares nothing, so the kit finds out how its store is called (blocking, async or both),
who sees what was written, and which further methods do what their names say. A capability that
fails here is noted and not claimed.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import (
    CAPABILITIES,
    Adapter,
    Capability,
    Flavour,
    Message,
    Reach,
    Refused,
    import_object,
)
from memory_contract.calls import format_error
from memory_contract.entries import EntryIds, build_messages
from memory_contract.errors import TargetError
from memory_contract.handles import Loop, close, open_handle
from memory_contract.results import Unreachable
from memory_contract.targets.factory import Factory, OpenStore, write_factory
from memory_contract.targets.simple_stores import (
    METHODS,
    SimpleHandle,
    find_method,
    must_work,
    takes_arguments,
)
from memory_contract.targets.vocabulary import IsAwaited, Sessions, Vocabulary
from memory_contract.timeouts import WorkTimedOut, run_with_timeout
from memory_contract.workers.pool import StoreRaised, WorkerLost, WorkerPool, WorkersUnavailable

# Finds the vocabulary of what a factory makes.
Recognise = Callable[[Factory], Vocabulary]
# A bound for stores that hang: what was not found by then is not claimed.
PROBE_S_MAX: Final = 20.0
_SESSION: Final = "kit-probe"
# Enough for a store that writes to its disk only now and then.
_MORE_APPENDS: Final = 11
# Capabilities that no method of turns can have: one message, or a number of messages.
_NOT_OF_TURNS: Final = frozenset({"pop", "trim", "limit"})
# Capabilities without a method, which a probe cannot find.
_WITHOUT_METHOD: Final = frozenset({"fields", "structure", "checksum"})
# Parts of an interface that a store may leave out by raising `NotImplementedError`.
_OPTIONAL: Final = {
    "list": "sessions",
    **{name: name for name in ("pop", "clear", "forget", "fork", "prune")},
}


@dataclass(slots=True)
class ProbeAttempt:
    """What one attempt to write and read showed."""

    opened: bool = False
    # Whether the store took a message as one.
    appended: bool = False
    works: bool = False
    has_waited: bool = False
    raised: BaseException | None = None
    on_disk: bool = False
    seen_by_other: bool = False
    # Whether a thread that did not open the store may call it.
    other_threads: bool = True
    # The class of the store, and whether both handles have the same object.
    kind: type | None = None
    shared: bool = False
    missing: set[str] = field(default_factory=set)

    @property
    def progress(self) -> tuple[bool, bool, bool]:
        """How far it got, as something to compare."""
        return self.works, self.appended, self.opened


class TextMisplaced(ValueError):  # noqa: N818 -- names what happened
    """A message came back with its text elsewhere than in its content."""


@dataclass(slots=True)
class Findings:
    """What probing has found about a store."""

    opener: OpenStore
    reach: Reach
    attempts: dict[Flavour, ProbeAttempt] = field(default_factory=dict)
    offers: set[Capability] = field(default_factory=set)
    tried: set[Capability] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    # Claims about the store, which replace findings.
    claims: Mapping[str, Any] = field(default_factory=dict)
    # The capabilities that are claimed: cases try them, with proofs.
    claimed: Collection[Capability] = ()

    @property
    def flavours(self) -> list[Flavour]:
        """How the store can be called; if nothing worked, judged by its methods."""
        works: list[Flavour] = [flavour for flavour, each in self.attempts.items() if each.works]
        if works:
            return works
        vocabulary = self.opener.vocabulary
        kind = import_object(self.opener.factory.name)
        method = getattr(kind, vocabulary.methods[0], None)
        return ["async"] if inspect.iscoroutinefunction(method) else [vocabulary.flavours[0]]

    def build(self, name: str) -> Adapter:
        """Build the adapter from the findings."""
        vocabulary, factory = self.opener.vocabulary, self.opener.factory
        claims = {**vocabulary.claims, **self.claims}
        notes = (*vocabulary.claims.get("notes", ()), *self.notes, *self.claims.get("notes", ()))
        missing = {name for each in self.attempts.values() for name in each.missing}
        capabilities = set(claims.pop("capabilities", ())) - missing | self.offers
        # A handle that holds all the data can only be shared by threads.
        attempts = [each for each in self.attempts.values() if each.works]
        shareable = bool(attempts) and all(each.other_threads for each in attempts)
        safe = self.reach == "handle" and self.is_simple and shareable
        shared = any(each.shared for each in self.attempts.values())
        keep = shared or (self.reach == "handle" and not self.is_simple)
        openers = {
            flavour: replace(self.opener, awaited=flavour == "async", keep=keep)
            for flavour in self.flavours
        }
        found = {
            "capabilities": capabilities,
            "tried": self.tried,
            "name": name,
            "reach": self.reach,
            "thread_safe": safe,
            "server": factory.server,
        }
        return Adapter(
            open=openers.get("blocking"),
            open_async=openers.get("async"),
            **{**found, **claims, "notes": notes},
        )

    @property
    def is_simple(self) -> bool:
        """Whether its further methods are found by their names."""
        return issubclass(self.opener.vocabulary.handle, SimpleHandle)


def build_adapter(
    factory: Factory, vocabulary: Vocabulary, name: str, claims: Mapping[str, Any]
) -> Adapter:
    """Probe the store that a factory makes, and describe it to the kit, with what it claims."""
    options = dict(vocabulary.variants[0])
    if issubclass(vocabulary.handle, SimpleHandle) and claims.get("keeps_last") is not None:
        # The window that is claimed is what the store shows by itself.
        options["unlimited"] = False
    findings = Findings(
        OpenStore(factory, vocabulary, options=options),
        reach="machine" if factory.is_told_workspace else "handle",
        claims={given: value for given, value in claims.items() if given != "capabilities"},
        claimed=claims.get("capabilities", ()),
    )
    with tempfile.TemporaryDirectory(prefix="kit-probe-", ignore_cleanup_errors=True) as at:
        folders = _make_folders(Path(at))
        try:
            run_with_timeout(PROBE_S_MAX, lambda: _probe(findings, folders))
        except WorkTimedOut as error:
            findings.notes.append(
                f"a probe did not end, {error}: what was not tried is not claimed"
            )
    if factory.is_told_nothing:
        findings.notes.append("it takes no workspace: each instance is on its own")
    findings.reach = claims.get("reach", findings.reach)
    found = findings.build(name)
    named = frozenset(claims.get("capabilities", found.capabilities))
    if unusable := sorted(named - set(found.capabilities) - _WITHOUT_METHOD):
        raise TargetError(
            f"{name} is said to offer {unusable[0]}, and the kit found no method that does:"
            f" {CAPABILITIES[unusable[0]]}"
        )
    return replace(found, capabilities=named)


def _make_folders(home: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        folder = home / f"probe-{number}"
        folder.mkdir()
        yield folder


def _probe(findings: Findings, folders: Iterator[Path]) -> None:
    if not _find_opener(findings, folders):
        _expect_opened(findings)
        return
    if findings.opener.factory.is_told_nothing:
        _expect_own_data(findings)
    _choose_flavours(findings)
    findings.reach = _find_reach(findings, next(folders))
    if findings.is_simple:
        _find_offers(findings, folders)
    if findings.reach == "handle" and findings.opener.factory.is_told_workspace:
        findings.notes.append(
            "nothing is written to its workspace, and a second store on it does not see the first"
            " one's messages: taken for a store in memory"
        )
    if missing := {name for each in findings.attempts.values() for name in each.missing}:
        findings.notes.append(f"not implemented, and not claimed: {', '.join(sorted(missing))}")


# How it is called


def _find_opener(findings: Findings, folders: Iterator[Path]) -> bool:
    """Find the variant that works: how a path is passed, and how a message; else the furthest."""
    if _try_variants(findings, folders, {}):
        return True
    # The store may refuse a read without a limit.
    appended = any(each.appended for each in findings.attempts.values())
    return (
        appended and findings.is_simple and _try_variants(findings, folders, {"unlimited": False})
    )


def _try_variants(findings: Findings, folders: Iterator[Path], limit: dict[str, bool]) -> bool:
    first = findings.opener
    best = max((each.progress for each in findings.attempts.values()), default=None)
    for factory, options in itertools.product(
        list(first.factory.variants()), first.vocabulary.variants
    ):
        opener = replace(first, factory=factory, options={**first.options, **options, **limit})
        attempts = {
            flavour: _attempt(opener, flavour, next(folders))
            for flavour in first.vocabulary.flavours
        }
        progress = max(each.progress for each in attempts.values())
        if best is None or progress > best:
            best, findings.opener, findings.attempts = progress, opener, attempts
        if any(each.works for each in attempts.values()):
            return True
    return False


def _expect_opened(findings: Findings) -> None:
    """Raise if the store could not be opened, or took no message of the kit."""
    attempts = sorted(findings.attempts.values(), key=lambda each: each.progress, reverse=True)
    for each in attempts:
        if isinstance(each.raised, TargetError):
            raise each.raised
    if not attempts:
        return
    factory = findings.opener.factory
    if not any(each.opened for each in attempts):
        error = attempts[0].raised
        assert error is not None
        hint = write_factory(import_object(factory.name), factory.name) if factory.takes else ""
        raise Unreachable(
            f"the store cannot be opened and read: {format_error(error)}", hint=hint
        ) from error
    # A `SystemExit` or a cancellation does not mean that the message has the wrong form.
    errors = [each.raised for each in attempts if isinstance(each.raised, Exception)]
    said = [error for error in errors if not isinstance(error, IsAwaited)]
    if said and findings.is_simple and not any(each.appended for each in attempts):
        reason = f"{findings.opener.vocabulary.methods[0]} raised {format_error(said[0])}"
        if isinstance(said[0], TextMisplaced):
            reason = str(said[0])
        raise Unreachable(
            f"the store takes no message of the kit: {reason}. Tried are dicts with role and"
            " content, objects with these attributes, and the class that the parameter is annotated"
            " with; for anything else, write an Adapter"
        ) from said[0]


def _expect_own_data(findings: Findings) -> None:
    """Raise for a store with a fixed place: all cases would work on the same data."""
    if any(each.seen_by_other for each in findings.attempts.values()):
        kind = next(each.kind for each in findings.attempts.values() if each.works)
        what = f"has one place for all of its data, and now a session {_SESSION!r} there"
        raise _refuse_shared_place(findings.opener.factory, what, kind)


def _refuse_shared_place(factory: Factory, what: str, kind: type | None) -> TargetError:
    hint = "" if kind is None else write_factory(kind, f"{kind.__module__}:{kind.__qualname__}")
    return TargetError(
        f"{factory.name} takes no workspace, and its store {what}; each case needs an empty one",
        hint=hint,
    )


@dataclass(slots=True)
class FolderTrial:
    """Tries a store in a worker whose current folder is empty, and names its class.

    In a worker, because the current folder belongs to the whole process.
    """

    factory: Factory
    recognise: Recognise
    folder: Path
    kind: str = ""

    def install(self) -> None:
        """Open the store, and write to it."""
        sys.path[:] = [str(Path(each).absolute()) for each in sys.path]
        os.chdir(self.folder)
        vocabulary = self.recognise(self.factory)
        findings = Findings(OpenStore(self.factory, vocabulary), reach="handle")
        with tempfile.TemporaryDirectory(prefix="kit-probe-") as home:
            _find_opener(findings, _make_folders(Path(home)))
        for each in findings.attempts.values():
            if each.kind is not None:
                self.kind = f"{each.kind.__module__}:{each.kind.__qualname__}"


def expect_no_files(factory: Factory, recognise: Recognise) -> None:
    """Raise for a store that takes no workspace and writes to the current folder."""
    with tempfile.TemporaryDirectory(prefix="kit-probe-", ignore_cleanup_errors=True) as folder:
        try:
            pool = WorkerPool(Adapter(open=factory.name))
        except WorkersUnavailable:
            return
        kind = ""
        # An error here is raised again by the probe.
        with contextlib.closing(pool), contextlib.suppress(StoreRaised, WorkerLost, Refused):
            worker = pool.start_worker()
            trial = FolderTrial(factory, recognise, Path(folder))
            worker.ask("install_plugin", trial, wait_s=PROBE_S_MAX)
            kind = worker.call_plugin("kind")
        if files := sorted(path.name for path in Path(folder).iterdir()):
            what = f"writes to {files[0]} in the current folder"
            raise _refuse_shared_place(factory, what, import_object(kind) if kind else None)


def _attempt(opener: OpenStore, flavour: Flavour, workspace: Path) -> ProbeAttempt:
    """Open the store twice, write through one and read through both."""
    seen = ProbeAttempt()
    loop = Loop() if flavour == "async" else None
    adapter = Adapter(open=replace(opener, awaited=flavour == "async"))
    pairs = bool(opener.vocabulary.claims.get("pairs"))
    ids = EntryIds("probe")
    handles: list[Any] = []
    try:
        handles.append(open_handle(adapter, workspace, flavour, loop))
        seen.opened = True
        messages = build_messages(ids.draw(pairs=pairs))
        _settle(handles[0].append(_SESSION, messages), loop)
        seen.appended = True
        found = _settle(handles[0].read(_SESSION), loop)
        if issubclass(opener.vocabulary.handle, SimpleHandle):
            _expect_texts(messages, found)
        for _ in range(0 if any(workspace.iterdir()) else _MORE_APPENDS):
            _settle(handles[0].append(_SESSION, build_messages(ids.draw(pairs=pairs))), loop)
        seen.has_waited = handles[0].inner.has_waited
        handles.append(open_handle(adapter, workspace, flavour, loop))
        with contextlib.suppress(LookupError):
            seen.seen_by_other = bool(_settle(handles[1].read(_SESSION), loop))
        seen.on_disk = any(workspace.iterdir())
        if loop is None:
            with futures.ThreadPoolExecutor(1) as other:
                error = other.submit(handles[0].read, _SESSION).exception()
                seen.other_threads = error is None
        one, two = (_get_object(handle) for handle in handles)
        seen.kind, seen.shared = type(one), one is two
        for capability in opener.vocabulary.claims.get("capabilities", ()):
            seen.missing |= _find_missing(handles[0], capability, loop)
        seen.works = True
    except TargetError:
        raise
    except TextMisplaced as error:
        seen.appended, seen.raised = False, error
    except BaseException as error:  # noqa: BLE001 -- noted; the kit's own calls meet it again
        seen.raised = error
    finally:
        _close_all(handles, loop)
    seen.on_disk = seen.on_disk or any(workspace.iterdir())
    return seen


def _expect_texts(messages: list[Message], found: list[Any]) -> None:
    """Raise if the texts are in what came back, and none as a content; or if that is no message."""
    texts = [message["content"] for message in messages]
    messages_found = [each for each in found if isinstance(each, Mapping) and "content" in each]
    if not found or any(each["content"] in texts for each in messages_found):
        return
    shown = repr(found)
    if not messages_found or all(text in shown for text in texts):
        raise TextMisplaced(f"what it was given came back as {shown:.200}")


def _get_object(handle: Any) -> Any:
    """The object that the factory returned for a handle."""
    store = handle.inner.store
    if not isinstance(store, Sessions):
        return store
    with store.using(_SESSION) as found:
        return found


def _find_missing(handle: Any, capability: str, loop: Loop | None) -> set[str]:
    if capability not in _OPTIONAL:
        return set()
    arguments = {"list": (), "fork": (_SESSION, f"{_SESSION}-fork")}.get(capability, (_SESSION,))
    try:
        _settle(getattr(handle, _OPTIONAL[capability])(*arguments), loop)
    except NotImplementedError:
        return {capability}
    return set()


def _settle(answer: Any, loop: Loop | None) -> Any:
    return answer if loop is None else loop.settle(answer)


def _close_all(handles: list[Any], loop: Loop | None) -> None:
    for handle in handles:
        with contextlib.suppress(BaseException):
            close(handle, loop)
    if loop is not None:
        with contextlib.suppress(BaseException):
            loop.close()


def _choose_flavours(findings: Findings) -> None:
    """Drop flavours that do not work, and async methods that only run the blocking ones."""
    attempts, vocabulary = findings.attempts, findings.opener.vocabulary
    blocking, awaited = attempts.get("blocking"), attempts.get("async")
    if blocking is None or awaited is None:
        return
    if not blocking.works:
        assert blocking.raised is not None
        # Many async stores can only be created while a loop runs.
        needs_loop = isinstance(blocking.raised, RuntimeError) and "loop" in str(blocking.raised)
        if awaited.works and not needs_loop and not isinstance(blocking.raised, IsAwaited):
            findings.notes.append(f"not driven blocking: {format_error(blocking.raised)}")
        del attempts["blocking"]
    elif not awaited.works:
        assert awaited.raised is not None
        findings.notes.append(f"not driven async: {format_error(awaited.raised)}")
        del attempts["async"]
    elif not awaited.has_waited or not vocabulary.has_own_async(awaited.kind or object):
        del attempts["async"]


# Who sees what was written


def _find_reach(findings: Findings, workspace: Path) -> Reach:
    """Find who sees what was written; a store with files is for every process."""
    factory = findings.opener.factory
    attempts = [each for each in findings.attempts.values() if each.works]
    if isinstance(import_object(factory.name), type) and factory.takes in (("folder",), ("file",)):
        # Its data belongs to the path, so every process that opens the path must see it.
        return "machine"
    if any(each.on_disk for each in attempts):
        return "machine"
    if not any(each.seen_by_other for each in attempts):
        return "handle"
    # Kept if the time is up before another process answers: frameworks may take many seconds to
    # import.
    findings.reach = "process"
    adapter = findings.build("probe")
    try:
        pool = WorkerPool(adapter)
    except WorkersUnavailable:
        return "process"
    flavour = findings.flavours[0]
    loop = Loop() if flavour == "async" else None
    worker = pool.start_worker()
    handle = None
    try:
        handle = open_handle(adapter, workspace, flavour, loop)
        ids = EntryIds("probe").draw(pairs=adapter.pairs)
        _settle(handle.append(_SESSION, build_messages(ids)), loop)
        worker.ask("open", workspace, flavour)
        return "machine" if worker.ask("call", "read", (_SESSION,), {}) else "process"
    except StoreRaised:
        return "process"
    finally:
        worker.end()
        pool.close()
        _close_all([handle] if handle is not None else [], loop)


# Further methods of simple stores


def _find_offers(findings: Findings, folders: Iterator[Path]) -> None:
    """Claim the capabilities whose methods do what their names say; note the others."""
    flavour = findings.flavours[0]
    loop = Loop() if flavour == "async" else None
    handle = open_handle(findings.build("probe"), next(folders), flavour, loop)
    pairs = bool(findings.opener.vocabulary.claims.get("pairs"))
    for name, limit in handle.inner.no_limit.items():
        findings.notes.append(f"by default it returns only so many; read with {name}={limit}")
    # The kit's handle takes a limit, whether the store does or not.
    findings.tried.add("limit")
    for capability, name, can_be_called in _list_methods(handle.inner):
        if pairs and capability in _NOT_OF_TURNS:
            continue
        findings.tried.add(capability)
        reason = "" if can_be_called else "takes something else"
        if can_be_called and capability not in findings.claimed:
            reason = _try_offer(findings, capability, next(folders))
        if reason:
            findings.notes.append(f"not claimed: {capability} ({name} {reason})")
        else:
            findings.offers.add(capability)
    _close_all([handle], loop)


def _list_methods(handle: SimpleHandle) -> Iterator[tuple[Capability, str, bool]]:
    """Capabilities with the methods that may offer them, and whether the kit can call these."""
    for capability, (name, *_) in METHODS.items():
        method = find_method(handle.store, capability)
        if method is not None:
            yield capability, name, takes_arguments(method, capability)
    if handle.limit:
        yield "limit", "get_history", True


def _try_offer(findings: Findings, capability: Capability, workspace: Path) -> str:
    """Try a capability once; returns why it cannot be claimed, or nothing if it works."""
    from memory_contract.case_context import CaseContext  # noqa: PLC0415
    from memory_contract.cases.capabilities import find_need, try_capability  # noqa: PLC0415

    if (needed := find_need(capability)) and needed not in findings.offers:
        return f"is of no use without {needed}"
    flavour = findings.flavours[0]
    tried = replace(findings, offers={*findings.offers, capability})
    adapter = tried.build("probe")
    context = CaseContext(
        adapter, mode=flavour, flavours=(flavour,), workspace=workspace, seed=0, worker_pool=None
    )
    try:
        client = context.open()
        works = try_capability(client, capability)
        held = must_work(client.handle.inner, capability)
    except BaseException as error:  # noqa: BLE001 -- whatever it raises, nobody claimed it
        return f"raised {format_error(error)}"
    finally:
        with contextlib.suppress(BaseException):
            context.close()
    return "" if works or held else "did something else when it was tried"
