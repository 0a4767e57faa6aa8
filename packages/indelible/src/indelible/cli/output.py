"""What people see of a command: its result, as text or as JSON; progress, a pager, questions."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import IO, TYPE_CHECKING, Any

import typer

from indelible.cli import INTERRUPTED, WRONG_USAGE
from indelible.core.redaction import redact
from indelible.errors import UsageError
from indelible.model import Change
from indelible.printable import escape_unseen, escape_unseen_in_json, escape_unseen_in_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

# The width of output that goes to a pipe: wide enough to keep ids whole.
PIPE_COLUMNS = 160
# Print what fits on one screen without waiting, keep colors, and leave it on the screen.
LESS = "FRX"


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        # The stdin of the pager, while one is running.
        self._pager: IO[str] | None = None

    @contextmanager
    def use_pager(self, *, enabled: bool) -> Iterator[None]:
        """Send text and drawings to a pager, if stdout is a terminal, and wait for its end.

        If the user quits the pager early, the block ends without an error.
        """
        pager = _start_pager() if enabled else None
        if pager is None:
            yield
            return
        assert pager.stdin is not None
        self._pager = pager.stdin
        try:
            with suppress(BrokenPipeError), pager.stdin:
                yield
        finally:
            self._pager = None
            while pager.poll() is None:
                # Ctrl-C is for the pager, which keeps running.
                with suppress(KeyboardInterrupt):
                    pager.wait()

    def print_result(self, value: object, lines: Iterable[str]) -> None:
        """Print a value as one JSON document if --json was given, else these lines."""
        if self.as_json:
            print(format_json(value))
        else:
            for line in lines:
                self.say(line)

    def print_table(
        self,
        value: object,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        empty: str,
    ) -> None:
        """Print a value as JSON if --json was given, else a table; `empty` if it has no rows."""
        if self.as_json or not rows:
            self.print_result(value, [empty])
        else:
            self.draw_table(columns, rows)

    def say(self, text: str) -> None:
        """Print a part of the result for people."""
        print(escape_unseen_in_lines(text), file=self._pager or sys.stdout)

    def note(self, text: str) -> None:
        """Print a remark that is not part of the result, on stderr."""
        print(escape_unseen_in_lines(text), file=sys.stderr)

    @property
    def columns(self) -> int:
        """How wide the output is."""
        return build_console().width

    def draw_segments(self, segments: Iterable[Segment]) -> None:
        """Print lines that are laid out already, and flush them."""
        from rich.segment import Segments  # noqa: PLC0415

        console = build_console(self._pager)
        # Captured, since rich ends the process if the pager has ended.
        with console.capture() as text:
            console.print(Segments(segments), end="", soft_wrap=True)
        console.file.write(text.get())
        console.file.flush()

    def draw_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Draw rows under headings."""
        # Imported here, since most commands draw nothing and rich is slow to import.
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(escape_unseen(cell)) for cell in row))
        build_console().print(table)


def build_console(pager: IO[str] | None = None) -> Console:
    """Build a console that is as wide as the terminal, or wide enough for a pipe.

    A pager counts as a terminal.
    """
    from rich.console import Console  # noqa: PLC0415

    # Some terminals and CI systems set COLUMNS=0; rich would then print nothing.
    piped = not sys.stdout.isatty() and os.environ.get("COLUMNS", "0") == "0"
    return Console(
        file=pager,
        force_terminal=None if pager is None else True,
        width=PIPE_COLUMNS if piped else shutil.get_terminal_size().columns,
        highlight=False,
        markup=False,
        emoji=False,
    )


def format_json(value: object) -> str:
    """Format any result of a store as JSON; times in ISO 8601, bytes in base64."""
    import pydantic_core  # noqa: PLC0415

    text = pydantic_core.to_json(to_plain(value), indent=2, bytes_mode="base64").decode()
    return escape_unseen_in_json(text)


def to_plain(value: Any) -> Any:
    """Convert dataclasses and named tuples to dicts, recursively."""
    if is_dataclass(value) and not isinstance(value, type):
        plain = {each.name: to_plain(getattr(value, each.name)) for each in fields(value)}
        if isinstance(value, Change):
            plain |= {"dropped": list(value.dropped), "restored": list(value.restored)}
        return plain
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: to_plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [to_plain(each) for each in value]
    return value


# Called with the session just finished and the entries done so far.
ReportProgress = Callable[[str, int], None]


@contextmanager
def show_progress(doing: str) -> Iterator[ReportProgress | None]:
    """Draw a progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 (slow to import, and rarely needed)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        # The total is unknown, so the bar only moves.
        BarColumn(bar_width=20),
        TextColumn("{task.completed} entries"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[session]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(doing, total=None, session="")
        yield lambda session, entries: bar.update(
            task, completed=entries, session=escape_unseen(session)
        )


def confirm(will_do: str, *, yes: bool) -> None:
    """Ask before a change; end the command if the answer is not yes."""
    if yes:
        return
    sys.stderr.write(f"{escape_unseen_in_lines(redact(will_do))}\n")
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was changed, since there is no terminal to ask on: add --yes to confirm"
        )
    try:
        # Inside the try, since Ctrl-C may come before the read begins.
        sys.stderr.write("Go on? [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\nNothing was changed.\n")
        raise typer.Exit(INTERRUPTED) from None
    if answer.strip().lower() not in ("y", "yes"):
        # Ctrl-D ends the input without ending the line.
        newline = "" if answer.endswith("\n") else "\n"
        sys.stderr.write(f"{newline}Nothing was changed.\n")
        raise typer.Exit(WRONG_USAGE)


def _start_pager() -> subprocess.Popen[str] | None:
    """Start $PAGER, or less, as git does; None if there is none, or stdout is no terminal."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        command = shlex.split(os.environ.get("PAGER", "less"))
        if not command:
            return None
        return subprocess.Popen(  # noqa: S603 (what the user set)
            command,
            stdin=subprocess.PIPE,
            env={"LESS": LESS, **os.environ},
            encoding="utf-8",
            errors="backslashreplace",
        )
    except (OSError, ValueError):
        # It is not installed, or not a command: print without it.
        return None
