"""Commands that append or change the view of a session. None of them deletes anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Final

import typer

from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import DryRun, Key, SessionId, SnapshotId, Text, Ttl, Yes
from indelible.cli.output import confirm
from indelible.cli.suggestions import suggest_command
from indelible.core.content import KNOWN_ROLES
from indelible.core.limits import ENTRY_BYTES_MAX
from indelible.errors import UsageError
from indelible.model import Receipt, ViewChange

# `usr` resembles `user` by 0.86; LangChain's `chat` resembles `chatbot` by 0.73.
_MISSPELLED: Final = 0.8


@on_store(
    'append user-42 user "Where is my order?" --url agent.db',
    "append user-42 user Thanks --key turn-7 --url agent.db",
    "append user-42 assistant - --url agent.db < answer.txt",
    creates=True,
)
def append(
    call: CommandContext,
    session: SessionId,
    role: Annotated[
        str,
        typer.Argument(
            metavar="ROLE",
            help="user, assistant, system, … or a role of your own; one that looks like a"
            " misspelling is refused.",
        ),
    ],
    text: Text,
    *,
    key: Key = None,
    expected: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="Refuse if the session changed since this version was read.",
        ),
    ] = None,
    ttl: Ttl = None,
) -> None:
    """Append one message. Creates the session, and the file, if they do not exist."""
    # Frameworks have roles of their own, but one that resembles a known role is a misspelling.
    close = get_close_matches(role.lower(), KNOWN_ROLES, n=1, cutoff=_MISSPELLED)
    if close and role not in KNOWN_ROLES:
        raise UsageError(f"there is no role {role!r}; did you mean {close[0]}?", value=role)
    content = read_stdin() if text == "-" else text
    receipt = call.store.add_message(session, role, content, key=key, expected=expected, ttl=ttl)
    where = phrases.format_positions(receipt.positions)
    done = f"Appended at position {where}. Version {receipt.version}."
    call.out.print_result(receipt, [format_receipt(receipt, done)])


def format_receipt(receipt: Receipt, done: str) -> str:
    """Format what an append did: `done`, unless it was there already."""
    if not receipt.replayed:
        return done
    where = phrases.format_positions(receipt.positions)
    hidden = "" if receipt.visible else " It no longer shows."
    return f"Was there already, at position {where}; nothing was written twice.{hidden}"


def read_stdin() -> str:
    """Read a text from stdin, without the newline at its end."""
    # `run` opens this in place of a stream that the caller closed.
    if getattr(sys.stdin, "name", None) == os.devnull:
        raise UsageError("stdin is closed. Nothing was written")
    data = sys.stdin.buffer.read(ENTRY_BYTES_MAX + 1)
    if len(data) > ENTRY_BYTES_MAX:
        raise UsageError(
            f"stdin has more than {ENTRY_BYTES_MAX} bytes, the most that an entry takes."
            " Nothing was written"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8 text: {error.reason} at byte {error.start}. Nothing was written"
        ) from None
    # `echo` and editors add a newline at the end, which is not part of the message.
    return text[:-1].removesuffix("\r") if text.endswith("\n") else text


@on_store('snapshot user-42 --label "before the refund" --url agent.db')
def snapshot(
    call: CommandContext,
    session: SessionId,
    *,
    label: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A name; labels need not be unique.")
    ] = None,
) -> None:
    """Save the current view of a session, to roll back to it later."""
    call.require_session(session)
    taken = call.store.save_snapshot(session, label=label)
    holds = phrases.format_count(taken.entries, "entry")
    call.out.print_result(taken, [f"Snapshot {taken.id} holds {holds}."])


@on_store(
    "rollback user-42 latest --dry-run --url agent.db", "rollback user-42 latest --url agent.db"
)
def rollback(
    call: CommandContext,
    session: SessionId,
    snapshot: SnapshotId,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    key: Key = None,
) -> None:
    """Show exactly what a snapshot holds. No snapshot is deleted, and undo reverts it."""
    change = partial(call.store.rollback_to_snapshot, session, snapshot)
    action = f"Rolling back {session!r} to {snapshot}"
    _run_change(call, change, action, key=key, yes=yes, dry_run=dry_run)


@on_store("undo user-42 --url agent.db")
def undo(call: CommandContext, session: SessionId, *, yes: Yes = False, key: Key = None) -> None:
    """Revert the newest rollback, trim, hide or clear. Run it again to go further back."""
    change = partial(call.store.undo, session)
    _run_change(call, change, f"Undoing the newest change of {session!r}", key=key, yes=yes)


@on_store("redo user-42 --url agent.db")
def redo(call: CommandContext, session: SessionId, *, yes: Yes = False, key: Key = None) -> None:
    """Repeat the change that the newest undo reverted, if the view did not change since."""
    change = partial(call.store.redo, session)
    _run_change(call, change, f"Redoing it in {session!r}", key=key, yes=yes)


@on_store(
    "trim user-42 --keep-last 20 --url agent.db",
    "trim user-42 --max-tokens 4000 --dry-run --url agent.db",
)
def trim(
    call: CommandContext,
    session: SessionId,
    *,
    keep_last: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Keep the newest N messages.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Keep the newest messages that fit into N tokens, estimated."
        ),
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(min=0, metavar="POSITION", help="Hide everything before this position."),
    ] = None,
    any_start: Annotated[
        bool,
        typer.Option("--any-start", help="The conversation may begin in the middle of a turn."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    key: Key = None,
) -> None:
    """Hide the oldest entries of a session. Nothing is deleted, and undo brings them back.

    Pinned and system messages, summaries and unanswered tool calls stay visible. A call and its
    results are kept or hidden together. The user's message that opened the first turn stays.
    """
    if sum(rule is not None for rule in (keep_last, max_tokens, before)) != 1:
        raise UsageError("trim takes exactly one of --keep-last, --max-tokens and --before")
    call.require_session(session)
    change = partial(
        call.store.trim,
        session,
        keep_last=keep_last,
        max_tokens=max_tokens,
        before=before,
        align=None if any_start else "user",
    )
    _run_change(call, change, f"Trimming session {session!r}", key=key, yes=yes, dry_run=dry_run)


@on_store("clear user-42 --yes --url agent.db")
def clear(
    call: CommandContext,
    session: SessionId,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    key: Key = None,
) -> None:
    """Hide all entries of a session. Snapshots stay, and undo brings the entries back."""
    call.require_session(session)
    change = partial(call.store.clear, session)
    _run_change(call, change, f"Clearing {session!r}", key=key, yes=yes, dry_run=dry_run)


@on_store("fork user-42 user-42-retry --at latest --url agent.db")
def fork(
    call: CommandContext,
    session: SessionId,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the copy.")],
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="SNAPSHOT", help="Copy this snapshot instead of the current view."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Copy the visible entries of a session, or of a snapshot, into a new session."""
    state = f"snapshot {at} of session {session!r}" if at else f"what session {session!r} shows"
    confirm(f"This copies {state} into a new session {new!r}.", yes=yes)
    made = call.store.fork(session, new, at=at)
    holds = phrases.format_count(made.entries, "entry")
    call.out.print_result(made, [f"Session {new!r} holds {holds}."])


def _run_change(
    call: CommandContext,
    make_change: Callable[..., ViewChange],
    action: str,
    *,
    key: str | None,
    yes: bool,
    dry_run: bool = False,
) -> None:
    """Change the view, after asking if it hides or brings back entries; or say what would happen.

    `action` is what the question begins with.
    """
    if dry_run or not yes:
        preview = make_change(dry_run=True)
        if dry_run:
            will_do = f"This {_describe_effect(preview)}. Nothing was changed."
            call.out.print_result(preview, [will_do])
            return
        if preview.dropped or preview.restored:
            confirm(f"{action} {_describe_effect(preview)}.", yes=yes)
    change = make_change(key=key)
    call.out.print_result(change, _format_change(change))


def _format_change(change: ViewChange) -> Iterator[str]:
    done = "had already" if change.replayed else "has"
    effect = _describe_effect(
        change, hides="hidden", brings_back="brought back", nothing="changed nothing"
    )
    yield f"The {change.change} {done} {effect}."
    if change.dropped or change.restored:
        back = "redo" if change.change == "undo" else "undo"
        yield f"To take it back: {suggest_command(back, change.session_id)}"


def _describe_effect(
    change: ViewChange,
    *,
    hides: str = "hides",
    brings_back: str = "brings back",
    nothing: str = "changes nothing",
) -> str:
    """Describe which entries a change hides and brings back."""
    parts = []
    for verb, positions in ((hides, change.dropped), (brings_back, change.restored)):
        if positions:
            count = phrases.format_count(len(positions), "entry")
            parts.append(f"{verb} {count} ({phrases.format_positions(positions)})")
    return " and ".join(parts) or nothing
