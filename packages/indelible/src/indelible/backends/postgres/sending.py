"""The one statement of a group of appends, and what its answer says to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from indelible.backends.postgres.append import KIND_NUMBER, columns, encode_links
from indelible.backends.postgres.named import (
    APPEND,
    APPEND_MANY,
    array,
    ascii_text,
    bigint,
    bigints,
    boolean,
    integer,
    integers,
    is_sayable,
    smallint,
)
from indelible.backends.postgres.sessions import Context, ttl_ms
from indelible.backends.postgres.statements import Call, DoAlone, milliseconds_of
from indelible.backends.postgres.vectors import vector_of
from indelible.core.checksums import compute_entry_checksum
from indelible.core.operations import Append
from indelible.model import Kind

_KIND: Final = {kind: smallint(number) for kind, number in KIND_NUMBER.items()}
_ONE: Final = integer(1)
_session: Final = attrgetter("session")


def statement_of(context: Context, steps: Sequence[Append], *, wait_s: float) -> Call | DoAlone:
    """What lands these appends, in this order; those of one session stand together."""
    wait = milliseconds_of(wait_s)
    if len(steps) == 1 and len(steps[0].drafts) == 1 and _has_call(steps[0]):
        return _alone(context, steps[0], wait)
    ttl_s = steps[0].ttl_s
    if all(op.expected is None and op.ttl_s == ttl_s and _has_call(op) for op in steps):
        return _many(context, steps, wait)
    return _one_by_one(context, steps, wait)


def versions_of(steps: Sequence[Append], answer: Any) -> Sequence[str | None]:
    """The version after each append; None where somebody must look."""
    if isinstance(answer, list):
        # A row with a column for each.
        (versions,) = answer
        return tuple(versions)
    if len(steps) == 1:
        return (answer or None,)
    found: list[str | None] = []
    for (_, own), said in zip(groupby(steps, _session), answer.split(","), strict=True):
        mine = list(own)
        if not said:
            found += [None] * len(mine)
            continue
        number, life, last, generation = said.split(".")
        # Counted back from the end that the last of them reached.
        end = int(last) - sum(len(op.drafts) for op in mine)
        for op in mine:
            end += len(op.drafts)
            found.append(f"{number}.{life}.{end}.{generation}")
    return found


def _has_call(op: Append) -> bool:
    """Whether it can be said by values alone: vectors have a function of their own."""
    return all(draft.kind is not Kind.SUMMARY for draft in op.drafts)


def _expected(op: Append) -> str | None:
    """The version that a session must have; text that cannot be sent is none that any has."""
    return op.expected if is_sayable(op.expected) else ""


def _checksums(context: Context, op: Append) -> list[int]:
    """Checksums of the entries, to which the server adds their places."""
    salt = context.salt(op.session)
    return [compute_entry_checksum(salt, draft.envelope) for draft in op.drafts]


def _alone(context: Context, op: Append, wait: str) -> Call:
    kind, envelope, keep, opens, answers = op.drafts[0]
    return Call(
        APPEND,
        [
            context.namespace,
            op.session.encode(),
            op.key.encode(),
            ascii_text(_expected(op)),
            bigint(context.now_ms()),
            bigint(ttl_ms(op.ttl_s)),
            wait.encode(),
            _KIND[kind],
            boolean(keep),
            ascii_text(encode_links(opens)),
            ascii_text(encode_links(answers)),
            envelope,
            bigint(compute_entry_checksum(context.salt(op.session), envelope)),
            _ONE,
        ],
    )


def _many(context: Context, steps: Sequence[Append], wait: str) -> Call:
    names: list[str] = []
    counts: list[int] = []
    which: list[int] = []
    batches: list[int] = []
    keys: list[bytes | None] = []
    for op in steps:
        count = len(op.drafts)
        if not names or names[-1] != op.session:
            names.append(op.session)
            counts.append(0)
        counts[-1] += count
        which += [len(names)] * count
        batches += [count, *[0] * (count - 1)]
        keys += [op.key.encode(), *[None] * (count - 1)]
    drafts = [draft for op in steps for draft in op.drafts]
    return Call(
        APPEND_MANY,
        [
            context.namespace,
            bigint(context.now_ms()),
            bigint(ttl_ms(steps[0].ttl_s)),
            wait.encode(),
            array("bytea", [name.encode() for name in names]),
            integers(counts),
            integers(which),
            integers(batches),
            array("smallint", [_KIND[draft.kind] for draft in drafts]),
            array("boolean", [boolean(draft.keep) for draft in drafts]),
            array("bytea", keys),
            array("text", [ascii_text(encode_links(draft.opens)) for draft in drafts]),
            array("text", [ascii_text(encode_links(draft.answers)) for draft in drafts]),
            array("bytea", [draft.envelope for draft in drafts]),
            bigints(checksum for op in steps for checksum in _checksums(context, op)),
        ],
    )


def _one_by_one(context: Context, steps: Sequence[Append], wait: str) -> DoAlone:
    """For all else: each append is a call of the function, side by side."""
    params: list[Any] = []
    calls = ", ".join([_call(context, op, wait, params) for op in steps])
    return DoAlone("SELECT " + calls, tuple(params))


def _call(context: Context, op: Append, wait: str, params: list[Any]) -> str:
    """One call. What a caller gave becomes a parameter; what is none is written as such."""

    def put(value: Any) -> str:
        if value is None:
            return "NULL"
        params.append(value)
        return f"${len(params)}"

    kind, envelope, keep, opens, answers = op.drafts[0]
    checksum, *checksums = _checksums(context, op)
    arguments = (
        f"{put(context.namespace)}, {put(op.session.encode())}, {put(op.key.encode())},"
        f" {put(_expected(op))}, {put(context.now_ms())}, {put(ttl_ms(op.ttl_s))}, '{wait}',"
        f" {KIND_NUMBER[kind]}::smallint, {keep}, {put(encode_links(opens))},"
        f" {put(encode_links(answers))},"
        f" {put(envelope)}, {put(checksum)}"
    )
    if len(op.drafts) == 1:
        call = f"indelible.append({arguments}, 1)"
    else:
        more = ", ".join(map(put, (*columns(op.drafts[1:]), checksums)))
        call = f"indelible.append_batch({arguments}, {more})"
    said = [
        (len(op.drafts) - nth, *vector_of(draft.kind, draft.envelope))
        for nth, draft in enumerate(op.drafts)
        if draft.kind is Kind.SUMMARY
    ]
    if not said:
        return call
    vectors = ", ".join(put(list(column)) for column in zip(*said, strict=True))
    return f"indelible.with_vectors({call}, {vectors})"
