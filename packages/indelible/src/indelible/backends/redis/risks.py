"""Claims and risks, which follow from the settings of the running servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from indelible.backends.redis.requests import HANDLERS, RedisContext
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from indelible.core.operations import FindRisks, Identify
from indelible.core.plan import Plan
from indelible.errors import UnsupportedError
from indelible.model import Claims, Durability, Gravity, Risk

_CONFIGURED = (
    "appendonly",
    "appendfsync",
    "save",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisSettings:
    """The settings of one server."""

    name: str
    version: str
    # Whether the server permits INFO.
    known: bool
    # None if the server does not permit CONFIG GET.
    appendfsync: str | None
    appendonly: bool
    saves: bool | None
    eviction: str
    replicas: int
    min_replicas: int | None
    rests_while_rewriting: bool

    @property
    def durability(self) -> Durability:
        """The level of an acknowledged write."""
        if not self.appendonly:
            return Durability.NONE
        # If the setting is not known, the default is assumed: once a second.
        if self.appendfsync == "always" and not self.rests_while_rewriting:
            return Durability.POWER
        return Durability.PROCESS

    @property
    def can_wait_for_disks(self) -> bool:
        """Whether the server has WAITAOF, and syncs at all: otherwise WAITAOF never returns."""
        has_it = self.name == "valkey" or _parse_version(self.version) >= (7, 2)
        return has_it and self.appendonly and self.appendfsync != "no"


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def read_settings(context: RedisContext) -> Plan[list[RedisSettings]]:
    """Read the settings of all primaries."""
    servers = yield context.count_servers()
    found: list[RedisSettings] = []
    for server in range(servers):
        settings = yield from _read_server(context, server)
        found.append(settings)
    return found


def _read_server(context: RedisContext, server: int) -> Plan[RedisSettings]:
    """Read the settings of one server."""
    commands = (("INFO",), *(("CONFIG", "GET", name) for name in _CONFIGURED))
    info, *configured = yield context.send(server, *commands)
    values = {
        name: _parse_configured(reply) for name, reply in zip(_CONFIGURED, configured, strict=True)
    }
    return build_settings(parse_info(info), values)


@HANDLERS.handles(Identify)
def identify(context: RedisContext, _op: Identify) -> Plan[str | None]:
    """Return the runs of the servers and the database; None if they do not say."""
    servers = yield context.count_servers()
    runs: list[str] = []
    database = ""
    for server in range(servers):
        info, client = yield context.send(server, ("INFO", "server"), ("CLIENT", "INFO"))
        run = parse_info(info).get("run_id")
        words = client.decode("utf-8", "replace").split() if isinstance(client, bytes) else ()
        database = next((word for word in words if word.startswith("db=")), "")
        if not run or not database:
            return None
        runs.append(run)
    return f"redis {' '.join(sorted(runs))} {database} {context.namespace}"


def build_settings(fields: dict[str, str], values: dict[str, str | None]) -> RedisSettings:
    """Build settings from what INFO and CONFIG GET answered."""
    is_valkey = "valkey_version" in fields or fields.get("server_name") == "valkey"
    version = fields.get("valkey_version") if is_valkey else fields.get("redis_version")
    save, least = values["save"], values["min-replicas-to-write"]
    return RedisSettings(
        name="valkey" if is_valkey else "redis",
        version=version or "",
        known=bool(fields),
        appendfsync=values["appendfsync"],
        # While a server loads its append-only file, INFO says that it has none.
        appendonly=fields.get("aof_enabled") == "1" or values["appendonly"] == "yes",
        saves=None if save is None else bool(save.strip()),
        eviction=fields.get("maxmemory_policy", "noeviction"),
        replicas=int(fields.get("connected_slaves", "0")),
        min_replicas=None if least is None else int(least),
        rests_while_rewriting=values["no-appendfsync-on-rewrite"] == "yes",
    )


def parse_info(info: Any) -> dict[str, str]:
    """Parse the lines of INFO by name; there are none if the server refused."""
    if not isinstance(info, (bytes, str)):
        return {}
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else info
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs if value}


def _parse_configured(reply: Any) -> str | None:
    """Parse the reply of CONFIG GET, in either protocol; None if it was refused."""
    values = list(reply.values()) if isinstance(reply, dict) else reply
    if isinstance(reply, list):
        values = reply[1::2]
    if not isinstance(values, list) or not values:
        return None
    value = values[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def list_copies_on_disk(settings: RedisSettings) -> list[str]:
    """List the files in which a server keeps what was erased from its memory."""
    left = []
    if settings.appendonly:
        left.append("the append-only file of the server, until it is rewritten (BGREWRITEAOF)")
    if settings.saves is not False:
        left.append("the RDB file of the server, until it is saved again (BGSAVE)")
    if settings.replicas:
        left.append("the files of its replicas, until they are written again in the same way")
    return left


@HANDLERS.handles(FindRisks)
def find_risks(context: RedisContext, _op: FindRisks) -> Plan[tuple[Risk, ...]]:
    """Read the settings of the servers, and list what may be lost."""
    every = yield from read_settings(context)
    return list_risks(every, demanded=context.demanded, simulated=context.simulated)


def list_risks(
    every: Sequence[RedisSettings], *, demanded: Durability | None, simulated: bool
) -> tuple[Risk, ...]:
    """List the risks, each once, even if several servers have it."""
    if simulated:
        return (
            Risk(
                severity=Gravity.NOTE,
                subject="a simulated server",
                risk="every session ends with this process",
                remedy="open a real server to keep them",
            ),
        )
    found = dict.fromkeys(
        risk for settings in every for risk in _list_server_risks(settings, demanded=demanded)
    )
    return tuple(found)


def _list_server_risks(settings: RedisSettings, *, demanded: Durability | None) -> Iterator[Risk]:
    if not settings.known:
        yield Risk(
            severity=Gravity.WARNING,
            subject="INFO is refused",
            risk="nothing is known of how the server keeps its data, so that nothing is promised",
            remedy="let the user run INFO and CONFIG GET",
        )
        return
    yield from _list_eviction_risks(settings)
    yield from _list_persistence_risks(settings, demanded)
    yield from _list_replica_risks(settings, demanded)
    if settings.appendfsync is None and settings.appendonly:
        yield Risk(
            severity=Gravity.NOTE,
            subject="CONFIG GET is refused",
            risk="how often the server syncs is not known, and once a second is assumed",
            remedy="let the user run CONFIG GET, or set appendfsync always and know it",
        )


def _list_eviction_risks(settings: RedisSettings) -> Iterator[Risk]:
    policy = settings.eviction
    if policy == "noeviction":
        return
    what = "sessions, or parts of them,"
    if policy.startswith("volatile"):
        what = "sessions with a time to live before their time,"
    yield Risk(
        severity=Gravity.DANGER,
        subject=f"maxmemory-policy {policy}",
        risk=f"when its memory is full, the server drops {what} in silence",
        remedy="set maxmemory-policy noeviction: then a full server refuses writes and says so",
    )


def _list_persistence_risks(settings: RedisSettings, demanded: Durability | None) -> Iterator[Risk]:
    if not settings.appendonly:
        # A caller that asked for `none` knows.
        accepted = demanded is Durability.NONE
        kept = " but for what it last saved" if settings.saves else ""
        yield Risk(
            severity=Gravity.NOTE if accepted else Gravity.DANGER,
            subject="appendonly no",
            risk=f"a restart or a crash of the server loses every session{kept}",
            remedy="set appendonly yes and appendfsync always",
        )
    elif settings.appendfsync != "always":
        yield Risk(
            severity=Gravity.WARNING,
            subject=f"appendfsync {settings.appendfsync or 'unknown'}",
            risk="a power cut loses about the last second of acknowledged writes, and a kill of the"
            " server while its disk stalls up to two",
            remedy="set appendfsync always",
        )
    elif settings.rests_while_rewriting:
        yield Risk(
            severity=Gravity.WARNING,
            subject="no-appendfsync-on-rewrite yes",
            risk="a power cut while the file is rewritten loses what was acknowledged meanwhile",
            remedy="set no-appendfsync-on-rewrite no",
        )


def _list_replica_risks(settings: RedisSettings, demanded: Durability | None) -> Iterator[Risk]:
    if not settings.replicas or demanded is Durability.REPLICATED:
        return
    if not settings.min_replicas:
        yield Risk(
            severity=Gravity.WARNING,
            subject="replicas without min-replicas-to-write",
            risk="a failover loses acknowledged writes that had not reached a replica yet, and a"
            " primary that was cut off takes more of them meanwhile",
            remedy='set min-replicas-to-write 1, or open with durability="replicated"',
        )
    else:
        yield Risk(
            severity=Gravity.NOTE,
            subject="asynchronous replicas",
            risk="a failover may lose the newest acknowledged writes",
            remedy='open with durability="replicated"',
        )


def compute_durability(
    every: Sequence[RedisSettings], *, demanded: Durability | None, simulated: bool
) -> Durability:
    """Compute the level of all writes: the lowest of all servers, or replicated if demanded."""
    if simulated or not every:
        return Durability.NONE
    least = min((each.durability for each in every), key=list(Durability).index)
    if demanded is Durability.REPLICATED and all(_replicates(each) for each in every):
        return Durability.REPLICATED
    return least


def _replicates(settings: RedisSettings) -> bool:
    on_disk = settings.can_wait_for_disks or settings.durability is Durability.POWER
    return settings.appendonly and on_disk and settings.replicas > 0


def refuse_weaker(
    every: Sequence[RedisSettings], *, demanded: Durability | None, simulated: bool, shown: str
) -> None:
    """Raise if the servers cannot promise the demanded durability."""
    level = compute_durability(every, demanded=demanded, simulated=simulated)
    if demanded is not None and not level.covers(demanded):
        wanted = "a replica, appendonly yes, and appendfsync always (or everysec with WAITAOF)"
        if demanded is not Durability.REPLICATED:
            wanted = "appendonly yes and appendfsync always"
        raise UnsupportedError(
            f"{shown} cannot promise durability {demanded!s}; as it is set up, it gives {level!s}."
            f" That takes {wanted}, on every primary"
        )


def read_claims(context: RedisContext) -> Plan[Claims]:
    """Return what is promised with the settings as they are now."""
    every = yield from read_settings(context)
    first = every[0]
    risks = list_risks(every, demanded=context.demanded, simulated=context.simulated)
    return Claims(
        engine=f"{first.name} cluster" if context.is_cluster else first.name,
        engine_version=first.version,
        durability=compute_durability(
            every, demanded=context.demanded, simulated=context.simulated
        ),
        multi_process=not context.simulated,
        ttl_clock="server" if context.clock is None else "caller",
        simulated=context.simulated,
        entry_bytes_max=ENTRY_BYTES_MAX,
        batch_entries_max=BATCH_ENTRIES_MAX,
        warnings=tuple(
            f"{risk.subject}: {risk.risk}" for risk in risks if risk.severity is not Gravity.NOTE
        ),
    )
