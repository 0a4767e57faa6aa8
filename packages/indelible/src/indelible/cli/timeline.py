"""`indelible show`: a session drawn as a timeline, with what it shows and what it let go of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import SessionId
from indelible.cli.suggestions import hint
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

    Hidden entries are those that a rollback, trim or clear let go of. They are still there.
    """
    call.existing(session)
    timeline = call.store.timeline(session)
    if call.out.json(timeline):
        return
    call.out.say(heading(timeline))
    call.out.draw(*_drawn(build_lines(timeline, last=last)), cut=True)
    if notes := "\n".join(hidden_notes(timeline)):
        call.out.say(f"\n{notes}")


def heading(timeline: Timeline) -> str:
    """What the session is, in a line."""
    info = timeline.info
    parts = [
        f"{phrases.visible(info.session_id)}: {info.status}",
        f"shows {info.entries} of {phrases.entries(len(timeline.entries))}",
        phrases.counted(len(timeline.snapshots), "snapshot"),
        f"version {info.version}",
    ]
    if info.forked_from is not None:
        parts.append(f"forked from {phrases.visible(info.forked_from)}")
    if info.expires_at is not None:
        parts.append(f"expires {phrases.at(info.expires_at)} UTC")
    return ", ".join(parts) + "\n"


def build_lines(timeline: Timeline, *, last: int | None = None) -> Iterator[TimelineLine]:
    """The drawing, line by line: days, entries, and snapshots where they stand."""
    left_out = 0 if last is None else max(0, len(timeline.entries) - last)
    entries = timeline.entries[left_out:]
    markers = _markers(timeline.snapshots)
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
        yield _entry_line(each, notes)
    yield from (line for _, line in markers)


def _entry_line(each: TimelineEntry, notes: _Notes) -> TimelineLine:
    entry, hidden = each.entry, not each.visible
    said = (["hidden"] if hidden else []) + notes.of(each)
    if isinstance(entry, CorruptEntry):
        what = f"{entry.reason} ({phrases.counted(len(entry.raw), 'byte')} kept)"
        return TimelineLine(str(entry.position), "", "unreadable", ", ".join(said), what, "red")
    return TimelineLine(
        position=str(entry.position),
        time=f"{entry.written_at:%H:%M:%S}",
        who=phrases.who(entry.value),
        note=", ".join(said),
        what=phrases.one_line(phrases.what(entry.value)),
        style="dim" if hidden else "",
    )


def _markers(snapshots: Iterable[Snapshot]) -> list[tuple[int, TimelineLine]]:
    """Snapshots with the last position that each holds, -1 if it holds nothing; in that order."""
    found = []
    for each in snapshots:
        label = f' "{phrases.one_line(each.label)}"' if each.label else ""
        what = f"{phrases.visible(each.id)}{label}, {phrases.entries(each.entries)}"
        where = each.extents[-1][1] - 1 if each.extents else -1
        found.append((where, TimelineLine("──", "──────────", "snapshot", "", what, "cyan")))
    return sorted(found, key=lambda marker: marker[0])


class _Notes:
    """What is to be said of an entry beside its contents."""

    def __init__(self, entries: Iterable[TimelineEntry]) -> None:
        readable = [each for each in entries if isinstance(each.entry, Entry)]
        # A call whose result was rolled back is open again for whoever reads what shows.
        self._shown = _links(each for each in readable if each.visible)
        self._all = _links(readable)

    def of(self, each: TimelineEntry) -> list[str]:
        """The notes of one entry."""
        if isinstance(each.entry, CorruptEntry):
            return []
        value = each.entry.value
        links = self._shown if each.visible else self._all
        notes = list(links[each.entry.position])
        if isinstance(value, Summary) and value.covers:
            notes.append(f"covers {phrases.extents_text(value.covers)}")
        if isinstance(value, ChatMessage) and value.pinned:
            notes.append("pinned")
        return notes


def _links(entries: Iterable[TimelineEntry]) -> dict[int, list[str]]:
    """For each position, which calls it answers and where its own are answered."""
    found: dict[int, list[str]] = defaultdict(list)
    for record in join_results([each.entry for each in entries if isinstance(each.entry, Entry)]):
        if record.call_position is not None:
            found[record.call_position].append(_call_note(record))
        if record.result_position is not None:
            known = record.call_position is not None
            note = f"answers {record.call_position}" if known else "answers no call"
            found[record.result_position].append(note)
    return found


def _call_note(record: ToolCallRecord) -> str:
    if record.status is CallStatus.DANGLING:
        return "dangling"
    verb = "failed" if record.status is CallStatus.FAILED else "answered"
    return f"{verb} {record.result_position}"


def hidden_notes(timeline: Timeline) -> Iterator[str]:
    """What brings hidden entries back: undo, undo again, a rollback, or nothing."""
    name = timeline.info.session_id
    hidden = {each.entry.position for each in timeline.entries if not each.visible}
    newest = timeline.undo
    if newest is not None and (back := hidden.intersection(newest.dropped)):
        by = f"by the {newest.change} of {phrases.at(newest.at)} UTC"
        yield f"{_hidden(back)} {by}: {hint('undo', name)} brings {_them(back)} back."
        hidden -= back
    if earlier := hidden & _undoable(timeline.changes):
        yield f"{_hidden(earlier)} by earlier changes: undo again for each of those."
        hidden -= earlier
    for each in reversed(timeline.snapshots):
        if held := hidden.intersection(iter_positions(each.extents)):
            undo = hint("rollback", name, each.id)
            yield f"{_hidden(held)}: {undo} brings {_them(held)} back."
            hidden -= held
    if hidden:
        yield f"{_hidden(hidden)}, and vacuum may remove {_them(hidden)}."


def _undoable(changes: Iterable[Change]) -> set[int]:
    """Every position that some change let go of which can still be taken back."""
    open_changes = (each for each in changes if not each.undone and each.change != "undo")
    return {position for each in open_changes for position in each.dropped}


def _them(entries: Sized) -> str:
    return "it" if len(entries) == 1 else "them"


def _hidden(entries: Sized) -> str:
    return f"{phrases.entries(len(entries))} {'is' if len(entries) == 1 else 'are'} hidden"


def _drawn(lines: Iterable[TimelineLine]) -> Iterator[Text]:
    """Columns in line. Only what was said is cut: the facts before it are short, and stay whole."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 (only this command draws it)
    from rich.text import Text  # noqa: PLC0415

    rows = [(line, (line.position, line.time, line.who, line.note)) for line in lines]
    widths = [
        max(map(cell_len, cells)) for cells in zip(*(cells for _, cells in rows), strict=True)
    ]
    for line, (position, *cells) in rows:
        parts = [position.rjust(widths[0]), *map(set_cell_size, cells, widths[1:]), line.what]
        yield Text("  ".join(parts).rstrip(), line.style)
