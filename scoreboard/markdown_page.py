"""The scoreboard as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scoreboard.cases import GATES, SEARCH_GATE
from scoreboard.phrases import (
    ABOUT,
    SEARCH_ABOUT,
    VERDICTS,
    all_findings,
    cell,
    command,
    how_it_was_run,
    left_open,
    list_conversations,
    list_search_cases,
    list_searching,
    list_tried,
    notes,
    power_cuts,
    times,
    versions,
    where,
    why_not_run,
)
from scoreboard.results import Run
from scoreboard.stores import Store
from scoreboard.verdicts import Finding, choose_verdict


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
