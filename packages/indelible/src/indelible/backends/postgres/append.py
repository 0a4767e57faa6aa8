"""The guarded write of one or more appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from indelible.backends.postgres.arrays import BoolArray, BytesArray, IntArray, TextArray
from indelible.backends.postgres.entries import EntryColumns
from indelible.backends.postgres.statements import (
    LOCK_WAIT_S,
    Call,
    PostgresContext,
    to_milliseconds,
)
from indelible.core import rules
from indelible.core.batcher import Pending
from indelible.core.checksums import compute_entry_checksum
from indelible.core.operations import Append, AppendResult

R = TypeVar("R")

# See the migration that creates the function.
_APPEND: Final = f"SELECT indelible.append({', '.join(f'${nth}' for nth in range(1, 21))})"


def sort_appends(batch: Sequence[Pending[Append, R]]) -> list[Pending[Append, R]]:
    """The order in which a group is sent: sessions by name, the appends of a session as they came.

    All groups lock rows in this order, so that two never wait for each other in a circle.
    """
    return sorted(batch, key=lambda pending: pending.request.session.encode())


def build_call(
    context: PostgresContext, appends: Sequence[Append], *, wait_s_max: float = LOCK_WAIT_S
) -> Call:
    """The guarded write of sorted appends."""
    names, keys, fresh, expected = BytesArray(), BytesArray(), BoolArray(), TextArray()
    ttls, firsts, counts = IntArray(), IntArray(), IntArray()
    entries = EntryColumns(search=context.search)
    session, name, salt = None, b"", 0
    for op in appends:
        if op.session != session:
            session, name, salt = op.session, op.session.encode(), context.salt(op.session)
        names.append(name)
        keys.append(op.key.encode())
        fresh.append(op.fresh)
        expected.append(_format_expected(op.expected))
        ttls.append(to_milliseconds(op.ttl_s))
        firsts.append(len(entries.kinds) + 1)
        counts.append(len(op.drafts))
        for kind, envelope, keep, opens, answers in op.drafts:
            checksum = compute_entry_checksum(salt, envelope)
            entries.add(kind, keep, opens, answers, envelope, checksum)
    params = (
        *(context.namespace, context.now_ms()),
        *(names, keys, fresh, expected.or_none(), ttls.or_none(), firsts, counts),
        *entries.build_params(),
    )
    return Call(_APPEND, params, wait_s_max)


def _format_expected(version: str | None) -> str | None:
    """An expected version; text that the server may not be able to read is no session's version."""
    return version if version is None or (version.isascii() and version.isprintable()) else ""


def build_result(op: Append, version: str) -> AppendResult:
    """The result of an append that was written."""
    _, end, _ = rules.parse_version(version)
    count = len(op.drafts)
    return AppendResult(end - count, count, version)
