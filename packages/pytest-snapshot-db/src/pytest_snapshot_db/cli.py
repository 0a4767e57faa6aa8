"""The command `snapshot-db`: compare two database files, list goldens, remove unused ones."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pytest_snapshot_db.compare import ROWS_SHOWN, Difference, compare_files
from pytest_snapshot_db.copy_live import copy_database
from pytest_snapshot_db.diff_text import join_lines, render
from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.printable import escape_unseen
from pytest_snapshot_db.rules import Rules, parse_rules
from pytest_snapshot_db.session_end import GoldenUsage, find_usage, list_goldens
from pytest_snapshot_db.version import __version__

DIFFERENT: Final = 1
WRONG_USAGE: Final = 2
NOT_FOUND: Final = 4
# What a shell returns for a command that Ctrl-C ended.
INTERRUPTED: Final = 130

EXIT_CODES: Final = "Exits with 0 (done), 1 (files differ), 2 (wrong usage) or 4 (no such file)."


class CommandError(Exception):
    """A command failed; nothing was changed."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run() -> None:
    """Run the command line; errors end in a sentence and an exit code, not in a traceback."""
    try:
        sys.exit(main(sys.argv[1:]))
    except CommandError as error:
        sys.stderr.write(f"Error: {error}.\n")
        sys.exit(error.exit_code)


def main(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    options = build_parser().parse_args(arguments)
    code: int = options.command(options)
    return code


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands and options."""
    parser = argparse.ArgumentParser(
        prog="snapshot-db",
        description="Compare SQLite files, and look after the goldens of snapshot_db.",
        epilog="Example: snapshot-db diff before.db after.db",
    )
    parser.add_argument("--version", action="version", version=f"snapshot-db {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "diff",
        help="Compare two SQLite files.",
        description="Compare two SQLite files as snapshot_db does: schema, every row, header,"
        " integrity. Neither is changed, also while others write to it. " + EXIT_CODES,
        epilog="Example: snapshot-db diff before.db after.db --ignore note.created_at",
    )
    command.add_argument("expected", type=Path, metavar="A", help="A SQLite file.")
    command.add_argument("obtained", type=Path, metavar="B", help="Another.")
    command.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="TABLE.COLUMN[=PATH]",
        help="Leave this column out, or a JSON path in it, such as $.meta.ts; may be given again.",
    )
    command.add_argument(
        "--replace",
        action="append",
        default=[],
        metavar="TABLE.COLUMN=TEXT",
        help="Take this column's values for numbered placeholders; may be given again.",
    )
    command.add_argument(
        "--rows",
        type=_parse_count,
        default=ROWS_SHOWN,
        metavar="N",
        help=f"Show so many rows of each kind and table; 0: all. Default: {ROWS_SHOWN}.",
    )
    command.set_defaults(command=run_diff)

    command = commands.add_parser(
        "list",
        help="List goldens and the tests that use them.",
        description="List goldens, and the tests that use them, as runs of pytest have seen it.",
        epilog="Example: snapshot-db list tests",
    )
    _add_folder(command)
    command.add_argument("--json", action="store_true", help="Print one JSON document.")
    command.set_defaults(command=run_list)

    command = commands.add_parser(
        "prune",
        help="Remove goldens that no test uses.",
        description="Remove goldens that no test uses. What is not known to be unused stays.",
        epilog="Example: snapshot-db prune tests --dry-run",
    )
    _add_folder(command)
    command.add_argument("--dry-run", action="store_true", help="Say what would be removed.")
    command.add_argument("--yes", "-y", action="store_true", help="Do it without asking.")
    command.set_defaults(command=run_prune)
    return parser


def _add_folder(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path(),
        metavar="FOLDER",
        help="Where to look. Without it: the current folder.",
    )
    command.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="The cache folder of pytest, if it is not .pytest_cache in FOLDER or above it.",
    )


def _parse_count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def run_diff(options: argparse.Namespace) -> int:
    """Compare two SQLite files."""
    for path in (options.expected, options.obtained):
        if not path.is_file():
            raise CommandError(f"There is no file {path}", exit_code=NOT_FOUND)
    try:
        found = _compare(options)
    except GoldenError as error:
        raise CommandError(f"{error}. Nothing was changed", exit_code=WRONG_USAGE) from error
    if not found:
        print("The same.")
        return 0
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(join_lines(render(found), colour=colour))
    return DIFFERENT


def _compare(options: argparse.Namespace) -> Difference:
    rules = _parse_options(options)
    with tempfile.TemporaryDirectory(prefix="snapshot-db-diff-") as folder:
        one, two = Path(folder, "a.db"), Path(folder, "b.db")
        copy_database(options.expected, one)
        copy_database(options.obtained, two)
        return compare_files(one, two, rules, limit=options.rows or None)


def _parse_options(options: argparse.Namespace) -> Rules:
    ignore: dict[str, list[str]] = defaultdict(list)
    for each in options.ignore:
        column, equals, path = each.partition("=")
        ignore[column].append(path if equals else "$")
    replace = {}
    for each in options.replace:
        column, _, text = each.partition("=")
        if not text:
            raise GoldenError(f"--replace takes TABLE.COLUMN=TEXT, not {each!r}")
        replace[column] = text
    return parse_rules(ignore, replace)


def run_list(options: argparse.Namespace) -> int:
    """List goldens and the tests that use them."""
    found = _list_goldens(options)
    if options.json:
        rows = [
            {
                "golden": _name_golden(each, options.folder),
                "state": each.state,
                "tests": list(each.tests),
                "why": each.why,
            }
            for each in found
        ]
        print(json.dumps(rows, indent=2))
        return 0
    if not found:
        print("There are no goldens here.")
        return 0
    table = [("golden", "bytes", "state", "tests")]
    for each in found:
        size = f"{each.golden.path.stat().st_size:,}"
        name = _name_golden(each, options.folder)
        table.append((name, size, each.state, each.why or _name_tests(each)))
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[3]]))
    if any(each.state == "unknown" for each in found):
        print("Run pytest once, all tests and without -k, to know the rest.", file=sys.stderr)
    return 0


def run_prune(options: argparse.Namespace) -> int:
    """Remove goldens that no test uses."""
    found = _list_goldens(options)
    unused = [each for each in found if each.state == "unused"]
    for each in unused:
        verb = "would remove" if options.dry_run else "unused"
        print(f"{verb} {_name_golden(each, options.folder)}: {each.why}")
    unknown = sum(each.state == "unknown" for each in found)
    if unknown:
        print(f"Not known to be used or unused, and kept: {_count(unknown)}.", file=sys.stderr)
    if not unused:
        print("No golden is known to be unused: nothing was removed.")
        return 0
    if options.dry_run:
        return 0
    if not options.yes and not _is_confirmed(f"This removes {_count(len(unused))}."):
        return WRONG_USAGE
    for each in unused:
        golden = each.golden
        for path in (golden.manifest_path, golden.obtained_path, golden.path):
            path.unlink(missing_ok=True)
    print(f"Removed {_count(len(unused))}.")
    return 0


def _is_confirmed(question: str) -> bool:
    sys.stderr.write(f"{question}\n")
    if not sys.stdin.isatty():
        raise CommandError(
            "Nothing was changed, since there is no terminal to ask on: add --yes to confirm",
            exit_code=WRONG_USAGE,
        )
    try:
        sys.stderr.write("Go on? [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        raise CommandError("Nothing was changed", exit_code=INTERRUPTED) from None
    confirmed = answer.strip().lower() in ("y", "yes")
    if not confirmed:
        sys.stderr.write("Nothing was changed.\n")
    return confirmed


def _list_goldens(options: argparse.Namespace) -> list[GoldenUsage]:
    folder: Path = options.folder
    if not folder.is_dir():
        raise CommandError(f"There is no folder {folder}", exit_code=NOT_FOUND)
    usage, root = find_usage(folder.resolve(), options.cache)
    return list(list_goldens(folder.resolve(), usage, root))


def _count(number: int) -> str:
    return f"{number} golden{'' if number == 1 else 's'}"


def _name_golden(each: GoldenUsage, folder: Path) -> str:
    return escape_unseen(str(each.golden.path.relative_to(folder.resolve())))


def _name_tests(each: GoldenUsage) -> str:
    names = [test.rpartition("::")[2] for test in each.tests]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
