"""The settings of a running server that decide what it can lose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from indelible.backends.redis.requests import HANDLERS, RedisContext
from indelible.core.operations import Identify
from indelible.core.plan import Plan
from indelible.model import Durability

_CONFIGURED = (
    "appendonly",
    "appendfsync",
    "save",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisSettings:
    """One server, as it runs."""

    name: str
    version: str
    # Whether the server let us look at all.
    known: bool
    # None where the server does not let us look.
    appendfsync: str | None
    appendonly: bool
    saves: bool | None
    eviction: str
    replicas: int
    min_replicas: int | None
    rests_while_rewriting: bool

    @property
    def durability(self) -> Durability:
        """Return what an acknowledged write survives."""
        if not self.appendonly:
            return Durability.NONE
        # A server that hides the setting may have the default, once a second.
        if self.appendfsync == "always" and not self.rests_while_rewriting:
            return Durability.POWER
        return Durability.PROCESS

    @property
    def can_wait_for_disks(self) -> bool:
        """Whether the server has WAITAOF, and ever syncs: otherwise WAITAOF would never end."""
        has_it = self.name == "valkey" or _parse_version(self.version) >= (7, 2)
        return has_it and self.appendonly and self.appendfsync != "no"


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def read_settings(context: RedisContext) -> Plan[list[RedisSettings]]:
    """Read the settings of every server that holds keys."""
    servers = yield context.count_servers()
    found: list[RedisSettings] = []
    for server in range(servers):
        settings = yield from _read_server(context, server)
        found.append(settings)
    return found


def _read_server(context: RedisContext, server: int) -> Plan[RedisSettings]:
    """Ask one server."""
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
        # While a server reads its file, at its start, INFO says that it keeps none.
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
