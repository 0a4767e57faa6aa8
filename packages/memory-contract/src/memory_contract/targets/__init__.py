"""From what a person names to an adapter: a URL, an importable object, or a framework's store."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, imported_from_here
from memory_contract.redaction import is_keyword_dsn, redact, redact_url
from memory_contract.registry import TARGETS, RegistrationError, load_registered
from memory_contract.targets.duck import adapter_of_class

# The framework whose store a factory makes, and the module that drives such stores.
FRAMEWORKS: Final = {
    "langchain": "langchain",
    "langgraph-saver": "langgraph_saver",
    "langgraph-store": "langgraph_store",
    "openai-agents": "openai_agents",
    "claude-agent": "claude_agent",
    "llama-index": "llama_index",
    "adk": "adk",
    "strands": "strands",
    "agno": "agno",
}
KNOWN = (
    "a URL of a registered store, module:adapter, or FRAMEWORK:module:factory with one of "
    f"{', '.join(FRAMEWORKS)}"
)


class TargetError(ValueError):
    """The target names nothing that the kit can drive."""


def resolve(target: str | Adapter | type) -> Adapter:
    """The adapter that a target stands for."""
    if isinstance(target, Adapter):
        return target
    if isinstance(target, type):
        return _of_object(target, f"{target.__module__}:{target.__qualname__}")
    if not target.strip():
        raise TargetError(f"no target was named: name {KNOWN}")
    if is_keyword_dsn(target):
        raise TargetError(
            f"{redact_url(target)!r} is a connection string of PostgreSQL; write"
            " postgresql://user@host/database, with the password in PGPASSWORD"
        )
    framework, _, rest = target.partition(":")
    if framework in FRAMEWORKS:
        # Each knows its framework, and imports it only when it is asked for.
        module = import_module(f"memory_contract.targets.{FRAMEWORKS[framework]}")
        adapter = module.adapter_of_factory(rest)
        assert isinstance(adapter, Adapter)
        return adapter
    try:
        for registered in load_registered(TARGETS):
            found = registered(target)
            if found is not None:
                assert isinstance(found, Adapter)
                return found
    except RegistrationError as error:
        raise TargetError(str(error)) from error
    if "://" in target or target.endswith(":") or Path(target).is_file():
        raise TargetError(
            f"no installed package registers {redact_url(target)!r} with the kit (stores of"
            f" indelible need the package indelible): name {KNOWN}"
        )
    return _of_name(target)


def _of_name(target: str) -> Adapter:
    try:
        found = imported_from_here(target)
    except ValueError as error:
        raise TargetError(f"cannot read {redact_url(target)!r}: name {KNOWN}") from error
    except (ImportError, AttributeError) as error:
        raise TargetError(f"cannot import {redact_url(target)!r}: {redact(str(error))}") from error
    return _of_object(found, target)


def _of_object(found: Any, name: str) -> Adapter:
    if isinstance(found, Adapter):
        return found
    adapter = adapter_of_class(found, name) if callable(found) else None
    if adapter is None:
        raise TargetError(
            f"{name} is neither an Adapter nor a class with add_messages and get_history, or "
            "save_context and load_memory"
        )
    return adapter
