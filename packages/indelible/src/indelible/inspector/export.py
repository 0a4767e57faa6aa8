"""One session as a file: the page of a session, self-contained."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files

from indelible.inspector.rows import TextWriter, build_rows
from indelible.inspector.templating import build_environment
from indelible.model import Timeline, TimelineEntry

# The longest text in an export, which is read without the store.
EXPORT_CHARS_MAX = 200_000


class SessionExport:
    """Writes the page while the session is read; it holds three pages of its entries.

    `add_page` takes the pages of `timeline(on_page=…)`. With `redact`, the file has kinds, times
    and sizes, and nothing that anybody wrote.
    """

    def __init__(self, write: Callable[[str], object], *, redact: bool) -> None:
        self._write = write
        self._writer = TextWriter(chars_max=EXPORT_CHARS_MAX, redact=redact)
        self._templates = build_environment()
        self._templates.globals.update(can_write=False, redacted=redact)
        self._timeline: Timeline | None = None
        self._before: Sequence[TimelineEntry] = ()
        self._held: Sequence[TimelineEntry] = ()

    def add_page(self, page: Timeline) -> None:
        """Write the page before this one: results of its calls may be in this one."""
        if self._timeline is None:
            self._begin(page)
        else:
            self._write_held(page.entries)
        self._before, self._held = self._held, page.entries

    def finish(self) -> None:
        """Write the rest."""
        self._write_held(())
        self._write(self._templates.get_template("export_end.html").render())

    def _begin(self, page: Timeline) -> None:
        if self._writer.redact:
            page = replace(
                page,
                info=replace(page.info, session_id="session", metadata={}, forked_from=None),
                snapshots=tuple(replace(each, label=None) for each in page.snapshots),
            )
        self._timeline = page
        style = (files("indelible.inspector") / "static" / "style.css").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        head = self._templates.get_template("export_begin.html")
        self._write(head.render(timeline=page, info=page.info, style=style, digest=digest))

    def _write_held(self, behind: Sequence[TimelineEntry]) -> None:
        assert self._timeline is not None
        rows = build_rows(
            (*self._before, *self._held, *behind),
            first=self._held[0].entry.position if self._before else 0,
            begin=0,
            end=behind[0].entry.position if behind else None,
            changes=self._timeline.changes,
            snapshots=self._timeline.snapshots,
            writer=self._writer,
        )
        part = self._templates.get_template("export_rows.html")
        self._write(part.render(rows=rows, info=self._timeline.info))
