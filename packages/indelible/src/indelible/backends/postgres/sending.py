"""The one statement of a group of appends, and what its answer says to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from indelible.backends.postgres.appending import KIND_NUMBER, columns, links
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
from indelible.core.checksums import entry_checksum
from indelible.core.waist import Append
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
    if all(step.expected is None and step.ttl_s == ttl_s and _has_call(step) for step in steps):
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
        end = int(last) - sum(len(step.drafts) for step in mine)
        for step in mine:
            end += len(step.drafts)
            found.append(f"{number}.{life}.{end}.{generation}")
    return found


def _has_call(step: Append) -> bool:
    """Whether it can be said by values alone: vectors have a function of their own."""
    return all(draft.kind is not Kind.SUMMARY for draft in step.drafts)


def _expected(step: Append) -> str | None:
    """The version that a session must have; text that cannot be sent is none that any has."""
    return step.expected if is_sayable(step.expected) else ""


def _checksums(context: Context, step: Append) -> list[int]:
    """Checksums of the entries, to which the server adds their places."""
    salt = context.salt(step.session)
    return [entry_checksum(salt, draft.envelope) for draft in step.drafts]


def _alone(context: Context, step: Append, wait: str) -> Call:
    kind, envelope, keep, opens, answers = step.drafts[0]
    return Call(
        APPEND,
        [
            context.namespace,
            step.session.encode(),
            step.key.encode(),
            ascii_text(_expected(step)),
            bigint(context.now_ms()),
            bigint(ttl_ms(step.ttl_s)),
            wait.encode(),
            _KIND[kind],
            boolean(keep),
            ascii_text(links(opens)),
            ascii_text(links(answers)),
            envelope,
            bigint(entry_checksum(context.salt(step.session), envelope)),
            _ONE,
        ],
    )


def _many(context: Context, steps: Sequence[Append], wait: str) -> Call:
    names: list[str] = []
    counts: list[int] = []
    which: list[int] = []
    batches: list[int] = []
    keys: list[bytes | None] = []
    for step in steps:
        count = len(step.drafts)
        if not names or names[-1] != step.session:
            names.append(step.session)
            counts.append(0)
        counts[-1] += count
        which += [len(names)] * count
        batches += [count, *[0] * (count - 1)]
        keys += [step.key.encode(), *[None] * (count - 1)]
    drafts = [draft for step in steps for draft in step.drafts]
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
            array("text", [ascii_text(links(draft.opens)) for draft in drafts]),
            array("text", [ascii_text(links(draft.answers)) for draft in drafts]),
            array("bytea", [draft.envelope for draft in drafts]),
            bigints(checksum for step in steps for checksum in _checksums(context, step)),
        ],
    )


def _one_by_one(context: Context, steps: Sequence[Append], wait: str) -> DoAlone:
    """For all else: each append is a call of the function, side by side."""
    params: list[Any] = []
    calls = ", ".join([_call(context, step, wait, params) for step in steps])
    return DoAlone("SELECT " + calls, tuple(params))


def _call(context: Context, step: Append, wait: str, params: list[Any]) -> str:
    """One call. What a caller gave becomes a parameter; what is none is written as such."""

    def put(value: Any) -> str:
        if value is None:
            return "NULL"
        params.append(value)
        return f"${len(params)}"

    kind, envelope, keep, opens, answers = step.drafts[0]
    checksum, *checksums = _checksums(context, step)
    arguments = (
        f"{put(context.namespace)}, {put(step.session.encode())}, {put(step.key.encode())},"
        f" {put(_expected(step))}, {put(context.now_ms())}, {put(ttl_ms(step.ttl_s))}, '{wait}',"
        f" {KIND_NUMBER[kind]}::smallint, {keep}, {put(links(opens))}, {put(links(answers))},"
        f" {put(envelope)}, {put(checksum)}"
    )
    if len(step.drafts) == 1:
        call = f"indelible.append({arguments}, 1)"
    else:
        more = ", ".join(map(put, (*columns(step.drafts[1:]), checksums)))
        call = f"indelible.append_batch({arguments}, {more})"
    said = [
        (len(step.drafts) - nth, *vector_of(draft.kind, draft.envelope))
        for nth, draft in enumerate(step.drafts)
        if draft.kind is Kind.SUMMARY
    ]
    if not said:
        return call
    vectors = ", ".join(put(list(column)) for column in zip(*said, strict=True))
    return f"indelible.with_vectors({call}, {vectors})"
