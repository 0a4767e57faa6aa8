"""`indelible show`: draws a session as a timeline, with visible and hidden entries.

A long session is drawn page by page while it is read. So columns are as wide as the widest cell so
far, and each page is drawn after the next one was read: that may have the results of its calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

import indelible
from indelible.adapters.checkpoint_reader import THREAD_PREFIX
from indelible.adapters.checkpoint_records import BranchFinder
from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import SessionId
from indelible.cli.output import Output
from indelible.cli.suggestions import suggest_command
from indelible.core.limits import LOG_ENTRIES_MAX
from indelible.core.tool_calls import OpenCalls, find_answers_given, find_calls_made
from indelible.model import (
    Change,
    ChatMessage,
    CorruptEntry,
    Entry,
    Snapshot,
    StoredCheckpoint,
    Summary,
    Timeline,
    TimelineEntry,
)
from indelible.printable import escape_unseen, escape_unseen_in_lines
from indelible.view import count, iter_positions

if TYPE_CHECKING:
    from rich.segment import Segment

# Entries that --last reads before those that it draws, to find the calls of their results.
CONTEXT_ENTRIES = 200
# On a narrower terminal, the content of an entry is on a separate line.
WIDE_COLUMNS = 80
# Lines in one write.
LINES_DRAWN = 100


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """One line of the drawing."""

    position: str = ""
    time: str = ""
    who: str = ""
    note: str = ""
    what: str = ""
    style: str = ""


@on_store("show user-42 --url agent.db")
def show(
    call: CommandContext,
    session: SessionId,
    *,
    last: Annotated[
        int | None,
        typer.Option(min=1, max=LOG_ENTRIES_MAX, metavar="N", help="Only the newest N entries."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Print whole contents, not one line of each.")
    ] = False,
    no_pager: Annotated[
        bool,
        typer.Option("--no-pager", help="On a terminal, do not use $PAGER, or less, to scroll."),
    ] = False,
) -> None:
    """Draw a session as a timeline: entries, tool calls, snapshots, and what is hidden.

    Entries that a rollback, trim or clear has hidden are still there. A thread of LangGraph is
    found by its own id too, unless that is also the id of a session.
    """
    if call.store.session(session).status == "new":
        thread = THREAD_PREFIX + session
        session = session if call.store.session(thread).status == "new" else thread
    call.require_session(session)
    if call.out.as_json:
        call.out.print_result(call.store.timeline(session, last=last), ())
        return
    with call.out.use_pager(enabled=not no_pager):
        draw(call.out, call.store, session, last=last, full=full)


def draw(
    out: Output, store: indelible.MemoryStore, session: str, *, last: int | None, full: bool
) -> None:
    """Draw a session while it is read, and explain what is hidden."""
    layout = Layout(out.columns, full=full)
    lines: TimelineLines | None = None

    def draw_lines(found: Iterator[TimelineLine]) -> None:
        while drawn := list(islice(found, LINES_DRAWN)):
            out.draw_segments(layout.draw(drawn))

    def draw_page(page: Timeline) -> None:
        nonlocal lines
        if lines is None:
            out.say(format_heading(page))
            is_whole = last is None or len(page.entries) < last + CONTEXT_ENTRIES
            lines = TimelineLines(page, last=last, is_whole=is_whole)
        draw_lines(lines.add(page.entries))

    read = None if last is None else last + CONTEXT_ENTRIES
    timeline = store.timeline(session, last=read, on_page=draw_page)
    assert lines is not None
    draw_lines(lines.finish())
    if notes := "\n".join(explain_hidden(timeline, there=lines.hidden)):
        out.say(f"\n{notes}")


def format_heading(timeline: Timeline) -> str:
    """Format the session's state as one line."""
    info = timeline.info
    parts = [
        f"{escape_unseen(info.session_id)}: {info.status}",
        f"shows {info.entries} of {phrases.format_count(info.logged, 'entry')}",
        phrases.format_count(len(timeline.snapshots), "snapshot"),
        f"version {info.version}",
    ]
    if info.forked_from is not None:
        parts.append(f"forked from {escape_unseen(info.forked_from)}")
    if info.expires_at is not None:
        parts.append(f"expires {phrases.format_time(info.expires_at)} UTC")
    return ", ".join(parts) + "\n"


class TimelineLines:
    """Builds the lines of the drawing: days, entries, and snapshots between them.

    `last` limits the entries that are drawn. `is_whole` says that the first page begins at the
    start of the log.
    """

    def __init__(
        self, timeline: Timeline, *, last: int | None = None, is_whole: bool = True
    ) -> None:
        self._logged = timeline.info.logged
        self._has_hidden = bool(timeline.hidden)
        self._last = last
        self._read = 0
        self._markers = deque(_build_markers(timeline.snapshots))
        self._held: Sequence[TimelineEntry] = ()
        # Entries before the first that is there were hidden before they were removed.
        starts = [start for start, _ in timeline.hidden]
        born = min([*starts, *(each.entry.position for each in timeline.entries[:1])], default=0)
        self._end = born + self._logged
        # The hidden entries that exist; None if not all were read.
        self.hidden: set[int] | None = set() if is_whole else None
        # A call whose result was rolled back is unanswered again among the visible entries.
        self._visible_calls = CallNotes(is_whole=is_whole)
        self._all_calls = CallNotes(is_whole=is_whole)
        # Whether the log was read to its end: then a call without a result is dangling.
        self._at_end = False
        self._day = ""
        self._branches = BranchFinder()

    def add(self, entries: Sequence[TimelineEntry]) -> Iterator[TimelineLine]:
        """Read a page, and build the lines of the one before."""
        self._read += len(entries)
        for each in entries:
            if isinstance(each.entry, Entry):
                self._all_calls.add(each.entry)
                if each.visible:
                    self._visible_calls.add(each.entry)
        if self.hidden is not None:
            self.hidden.update(each.entry.position for each in entries if not each.visible)
        self._at_end = bool(entries) and entries[-1].entry.position + 1 >= self._end
        held, self._held = self._held, entries if self._last is None else entries[-self._last :]
        return self._build_lines(held)

    def finish(self) -> Iterator[TimelineLine]:
        """Build the lines of the last page, and of the snapshots behind it."""
        if self._last is not None and (earlier := self._count_earlier()):
            yield TimelineLine(what=f"… {earlier} earlier")
            first = self._held[0].entry.position if self._held else 0
            while self._markers and self._markers[0][0] < first:
                self._markers.popleft()
        self._at_end = True
        yield from self._build_lines(self._held)
        yield from (line for _, line in self._markers)

    def _count_earlier(self) -> str:
        """Count the entries that exist before those that are drawn; empty if there are none."""
        if self.hidden is not None:
            return str(self._read - len(self._held) or "")
        # Of those that were not read, vacuum may have removed the hidden ones.
        number = self._logged - len(self._held)
        return f"up to {number}" if self._has_hidden else str(number)

    def _build_lines(self, entries: Iterable[TimelineEntry]) -> Iterator[TimelineLine]:
        for each in entries:
            entry = each.entry
            while self._markers and self._markers[0][0] < entry.position:
                yield self._markers.popleft()[1]
            if isinstance(entry, Entry) and f"{entry.written_at:%Y-%m-%d}" != self._day:
                self._day = f"{entry.written_at:%Y-%m-%d}"
                yield TimelineLine(time=self._day, who="UTC", style="bold")
            yield self._build_entry_line(entry, visible=each.visible)

    def _build_entry_line(self, entry: Entry | CorruptEntry, *, visible: bool) -> TimelineLine:
        notes = [] if visible else ["hidden"]
        if isinstance(entry, CorruptEntry):
            return TimelineLine(
                position=str(entry.position),
                who="unreadable",
                note=", ".join(notes),
                what=f"{entry.reason} ({phrases.format_count(len(entry.raw), 'byte')} kept)",
                style="red",
            )
        value = entry.value
        calls = self._visible_calls if visible else self._all_calls
        notes += calls.list_for(entry.position, at_end=self._at_end)
        if isinstance(value, Summary) and value.covers:
            notes.append(f"covers {phrases.format_extents(value.covers)}")
        if isinstance(value, ChatMessage) and value.pinned:
            notes.append("pinned")
        if isinstance(value, StoredCheckpoint) and self._branches.is_branch(value):
            notes.append("branch")
        return TimelineLine(
            position=str(entry.position),
            time=f"{entry.written_at:%H:%M:%S}",
            who=phrases.format_author(value),
            note=", ".join(notes),
            what=phrases.format_value(value),
            style="" if visible else "dim",
        )


def _build_markers(snapshots: Iterable[Snapshot]) -> list[tuple[int, TimelineLine]]:
    """Build a line for each snapshot, sorted by its last position; -1 if it is empty."""
    found = []
    for each in snapshots:
        label = f' "{phrases.format_line(each.label)}"' if each.label else ""
        what = f"{escape_unseen(each.id)}{label}, {phrases.format_count(each.entries, 'entry')}"
        where = each.extents[-1][1] - 1 if each.extents else -1
        found.append((where, TimelineLine("──", "──────────", "snapshot", "", what, "cyan")))
    return sorted(found, key=lambda marker: marker[0])


class CallNotes:
    """Finds for each entry the calls that it answers, and the answers of its calls."""

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._first: int | None = None
        self._newest = 0
        self._open = OpenCalls()
        # By position: the id of each call and its note, and the notes of its answers.
        self._calls: dict[int, dict[str, str]] = {}
        self._answers: dict[int, list[str]] = {}

    def add(self, entry: Entry) -> None:
        """Read the next entry."""
        at = self._newest = entry.position
        self._first = at if self._first is None else self._first
        answers = {call_id: failed for call_id, _, failed in find_answers_given(entry.value)}
        for call_id, failed in answers.items():
            call = self._open.take(call_id)
            since = "" if self._is_whole else f" since {self._first}"
            note = f"answers no call{since}" if call is None else f"answers {call}"
            self._answers.setdefault(at, []).append(note)
            if call in self._calls:
                self._calls[call][call_id] = f"{'failed' if failed else 'answered'} {at}"
        for call_id in dict.fromkeys(call_id for call_id, _, _ in find_calls_made(entry.value)):
            self._open.add(call_id, at)
            self._calls.setdefault(at, {})[call_id] = ""

    def list_for(self, position: int, *, at_end: bool) -> list[str]:
        """Return the notes of an entry, once."""
        unanswered = "dangling" if at_end else f"no result up to {self._newest}"
        calls = self._calls.pop(position, {}).values()
        return [*self._answers.pop(position, ()), *(note or unanswered for note in calls)]


def explain_hidden(timeline: Timeline, *, there: set[int] | None) -> Iterator[str]:
    """Explain what brings hidden entries back: undo, undo again, a rollback, or nothing.

    `there` are the hidden entries that still exist; None if that is not known.
    """
    name = timeline.info.session_id
    hidden = set(iter_positions(timeline.hidden)) if there is None else set(there)
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
    if there is None:
        return
    if removed := count(timeline.hidden) - len(there):
        were = "was" if removed == 1 else "were"
        yield f"{phrases.format_count(removed, 'entry')} {were} removed by vacuum."
    if hidden:
        yield f"{_format_hidden(hidden)}, and vacuum may remove {_format_pronoun(hidden)}."


def _find_undoable_positions(changes: Iterable[Change]) -> set[int]:
    """Find every position that was hidden by a change which can still be undone."""
    open_changes = (each for each in changes if not each.undone and each.change != "undo")
    return {position for each in open_changes for position in each.dropped}


def _format_pronoun(entries: Sized) -> str:
    return "it" if len(entries) == 1 else "them"


def _format_hidden(entries: Sized) -> str:
    are = "is" if len(entries) == 1 else "are"
    return f"{phrases.format_count(len(entries), 'entry')} {are} hidden"


class Layout:
    """Arranges lines in columns; on a narrow terminal, contents are below their line."""

    def __init__(self, columns: int, *, full: bool) -> None:
        self._columns = columns
        self._full = full
        self._stacked = full or columns < WIDE_COLUMNS
        # Columns get wider as longer cells come; all of a short session are aligned.
        self._widths: tuple[int, ...] = (0, 0, 0, 0)

    def draw(self, lines: Sequence[TimelineLine]) -> Iterator[Segment]:
        """Lay out lines, aligned with earlier ones."""
        from rich.cells import cell_len  # noqa: PLC0415 (only this command draws it)
        from rich.segment import Segment  # noqa: PLC0415
        from rich.style import Style  # noqa: PLC0415

        rows = [(line.position, line.time, line.who, line.note) for line in lines]
        self._widths = tuple(
            max(width, *map(cell_len, cells))
            for width, cells in zip(self._widths, zip(*rows, strict=True), strict=True)
        )
        for line, row in zip(lines, rows, strict=True):
            text = self._stack(line) if self._stacked else self._align(row, line.what)
            style = Style.parse(line.style) if line.style else None
            for part in text.split("\n"):
                # Pagers end a style with its line.
                yield from (Segment(part, style), Segment.line())

    def _align(self, row: tuple[str, ...], what: str) -> str:
        """Align the columns. Only the content is cut."""
        from rich.cells import set_cell_size  # noqa: PLC0415

        position, *cells = row
        parts = [position.rjust(self._widths[0]), *map(set_cell_size, cells, self._widths[1:])]
        return self._cut("  ".join([*parts, phrases.format_line(what)]).rstrip())

    def _stack(self, line: TimelineLine) -> str:
        """Put the content of an entry on the next line; other lines stay whole."""
        cells = [line.position.rjust(self._widths[0]), line.time, line.who, line.note]
        if not line.position.isdigit():
            cells[1:] = [line.time.strip("─"), line.who, line.what]
        heading = "  ".join(cell for cell in cells if cell)
        if not line.position.isdigit() or not line.what:
            return heading
        if not self._full:
            return f"{heading}\n{self._cut(phrases.INDENT + phrases.format_line(line.what))}"
        text = escape_unseen_in_lines(line.what).replace("\n", f"\n{phrases.INDENT}")
        return f"{heading}\n{phrases.INDENT}{text}"

    def _cut(self, text: str) -> str:
        from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

        if cell_len(text) <= self._columns:
            return text
        return set_cell_size(text, self._columns - 1) + "…"
