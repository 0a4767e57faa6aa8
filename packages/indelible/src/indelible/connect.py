"""From a URL or a client to a backend, and the registry of engines.

No other module knows which engines exist. To add one: a package in `backends/`, a function here
that builds its two backends, and a row of `ENGINES`. The command line, the fixtures, the kit's
target and the tests take what they need to know from that row.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from indelible.addresses import Problem, describe_strangers, find_problems, join_problems
from indelible.core.backend import Address, AsyncBackend, Backend, UnreachedError
from indelible.core.clock import Clock, system_clock
from indelible.core.extras import format_install_command
from indelible.core.limits import LABEL_BYTES_MAX, TIMEOUT_S_MAX
from indelible.core.operations import FindRisks
from indelible.core.redaction import is_keyword_dsn, redact_url
from indelible.core.settings import check_text
from indelible.errors import UnavailableError, UnsupportedError, UsageError
from indelible.model import Durability, Gravity, Risk

# A URL, a file name, or a client of a server that the application has already.
Target = str | os.PathLike[str] | object


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenOptions:
    """How a store is to be opened."""

    # A URL may hold a password.
    target: Target = field(repr=False)
    namespace: str
    durability: Durability | str | None
    busy_timeout_s: float
    timeout_s: float
    strict: bool
    search: bool
    clock: Clock


class Storage(StrEnum):
    """Where an engine keeps the data."""

    MEMORY = "memory"
    FILE = "file"
    SERVER = "server"


class Factories(NamedTuple):
    """How to build the two backends of a store, and where its servers listen."""

    blocking: Callable[[], Backend]
    awaited: Callable[[], AsyncBackend]
    # None for an engine without servers, and for a client of the application.
    addresses: Sequence[Address] = ()


class ClientPair(NamedTuple):
    """The blocking and the async class of a client that is taken instead of a URL."""

    blocking: str
    awaited: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """What the rest of the project needs to know about one engine."""

    # Its package in `backends/`.
    name: str
    storage: Storage
    # What its URLs begin with, before `://`.
    schemes: tuple[str, ...] = ()
    # How to name a store of it, for messages.
    examples: tuple[str, ...]
    # Imports the backend, so that an engine that is not used costs nothing.
    build: Callable[[OpenOptions], Factories]
    # Modules of the client library, and the extra that installs them.
    requires: tuple[str, ...] = ()
    extra: str = ""
    clients: tuple[ClientPair, ...] = ()

    @property
    def module(self) -> str:
        """The module of its backends. Importing it opens nothing."""
        return f"indelible.backends.{self.name}"


# Opening


def connect(options: OpenOptions) -> Backend:
    """Build a blocking backend, and reach its engine."""
    factories = _build(options, awaited=False)
    _refuse_wrong_address(options, factories)
    backend = factories.blocking()
    try:
        backend.prepare()
        _report_dangers(options, backend.perform(FindRisks()))
    except UnreachedError as error:
        backend.close()
        raise _explain_stranger(options, factories, error) from error.__cause__
    except BaseException:
        backend.close()
        raise
    return backend


async def connect_async(options: OpenOptions) -> AsyncBackend:
    """Build an async backend, and reach its engine."""
    factories = _build(options, awaited=True)
    # Another process may hold a file for a while; the event loop must not wait for that.
    await asyncio.to_thread(_refuse_wrong_address, options, factories)
    backend = await asyncio.to_thread(factories.awaited)
    try:
        await backend.prepare()
        _report_dangers(options, await backend.perform(FindRisks()))
    except UnreachedError as error:
        await backend.close()
        explain = asyncio.to_thread(_explain_stranger, options, factories, error)
        raise await explain from error.__cause__
    except BaseException:
        await backend.close()
        raise
    return backend


def _refuse_wrong_address(options: OpenOptions, factories: Factories) -> None:
    """Raise early if nothing listens at any address of a server, and say what to check."""
    problems = find_problems(factories.addresses, options.timeout_s)
    if problems:
        raise _build_unreachable_error(options, factories, problems)


def _explain_stranger(
    options: OpenOptions, factories: Factories, error: UnreachedError
) -> UnavailableError:
    """Build the error for what listens and does not answer as a server."""
    engine = find_engine(options.target).name
    problems = describe_strangers(factories.addresses, engine, str(error), options.timeout_s)
    unknown = Problem(str(error), "host and port, and that the server runs")
    return _build_unreachable_error(options, factories, problems or [unknown])


def _build_unreachable_error(
    options: OpenOptions, factories: Factories, problems: Sequence[Problem]
) -> UnavailableError:
    text, checks = join_problems(problems)
    host, port = _get_first_port(factories) or (None, None)
    return UnavailableError(
        f"{format_target(options.target)} cannot be reached: {text}. Nothing was written. Check"
        f" {checks}",
        host=host,
        port=port,
    )


def find_server(options: OpenOptions, *, awaited: bool) -> tuple[str, int] | None:
    """Return host and port of the first server; None without one, or for a client or a socket."""
    return _get_first_port(_build(options, awaited=awaited))


def _get_first_port(factories: Factories) -> tuple[str, int] | None:
    return next((each for each in factories.addresses if isinstance(each, tuple)), None)


def _build(options: OpenOptions, *, awaited: bool) -> Factories:
    """Check the options, and find the engine that they ask for."""
    _refuse_wrong_client(options.target, awaited=awaited)
    _check_options(options)
    engine = find_engine(options.target)
    missing = [name for name in engine.requires if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"{format_target(options.target)} needs {' and '.join(missing)}:"
            f" {format_install_command(engine.extra)}"
        )
    return engine.build(options)


def _refuse_wrong_client(target: Target, *, awaited: bool) -> None:
    """Refuse an async client in blocking code, and a blocking one in async code."""
    pair = _find_client_pair(target)
    if pair is None or _is_instance(target, pair.awaited if awaited else pair.blocking):
        return
    if awaited:
        raise UsageError(
            f"a {pair.blocking} blocks: open it with indelible.open, or hand in a {pair.awaited}"
        )
    raise UsageError(
        f"a {pair.awaited} must be awaited: open it with indelible.open_async, or hand in a"
        f" {pair.blocking}"
    )


def _check_options(options: OpenOptions) -> None:
    if options.namespace:
        check_text(options.namespace, what="a namespace", bytes_max=LABEL_BYTES_MAX)
    if not isinstance(options.busy_timeout_s, (int, float)) or not options.busy_timeout_s >= 0:
        raise UsageError(
            f"busy_timeout_s is a number of seconds from 0 up, not {options.busy_timeout_s!r}"
        )
    timeout_s = options.timeout_s
    if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise UsageError(
            f"timeout_s is a number of seconds above 0 and up to {TIMEOUT_S_MAX:g}, not"
            f" {timeout_s!r}"
        )


def _report_dangers(options: OpenOptions, risks: tuple[Risk, ...]) -> None:
    """Warn of the dangers of this engine's configuration; with `strict`, refuse them."""
    for risk in risks:
        if risk.severity is not Gravity.DANGER:
            continue
        text = (
            f"{format_target(options.target)}: {risk.subject}: {risk.risk}. To change that:"
            f" {risk.remedy}"
        )
        if options.strict:
            raise UnsupportedError(f"{text}. It was not opened, since strict=True was asked for")
        warnings.warn(text, RuntimeWarning, stacklevel=4)


# Targets


def find_engine(target: Target) -> Engine:
    """Return the engine of a URL, a file name or a client; `UsageError` if it is none of them."""
    pair = _find_client_pair(target)
    if pair is not None:
        return next(engine for engine in ENGINES if pair in engine.clients)
    name = _get_name(target)
    if not name:
        raise UsageError(f"cannot open {target!r}; name {KNOWN}", value=target)
    if name == "memory:":
        return _MEMORY
    if isinstance(target, str):
        refuse_ambiguous(name)
    return _find_by_scheme(name) or _SQLITE


def find_file(target: str) -> Path | None:
    """Return the file that a target names; None if its store is on a server or in memory."""
    return parse_path(target) if find_engine(target).storage is Storage.FILE else None


def format_target(target: Target) -> str:
    """Describe a target in a message: a client by its class, a URL without its password."""
    name = _get_name(target)
    return f"the given {type(target).__name__}" if name is None else redact_url(name)


def _get_name(target: Target) -> str | None:
    """Return the text of a URL or a path; None for a client, and for a path in bytes."""
    name = os.fspath(target) if isinstance(target, os.PathLike) else target
    return name if isinstance(name, str) else None


def refuse_ambiguous(target: str) -> None:
    """Refuse a target that could be misread, and say how to write it."""
    try:
        target.encode()
        if "://" in target:
            urlsplit(target)
    except ValueError:
        # The error may show a password.
        shown = format_target(target)
        raise UsageError(
            f"cannot open {shown!r}: it is no valid URL or file name", value=shown
        ) from None
    if is_keyword_dsn(target):
        raise UsageError(
            f"{format_target(target)!r} is a connection string of PostgreSQL, which is not taken;"
            " write postgresql://user@host/database, with the password in PGPASSWORD. (A file of"
            " this name is ./ and the name.) Nothing was opened"
        )
    # libpq ends the password at the first @ before a slash, others at the last before any of these.
    is_postgres = _find_by_scheme(target) is _POSTGRES
    authority, *rest = re.split(
        "/" if is_postgres else "[/?#]", target.partition("://")[2], maxsplit=1
    )
    host, _, port = authority.rpartition(":")
    ended_early = "@" not in authority and "@" in "".join(rest)
    unclear = ended_early and host and not host.startswith("[") and not port.isdigit()
    if unclear or (is_postgres and authority.count("@") > 1):
        raise UsageError(
            f"the password in {format_target(target)!r} holds a character that ends it early: write"
            " %23 for #, %2F for /, %3F for ? and %40 for @. Nothing was opened"
        )


def parse_path(target: str) -> Path:
    """Return the path in a file name or the URL of a file; refuse what only resembles one."""
    bare = target.removeprefix("sqlite:").lstrip("/").removeprefix("file:")
    if bare.startswith(":memory:") or target == "sqlite://":
        raise UsageError(
            f"a SQLite database in memory is not supported: {target!r}; nothing was opened. Write"
            " memory: for a store in memory, or name a file.",
            value=target,
        )
    if target.startswith(("file:", "sqlite:///file:")):
        name = target.removeprefix("sqlite:///").removeprefix("file:").partition("?")[0]
        name = "/" + name.lstrip("/") if name.startswith("/") else name
        raise UsageError(
            f"a file: URI is not supported: {target!r}; nothing was opened. Write the file's name:"
            f" {name!r} (or './file:…' for a name that begins like that).",
            value=target,
        )
    scheme, separator, rest = target.partition("://")
    if separator and any(
        engine.storage is Storage.FILE and scheme in engine.schemes for engine in ENGINES
    ):
        if not rest.startswith("/") or rest == "/":
            raise UsageError(
                f"write {scheme}:///name.db, or {scheme}:////full/path/name.db:"
                f" {format_target(target)!r}",
                value=format_target(target),
            )
        if "?" in rest:
            raise UsageError(
                f"a URL of a file has no parameters: {format_target(target)!r}; nothing was opened."
                " A file with a ? in its name is named without the scheme",
                value=format_target(target),
            )
        return _expand(rest[1:])
    if separator or target == "memory" or _NEARLY_A_URL.match(target) or "\0" in target:
        raise UsageError(
            f"cannot open {format_target(target)!r}; name {KNOWN}", value=format_target(target)
        )
    return _expand(target)


def _expand(name: str) -> Path:
    """Return the path of a file, with the home folder of a user in place of `~`."""
    try:
        path = Path(name).expanduser()
    except RuntimeError as error:
        raise UsageError(f"cannot open {name!r}: {error}", value=name) from None
    if path == path.parent and path.is_absolute():
        raise UsageError(f"{path} is a directory, not a database file", value=name)
    return path


def _find_by_scheme(target: str) -> Engine | None:
    scheme, separator, _ = target.partition("://")
    return next((each for each in ENGINES if separator and scheme in each.schemes), None)


def _find_client_pair(target: Target) -> ClientPair | None:
    for engine in ENGINES:
        for pair in engine.clients:
            if any(_is_instance(target, name) for name in pair):
                return pair
    return None


def _is_instance(target: Target, class_name: str) -> bool:
    """Whether a target is a client of this class. If it is, its library was imported."""
    module_name, _, name = class_name.rpartition(".")
    module = sys.modules.get(module_name)
    return module is not None and isinstance(target, getattr(module, name))


# The engines


def _build_memory(options: OpenOptions) -> Factories:
    from indelible.backends.memory import AsyncMemoryBackend, MemoryBackend  # noqa: PLC0415

    _choose_durability(options, default=Durability.NONE, best=Durability.NONE)
    return Factories(
        lambda: MemoryBackend(clock=options.clock),
        lambda: AsyncMemoryBackend(clock=options.clock),
    )


def _build_sqlite(options: OpenOptions) -> Factories:
    from indelible.backends.sqlite import SqliteDatabase, SqliteOptions  # noqa: PLC0415
    from indelible.backends.sqlite.files import refuse_side_file  # noqa: PLC0415
    from indelible.core.embedded import AsyncEmbeddedBackend, EmbeddedBackend  # noqa: PLC0415

    name = _get_name(options.target)
    assert name is not None, "find_engine takes it for a file"
    path = parse_path(name)
    refuse_side_file(path)
    durability = _choose_durability(options, default=Durability.POWER, best=Durability.POWER)
    sqlite_options = SqliteOptions(
        path=path.absolute(),
        namespace=options.namespace,
        durability=max(durability, Durability.PROCESS, key=list(Durability).index),
        busy_timeout_s=options.busy_timeout_s,
        clock=options.clock,
        search=options.search,
    )
    return Factories(
        lambda: EmbeddedBackend(SqliteDatabase(sqlite_options)),
        lambda: AsyncEmbeddedBackend(SqliteDatabase(sqlite_options)),
    )


def _build_redis(options: OpenOptions) -> Factories:
    from indelible.backends.redis import AsyncRedisBackend, RedisBackend, RedisOptions  # noqa: PLC0415

    redis_options = RedisOptions(
        target=options.target,
        shown=format_target(options.target),
        namespace=options.namespace,
        durability=_parse_durability(options),
        timeout_s=options.timeout_s,
        clock=_get_own_clock(options),
    )
    return Factories(
        lambda: RedisBackend(redis_options),
        lambda: AsyncRedisBackend(redis_options),
        redis_options.find_addresses(),
    )


def _build_postgres(options: OpenOptions) -> Factories:
    from indelible.backends.postgres import (  # noqa: PLC0415
        AsyncPostgresBackend,
        PostgresBackend,
        PostgresOptions,
    )

    postgres_options = PostgresOptions(
        target=options.target,
        shown=format_target(options.target),
        namespace=options.namespace,
        durability=_parse_durability(options),
        timeout_s=options.timeout_s,
        clock=_get_own_clock(options),
        search=options.search,
    )
    return Factories(
        lambda: PostgresBackend(postgres_options),
        lambda: AsyncPostgresBackend(postgres_options),
        postgres_options.find_addresses(),
    )


def _get_own_clock(options: OpenOptions) -> Clock | None:
    """Return a test's own clock; else None, since on a server sessions expire by the server's."""
    return None if options.clock is system_clock else options.clock


def _choose_durability(
    options: OpenOptions, *, default: Durability, best: Durability
) -> Durability:
    """Return the level that was asked for, which the engine must be able to keep."""
    level = _parse_durability(options)
    if level is None:
        return default
    if not best.covers(level):
        raise UnsupportedError(
            f"{format_target(options.target)} cannot promise durability {level!s}; the most it"
            f" can is {best!s}"
        )
    return level


def _parse_durability(options: OpenOptions) -> Durability | None:
    if options.durability is None:
        return None
    try:
        return Durability(options.durability)
    except ValueError:
        known = ", ".join(Durability)
        raise UsageError(
            f"durability is one of {known}, not {options.durability!r}", value=options.durability
        ) from None


_MEMORY: Final = Engine(
    name="memory",
    storage=Storage.MEMORY,
    examples=("memory:",),
    build=_build_memory,
)
_SQLITE: Final = Engine(
    name="sqlite",
    storage=Storage.FILE,
    schemes=("sqlite",),
    examples=("a file name such as agent.db", "sqlite:///agent.db"),
    build=_build_sqlite,
)
_REDIS: Final = Engine(
    name="redis",
    storage=Storage.SERVER,
    schemes=("redis", "rediss", "unix", "redis+cluster", "rediss+cluster"),
    examples=("redis://host:6379",),
    build=_build_redis,
    requires=("redis", "hiredis"),
    extra="redis",
    clients=(
        ClientPair("redis.Redis", "redis.asyncio.Redis"),
        ClientPair("redis.RedisCluster", "redis.asyncio.RedisCluster"),
    ),
)
_POSTGRES: Final = Engine(
    name="postgres",
    storage=Storage.SERVER,
    schemes=("postgresql", "postgres"),
    examples=("postgresql://host/database",),
    build=_build_postgres,
    requires=("psycopg", "psycopg_pool"),
    extra="postgres",
    clients=(ClientPair("psycopg_pool.ConnectionPool", "psycopg_pool.AsyncConnectionPool"),),
)
# The registry. A file name without a scheme is SQLite's.
ENGINES: Final = (_MEMORY, _SQLITE, _REDIS, _POSTGRES)


def describe_targets(engines: tuple[Engine, ...] = ENGINES) -> str:
    """List what can be opened, for messages."""
    *others, last = [example for engine in engines for example in engine.examples]
    return f"{', '.join(others)}, or {last}"


KNOWN: Final = describe_targets()

# Looks like one of our URLs and lacks the slashes, such as `redis:host`. A file of such a name is
# written `./redis:host`.
_SCHEMES: Final = (scheme for engine in ENGINES for scheme in (engine.name, *engine.schemes))
_NEARLY_A_URL: Final = re.compile(
    rf"(?i)(?:{'|'.join(map(re.escape, _SCHEMES))})(?:\+[a-z]+)?:(?!//)"
)
