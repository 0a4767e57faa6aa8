"""Commands of the contract kit: point it at a store, list its cases, and test the kit itself.

The kit is imported when a command runs, so that nobody else waits for it.
"""

from __future__ import annotations

import json
import re
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from memory_contract.cli.output import AsJson, Output, console_on_stdout
from memory_contract.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from memory_contract.cases.case import Case
    from memory_contract.checking import Item, Progress
    from memory_contract.deviations import Deviations
    from memory_contract.goldfish import Caught, Goldfish
    from memory_contract.results import CaseResult, Report

BUDGET = "60s"
NOT_CAUGHT = 1
# What a shell adds to the number of the signal that ended a command.
SIGNALLED = 128
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A URL of a registered store, package.module:adapter (or :Class), or"
        " FRAMEWORK:module:factory for a store that a framework ships: langchain, langgraph-saver,"
        " langgraph-store, openai-agents, claude-agent, llama-index, adk, strands or agno.",
    ),
]
GateNames = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="NAME", help="Only this gate; may be given again."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        metavar="N",
        help="Runs with the same seed do the same things. Without it: a new one.",
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        "--budget",
        metavar="TIME",
        help="How long races and bad days are repeated, with other seeds: 90, 90s or 2m. Every"
        " case runs at least once.",
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        "--rounds",
        min=1,
        metavar="N",
        help="Run each race at least N times, with other seeds, however long that takes: what is"
        " rare shows on a slow machine too.",
    ),
]
DeviationsFile = Annotated[
    Path | None,
    typer.Option(
        "--deviations",
        metavar="FILE",
        help="Failures that are known, each with its reason. Without it:"
        " indelible-deviations.toml, if it stands in the current folder.",
    ),
]


def check(
    target: Target,
    *,
    gate: GateNames = None,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="NAME", help="Only this case; may be given again."),
    ] = None,
    seed: Seed = None,
    budget: Budget = BUDGET,
    rounds: Rounds = 1,
    explore: Annotated[
        int | None,
        typer.Option(
            "--explore",
            min=1,
            metavar="N",
            help="Instead, run the races of an async store in N schedules of its tasks.",
        ),
    ] = None,
    as_json: AsJson = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            help="Write report.json, report.html and junit.xml to this folder.",
        ),
    ] = None,
    deviations: DeviationsFile = None,
) -> None:
    """Hold any store of an agent's memory to the contract.

    Exits with 0 (kept), 1 (broken), 2 (wrong usage), 3 (undecided) or 4 (store not reached).
    """
    budget_s = seconds(budget)
    with refusing():
        known = _known(deviations)
        _make_folder(report)
        found = _run(
            target,
            deviations=known,
            gates=gate or (),
            cases=case or (),
            seed=seed,
            budget_s=budget_s,
            rounds=rounds,
            schedules=explore,
        )
    page = _written(found, report)
    if as_json:
        from memory_contract.report import to_json  # noqa: PLC0415

        # ASCII: what a store gave back may hold what no terminal and no pipe can take.
        print(json.dumps(to_json(found), indent=2))
    else:
        _show(found, page)
    raise typer.Exit(found.exit_code)


def seconds(text: str) -> float:
    """How long `90`, `90s`, `2m` or `1h` is."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text, re.ASCII)
    time_s = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if time_s <= 0:
        raise UsageError(f"--budget takes a time such as 90, 90s or 2m, not {text!r}: nothing ran")
    return time_s


@contextmanager
def refusing() -> Iterator[None]:
    """What the kit refuses, in the words and codes of every command."""
    from memory_contract.checking import SelectionError  # noqa: PLC0415
    from memory_contract.deviations import DeviationsError  # noqa: PLC0415
    from memory_contract.results import Unreachable  # noqa: PLC0415
    from memory_contract.targets import TargetError  # noqa: PLC0415

    try:
        yield
    except (SelectionError, TargetError, DeviationsError) as error:
        raise UsageError(f"{error}. Nothing was run") from error
    except Unreachable as error:
        raise UnavailableError(str(error)) from error


def _known(file: Path | None) -> Deviations:
    from memory_contract.deviations import find_deviations, read_deviations  # noqa: PLC0415

    return find_deviations(Path.cwd()) if file is None else read_deviations(file)


def _make_folder(folder: Path | None) -> None:
    """Before the work: whoever waited for a report must not lose it for want of a folder."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write a report to {folder}: {error.strerror}. Nothing was run"
        ) from error


def _run(
    target: str,
    *,
    deviations: Deviations,
    gates: Sequence[str],
    cases: Sequence[str],
    seed: int | None,
    budget_s: float,
    rounds: int,
    schedules: int | None,
) -> Report:
    from memory_contract import checking  # noqa: PLC0415
    from memory_contract.report.progress import Progress as Shown  # noqa: PLC0415

    # Of the command line, all is looked at before the store is.
    chosen = checking.select(gates, cases)
    signal.signal(signal.SIGTERM, _ended)
    # What a store prints must not get between the lines of a report.
    with Shown(stream=sys.stderr) as shown, redirect_stdout(sys.stderr):
        progress = _deviating(shown, deviations)
        if schedules is not None:
            found = _explored(target, chosen, schedules, seed, progress)
        else:
            found = checking.check(
                target,
                gates=gates,
                cases=cases,
                seed=seed,
                budget_s=budget_s,
                rounds=rounds,
                progress=progress,
            )
    return replace(found, results=deviations.apply_to_all(found.results))


def _ended(number: int, _: object) -> NoReturn:
    """End as after Ctrl-C: processes and folders go with us."""
    raise SystemExit(SIGNALLED + number)


def _explored(
    target: str, chosen: Sequence[Case], schedules: int, seed: int | None, progress: Progress
) -> Report:
    from memory_contract.explorer import explore  # noqa: PLC0415

    races = [each.id for each in chosen if "tasks" in each.modes and each.overlaps]
    if not races:
        raise UsageError("there is no race between tasks in what was asked for: nothing was run")
    return explore(target, cases=races, schedules=schedules, seed=seed, progress=progress)


def _deviating(progress: Progress, deviations: Deviations) -> Progress:
    """Tells of each result as it counts."""

    def tell(item: Item, result: CaseResult | None) -> None:
        progress(item, None if result is None else deviations.apply(result))

    return tell


def _written(found: Report, folder: Path | None) -> Path | None:
    """Write the report, if it was asked for; where its page is."""
    if folder is None:
        return None
    from memory_contract.report import write_report  # noqa: PLC0415

    written = write_report(found, folder)
    names = ", ".join(path.name for path in (written.page, written.json, written.junit))
    sys.stderr.write(f"Wrote {names} to {folder}.\n")
    return written.page


def _show(found: Report, page: Path | None) -> None:
    from memory_contract.report.terminal import draw, summary_text  # noqa: PLC0415

    console = console_on_stdout()
    if console.is_terminal:
        draw(console, found, page=page)
    else:
        print(summary_text(found, page=page, columns=console.width), end="")


def cases(*, gate: GateNames = None, as_json: AsJson = False) -> None:
    """List the cases of the contract: what each does, and the failure that it catches."""
    from memory_contract.checking import select  # noqa: PLC0415

    with refusing():
        found = select(gate or ())
    out = Output(as_json=as_json)
    if out.json(
        [
            {
                "gate": each.gate,
                "case": each.name,
                "does": each.does,
                "catches": each.catches,
                "needs": sorted(each.needs),
                "modes": each.modes,
                "tier": each.tier,
            }
            for each in found
        ]
    ):
        return
    rows = [(each.gate, each.name, each.tier, each.does, each.catches) for each in found]
    out.table(("gate", "case", "tier", "does", "catches"), rows)


def goldfish(*, seed: Seed = None, as_json: AsJson = False) -> None:
    """Test the kit itself: point it at stores that forget, and see whether each is caught.

    Exits with 1 if one is not.
    """
    from memory_contract.goldfish import GOLDFISH, survey  # noqa: PLC0415

    out = Output(as_json=as_json)
    ours = secrets.randbits(32) if seed is None else seed
    width = max(map(len, GOLDFISH))

    def tell(fish: Goldfish, found: Caught | None) -> None:
        # A line as soon as it is known: there is something to read while the rest runs.
        if found is not None:
            out.say(f"{_caught(found):<10}  {fish.name:<{width}}  {_shown_by(found)}")
            sys.stdout.flush()

    everything = survey(ours, tell)
    caught = sum(each.caught for each in everything)
    out.json(
        {
            "seed": ours,
            "caught": caught,
            "goldfish": [
                {
                    "name": each.goldfish.name,
                    "sin": each.goldfish.sin,
                    "caught": each.caught,
                    "case": each.goldfish.caught_by,
                    "modes": each.modes,
                    "anomaly": each.anomaly,
                }
                for each in everything
            ],
        }
    )
    out.say(f"{caught} of {len(everything)} goldfish caught, seed {ours}.")
    raise typer.Exit(0 if caught == len(everything) else NOT_CAUGHT)


def faults(*, as_json: AsJson = False) -> None:
    """Say which faults `check` can make on this machine, and what is missing for the others."""
    from memory_contract.faults.tiers import means  # noqa: PLC0415
    from memory_contract.gates import TIERS  # noqa: PLC0415

    found = means()
    out = Output(as_json=as_json)
    if out.json({"means": [asdict(each) for each in found]}):
        return
    for tier, about in TIERS.items():
        out.say(f"{tier}: {about}")
        for each in found:
            if each.tier == tier:
                here = f"NOT HERE: {each.missing}" if each.missing else "here"
                out.say(f"  {each.name}, for {each.makes}: {here}")
    if any(each.missing for each in found):
        out.say("Cases that need what is not here are NOT RUN, which is not PASS.")


def _caught(found: Caught) -> str:
    return "caught" if found.caught else "NOT CAUGHT"


def _shown_by(found: Caught) -> str:
    """Which case showed it, in which modes, and how; or what the case said instead."""
    case = found.goldfish.caught_by
    if found.caught:
        return f"{case}[{','.join(found.modes)}]: {found.anomaly}"
    said = ", ".join(f"{result.mode} {result.verdict}" for result in found.results)
    return f"{case}: {said}"
