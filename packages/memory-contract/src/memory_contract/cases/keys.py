"""Still one caller at a time: keys, versions, and the list of sessions."""

from __future__ import annotations

from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import expect_listed, shown
from memory_contract.entries import EntryIds, ids_of, messages_of


@case("sequential", needs=["keys"], catches="a retried append that is stored twice")
def same_key_once(context: CaseContext) -> None:
    """Append with one key again and again, here and from another caller: it is one append."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    keyed = store.append(session, 2, key="request-1")
    context.require_room(2 * len(keyed))
    for caller in (store, other):
        caller.append(session, ids=keyed, key="request-1")
        context.expect_shown(caller, session, keyed, "duplicate after retry")
    later = store.append(session, key="request-2") + store.append(session)
    store.append(session, ids=keyed, key="request-1")
    context.expect_shown(other, session, keyed + later, "duplicate after retry")
    _use_elsewhere(context, store)


def _use_elsewhere(context: CaseContext, store: Client) -> None:
    """The key of one session means nothing in another, unless the store says so aloud."""
    session = context.new_session()
    try:
        ids = store.append(session, key="request-1")
    except Exception as error:  # noqa: BLE001 -- refusing is not swallowing
        context.note(f"a key that another session used is refused ({format_error(error)})")
    else:
        context.expect_shown(store, session, ids, "swallowed append")


@case("sequential", needs=["keys"], catches="a new message that is swallowed by a used key")
def key_with_other_content_is_refused(context: CaseContext) -> None:
    """Append something else with a key that was used: it is refused and nothing is stored."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    ids = store.append(session, key="request-1")
    # Not recorded: to the checker, a key stands for one batch.
    different = messages_of(EntryIds("other").draw(pairs=context.adapter.pairs))
    for caller in (store, other):
        try:
            caller.put(session, *different, key="request-1")
        except Exception:  # noqa: BLE001, S112 -- this is what must happen
            continue
        seen = caller.read(session)
        swallowed = seen == ids
        context.fail(
            "swallowed append" if swallowed else "key used twice",
            "an append with a used key and other content was acknowledged, and "
            + ("nothing was stored" if swallowed else f"the session shows [{' '.join(seen)}]"),
            session=session,
        )
    ids += store.append(session, key="request-2")
    context.expect_shown(store, session, ids, "refused and changed")


@case(
    "sequential",
    needs=["keys", "clear"],
    catches="a repeated append that is acknowledged and does not show",
)
def key_of_what_was_cleared(context: CaseContext) -> None:
    """Repeat an append with its key after a clear: it shows again, or it is refused."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    batch = messages_of(store.append(session, key="request-1"))
    store.clear(session)
    # Not recorded: to the checker, all attempts with a key are one append, before the clear.
    for caller in (store, other):
        try:
            caller.put(session, *batch, key="request-1")
        except Exception as error:  # noqa: BLE001 -- refusing is not swallowing
            context.note(f"a key whose entries were cleared is refused ({format_error(error)})")
            continue
        seen = ids_of(caller.get(session))
        context.expect(
            set(ids_of(batch)) <= set(seen),
            "swallowed append",
            "an append was repeated with its key after a clear and was acknowledged, and the"
            f" session shows [{' '.join(seen)}]",
            session=session,
        )


@case("sequential", needs=["expected"], catches="a writer that overwrites what it never read")
def stale_version_is_refused(context: CaseContext) -> None:
    """Append with the version of a read: it lands if nobody wrote since, else it is refused."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    ids = store.append(session, expected=store.ask("version", session))
    version = store.ask("version", session)
    ids += store.append(session, expected=version)
    _refuse_stale(context, store, session, version)
    context.expect_shown(store, session, ids, "refused and changed")
    version = store.ask("version", session)
    ids += other.append(session)
    _refuse_stale(context, store, session, version)
    context.expect_shown(store, session, ids, "refused and changed")
    ids += store.append(session, expected=store.ask("version", session))
    context.expect_shown(other, session, ids, "lost append")


def _refuse_stale(context: CaseContext, store: Client, session: str, version: object) -> None:
    try:
        store.append(session, expected=version)
    except Exception:  # noqa: BLE001 -- this is what must happen
        return
    context.fail(
        "stale write accepted",
        f"an append that expected version {shown(version)} landed, although somebody wrote since",
        session=session,
    )


@case("sequential", needs=["list"], catches="a session that is not listed, or listed twice")
def sessions_are_listed(context: CaseContext) -> None:
    """List the sessions of a fresh store, and again as they grow in number and in length."""
    store, other = context.open(), context.open_elsewhere()
    expect_listed(context, store, [])
    written = []
    for _ in range(12):
        written.append(context.new_session())
        store.append(written[-1])
    for caller in (store, other):
        expect_listed(context, caller, written)
        caller.append(written[0], 2)
        expect_listed(context, caller, written)
