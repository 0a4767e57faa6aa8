"""The `memory-contract` command: its subcommands, and how it ends when something went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from memory_contract.cli import check, incidents, init, listings, proxy
from memory_contract.cli.parser import Parser
from memory_contract.errors import KitError
from memory_contract.printable import escape_unseen
from memory_contract.redaction import redact
from memory_contract.version import __version__


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="memory-contract",
        description="Check any store of an agent's memory: what it loses, when, and the proof.",
        epilog="Example: memory-contract check mystore:make_store",
    )
    parser.add_argument("--version", action="version", version=f"memory-contract {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (check, init, listings, proxy, incidents):
        module.add_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code, or a `KitError`."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    # Without a command, show what there is.
    parsed = build_parser().parse_args(given or ["--help"])
    code: int = parsed.run(parsed)
    return code


def run() -> None:
    """Run the command line, and end with a sentence and a code instead of a traceback."""
    try:
        code = main()
        sys.stdout.flush()
    except KitError as error:
        sys.stderr.write(format_error(error))
        code = error.exit_code
    except BrokenPipeError:
        # The reader of the output is gone. The interpreter must not fail when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def format_error(error: KitError) -> str:
    """The message of an error, as a sentence, and its hint as it is."""
    text = redact(str(error))
    ended = "" if text.endswith((".", "!", "?")) else "."
    first = text.partition(" ")[0]
    is_name = any(mark in first.rstrip(".:,;") for mark in "./\\:_")
    lines = text if is_name else text[:1].upper() + text[1:]
    shown = "\n".join(escape_unseen(line) for line in lines.split("\n"))
    hint = "\n".join(escape_unseen(line) for line in error.hint.split("\n"))
    return f"Error: {shown}{ended}\n" + (f"\n{hint.rstrip()}\n" if hint else "")
