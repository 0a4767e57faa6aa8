"""Large batches, and the stores that take no such large ones."""

from __future__ import annotations

from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext
from memory_contract.client import Client
from memory_contract.history import Ids


def append_many(context: CaseContext, store: Client, session: str, count: int) -> Ids:
    """Append so many at once; if that is too many for the store, in batches that it takes.

    A store may say no to a large batch, as long as it says so each time and keeps nothing of it.
    """
    ids: Ids = ()
    size, left, refusal = count, count, ""
    while left:
        size = min(size, left)
        try:
            ids += store.append(session, size)
        except Exception as error:
            if size == 1:
                raise
            _expect_too_large(context, store, session, size, error)
            size, refusal = (size + 1) // 2, format_error(error)
        else:
            left -= size
    told = f"a batch of {count} is refused ({refusal}); smaller ones are taken"
    if refusal and told not in context.notes:
        context.note(told)
    return ids


def _expect_too_large(
    context: CaseContext, store: Client, session: str, size: int, error: Exception
) -> None:
    """Hold a refusal to what it says: nothing is there, and the same is refused again."""
    _expect_none(context, store, session, context.history[-1].ids, error)
    try:
        store.append(session, size)
    except Exception as again:  # noqa: BLE001 -- so it is the size, and no whim
        _expect_none(context, store, session, context.history[-1].ids, again)
    else:
        raise error


def _expect_none(
    context: CaseContext, store: Client, session: str, ids: Ids, error: Exception
) -> None:
    seen = store.read(session)
    kept = [id_ for id_ in ids if id_ in seen]
    context.expect(
        not kept,
        "refused and changed",
        f"a batch of {len(ids)} was refused ({format_error(error)}), and yet the session shows "
        f"{len(kept)} of its entries",
        session=session,
    )
