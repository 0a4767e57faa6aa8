"""Checks of the whole schema."""

from __future__ import annotations

from indelible.backends.postgres.sessions import build_checksum
from indelible.backends.postgres.statements import HANDLERS, All, PostgresContext, Sql
from indelible.backends.postgres.transaction import CHECKSUMS, PARTS
from indelible.core.operations import CheckEngine, Scrub


@HANDLERS.handles(CheckEngine)
async def check_engine(_context: PostgresContext, _op: CheckEngine) -> tuple[str, ...]:
    """Rows that belong to no session, and rows whose checksum does not match."""
    queries = {
        f"rows of {table} belong to no session": f"SELECT count(*) FROM indelible.{table} AS part"
        " WHERE NOT EXISTS (SELECT FROM indelible.session WHERE number = part.session)"
        for table in PARTS
    }
    for table, checksum in {"session": build_checksum(), **CHECKSUMS}.items():
        query = f"SELECT count(*) FROM indelible.{table} WHERE checksum IS DISTINCT FROM {checksum}"
        queries[f"rows of {table} are damaged: their checksum does not match"] = query
    counts = await All(tuple(map(Sql, queries.values())))
    return tuple(
        f"{count} {what}" for what, ((count,),) in zip(queries, counts, strict=True) if count
    )


@HANDLERS.handles(Scrub)
async def scrub(_context: PostgresContext, _op: Scrub) -> tuple[str, ...]:
    """Do nothing: no client can clear the server's files. The receipt of an erasure says so."""
    return ()
