"""Commands on goldens: compare two database files, list goldens, remove those that nobody uses."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indelible.cli import wording
from indelible.cli.asking import confirm
from indelible.cli.failing import WRONG_DATA
from indelible.cli.options import AsJson, DryRun, Yes
from indelible.cli.output import Output
from indelible.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pytest_snapshot_db.comparing import Difference
    from pytest_snapshot_db.usage import Listed

ROWS = 20

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Where to look. Without it: the current folder.")
]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="The cache folder of pytest, if it is not .pytest_cache in FOLDER or above it.",
    ),
]


def diff(
    expected: Annotated[Path, typer.Argument(metavar="A", help="A SQLite file.")],
    obtained: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    *,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE.COLUMN", help="Leave this column out; may be given again."),
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE.COLUMN=TEXT",
            help="Take this column's values for numbered placeholders; may be given again.",
        ),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Show so many rows of each kind and table; 0: all."),
    ] = ROWS,
) -> None:
    """Compare two SQLite files as snapshot_db does: schema, every row, header, integrity.

    Neither is changed, also while others write to it. Exits with 1 if they differ.
    """
    from pytest_snapshot_db.errors import GoldenError  # noqa: PLC0415 (only this command compares)
    from pytest_snapshot_db.telling import lines_of, text_of  # noqa: PLC0415

    for path in (expected, obtained):
        if not path.is_file():
            raise UnavailableError(f"there is no file {path}", file=str(path))
    try:
        found = _difference(expected, obtained, ignore or [], replace or [], rows or None)
    except GoldenError as error:
        raise UsageError(f"{error}. Nothing was changed") from error
    if not found:
        print("The same.")
        return
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(text_of(lines_of(found), colour=colour))
    raise typer.Exit(WRONG_DATA)


def _difference(
    expected: Path, obtained: Path, ignore: list[str], replace: list[str], limit: int | None
) -> Difference:
    from pytest_snapshot_db.comparing import compare  # noqa: PLC0415
    from pytest_snapshot_db.keeping import taken  # noqa: PLC0415
    from pytest_snapshot_db.reading import Database  # noqa: PLC0415
    from pytest_snapshot_db.rules import rules_of  # noqa: PLC0415

    named = {}
    for each in replace:
        column, given, text = each.partition("=")
        if not given or not text:
            raise UsageError(f"--replace takes TABLE.COLUMN=TEXT, not {each!r}")
        named[column] = text
    rules = rules_of(ignore, named)
    with tempfile.TemporaryDirectory(prefix="indelible-diff-") as folder:
        one, two = Path(folder, "a.db"), Path(folder, "b.db")
        taken(expected, one)
        taken(obtained, two)
        with Database(one) as before, Database(two) as after:
            return compare(before, after, rules, limit=limit)


def list_(folder: Folder = Path(), *, cache: Cache = None, as_json: AsJson = False) -> None:
    """List goldens, and the tests that use them, as runs of pytest have seen it."""
    found = _listed(folder, cache)
    out = Output(as_json=as_json)
    if out.json([_plain(each, folder) for each in found]):
        return
    if not found:
        out.say("There are no goldens here.")
        return
    rows = [
        (_shown(each, folder), _size(each), each.state, each.why or _tests(each)) for each in found
    ]
    out.table(("golden", "bytes", "state", "tests"), rows)
    if any(each.state == "unknown" for each in found):
        out.note("Run pytest once, all tests and without -k, to know the rest.")


def prune(
    folder: Folder = Path(), *, cache: Cache = None, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Remove goldens that no test uses. What is not known to be unused stays."""
    found = _listed(folder, cache)
    unused = [each for each in found if each.state == "unused"]
    out = Output(as_json=False)
    for each in unused:
        name = wording.visible(_shown(each, folder))
        out.say(f"{'would remove' if dry_run else 'unused'} {name}: {each.why}")
    unknown = sum(each.state == "unknown" for each in found)
    if unknown:
        out.note(f"Not known to be used or unused, and kept: {wording.counted(unknown, 'golden')}.")
    if not unused:
        out.say("No golden is known to be unused: nothing was removed.")
        return
    if dry_run:
        return
    confirm(f"This removes {wording.counted(len(unused), 'golden')}.", yes=yes)
    for each in unused:
        golden = each.golden
        for path in (golden.manifest_path, golden.obtained_path, golden.path):
            path.unlink(missing_ok=True)
    out.say(f"Removed {wording.counted(len(unused), 'golden')}.")


def _listed(folder: Path, cache: Path | None) -> list[Listed]:
    from pytest_snapshot_db.usage import find_record, listed  # noqa: PLC0415

    if not folder.is_dir():
        raise UnavailableError(f"there is no folder {folder}", file=str(folder))
    record, root = find_record(folder.resolve(), cache)
    return list(listed(folder.resolve(), record, root))


def _shown(each: Listed, folder: Path) -> str:
    return str(each.golden.path.relative_to(folder.resolve()))


def _size(each: Listed) -> str:
    return f"{each.golden.path.stat().st_size:,}"


def _tests(each: Listed) -> str:
    names = [test.rpartition("::")[2] for test in each.tests]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _plain(each: Listed, folder: Path) -> dict[str, object]:
    return {
        "golden": _shown(each, folder),
        "state": each.state,
        "tests": list(each.tests),
        "why": each.why,
    }
