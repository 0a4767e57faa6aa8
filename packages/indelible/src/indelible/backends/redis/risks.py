"""Claims and risks that follow from the settings of the servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from indelible.backends.redis.requests import HANDLERS, RedisContext
from indelible.backends.redis.settings import RedisSettings, read_settings
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from indelible.core.operations import FindRisks
from indelible.core.plan import Plan
from indelible.errors import UnsupportedError
from indelible.model import Claims, Durability, Gravity, Risk


@HANDLERS.handles(FindRisks)
def find_risks(context: RedisContext, _op: FindRisks) -> Plan[tuple[Risk, ...]]:
    """Inspect the running servers."""
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
    if policy.startswith("allkeys"):
        yield Risk(
            severity=Gravity.DANGER,
            subject=f"maxmemory-policy {policy}",
            risk="when its memory is full, the server drops sessions, or parts of them, in silence",
            remedy="set maxmemory-policy noeviction: then a full server refuses writes and says so",
        )
    elif policy.startswith("volatile"):
        yield Risk(
            severity=Gravity.DANGER,
            subject=f"maxmemory-policy {policy}",
            risk="when its memory is full, the server drops sessions with a time to live before"
            " their time, in silence",
            remedy="set maxmemory-policy noeviction: then a full server refuses writes and says so",
        )


def _list_persistence_risks(settings: RedisSettings, demanded: Durability | None) -> Iterator[Risk]:
    if not settings.appendonly:
        # A caller that asked for `none` by name knows.
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
    """Compute the level of every write: the least of all servers, or replicated if demanded."""
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
    """Raise if the servers do not give what was demanded."""
    level = compute_durability(every, demanded=demanded, simulated=simulated)
    if demanded is not None and not level.covers(demanded):
        wanted = "a replica, appendonly yes, and appendfsync always (or everysec with WAITAOF)"
        if demanded is not Durability.REPLICATED:
            wanted = "appendonly yes and appendfsync always"
        raise UnsupportedError(
            f"{shown} cannot promise durability {demanded!s}; as it is set up, it gives {level!s}."
            f" That takes {wanted}, on every primary"
        )


def build_claims(
    every: Sequence[RedisSettings],
    *,
    demanded: Durability | None,
    simulated: bool,
    cluster: bool,
    ttl_clock: str,
) -> Claims:
    """Build what is promised on these servers."""
    first = every[0]
    risks = list_risks(every, demanded=demanded, simulated=simulated)
    return Claims(
        engine=f"{first.name} cluster" if cluster else first.name,
        engine_version=first.version,
        durability=compute_durability(every, demanded=demanded, simulated=simulated),
        multi_process=not simulated,
        ttl_clock=ttl_clock,
        simulated=simulated,
        entry_bytes_max=ENTRY_BYTES_MAX,
        batch_entries_max=BATCH_ENTRIES_MAX,
        warnings=tuple(
            f"{risk.subject}: {risk.risk}" for risk in risks if risk.severity is not Gravity.NOTE
        ),
    )
