"""Builds an adapter from a target: a URL, a factory, a class, or an adapter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, import_from_here, import_object
from memory_contract.calls import format_error
from memory_contract.errors import TargetError, suggest
from memory_contract.handles import Loop
from memory_contract.redaction import is_keyword_dsn, redact, redact_url
from memory_contract.registry import TARGETS, RegistrationError, load_registered
from memory_contract.results import Unreachable
from memory_contract.targets.factory import Factory, bind, enter, write_factory
from memory_contract.targets.probe import build_adapter, expect_no_files
from memory_contract.targets.simple_stores import VOCABULARIES
from memory_contract.targets.vocabulary import Vocabulary, close_object
from memory_contract.timeouts import run_with_timeout

__all__ = ["FRAMEWORKS", "TargetError", "resolve"]

# The frameworks whose stores can be named, and the modules with their vocabularies. None of them
# imports its framework before a store is opened. They are tried in this order.
FRAMEWORKS: Final = {
    "langchain": "langchain",
    "openai-agents": "openai_agents",
    "langgraph-saver": "langgraph_saver",
    "langgraph-store": "langgraph_store",
    "llama-index": "llama_index",
    "llama-index-vectors": "llama_index_vectors",
    "adk": "adk",
    "strands": "strands",
    "agno": "agno",
    "claude-agent": "claude_agent",
    "mem0": "mem0",
    "crewai": "crewai",
}
# Claims about a store, as arguments of its `Adapter`.
Claims = Mapping[str, Any]
# A bound on a factory that hangs.
CALL_S_MAX: Final = 60.0
KNOWN = (
    "a URL of a registered store, module:factory (or :Class or :adapter), or"
    f" FRAMEWORK:module:factory with one of {', '.join(FRAMEWORKS)}"
)
_SPEAKS_NONE = (
    "the kit knows stores with save_context and load_memory, with add_message (or add_messages) and"
    f" get_history, and those of {', '.join(FRAMEWORKS)}; any other needs an Adapter"
)


def resolve(
    target: str | Adapter | Callable[..., Any], *, keeps_last: int | None = None
) -> Adapter:
    """Build the adapter of a target; `keeps_last` is added to its claims."""
    if keeps_last is None:
        return _resolve(target, {})
    return replace(_resolve(target, {"keeps_last": keeps_last}), keeps_last=keeps_last)


def _resolve(target: str | Adapter | Callable[..., Any], claims: Claims) -> Adapter:
    if isinstance(target, Adapter):
        return _from_adapter(target, claims)
    if not isinstance(target, str):
        return _from_object(target, f"{target.__module__}:{target.__qualname__}", claims)
    if not target.strip():
        raise TargetError(f"no target was named: name {KNOWN}")
    if is_keyword_dsn(target):
        raise TargetError(
            f"{redact_url(target)!r} is a connection string of PostgreSQL; write"
            " postgresql://user@host/database, with the password in PGPASSWORD"
        )
    framework, _, rest = target.partition(":")
    if framework.endswith(".py"):
        module, factory = Path(framework).stem, rest or "make_store"
        raise TargetError(
            f"{framework!r} is a file of Python code; name its module and the factory in it, from"
            f" its folder: {module}:{factory}"
        )
    if framework in FRAMEWORKS:
        return _from_framework(framework, rest, claims)
    return _from_registered(target) or _from_object(_import(target), target, claims)


def _from_framework(framework: str, name: str, claims: Claims) -> Adapter:
    vocabulary = _load_vocabulary(framework)
    if not _is_installed(vocabulary.module):
        raise TargetError(
            f"the package {vocabulary.package} is not installed: pip install {vocabulary.package}"
        )
    try:
        found = import_from_here(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise TargetError(f"cannot import {name!r}: {error}") from error
    takes = "session_id, workspace" if vocabulary.per_session else "workspace"
    if not callable(found):
        raise TargetError(f"{name} is no factory: {vocabulary.package} needs one of ({takes})")
    factory = bind(found, name)
    _expect_sessions(found, factory, vocabulary)
    return build_adapter(factory, vocabulary, f"{framework}:{name}", claims)


def _expect_sessions(found: Any, factory: Factory, vocabulary: Vocabulary) -> None:
    """Raise `TargetError` for a factory that takes a session id and should not, or the reverse."""
    if ("session" in factory.takes) is vocabulary.per_session:
        return
    per_session = vocabulary.per_session
    takes = "(session_id, workspace)" if per_session else "(workspace)"
    raise TargetError(
        f"{factory.name} makes {vocabulary.described}, so it must take {takes}",
        hint=write_factory(found, factory.name, per_session=per_session),
    )


def _load_vocabulary(framework: str) -> Vocabulary:
    module = import_module(f"memory_contract.targets.{FRAMEWORKS[framework]}")
    found = module.VOCABULARY
    assert isinstance(found, Vocabulary)
    return found


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # Not even the package that it would be in.
        return False


def _from_registered(target: str) -> Adapter | None:
    try:
        for find_adapter in load_registered(TARGETS):
            found = find_adapter(target)
            if found is not None:
                assert isinstance(found, Adapter)
                return found
    except RegistrationError as error:
        raise TargetError(str(error)) from error
    if _is_registered(target):
        raise TargetError(
            f"no installed package registers {redact_url(target)!r} with the kit (stores of"
            f" indelible need the package indelible): name {KNOWN}"
        )
    return None


def _is_registered(target: str) -> bool:
    """Whether a target is a URL or a file, which only a registered store can be."""
    return "://" in target or target.endswith(":") or Path(target).is_file()


def _import(target: str) -> Any:
    try:
        return import_from_here(target)
    except ValueError as error:
        raise TargetError(f"cannot read {redact_url(target)!r}: name {KNOWN}") from error
    except (ImportError, AttributeError) as error:
        meant = suggest(target.partition(":")[0], FRAMEWORKS)
        if isinstance(error, AttributeError):
            meant = suggest(error.name or "", dir(error.obj))
        raise TargetError(
            f"cannot import {redact_url(target)!r}: {redact(str(error))}{meant}"
        ) from error


def _from_adapter(adapter: Adapter, claims: Claims) -> Adapter:
    """The adapter itself if it opens a `Handle`; else its claims on a store that is probed."""
    opens = [each for each in (adapter.open, adapter.open_async) if each is not None]
    found = _import(opens[0]) if isinstance(opens[0], str) else opens[0]
    # What has no name of its own is an opener of the kit, or cannot be imported by its workers.
    path = getattr(found, "__qualname__", "<")
    if len(opens) > 1 or "<" in path or _is_handle(found):
        return adapter
    name = opens[0] if isinstance(opens[0], str) else f"{found.__module__}:{path}"
    if not isinstance(found, type):
        try:
            factory = bind(found, name, server=adapter.server)
            # An adapter's own opener takes a workspace.
            if factory.takes == ("folder",) and _is_handle(_make_twice(factory)):
                return adapter
        except Exception:  # noqa: BLE001 -- the run says what is wrong with it
            return adapter
    return _from_object(found, name, {**adapter.list_claims(), **claims})


def _is_handle(found: Any) -> bool:
    return all(callable(getattr(found, method, None)) for method in ("append", "read"))


def _from_object(found: Any, name: str, claims: Claims) -> Adapter:
    if isinstance(found, Adapter):
        return _from_adapter(found, claims)
    if not callable(found):
        raise TargetError(f"{name} is neither an Adapter nor a factory nor a class: name {KNOWN}")
    if isinstance(found, type) and _recognise(found) is None:
        raise _refuse_unknown(name, name, found)
    factory = bind(found, name, server=claims.get("server"))
    if factory.is_told_nothing:
        expect_no_files(factory, recognise_made)
    vocabulary = recognise_made(factory)
    _expect_sessions(found, factory, vocabulary)
    return build_adapter(factory, vocabulary, name, claims)


def find_factory_source(target: str) -> str:
    """The source of a factory for a callable; nothing for what can be checked as it is."""
    framework = target.partition(":")[0]
    if framework in FRAMEWORKS or _is_registered(target):
        return ""
    found = _import(target)
    try:
        if callable(found):
            bind(found, target)
    except TargetError as error:
        if not error.hint:
            raise
        return error.hint
    return ""


def _recognise(found: Any) -> Vocabulary | None:
    every = [*VOCABULARIES, *map(_load_vocabulary, FRAMEWORKS)]
    return next((each for each in every if each.is_spoken_by(found)), None)


def recognise_made(factory: Factory) -> Vocabulary:
    """The vocabulary of a class, or of what a factory makes."""
    if vocabulary := isinstance(found := import_object(factory.name), type) and _recognise(found):
        return vocabulary
    try:
        store = _make_twice(factory)
    except Exception as error:
        raise Unreachable(f"{factory.name} cannot be called: {format_error(error)}") from error
    vocabulary = _recognise(store)
    if vocabulary is None:
        what = f"{factory.name} returned {type(store).__name__}, which"
        raise _refuse_unknown(factory.name, what, store)
    return vocabulary


def _refuse_unknown(name: str, what: str, store: Any) -> TargetError:
    if _is_handle(store):
        return TargetError(
            f"{what} has append and read, and who sees what it keeps is for an Adapter to say:"
            f' adapter = Adapter(open="{name}")'
        )
    return TargetError(f"{what} speaks no vocabulary of the kit: {_SPEAKS_NONE}")


def _make_twice(factory: Factory) -> Any:
    """Call a factory on a running loop, in a folder that is thrown away; a store, closed again.

    An object that the factory returns again is not the kit's to close.
    """

    async def call(workspace: Path) -> list[Any]:
        return [factory.make(workspace, session="kit-probe") for _ in range(2)]

    def make(workspace: Path) -> Any:
        loop = Loop()
        try:
            made, again = loop.settle(call(workspace))
            for each in [made] if made is again else [again, made]:
                entering = enter(each, lambda found: _recognise(found) is not None)
                store, leave = loop.settle(entering)
                # Outside of the loop's run: what blocks may have a loop of its own.
                if leave is not None:
                    loop.settle(leave())
                elif made is not again:
                    loop.settle(close_object(store))
            return store
        finally:
            loop.close()

    with tempfile.TemporaryDirectory(prefix="kit-probe-", ignore_cleanup_errors=True) as folder:
        return run_with_timeout(CALL_S_MAX, lambda: make(Path(folder)))
