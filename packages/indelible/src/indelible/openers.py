"""Open a store, sync or async, from a URL, a path or a client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Literal, TypeVar

from indelible.connect import (
    OpenOptions,
    Storage,
    Target,
    connect,
    connect_async,
    find_engine,
    find_server,
    format_target,
)
from indelible.core.audit import build_audit
from indelible.core.clock import Clock, system_clock
from indelible.core.embedding import AnyEmbedder, to_embedder
from indelible.core.extras import format_install_command
from indelible.core.ids import Ids, random_ids
from indelible.core.limits import BUSY_TIMEOUT_S, TIMEOUT_S
from indelible.core.observer import Defaults
from indelible.core.settings import Settings, check_ttl_s
from indelible.errors import UnsupportedError
from indelible.model import NEVER, Durability, Never
from indelible.store import MemoryStore
from indelible.store_async import AsyncMemoryStore

S = TypeVar("S", MemoryStore, AsyncMemoryStore)


def open(  # noqa: A001 (indelible.open reads well, and shadows nothing outside this module)
    target: Target,
    *,
    namespace: str = "",
    durability: Durability | str | None = None,
    ttl: float | Never = NEVER,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    timeout_s: float = TIMEOUT_S,
    strict: bool = False,
    embedder: AnyEmbedder | None = None,
    search: bool = True,
    telemetry: bool | None = None,
    audit: bool | Literal["reads"] = False,
    audit_key: bytes | None = None,
    actor: str = "",
    clock: Clock = system_clock,
    ids: Ids = random_ids,
) -> MemoryStore:
    """Open a store: `memory:`, a file name such as `agent.db`, `redis://host:6379`, or a client.

    Namespaces are separate: no session is visible in two of them. `durability` is what an
    acknowledged append must survive: on SQLite `"power"` (the default) or `"process"`; on a server
    it is a requirement, and the default is what the server provides. `ttl` is the default time to
    live of a session, in seconds. `timeout_s` is the deadline of every call to a server, with all
    its retries; only a server that gives no answer at all to `open` is an error within two seconds.
    On SQLite, `busy_timeout_s` is how long a write waits for other writers. An engine that may lose
    acknowledged data causes a warning, or is refused with `strict=True`; see `risks`.
    `embedder` computes vectors: an object with `name` and `embed`, an `Embeddings` of LangChain, or
    a function from a text, or from a list of texts if it is annotated so; each may be awaited.
    With `search=False`, no index of words is written: appends cost less, and a search reads every
    entry in its scope, up to a limit. With `telemetry=True`, calls are spans and metrics of
    OpenTelemetry; None is False, unless OpenTelemetry instruments this process. With
    `audit=True`, each change of a session adds a line to its audit; with `audit="reads"`, reads
    add lines too: see `audit_log`. `audit_key`, or the environment variable `INDELIBLE_AUDIT_KEY`,
    is the secret of its hashes; `actor` is who makes changes, unless `indelible.actor(…)` says
    otherwise. `clock` and `ids` are for deterministic tests.
    """
    check_ttl_s(ttl)
    text_embedder = to_embedder(embedder)
    options = OpenOptions(
        target=target,
        namespace=namespace,
        durability=durability,
        busy_timeout_s=busy_timeout_s,
        timeout_s=timeout_s,
        strict=strict,
        search=search,
        clock=clock,
    )
    observe = _find_telemetry(telemetry, options, awaited=False)
    audited = build_audit(audit, audit_key, actor)
    settings = Settings(ttl, ids, text_embedder, format_target(target), audited)
    return observe(MemoryStore(connect(options), settings))


def open_async(
    target: Target,
    *,
    namespace: str = "",
    durability: Durability | str | None = None,
    ttl: float | Never = NEVER,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    timeout_s: float = TIMEOUT_S,
    strict: bool = False,
    embedder: AnyEmbedder | None = None,
    search: bool = True,
    telemetry: bool | None = None,
    audit: bool | Literal["reads"] = False,
    audit_key: bytes | None = None,
    actor: str = "",
    clock: Clock = system_clock,
    ids: Ids = random_ids,
) -> Opening:
    """Open a store for async code, with the options of `open`.

    Either `store = await open_async(…)` or `async with open_async(…) as store:`.
    """
    check_ttl_s(ttl)
    text_embedder = to_embedder(embedder)
    options = OpenOptions(
        target=target,
        namespace=namespace,
        durability=durability,
        busy_timeout_s=busy_timeout_s,
        timeout_s=timeout_s,
        strict=strict,
        search=search,
        clock=clock,
    )
    observe = _find_telemetry(telemetry, options, awaited=True)
    audited = build_audit(audit, audit_key, actor)
    settings = Settings(ttl, ids, text_embedder, format_target(target), audited)
    return Opening(options, settings, observe)


def _find_telemetry(asked: bool | None, options: OpenOptions, *, awaited: bool) -> Callable[[S], S]:
    """Return what adds spans and metrics to a store, or leaves it as it is."""
    if not (Defaults.telemetry if asked is None else asked):
        return lambda store: store
    try:
        from indelible.telemetry import Telemetry  # noqa: PLC0415 (needs an extra)
    except ImportError as error:
        raise UnsupportedError(
            f"telemetry needs the package opentelemetry-api: {format_install_command('otel')}."
            " Nothing was opened"
        ) from error
    remote = find_engine(options.target).storage is Storage.SERVER
    return Telemetry(find_server(options, awaited=awaited), remote=remote).instrument


class Opening:
    """The result of `open_async`: await it, or use it with `async with`."""

    def __init__(
        self,
        options: OpenOptions,
        settings: Settings,
        observe: Callable[[AsyncMemoryStore], AsyncMemoryStore],
    ) -> None:
        self._options = options
        self._settings = settings
        self._observe = observe
        self._store: AsyncMemoryStore | None = None

    def __getattr__(self, name: str) -> Any:
        """Refuse to be used as a store."""
        raise AttributeError(
            f"open_async was not awaited, so there is no {name!r}: write `store = await"
            " indelible.open_async(…)`, or `async with indelible.open_async(…) as store:`"
        )

    async def _open(self) -> AsyncMemoryStore:
        backend = await connect_async(self._options)
        self._store = self._observe(AsyncMemoryStore(backend, self._settings))
        return self._store

    def __await__(self) -> Generator[Any, None, AsyncMemoryStore]:
        return self._open().__await__()

    # No coroutine of its own: warnings name the line that is as far away as with `await`.
    def __aenter__(self) -> Coroutine[Any, Any, AsyncMemoryStore]:
        return self._open()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.close()
