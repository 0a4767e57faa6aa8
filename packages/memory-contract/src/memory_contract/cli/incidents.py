"""Commands for what went wrong in production: explain a trace, replay it, make it small."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, get_args

from memory_contract.checker.verdict import Ok, Violated
from memory_contract.cli.check import translate_errors
from memory_contract.cli.parser import (
    Commands,
    Parser,
    add_command,
    add_json,
    add_seed,
    parse_count,
)
from memory_contract.errors import UnavailableError, UsageError
from memory_contract.history import HistoryError
from memory_contract.report import to_page
from memory_contract.report.as_json import operation
from memory_contract.report.terminal import StatusLine
from memory_contract.results import EXIT_UNDECIDED
from memory_contract.traces.diagnosis import Explanation, explain_trace
from memory_contract.traces.diagnosis.render import build_report, list_notes, render_explanation
from memory_contract.traces.format import ReplayLevel
from memory_contract.traces.regression_test import check_test_path, write_test
from memory_contract.traces.replay import LoadedTrace, Replay, load_trace, replay_trace
from memory_contract.traces.shrink import (
    QUESTIONS_MAX,
    ShrinkResult,
    shrink_trace,
    write_small_trace,
)

_PAGE_BEGINS = b"<!doctype html"
_NOTHING_RAN = ". Nothing was run"


def add_commands(commands: Commands) -> None:
    """Add `explain`, `replay` and `shrink`."""
    parser = add_command(
        commands,
        "explain",
        explain,
        "explain trace.jsonl",
        "explain traces --session user-42 --report timeline.html",
    )
    _add_trace(parser)
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="Write the timeline as a page, to be opened in a browser.",
    )
    add_json(parser)
    parser = add_command(
        commands,
        "replay",
        replay,
        "replay trace.jsonl --store mystore.contract:adapter --times 20",
        "replay trace.jsonl --store agent.db --write-test tests/incidents/test_2026_05_amnesia.py",
    )
    _add_trace(parser)
    _add_store(parser)
    parser.add_argument(
        "--write-test",
        type=Path,
        metavar="FILE",
        help="Write a test that holds the store to it, and the trace beside it.",
    )
    add_json(parser)
    parser = add_command(
        commands, "shrink", shrink, "shrink trace.jsonl --store mystore.contract:adapter"
    )
    _add_trace(parser)
    _add_store(parser)
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="Where the small trace goes. Without it: beside the trace, as NAME-small.jsonl.",
    )
    parser.add_argument(
        "--write-test", type=Path, metavar="FILE", help="Write the small trace as a test."
    )
    add_json(parser)


def _add_trace(parser: Parser) -> None:
    parser.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="A trace that `memory_contract.record` wrote: a file or a folder. A history of"
        " `memory-contract check --report` is one too.",
    )
    parser.add_argument("--session", metavar="ID", help="Only what was done to this session.")


def _add_store(parser: Parser) -> None:
    parser.add_argument(
        "--store",
        required=True,
        metavar="TARGET",
        help="The store to do it to, named as for `memory-contract check`. It works in places of"
        " its own: what a store holds is not touched.",
    )
    parser.add_argument(
        "--level",
        choices=get_args(ReplayLevel),
        default="concurrent",
        metavar="LEVEL",
        help="sequential: one call at a time; concurrent: with the overlaps of the trace; faults:"
        " also with its kills and cancelled calls.",
    )
    add_seed(parser)
    parser.add_argument(
        "--times",
        type=parse_count,
        default=5,
        metavar="N",
        help="How often it is tried; the first that fails decides. Default: 5.",
    )


def explain(arguments: Namespace) -> int:
    """Say what a trace proves: which entry was lost, who overwrote it, which reads were stale.

    Exits with 0 (nothing breaks the contract), 1 (something does), 2 (wrong usage), 3
    (undecided, or most operations could not be judged) or 4 (a file is missing or cannot be used).
    """
    trace: Path = arguments.trace
    session: str | None = arguments.session
    report: Path | None = arguments.report
    with _run("reading", trace) as tell:
        _refuse_other_files(report)
        found = explain_trace(trace, session=session, progress=tell)
    if report is not None:
        again = f"memory-contract explain {shlex.quote(str(trace))}"
        page = to_page(build_report(found, command=again))
        with _translate_errors():
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(page, "utf-8")
    if arguments.as_json:
        print(json.dumps(_build_explanation_json(found), indent=2))
    else:
        print(render_explanation(found), end="")
        if report is not None:
            print(f"Timeline: {report}")
    if isinstance(found.verdict, Violated):
        return 1
    return 0 if isinstance(found.verdict, Ok) else EXIT_UNDECIDED


def replay(arguments: Namespace) -> int:
    """Do to a store what a trace says was done to another one.

    The same sessions, workers and overlaps; what was said is made up where the trace has only
    hashes. Exits with 0 (FIXED), 1 (FAILED, or CHANGED), 2 (wrong usage), 3 (UNKNOWN) or 4 (ERROR,
    or a file is missing or cannot be used).
    """
    store: str = arguments.store
    level: ReplayLevel = arguments.level
    test: Path | None = arguments.write_test
    with _run("replaying", arguments.trace) as tell:
        _prepare_test(test)
        loaded = load_trace(arguments.trace, session=arguments.session)
        found = replay_trace(
            loaded,
            store,
            level=level,
            seed=arguments.seed,
            times=arguments.times,
            progress=tell and (lambda done, all_: tell("replaying", done / all_)),
        )
    if arguments.as_json:
        print(json.dumps(_build_replay_json(found), indent=2))
    else:
        print(found.told, end="")
    _write_test(test, loaded, store, level, quiet=arguments.as_json)
    return found.exit_code


def shrink(arguments: Namespace) -> int:
    """Reduce a trace to the fewest operations and workers with which a store still fails.

    Exits with 0 (it is smaller now, or as small as can be), 2 (wrong usage), 3 (the store does not
    fail on it, so there is nothing to shrink) or 4 (the store could not be asked, or a file is
    missing or cannot be used).
    """
    trace: Path = arguments.trace
    store: str = arguments.store
    level: ReplayLevel = arguments.level
    test: Path | None = arguments.write_test
    place: Path = arguments.output or trace.with_name(
        f"{trace.name.removesuffix('.jsonl')}-small.jsonl"
    )
    if place.exists():
        raise UsageError(f"{place} is there already: nothing was run. Name another with --output")
    with _run("shrinking", trace) as tell:
        _prepare_test(test)
        place.parent.mkdir(parents=True, exist_ok=True)
        found = shrink_trace(
            trace,
            store,
            level=level,
            seed=arguments.seed,
            times=arguments.times,
            session=arguments.session,
            progress=tell
            and (lambda asked, left: tell(f"{left} operations left", asked / QUESTIONS_MAX)),
        )
    failed = found.replay.verdict in ("FAILED", "CHANGED")
    if failed:
        with _translate_errors():
            write_small_trace(place, found.trace)
    if arguments.as_json:
        print(json.dumps(_build_shrink_json(found, place if failed else None), indent=2))
    elif failed:
        print(found.replay.told)
        print(
            f"{found.operations_before} operations of {found.workers_before} workers became"
            f" {found.operations}: {place}"
        )
    else:
        print(found.replay.told, end="")
        print("The store does not fail on this trace, so there is nothing to shrink.")
    if failed:
        _write_test(test, found.trace, store, level, quiet=arguments.as_json)
    return 0 if failed else found.replay.exit_code or EXIT_UNDECIDED


@contextmanager
def _translate_errors(then: str = "") -> Iterator[None]:
    """Turn errors of files and traces into those of a command; `then` ends the sentence."""
    try:
        with translate_errors():
            yield
    except HistoryError as error:
        raise UsageError(f"{error}{then}") from error
    except OSError as error:
        raise UnavailableError(f"cannot use {error.filename}: {error.strerror}{then}") from error


@contextmanager
def _run(doing: str, trace: Path) -> Iterator[Callable[[str, float], None] | None]:
    """Translate errors, keep stdout for results, and show progress on a terminal's stderr.

    Yields the function that updates the progress, or None.
    """
    if not trace.exists():
        raise UnavailableError(f"there is no trace {trace}{_NOTHING_RAN}")
    status = StatusLine(sys.stderr)
    with _translate_errors(_NOTHING_RAN), redirect_stdout(sys.stderr):
        status.show(doing)
        try:
            shown = status.is_shown
            yield (lambda what, share: status.show(f"{what} {share:.0%}")) if shown else None
        finally:
            status.clear()


def _refuse_other_files(page: Path | None) -> None:
    """Replace a page by a page, and nothing else: not the trace, and not a database."""
    if page is None or not page.exists():
        return
    with page.open("rb") as file:
        begins = file.read(len(_PAGE_BEGINS)).lower()
    if begins != _PAGE_BEGINS:
        raise UsageError(f"{page} is there already, and is no page{_NOTHING_RAN}; name another")


def _prepare_test(test: Path | None) -> None:
    """Refuse a place where no test can be written before minutes are spent."""
    if test is not None:
        check_test_path(test)
        test.parent.mkdir(parents=True, exist_ok=True)


def _write_test(
    test: Path | None, trace: LoadedTrace, store: str, level: ReplayLevel, *, quiet: bool
) -> None:
    if test is None:
        return
    with _translate_errors():
        written = write_test(test, trace, store=store, level=level)
    if not quiet:
        print(f"Wrote {written.test} and {written.trace.name} beside it.")


def _build_explanation_json(found: Explanation) -> dict[str, Any]:
    scope = found.verdict.scope
    return {
        "verdict": type(found.verdict).__name__.upper(),
        "reason": getattr(found.verdict, "reason", ""),
        "operations": scope.operations,
        "not_judged": found.unjudged,
        "sessions": scope.sessions,
        "anomalies": dict(found.counts),
        "stories": [
            {
                "name": story.anomaly.name,
                "session": story.anomaly.session,
                "ids": story.anomaly.ids,
                "proof": story.anomaly.proof,
                "operations": [operation(op) for op in story.small],
            }
            for story in found.stories
        ],
        "notes": list_notes(found),
    }


def _build_replay_json(found: Replay) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "reason": found.reason,
        "level": found.level,
        "seed": found.seed,
        "runs": found.times,
        "operations": found.operations,
        "recorded": sorted(found.recorded),
        "found": sorted(found.found),
        "overlaps": {"recorded": found.overlaps.recorded, "kept": found.overlaps.kept},
        "notes": list(found.notes),
    }


def _build_shrink_json(found: ShrinkResult, place: Path | None) -> dict[str, Any]:
    return {
        **_build_replay_json(found.replay),
        "trace": str(place) if place is not None else None,
        "operations_before": found.operations_before,
        "workers_before": found.workers_before,
        "workers": found.workers,
    }
