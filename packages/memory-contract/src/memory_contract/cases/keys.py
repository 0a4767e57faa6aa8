"""Still one caller at a time: keys, versions, and the list of sessions."""

from __future__ import annotations

from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import expect_listed, shown
from memory_contract.entries import ids_of, messages_of


@case("sequential", needs=["keys"], catches="a retried append that is stored twice")
def same_key_once(context: CaseContext) -> None:
    """Append with one key again and again, here and from another caller: it is one append."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    keyed = store.append(session, 2, key="request-1")
    context.require_room(2 * len(keyed))
    for caller in (store, other):
        caller.append(session, ids=keyed, key="request-1")
        context.expect_shown(session, keyed, "duplicate after retry")
    later = store.append(session, key="request-2") + store.append(session)
    store.append(session, ids=keyed, key="request-1")
    context.expect_shown(session, keyed + later, "duplicate after retry")
    # The key of one session means nothing in another, unless the store says so aloud.
    session = context.new_session()
    try:
        ids = store.append(session, key="request-1")
    except Exception as error:  # noqa: BLE001 -- refusing is not swallowing
        context.note(f"a key that another session used is refused ({format_error(error)})")
    else:
        context.expect_shown(session, ids, "swallowed append")


@case("sequential", needs=["keys"], catches="a new message that is swallowed by a used key")
def key_with_other_content_is_refused(context: CaseContext) -> None:
    """Append something else with a key that was used: it is refused and nothing is stored."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    ids = store.append(session, key="request-1")
    # Not recorded: to the checker, a key stands for one batch.
    different = messages_of(context.draw_ids("other"))
    for caller in (store, other):
        try:
            caller.put(session, *different, key="request-1")
        except Exception:  # noqa: BLE001, S112 -- this is what must happen
            continue
        seen = caller.read(session)
        name = "swallowed append" if seen == ids else "key used twice"
        proof = "an append with a used key and other content was acknowledged"
        context.fail(name, f"{proof}, and {session} shows [{' '.join(seen)}]", session=session)
    ids += store.append(session, key="request-2")
    context.expect_shown(session, ids, "refused and changed")


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
        seen = caller.look(session)
        proof = "an append was repeated with its key after a clear and was acknowledged"
        proof += f", and the session shows [{' '.join(seen)}]"
        context.expect({*ids_of(batch)} <= {*seen}, "swallowed append", proof, session=session)


@case("sequential", needs=["expected"], catches="a writer that overwrites what it never read")
def stale_version_is_refused(context: CaseContext) -> None:
    """Append with the version of a read: it lands if nobody wrote since, else it is refused."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    ids = store.append(session, expected=store.ask("version", session))
    version = store.ask("version", session)
    ids += store.append(session, expected=version)
    _expect_stale(store, session, version)
    context.expect_shown(session, ids, "refused and changed")
    version = store.ask("version", session)
    ids += other.append(session)
    _expect_stale(store, session, version)
    context.expect_shown(session, ids, "refused and changed")
    ids += store.append(session, expected=store.ask("version", session))
    context.expect_shown(session, ids, "lost append")


def _expect_stale(store: Client, session: str, version: object) -> None:
    try:
        store.append(session, expected=version)
    except Exception:  # noqa: BLE001 -- this is what must happen
        return
    proof = f"an append that expected version {shown(version)} landed, and somebody wrote since"
    store.context.fail("stale write accepted", proof, session=session)


@case("sequential", needs=["list"], catches="a session that is not listed, or listed twice")
def sessions_are_listed(context: CaseContext) -> None:
    """List the sessions of a fresh store, and again as they grow in number and in length."""
    store, other = context.open(), context.open_elsewhere()
    expect_listed(store, [])
    written = [context.new_session() for _ in range(12)]
    for session in written:
        store.append(session)
    for caller in (store, other):
        expect_listed(caller, written)
        caller.append(written[0], 2)
        expect_listed(caller, written)
