"""The argument parser that all commands share."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable
from typing import Any, NoReturn

from memory_contract.errors import UsageError, suggest
from memory_contract.redaction import redact

Run = Callable[[argparse.Namespace], int]
# What `add_subparsers` returns has no public name.
Commands = Any


class Parser(argparse.ArgumentParser):
    """Raises `UsageError`, without passwords: a URL may be on the command line."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        meant = suggest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        raise UsageError(redact(f"{message}{meant or f': see `{self.prog} --help`'}"))


def add_command(commands: Commands, name: str, run: Run, *examples: str) -> Parser:
    """Add a command; the docstring of `run` is its help."""
    text = inspect.cleandoc(run.__doc__ or "")
    parser: Parser = commands.add_parser(
        name,
        help=text.partition("\n")[0],
        description=text,
        epilog="\n".join(f"Example: memory-contract {example}" for example in examples),
    )
    parser.set_defaults(run=run)
    return parser


def parse_count(text: str, *, least: int = 1) -> int:
    """Parse a number of at least one."""
    if not text.isdecimal() or (number := int(text)) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
    return number


def parse_seed(text: str) -> int:
    """Parse a seed."""
    return parse_count(text, least=0)


def add_seed(parser: Parser) -> None:
    """Add the option `--seed`."""
    parser.add_argument(
        "--seed",
        type=parse_seed,
        metavar="N",
        help="Runs with the same seed do the same things. Without it: a new one.",
    )


def add_json(parser: Parser) -> None:
    """Add the option `--json`."""
    parser.add_argument(
        "--json",
        dest="as_json",
        action="store_true",
        help="Print the data as one JSON document, and everything else to stderr.",
    )
