"""A bar for long work, for whoever sits before a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from indelible.cli.phrases import visible

# Called with the session just finished and the entries done so far.
Tell = Callable[[str, int], None]


@contextmanager
def shown(doing: str) -> Iterator[Tell | None]:
    """Draw progress on stderr while the work lasts; nothing if nobody could see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 (only who sees the bar waits for it)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        # How much is left is not known before it is read: the bar moves, and the count tells.
        BarColumn(bar_width=20),
        TextColumn("{task.completed} entries"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[session]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(doing, total=None, session="")
        yield lambda session, entries: bar.update(task, completed=entries, session=visible(session))
