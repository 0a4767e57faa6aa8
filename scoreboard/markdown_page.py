"""The scoreboard as a page of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from memory_contract.cases.catalogue import all_cases
from memory_contract.checker.verdict import format_count
from memory_contract.results import SILENT
from scoreboard.cases import GATES, LEFT_OUT, RACES, ROUNDS, SEARCH_GATE
from scoreboard.results import Run
from scoreboard.stores import STORES, Store
from scoreboard.verdicts import (
    RAISES,
    Finding,
    choose_verdict,
    count_compared,
    differences,
    findings,
    list_tried_twice,
)

_CUTS: Final = re.compile(r"of \d+ power cuts.*")

WHAT: Final = (
    "What came of `make scoreboard`: the contract kit on stores that frameworks ship, unmodified,"
    " each inside an environment of its framework, and on indelible's own with the same budget."
    " Each store is used as its documentation shows; the factories, a line or two each, are in"
    " `scoreboard/factories`. Stores on servers use the same Valkey and PostgreSQL."
)
FAIR: Final = (
    "This is what was seen, not a judgement. Few of these projects promise what is asked here, and"
    " each may be the right choice: a store that one process uses, one call at a time, never meets"
    " a race. A store is asked only for what its interface offers; the rest is NOT CLAIMED. The"
    " frameworks' stores are held to no durability: what simulated power cuts took is told, and is"
    " no failure."
)
ABOUT: Final = (WHAT, FAIR)
SEARCH_ABOUT: Final = (
    "Stores that can put items and search them: what was put is found by the next search, and what"
    " was taken back is not. The cases are in `docs/cases.md`."
)
VERDICTS: Final = {
    "PASS": "every case that was asked passed",
    "FAIL": "something was lost, doubled, changed, torn, reordered or mixed up, or a store did not"
    " come back; with proof",
    RAISES: "calls raised although nothing was wrong; a refusal, and nothing that was acknowledged"
    " was lost by it",
    "NOT CLAIMED": "the store does not offer what the gate asks for",
    "NOT RUN": "it could not be tried here",
    "UNKNOWN": "the kit could not tell",
    "VACUOUS": "nothing overlapped, or no fault struck, so nothing was shown",
}


def to_markdown(runs: Sequence[Run]) -> str:
    """The whole page."""
    parts = ["# Scoreboard", "", *_opening(), *_table(runs), *_verdicts(), *_not_run(runs)]
    parts += _search(runs)
    parts += ["", "## What was seen", ""]
    for store in list_tried(runs):
        parts += _store(runs, store)
    parts += [*_cuts(runs), "", "## How it was run", ""]
    parts += [f"- {line}" for line in how_it_was_run(runs)]
    return "\n".join(parts) + "\n"


def _opening() -> Iterator[str]:
    for paragraph in ABOUT:
        yield from (paragraph, "")
    yield "Losses shown again by a few lines without the kit: [scripts](scoreboard/README.md)."
    yield ""


def _table(runs: Sequence[Run]) -> Iterator[str]:
    yield f"| store | on | version | {' | '.join(GATES)} |"
    yield f"|{'---|' * (3 + len(GATES))}"
    framework = ""
    for store in list_conversations(runs):
        if store.framework != framework:
            framework = store.framework
            yield f"| **{framework}** |{' |' * (2 + len(GATES))}"
        cells = [_cell(runs, store, gate) for gate in GATES]
        facts = [f"`{store.name}`", store.engine, versions(runs, store)]
        yield f"| {' | '.join([*facts, *cells])} |"


def _cell(runs: Sequence[Run], store: Store, gate: str) -> str:
    word, names = cell(runs, store, gate)
    if "FAIL" in word:
        return f"**{word}**: {names}"
    return word


def _verdicts() -> Iterator[str]:
    yield ""
    yield "| verdict | |"
    yield "|---|---|"
    yield from (f"| {word} | {meaning} |" for word, meaning in VERDICTS.items())


def _search(runs: Sequence[Run]) -> Iterator[str]:
    """A column for each store that can search, a row for each case."""
    stores = list_searching(runs)
    if not stores:
        return
    yield from ("", "## Search", "", SEARCH_ABOUT, "")
    names = (f"{store.framework} `{store.name}`, {store.engine}" for store in stores)
    yield f"| | {' | '.join(names)} |"
    yield f"|{'---|' * (1 + len(stores))}"
    for case in list_search_cases(runs):
        words = [choose_verdict(runs, store.id, SEARCH_GATE, case) for store in stores]
        cells = [f"**{word}**" if "FAIL" in word else word for word in words]
        yield f"| `{case}` | {' | '.join(cells)} |"


def _not_run(runs: Sequence[Run]) -> Iterator[str]:
    for store in list_tried(runs):
        if why := why_not_run(runs, store):
            yield ""
            yield f"NOT RUN: {store.framework} `{store.name}`: {_flat(why)}."


def _store(runs: Sequence[Run], store: Store) -> list[str]:
    found, silent = list(all_findings(runs, store)), left_open(runs, store)
    if not found and not silent:
        return []
    lines = [f"### {store.framework}: {store.name}, {store.engine}", ""]
    lines += [f"- {_flat(each)}." for each in silent]
    lines += [f"- Note: {_flat(note)}." for note in notes(runs, store)]
    if not found:
        return [*lines, ""]
    lines += ["", "| gate | anomaly | in | times |", "|---|---|---|---|"]
    lines += [
        f"| {gate} | {each.anomaly} | {where(each)} | {times(each, len(runs))} |"
        for gate, each in found
    ]
    lines.append("")
    for gate, each in found:
        lines += _proof(store, gate, each)
    return lines


def _proof(store: Store, gate: str, finding: Finding) -> list[str]:
    """The first proof of a finding, folded."""
    assert finding.first is not None
    proof = [line.rstrip() for line in finding.first.proof]
    summary = f"<details><summary>{gate}: {finding.anomaly}</summary>"
    shown = ["```text", *proof, "", f"$ {command(store, finding)}", "```"]
    return [summary, "", *shown, "", "</details>", ""]


def _cuts(runs: Sequence[Run]) -> Iterator[str]:
    yield "## Power cuts"
    yield ""
    yield "Told, and no failure: none of these stores claims to survive them."
    yield ""
    yield "| store | |"
    yield "|---|---|"
    for store in list_tried(runs):
        if seen := power_cuts(runs, store):
            yield f"| {store.framework} `{store.name}` | {seen} |"


def _flat(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").rstrip(".")


def list_tried(runs: Sequence[Run]) -> list[Store]:
    """The stores that the runs know, in the order of the list."""
    return [store for store in STORES if any(store.id in run.outcomes for run in runs)]


def list_conversations(runs: Sequence[Run]) -> list[Store]:
    """Those of them that keep conversations."""
    return [store for store in list_tried(runs) if not store.only_search]


def versions(runs: Sequence[Run], store: Store) -> str:
    """What was installed in the newest run."""
    known = [run.outcomes[store.id] for run in runs if store.id in run.outcomes]
    return known[-1].versions or "-"


def why_not_run(runs: Sequence[Run], store: Store) -> str:
    """Why a store could not be tried."""
    known = [run.outcomes[store.id] for run in runs if store.id in run.outcomes]
    return known[-1].not_run


def cell(runs: Sequence[Run], store: Store, gate: str) -> tuple[str, str]:
    """The verdict on a gate, and what was found there in a few words."""
    word = choose_verdict(runs, store.id, gate)
    names = [each.anomaly for each in findings(runs, store.id, gate) if not each.refused]
    return word, ", ".join(names)


def all_findings(runs: Sequence[Run], store: Store) -> Iterator[tuple[str, Finding]]:
    """Everything that was found in a store, gate by gate."""
    for gate in (*GATES, SEARCH_GATE):
        yield from ((gate, each) for each in findings(runs, store.id, gate))


def list_searching(runs: Sequence[Run]) -> list[Store]:
    """The stores that can search."""
    return [
        store
        for store in list_tried(runs)
        if choose_verdict(runs, store.id, SEARCH_GATE) not in {"NOT RUN", "NOT CLAIMED"}
    ]


def list_search_cases(runs: Sequence[Run]) -> list[str]:
    """The cases of search that were asked, in their order."""
    asked = {seen.case for run in runs for found in run.outcomes.values() for seen in found.seen}
    return [case.name for case in all_cases() if case.gate == SEARCH_GATE and case.name in asked]


def where(finding: Finding) -> str:
    """`append_storm [threads, processes]`."""
    return ", ".join(f"{case} [{', '.join(modes)}]" for case, modes in finding.cases.items())


def times(finding: Finding, runs: int) -> str:
    """How often it was seen, and in how many of the runs."""
    count = f"{finding.count}{' or more' if finding.more else ''}"
    return count if finding.runs == runs else f"{count}, in {finding.runs} of {runs} runs"


def command(store: Store, finding: Finding) -> str:
    """What shows it again."""
    assert finding.first is not None
    seen = finding.first
    rounds = f" --rounds {ROUNDS}" if f"{seen.gate}/{seen.case}" in RACES else ""
    return store.command(f"--case {seen.gate}/{seen.case} --seed {seen.seed}{rounds}")


def power_cuts(runs: Sequence[Run], store: Store) -> str:
    """What simulated power cuts took from a store that claims no durability; "" if none were."""
    for run in runs:
        for seen in run.outcomes[store.id].seen if store.id in run.outcomes else ():
            if seen.case == "power_loss" and (found := _CUTS.search(seen.reason)):
                return found[0]
    return ""


def notes(runs: Sequence[Run], store: Store) -> list[str]:
    """What a reader should know of a store, but for what the kit left out because it was slow."""
    known = [f"{store.name}: {store.remark}"] if store.remark else []
    known += [
        note for run in runs if store.id in run.outcomes for note in run.outcomes[store.id].notes
    ]
    return [note for note in dict.fromkeys(known) if not note.endswith("since the store is slow")]


def left_open(runs: Sequence[Run], store: Store) -> list[str]:
    """The cases that found nothing out although they should have, and why."""
    return [
        f"{seen.verdict}: {seen.case} [{seen.mode}]: {seen.reason}"
        for run in runs[-1:]
        if store.id in run.outcomes
        for seen in run.outcomes[store.id].seen
        if seen.verdict in SILENT
    ]


def how_it_was_run(runs: Sequence[Run]) -> Iterator[str]:
    """The budget, the seed, what was left out, and whether the runs agree: a sentence each."""
    if not runs:
        return
    newest = runs[-1]
    # Those that were asked then: there may be more by now.
    cases = {(seen.gate, seen.case) for found in newest.outcomes.values() for seen in found.seen}
    yield (
        f"Contract {newest.contract}, {format_count(len(cases), 'case')} of"
        f" {format_count(len({gate for gate, _ in cases}), 'gate')} in every mode that"
        f" a store has, seed {newest.seed}. Every case runs once, and every race at least"
        f" {format_count(newest.rounds, 'time')}, with new seeds (`--rounds {newest.rounds}`);"
        f" bad days are repeated for a share of {newest.budget_s:.0f} s"
        f" (`--budget {newest.budget_s:.0f}`). The same for every store."
    )
    left_out = ", ".join(f"`{name}` ({why})" for name, why in LEFT_OUT.items())
    yield f"Not asked: {left_out}. `memory-contract check` asks them too."
    yield f"{newest.machine}. Last run on {newest.date}."
    yield agreement(runs)


def agreement(runs: Sequence[Run]) -> str:
    """Whether two runs came to the same verdicts."""
    if len(runs) < 2:
        return "There was one run; `make scoreboard AGAIN=1` makes a second and compares them."
    count = count_compared(runs[0], runs[1], GATES)
    found = list(differences(runs[0], runs[1], GATES))
    both = len(list_tried_twice(runs[0], runs[1]))
    stores = f"{both} of {format_count(len(list_tried(runs)), 'store')}"
    if not found:
        return f"Two runs were made of {stores}; they agree on each of {count} verdicts."
    differ = f"they disagree on {len(found)}: {'; '.join(found)}"
    return f"Two runs were made of {stores}. Of {count} verdicts {differ}."
