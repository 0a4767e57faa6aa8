"""The guarded write of one or more appends: its statement, parameters and result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from indelible.backends.postgres.arrays import BoolArray, BytesArray, IntArray, TextArray
from indelible.backends.postgres.entries import build_arrays, build_entry
from indelible.backends.postgres.statements import (
    PostgresContext,
    format_expected,
    to_milliseconds,
)
from indelible.core import rules
from indelible.core.batcher import Pending
from indelible.core.checksums import compute_entry_checksum
from indelible.core.operations import Append, AppendResult

R = TypeVar("R")

# See the migration that creates the function.
APPEND: Final = f"SELECT indelible.append({', '.join(f'${nth}' for nth in range(1, 20))})"


def sort_appends(batch: Sequence[Pending[Append, R]]) -> list[Pending[Append, R]]:
    """Sort a group by session name; appends to the same session keep their order.

    All groups lock rows in this order, so that they cannot deadlock.
    """
    return sorted(batch, key=lambda pending: pending.request.session.encode())


def build_parameters(context: PostgresContext, appends: Sequence[Append]) -> tuple[Any, ...]:
    """Build the parameters of `APPEND`, but for the first, for sorted appends."""
    names, keys, fresh, expected = BytesArray(), BytesArray(), BoolArray(), TextArray()
    ttls, counts = IntArray(), IntArray()
    entries: list[tuple[Any, ...]] = []
    session, name, salt = None, b"", 0
    for op in appends:
        if op.session != session:
            session, name, salt = op.session, op.session.encode(), context.compute_salt(op.session)
        names.append(name)
        keys.append(op.key.encode())
        fresh.append(op.fresh)
        expected.append(format_expected(op.expected))
        ttls.append(to_milliseconds(op.ttl_s))
        counts.append(len(op.drafts))
        for draft in op.drafts:
            checksum = compute_entry_checksum(salt, draft.envelope)
            entries.append(build_entry(draft, checksum, search=context.search))
    return (
        *(context.namespace, context.now_ms()),
        *(names, keys, fresh, expected.or_none(), ttls.or_none(), counts),
        *build_arrays(entries),
    )


def build_result(op: Append, version: str) -> AppendResult:
    """Build the result of an append that was written."""
    _, end, _ = rules.parse_version(version)
    count = len(op.drafts)
    return AppendResult(end - count, count, version)
