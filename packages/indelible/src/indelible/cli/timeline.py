"""`indelible show`: draws a session as a timeline, with visible and hidden entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import SessionId
from indelible.cli.suggestions import suggest_command
from indelible.core.plans.tool_calls import join_results
from indelible.model import (
    CallStatus,
    Change,
    ChatMessage,
    CorruptEntry,
    Entry,
    Snapshot,
    Summary,
    Timeline,
    TimelineEntry,
    ToolCallRecord,
)
from indelible.view import iter_positions

if TYPE_CHECKING:
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """One line of the drawing."""

    position: str = ""
    time: str = ""
    who: str = ""
    note: str = ""
    what: str = ""
    style: str = ""


@on_store()
def show(
    call: CommandContext,
    session: SessionId,
    *,
    last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the newest N entries.")
    ] = None,
) -> None:
    """Draw a session as a timeline: entries, tool calls, snapshots, and what is hidden.

    Entries that a rollback, trim or clear has hidden are still there.
    """
    call.require_session(session)
    timeline = call.store.timeline(session)
    if call.out.print_json(timeline):
        return
    call.out.say(format_heading(timeline))
    call.out.draw(*_draw(build_lines(timeline, last=last)), cut=True)
    if notes := "\n".join(explain_hidden(timeline)):
        call.out.say(f"\n{notes}")


def format_heading(timeline: Timeline) -> str:
    """Format the session's state as one line."""
    info = timeline.info
    parts = [
        f"{phrases.escape_name(info.session_id)}: {info.status}",
        f"shows {info.entries} of {phrases.format_entry_count(len(timeline.entries))}",
        phrases.format_count(len(timeline.snapshots), "snapshot"),
        f"version {info.version}",
    ]
    if info.forked_from is not None:
        parts.append(f"forked from {phrases.escape_name(info.forked_from)}")
    if info.expires_at is not None:
        parts.append(f"expires {phrases.format_time(info.expires_at)} UTC")
    return ", ".join(parts) + "\n"


def build_lines(timeline: Timeline, *, last: int | None = None) -> Iterator[TimelineLine]:
    """Build the lines of the drawing: days, entries, and snapshots between them."""
    left_out = 0 if last is None else max(0, len(timeline.entries) - last)
    entries = timeline.entries[left_out:]
    markers = _build_markers(timeline.snapshots)
    notes = _Notes(timeline.entries)
    if left_out:
        yield TimelineLine(what=f"… {left_out} earlier")
        markers = [marker for marker in markers if marker[0] >= entries[0].entry.position]
    day = ""
    for each in entries:
        entry = each.entry
        while markers and markers[0][0] < entry.position:
            yield markers.pop(0)[1]
        if isinstance(entry, Entry) and f"{entry.written_at:%Y-%m-%d}" != day:
            day = f"{entry.written_at:%Y-%m-%d}"
            yield TimelineLine(time=day, who="UTC", style="bold")
        yield _build_entry_line(each, notes)
    yield from (line for _, line in markers)


def _build_entry_line(each: TimelineEntry, notes: _Notes) -> TimelineLine:
    entry, hidden = each.entry, not each.visible
    said = (["hidden"] if hidden else []) + notes.list_for(each)
    if isinstance(entry, CorruptEntry):
        what = f"{entry.reason} ({phrases.format_count(len(entry.raw), 'byte')} kept)"
        return TimelineLine(str(entry.position), "", "unreadable", ", ".join(said), what, "red")
    return TimelineLine(
        position=str(entry.position),
        time=f"{entry.written_at:%H:%M:%S}",
        who=phrases.format_author(entry.value),
        note=", ".join(said),
        what=phrases.format_line(phrases.format_value(entry.value)),
        style="dim" if hidden else "",
    )


def _build_markers(snapshots: Iterable[Snapshot]) -> list[tuple[int, TimelineLine]]:
    """Build a line for each snapshot, sorted by its last position; -1 if it is empty."""
    found = []
    for each in snapshots:
        label = f' "{phrases.format_line(each.label)}"' if each.label else ""
        what = f"{phrases.escape_name(each.id)}{label}, {phrases.format_entry_count(each.entries)}"
        where = each.extents[-1][1] - 1 if each.extents else -1
        found.append((where, TimelineLine("──", "──────────", "snapshot", "", what, "cyan")))
    return sorted(found, key=lambda marker: marker[0])


class _Notes:
    """The notes beside the content of an entry."""

    def __init__(self, entries: Iterable[TimelineEntry]) -> None:
        readable = [each for each in entries if isinstance(each.entry, Entry)]
        # A call whose result was rolled back is unanswered again among the visible entries.
        self._shown = _link_calls(each for each in readable if each.visible)
        self._all = _link_calls(readable)

    def list_for(self, each: TimelineEntry) -> list[str]:
        """Return the notes of one entry."""
        if isinstance(each.entry, CorruptEntry):
            return []
        value = each.entry.value
        links = self._shown if each.visible else self._all
        notes = list(links[each.entry.position])
        if isinstance(value, Summary) and value.covers:
            notes.append(f"covers {phrases.format_extents(value.covers)}")
        if isinstance(value, ChatMessage) and value.pinned:
            notes.append("pinned")
        return notes


def _link_calls(entries: Iterable[TimelineEntry]) -> dict[int, list[str]]:
    """Note for each position which calls it answers, and where its own calls are answered."""
    found: dict[int, list[str]] = defaultdict(list)
    for record in join_results([each.entry for each in entries if isinstance(each.entry, Entry)]):
        if record.call_position is not None:
            found[record.call_position].append(_format_call_note(record))
        if record.result_position is not None:
            known = record.call_position is not None
            note = f"answers {record.call_position}" if known else "answers no call"
            found[record.result_position].append(note)
    return found


def _format_call_note(record: ToolCallRecord) -> str:
    if record.status is CallStatus.DANGLING:
        return "dangling"
    verb = "failed" if record.status is CallStatus.FAILED else "answered"
    return f"{verb} {record.result_position}"


def explain_hidden(timeline: Timeline) -> Iterator[str]:
    """Explain what brings hidden entries back: undo, undo again, a rollback, or nothing."""
    name = timeline.info.session_id
    hidden = {each.entry.position for each in timeline.entries if not each.visible}
    newest = timeline.undo
    if newest is not None and (back := hidden.intersection(newest.dropped)):
        by = f"by the {newest.change} of {phrases.format_time(newest.at)} UTC"
        undo = suggest_command("undo", name)
        yield f"{_format_hidden(back)} {by}: {undo} brings {_format_pronoun(back)} back."
        hidden -= back
    if earlier := hidden & _find_undoable_positions(timeline.changes):
        yield f"{_format_hidden(earlier)} by earlier changes: undo again for each of those."
        hidden -= earlier
    for each in reversed(timeline.snapshots):
        if held := hidden.intersection(iter_positions(each.extents)):
            rollback = suggest_command("rollback", name, each.id)
            yield f"{_format_hidden(held)}: {rollback} brings {_format_pronoun(held)} back."
            hidden -= held
    if hidden:
        yield f"{_format_hidden(hidden)}, and vacuum may remove {_format_pronoun(hidden)}."


def _find_undoable_positions(changes: Iterable[Change]) -> set[int]:
    """Find every position that was hidden by a change which can still be undone."""
    open_changes = (each for each in changes if not each.undone and each.change != "undo")
    return {position for each in open_changes for position in each.dropped}


def _format_pronoun(entries: Sized) -> str:
    return "it" if len(entries) == 1 else "them"


def _format_hidden(entries: Sized) -> str:
    return (
        f"{phrases.format_entry_count(len(entries))} {'is' if len(entries) == 1 else 'are'} hidden"
    )


def _draw(lines: Iterable[TimelineLine]) -> Iterator[Text]:
    """Align the columns. Only the content is cut; the short columns before it are kept whole."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 (only this command draws it)
    from rich.text import Text  # noqa: PLC0415

    rows = [(line, (line.position, line.time, line.who, line.note)) for line in lines]
    widths = [
        max(map(cell_len, cells)) for cells in zip(*(cells for _, cells in rows), strict=True)
    ]
    for line, (position, *cells) in rows:
        parts = [position.rjust(widths[0]), *map(set_cell_size, cells, widths[1:]), line.what]
        yield Text("  ".join(parts).rstrip(), line.style)
