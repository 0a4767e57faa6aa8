"""Claims and risks, which follow from the settings of the running server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from indelible.backends.postgres.connection import HANDLERS, PostgresConnection
from indelible.core.limits import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from indelible.core.operations import FindRisks, Identify
from indelible.model import Claims, Durability, Gravity, Risk

# Most roles see that pg_stat_replication has rows, but not the values in them.
_SETTINGS: Final = """
    SELECT current_setting('server_version'), current_setting('fsync') = 'on',
        current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
        current_setting('synchronous_standby_names') <> '', pg_is_in_recovery(),
        (SELECT count(*) FROM pg_stat_replication),
        (SELECT count(*) FROM pg_stat_replication
            WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum')),
        current_setting('default_transaction_isolation')"""

# Roles whose code may run as the role that uses the schema, because they may create functions and
# operators in it or triggers on its tables, or own something in it. Its owner, superusers and this
# role are left out.
_STRANGERS: Final = """
    WITH schema AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = 'indelible'),
    relation AS (SELECT relowner, relacl FROM pg_class JOIN schema ON relnamespace = schema.oid),
    able (role) AS (
        SELECT grantee FROM schema, aclexplode(nspacl) WHERE privilege_type = 'CREATE'
        UNION SELECT grantee FROM relation, aclexplode(relacl) WHERE privilege_type = 'TRIGGER'
        UNION SELECT relowner FROM relation
        UNION SELECT proowner FROM pg_proc JOIN schema ON pronamespace = schema.oid
        UNION SELECT oprowner FROM pg_operator JOIN schema ON oprnamespace = schema.oid)
    SELECT CASE role WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(role)) END
    FROM able LEFT JOIN pg_roles ON pg_roles.oid = role
    WHERE role NOT IN (SELECT nspowner FROM schema) AND rolname IS DISTINCT FROM current_user
        AND rolsuper IS NOT TRUE
    ORDER BY 1"""

# Identifies a server by the microsecond in which it started, and a database by its OID.
_PLACE: Final = """
    SELECT 'postgresql ' || extract(epoch FROM pg_postmaster_start_time()) || ' ' || oid
    FROM pg_database WHERE datname = current_database()"""

# Values of synchronous_commit with which an acknowledged commit is on a standby's disk.
_ON_STANDBY: Final = ("on", "remote_apply")


class PostgresSettings(NamedTuple):
    """The server's settings, as they apply to a connection of this store."""

    version: str
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    has_standby_names: bool
    in_recovery: bool
    replicas: int
    synchronous_replicas: int
    isolation: str
    # Other roles whose code may run as the role that uses the tables.
    strangers: Sequence[str] = ()

    @property
    def durability(self) -> Durability:
        """The level of an acknowledged commit."""
        if self.synchronous_commit == "off":
            return Durability.NONE
        if not self.fsync or not self.full_page_writes:
            return Durability.PROCESS
        if self.has_standby_names and self.synchronous_commit in _ON_STANDBY:
            return Durability.REPLICATED
        return Durability.POWER


def read_settings(db: PostgresConnection) -> PostgresSettings:
    """Read the settings of the server."""
    ((version, *others),) = db.query(f"{_SETTINGS}, ARRAY({_STRANGERS})")
    return PostgresSettings(version.split()[0], *others)


@HANDLERS.handles(Identify)
def identify(db: PostgresConnection, _op: Identify) -> str | None:
    """Return an id of server, database and namespace that does not depend on the URL."""
    ((place,),) = db.query(_PLACE)
    return f"{place} {db.context.namespace.decode()}"


@HANDLERS.handles(FindRisks)
def find_risks(db: PostgresConnection, _op: FindRisks) -> tuple[Risk, ...]:
    """Read the settings of the server, and list what may be lost."""
    return build_risks(read_settings(db))


def build_claims(settings: PostgresSettings, *, ttl_clock: str) -> Claims:
    """Build the claims of a store on this server."""
    return Claims(
        engine="postgresql",
        engine_version=settings.version,
        durability=settings.durability,
        multi_process=True,
        ttl_clock=ttl_clock,
        entry_bytes_max=ENTRY_BYTES_MAX,
        batch_entries_max=BATCH_ENTRIES_MAX,
        warnings=tuple(
            f"{risk.subject}: {risk.risk}"
            for risk in build_risks(settings)
            if risk.severity is not Gravity.NOTE
        ),
    )


def build_risks(settings: PostgresSettings) -> tuple[Risk, ...]:
    """List the risks of a store on this server."""
    return (
        *_find_disk_risks(settings),
        *_find_role_risks(settings),
        *_find_standby_risks(settings),
        *_find_default_risks(settings),
    )


def _find_disk_risks(settings: PostgresSettings) -> Iterator[Risk]:
    if not settings.fsync:
        yield Risk(
            severity=Gravity.DANGER,
            subject="fsync=off",
            risk="a power cut or a crash of the system can damage the whole database",
            remedy="set fsync = on, and reload the server",
        )
    if not settings.full_page_writes:
        yield Risk(
            severity=Gravity.DANGER,
            subject="full_page_writes=off",
            risk="a power cut or a crash of the system can leave half-written pages behind",
            remedy="set full_page_writes = on, and reload the server",
        )
    if settings.synchronous_commit == "off":
        yield Risk(
            severity=Gravity.DANGER,
            subject="synchronous_commit=off",
            risk="a crash of the server takes the newest acknowledged writes with it",
            remedy="set synchronous_commit = on for this role or database",
        )


def _find_role_risks(settings: PostgresSettings) -> Iterator[Risk]:
    if settings.strangers:
        roles = ", ".join(settings.strangers)
        yield Risk(
            severity=Gravity.DANGER,
            subject=f"the schema indelible is open to {roles}",
            risk="functions, operators or triggers that they make there run as this role: they can"
            " read, change and delete every session",
            remedy=f"REVOKE CREATE ON SCHEMA indelible FROM {roles}; REVOKE TRIGGER ON ALL TABLES"
            f" IN SCHEMA indelible FROM {roles}; and give what they own in it to its owner (ALTER …"
            " OWNER TO)",
        )


def _find_standby_risks(settings: PostgresSettings) -> Iterator[Risk]:
    if settings.in_recovery:
        yield Risk(
            severity=Gravity.WARNING,
            subject="a standby",
            risk="nothing can be written here",
            remedy="name the primary, or all servers, as in postgresql://one,two/name",
        )
    elif settings.has_standby_names:
        if settings.synchronous_commit not in _ON_STANDBY:
            yield Risk(
                severity=Gravity.WARNING,
                subject=f"synchronous_commit={settings.synchronous_commit}",
                risk="if a standby takes over, the newest acknowledged writes may not be on its"
                " disk",
                remedy="set synchronous_commit = on for this role or database",
            )
        if not settings.synchronous_replicas:
            yield Risk(
                severity=Gravity.WARNING,
                subject="no synchronous standby",
                risk="nothing is lost: every write waits until one is connected",
                remedy="start a standby that synchronous_standby_names names",
            )
    elif settings.replicas:
        yield Risk(
            severity=Gravity.WARNING,
            subject="asynchronous standbys",
            risk="if one takes over, the newest acknowledged writes are lost",
            remedy="name a standby in synchronous_standby_names",
        )
    else:
        yield Risk(
            severity=Gravity.NOTE,
            subject="one server",
            risk="the loss of its disk takes all that was written since the last backup with it",
            remedy="add a standby, and name it in synchronous_standby_names",
        )


def _find_default_risks(settings: PostgresSettings) -> Iterator[Risk]:
    if settings.isolation != "read committed":
        yield Risk(
            severity=Gravity.NOTE,
            subject=f"default_transaction_isolation={settings.isolation}",
            risk="nothing is lost: appends of many writers to one conversation are tried again",
            remedy="set default_transaction_isolation = 'read committed' for this role",
        )
