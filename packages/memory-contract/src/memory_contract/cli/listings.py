"""Commands that list what the kit has: its cases, its faults, and the goldfish that test it."""

from __future__ import annotations

import json
import secrets
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

from memory_contract.cli.check import add_gate, translate_errors
from memory_contract.cli.parser import Commands, add_command, add_json, add_seed
from memory_contract.contract_run import select
from memory_contract.faults.tiers import list_fault_tools
from memory_contract.gates import TIERS
from memory_contract.goldfish import GOLDFISH, Caught, Goldfish, survey

NOT_CAUGHT: Final = 1


def add_commands(commands: Commands) -> None:
    """Add `cases`, `goldfish` and `faults`."""
    parser = add_command(commands, "cases", cases, "cases --gate concurrency")
    add_gate(parser)
    add_json(parser)
    parser = add_command(commands, "goldfish", goldfish, "goldfish --seed 7")
    add_seed(parser)
    add_json(parser)
    add_json(add_command(commands, "faults", faults, "faults"))


def cases(arguments: Namespace) -> int:
    """List the cases of the contract: what each does, and the failure that it catches."""
    with translate_errors():
        found = select(arguments.gate or ())
    if arguments.as_json:
        listed = [
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
        print(json.dumps(listed, indent=2))
        return 0
    rows = [(each.gate, each.name, each.tier, each.does, each.catches) for each in found]
    print("\n".join(format_table(("gate", "case", "tier", "does", "catches"), rows)))
    return 0


def goldfish(arguments: Namespace) -> int:
    """Test the kit itself: is each goldfish, a store that is broken on purpose, caught.

    Exits with 1 if one is not.
    """
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    width = max(map(len, GOLDFISH))
    # One line for each, as soon as it is known.
    say = partial(print, file=sys.stderr if arguments.as_json else sys.stdout, flush=True)

    def show(fish: Goldfish, found: Caught | None) -> None:
        if found is not None:
            caught = "caught" if found.caught else "NOT CAUGHT"
            say(f"{caught:<10}  {fish.name:<{width}}  {_describe(found)}")

    everything = survey(seed, show)
    caught = sum(each.caught for each in everything)
    if arguments.as_json:
        listed = [
            {
                "name": each.goldfish.name,
                "sin": each.goldfish.sin,
                "caught": each.caught,
                "case": each.goldfish.caught_by,
                "modes": each.modes,
                "anomaly": each.anomaly,
            }
            for each in everything
        ]
        print(json.dumps({"seed": seed, "caught": caught, "goldfish": listed}, indent=2))
    say(f"{caught} of {len(everything)} goldfish caught, seed {seed}.")
    return 0 if caught == len(everything) else NOT_CAUGHT


def _describe(found: Caught) -> str:
    """The case that caught it, its modes and the anomaly; else the verdicts of that case."""
    case = found.goldfish.caught_by
    if found.caught:
        return f"{case}[{','.join(found.modes)}]: {found.anomaly}"
    verdicts = ", ".join(f"{result.mode} {result.verdict}" for result in found.results)
    return f"{case}: {verdicts}"


def faults(arguments: Namespace) -> int:
    """Say which faults `check` can make on this machine, and what is missing for the others."""
    found = list_fault_tools()
    if arguments.as_json:
        print(json.dumps({"means": [asdict(each) for each in found]}, indent=2))
        return 0
    for tier, about in TIERS.items():
        print(f"{tier}: {about}")
        for each in found:
            if each.tier == tier:
                here = f"NOT HERE: {each.missing}" if each.missing else "here"
                print(f"  {each.name}, for {each.makes}: {here}")
    if any(each.missing for each in found):
        print("Cases that need what is not here are NOT RUN, which is not PASS.")
    return 0


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay rows out under headings, in columns of equal width."""
    cells = [list(columns), *rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
