"""The command `snapshot-db`: compare two database files."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from pytest_snapshot_db.compare import Difference, compare_files
from pytest_snapshot_db.copy_live import copy_database
from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.rules import parse_rules
from pytest_snapshot_db.version import __version__

DIFFERENT: Final = 1
WRONG_USAGE: Final = 2
NOT_FOUND: Final = 4


def run() -> None:
    """Run the command line; errors end in a sentence and an exit code, not in a traceback."""
    options = build_parser().parse_args()
    sys.exit(options.command(options))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands and options."""
    parser = argparse.ArgumentParser(
        prog="snapshot-db",
        description="Compare SQLite files as the fixture snapshot_db does.",
        epilog="Example: snapshot-db diff before.db after.db",
    )
    parser.add_argument("--version", action="version", version=f"snapshot-db {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "diff",
        help="Compare two SQLite files.",
        description="Compare two SQLite files as snapshot_db does: schema, every row, header,"
        " integrity. Neither is changed, also while others write to it. Exits with 0 (the same),"
        " 1 (files differ), 2 (wrong usage) or 4 (no such file).",
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
    command.set_defaults(command=run_diff)
    return parser


def run_diff(options: argparse.Namespace) -> int:
    """Compare two SQLite files."""
    for path in (options.expected, options.obtained):
        if not path.is_file():
            sys.stderr.write(f"Error: There is no file {path}.\n")
            return NOT_FOUND
    try:
        found = _compare(options)
    except GoldenError as error:
        sys.stderr.write(f"Error: {error}. Nothing was changed.\n")
        return WRONG_USAGE
    print("\n".join(found.lines) if found else "The same.")
    return DIFFERENT if found else 0


def _compare(options: argparse.Namespace) -> Difference:
    ignore: dict[str, list[str]] = defaultdict(list)
    for each in options.ignore:
        column, equals, path = each.partition("=")
        ignore[column].append(path if equals else "$")
    rules = parse_rules(ignore)
    with tempfile.TemporaryDirectory(prefix="snapshot-db-diff-") as folder:
        one, two = Path(folder, "a.db"), Path(folder, "b.db")
        copy_database(options.expected, one)
        copy_database(options.obtained, two)
        return compare_files(one, two, rules, limit=None)
