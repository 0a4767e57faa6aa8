"""The scoreboard as one HTML file that asks the network for nothing, and needs no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

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

_STYLE: Final = Path(__file__).with_name("page.css")


def to_html(runs: Sequence[Run]) -> str:
    """The whole document."""
    style = _STYLE.read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join(_body(runs))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Scoreboard: who forgets</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _body(runs: Sequence[Run]) -> Iterator[str]:
    yield "<h1>Scoreboard</h1>"
    yield from (f"<p>{_prose(paragraph)}</p>" for paragraph in ABOUT)
    yield from _table(runs)
    yield "<dl>"
    yield from (f"<dt>{_pill(word)}</dt><dd>{escape(text)}</dd>" for word, text in VERDICTS.items())
    yield "</dl>"
    yield from _search(runs)
    yield "<h2>What was seen</h2>"
    for store in list_tried(runs):
        yield from _store(runs, store)
    yield "<h2>How it was run</h2>"
    yield from (f"<p>{_prose(line)}</p>" for line in how_it_was_run(runs))


def _table(runs: Sequence[Run]) -> Iterator[str]:
    yield '<div class="wide"><table>'
    heads = ("store", "on", "version", *GATES)
    yield f"<thead><tr>{''.join(f'<th scope=col>{head}</th>' for head in heads)}</tr></thead>"
    framework = ""
    for store in list_conversations(runs):
        if store.framework != framework:
            framework = store.framework
            yield f'<tr class="framework"><th colspan="{len(heads)}">{escape(framework)}</th></tr>'
        cells = "".join(_cell(runs, store, gate) for gate in GATES)
        yield (
            f'<tr><th scope="row"><a href="#{_anchor(store)}">{escape(store.name)}</a></th>'
            f"<td>{store.engine}</td><td><small>{escape(versions(runs, store))}</small></td>{cells}"
            "</tr>"
        )
    yield "</table></div>"


def _search(runs: Sequence[Run]) -> Iterator[str]:
    """A column for each store that can search, a row for each case."""
    stores = list_searching(runs)
    if not stores:
        return
    yield f'<h2>Search</h2><p>{_prose(SEARCH_ABOUT)}</p><div class="wide"><table>'
    heads = ("", *(f"{store.framework} {store.name}, {store.engine}" for store in stores))
    head = "".join(f"<th scope=col>{escape(each)}</th>" for each in heads)
    yield f"<thead><tr>{head}</tr></thead>"
    for case in list_search_cases(runs):
        words = (choose_verdict(runs, store.id, SEARCH_GATE, case) for store in stores)
        cells = "".join(f"<td>{_pill(word)}</td>" for word in words)
        yield f'<tr><th scope="row">{escape(case)}</th>{cells}</tr>'
    yield "</table></div>"


def _cell(runs: Sequence[Run], store: Store, gate: str) -> str:
    word, names = cell(runs, store, gate)
    return f"<td>{_pill(word)}<small>{escape(names)}</small></td>"


def _pill(word: str) -> str:
    kind = "fail" if "FAIL" in word else word.partition(" in ")[0].lower().replace(" ", "-")
    return f'<span class="pill {kind}">{escape(word)}</span>'


def _store(runs: Sequence[Run], store: Store) -> Iterator[str]:
    found = list(all_findings(runs, store))
    yield f'<details id="{_anchor(store)}"{" open" if found else ""}>'
    title = f"{store.framework}: {store.name}, {store.engine}"
    yield f"<summary>{escape(title)}{'' if found else ': nothing was found'}</summary>"
    if why := why_not_run(runs, store):
        yield f"<p>NOT RUN: {escape(why)}</p>"
    if seen := power_cuts(runs, store):
        yield f"<p>Told, and no failure: {escape(seen)}.</p>"
    yield from (f"<p>{escape(line)}</p>" for line in left_open(runs, store))
    yield from (f"<p>Note: {escape(note)}.</p>" for note in notes(runs, store))
    for gate, each in found:
        yield from _finding(runs, store, gate, each)
    yield "</details>"


def _finding(runs: Sequence[Run], store: Store, gate: str, found: Finding) -> Iterator[str]:
    assert found.first is not None
    kind = "raises" if found.refused else "fail"
    yield f'<h3><span class="pill {kind}">{escape(found.anomaly)}</span> {gate}</h3>'
    yield f"<p>{escape(where(found))}; times: {escape(times(found, len(runs)))}</p>"
    proof = "\n".join(line.rstrip() for line in found.first.proof)
    yield f"<pre>{escape(proof)}</pre>"
    yield f"<pre>$ {escape(command(store, found))}</pre>"


def _anchor(store: Store) -> str:
    return store.id.replace("/", "-")


def _prose(text: str) -> str:
    """Text in which what stands between backticks is code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if odd % 2 else part for odd, part in enumerate(parts))
