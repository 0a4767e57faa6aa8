"""`memory-contract check`: point the kit at a store."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Final, NoReturn

from memory_contract import contract_run
from memory_contract.adapter import KEEPS_LAST_MIN
from memory_contract.cases.case import Case
from memory_contract.cli.parser import (
    Commands,
    Parser,
    add_command,
    add_json,
    add_seed,
    parse_count,
)
from memory_contract.contract_run import CheckInterrupted, Progress, SelectionError
from memory_contract.deviations import Deviations, DeviationsError, find_deviations, read_deviations
from memory_contract.errors import UnavailableError, UsageError
from memory_contract.explorer import explore
from memory_contract.printable import escape_unseen
from memory_contract.report import to_json, write_report
from memory_contract.report.terminal import ProgressDisplay, print_interrupted, print_summary
from memory_contract.report.text import (
    check_again,
    describe_target,
    reproduce,
)
from memory_contract.results import Report, Unreachable
from memory_contract.targets import FRAMEWORKS, TargetError

BUDGET: Final = "60s"
# What a shell adds to the number of the signal that ended a command.
SIGNALLED: Final = 128
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def add_commands(commands: Commands) -> None:
    """Add `check`."""
    parser = add_command(
        commands,
        "check",
        check,
        "check mystore:make_store",
        "check mystore.contract:adapter --gate concurrency --budget 30s --report out",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="A factory, module:function, that takes a workspace folder and returns a store; or"
        " module:Class, module:adapter, a URL of a registered store, or FRAMEWORK:module:factory"
        f" for a store of one of {', '.join(FRAMEWORKS)}.",
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument(
        "--quick",
        action="store_true",
        help="Stop within a minute, after the most telling cases; the default at a terminal if no"
        " gate, case, budget or rounds are named.",
    )
    extent.add_argument(
        "--full", action="store_true", help="Run every case; the default without a terminal."
    )
    parser.add_argument(
        "--keeps-last",
        type=parse_window,
        metavar="N",
        help="The store keeps only the newest N entries of a session, on purpose: it is judged by"
        " that. A turn is two entries.",
    )
    add_gate(parser)
    parser.add_argument(
        "--case", action="append", metavar="NAME", help="Only this case; may be given again."
    )
    add_seed(parser)
    parser.add_argument(
        "--budget",
        metavar="TIME",
        help="How long races and faults are repeated, with other seeds: 90, 90s or 2m. Every case"
        f" runs at least once. Default: {BUDGET}.",
    )
    parser.add_argument(
        "--rounds",
        type=parse_count,
        metavar="N",
        help="Run each race at least N times, with other seeds, however long that takes, so that"
        " rare failures show on a slow machine too. Default: 1.",
    )
    parser.add_argument(
        "--explore",
        type=parse_count,
        metavar="N",
        help="Instead, run the races of an async store in N schedules of its tasks.",
    )
    add_json(parser)
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        help="Write report.json, report.html and junit.xml to this folder.",
    )
    parser.add_argument(
        "--deviations",
        type=Path,
        metavar="FILE",
        help="Known failures, each with its reason. Without it: indelible-deviations.toml, if it is"
        " in the current folder.",
    )


def parse_window(text: str) -> int:
    """Parse a number of entries that a store keeps."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of entries")
    if (number := int(text)) < KEEPS_LAST_MIN:
        raise ArgumentTypeError(f"{text} is less than a turn, which is {KEEPS_LAST_MIN} entries")
    return number


def add_gate(parser: Parser) -> None:
    """Add the option `--gate`."""
    parser.add_argument(
        "--gate", action="append", metavar="NAME", help="Only this gate; may be given again."
    )


def check(arguments: Namespace) -> int:
    """Hold any store of an agent's memory to the contract.

    Exits with 0 (kept), 1 (broken), 2 (wrong usage), 3 (undecided) or 4 (the
    store could not be reached, or the report cannot be written).
    """
    budget_s = parse_seconds(arguments.budget or BUDGET)
    folder: Path | None = arguments.report
    with translate_errors():
        file = arguments.deviations
        known = find_deviations(Path.cwd()) if file is None else read_deviations(file)
        _make_folder(folder)
        shown = ProgressDisplay(target=arguments.target, keeps_last=arguments.keeps_last)
        try:
            found = _run(arguments, known, budget_s, shown)
        except CheckInterrupted as interrupt:
            if not arguments.as_json:
                print_interrupted(interrupt.report)
            raise
    page = _write_report(found, folder)
    if arguments.as_json:
        # ASCII: what a store gave back may hold what no terminal and no pipe can take.
        print(json.dumps(to_json(found), indent=2))
    else:
        print_summary(found, page=page)
        print(suggest_next(found, page))
    return found.exit_code


def parse_seconds(text: str) -> float:
    """Parse a time such as `90`, `90s`, `2m` or `1h`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text, re.ASCII)
    time_s = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if time_s <= 0:
        raise UsageError(f"--budget takes a time such as 90, 90s or 2m, not {text!r}: nothing ran")
    return time_s


@contextmanager
def translate_errors() -> Iterator[None]:
    """Say of what the kit refuses that nothing was run, and which factory to write."""
    try:
        yield
    except (TargetError, SelectionError, DeviationsError) as error:
        raise UsageError(_end_sentence(error), hint=explain_factory(error.hint)) from error
    except Unreachable as error:
        hint = explain_factory(error.hint, if_needed=True)
        raise UnavailableError(str(error), hint=hint) from error


def _end_sentence(error: Exception) -> str:
    text = str(error)
    return f"{text}{'' if text.endswith('?') else '.'} Nothing was run"


def explain_factory(source: str, *, if_needed: bool = False) -> str:
    """Explain what to do with the source of a factory."""
    if not source:
        return ""
    when = "If it takes something else than a path, write" if if_needed else "Write"
    return (
        f"{when} a factory, for example in contract_store.py:\n\n"
        + "".join(f"    {line}".rstrip() + "\n" for line in source.splitlines())
        + "\nThen:  memory-contract check contract_store:make_store"
    )


def _make_folder(folder: Path | None) -> None:
    """Create the folder of the report before the work, not after it."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"cannot write a report to {folder}: {error.strerror}. Nothing was run"
        ) from error


def is_quick(arguments: Namespace) -> bool:
    """Whether to run a quick check: with --quick, or at a terminal without options that choose."""
    named = (arguments.gate, arguments.case, arguments.budget, arguments.rounds, arguments.explore)
    if arguments.quick or arguments.full or any(each is not None for each in named):
        return bool(arguments.quick)
    return sys.stdout.isatty() and not arguments.as_json


def _run(
    arguments: Namespace, deviations: Deviations, budget_s: float, shown: ProgressDisplay
) -> Report:
    gates, cases = arguments.gate or (), arguments.case or ()
    # The whole command line is checked before the store is opened.
    chosen = contract_run.select(gates, cases)
    signal.signal(signal.SIGTERM, _end)
    # What a store prints must not get between the lines of a report.
    with shown as progress, redirect_stdout(sys.stderr):
        if arguments.explore is not None:
            return _explore(arguments, chosen, deviations, progress)
        return contract_run.check(
            arguments.target,
            gates=gates,
            cases=cases,
            seed=arguments.seed,
            budget_s=budget_s,
            rounds=arguments.rounds or 1,
            quick=is_quick(arguments),
            keeps_last=arguments.keeps_last,
            deviations=deviations,
            progress=progress,
        )


def _end(number: int, _: object) -> NoReturn:
    """End as after Ctrl-C, so that processes and folders are removed."""
    raise SystemExit(SIGNALLED + number)


def _explore(
    arguments: Namespace, chosen: Sequence[Case], deviations: Deviations, progress: Progress
) -> Report:
    races = [each.id for each in chosen if "tasks" in each.modes and each.overlaps]
    if not races:
        raise UsageError("there is no race between tasks in what was asked for: nothing was run")
    return explore(
        arguments.target,
        cases=races,
        schedules=arguments.explore,
        seed=arguments.seed,
        keeps_last=arguments.keeps_last,
        deviations=deviations,
        progress=progress,
    )


def _write_report(found: Report, folder: Path | None) -> Path | None:
    """Write the report if there is a folder for it; returns the path of its page."""
    if folder is None:
        return None
    try:
        written = write_report(found, folder)
    except OSError as error:
        raise UnavailableError(f"cannot write a report to {folder}: {error.strerror}") from error
    names = ", ".join(path.name for path in (written.page, written.json, written.junit))
    sys.stderr.write(f"Wrote {names} to {folder}.\n")
    return written.page


def suggest_next(report: Report, page: Path | None) -> str:
    """Suggest what to do next, in one or two lines."""
    failed = [result for result in report.results if result.verdict == "FAIL"]
    if failed and page is None:
        return (
            f"Next: {reproduce(report, failed[0])}\n"
            "      repeats the first failure; --report out writes a page with its timeline."
        )
    if failed:
        return f"Next: open {escape_unseen(str(page))}: it draws each failure as a timeline."
    if report.left_out:
        return f"Next: {check_again(report)} --full   runs all cases."
    target = shlex.quote(escape_unseen(describe_target(report)))
    return f"Next: memory-contract init {target}   writes a pytest file and a CI step."
