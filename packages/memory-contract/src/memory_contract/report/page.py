"""A report as one HTML file that loads nothing: data, style and script are inside.

Names that a store returns may contain anything. In the file they are JSON that cannot end a script
element, and on the page they are set as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any, Final

from memory_contract.cases.catalogue import all_cases
from memory_contract.gates import GATES
from memory_contract.printable import escape_unseen
from memory_contract.report.as_json import describe_result, describe_run
from memory_contract.report.text import (
    VERDICTS,
    build_badge,
    describe_target,
    reproduce,
    slug,
)
from memory_contract.report.timelines import Timelines
from memory_contract.results import Report

_BLANK: Final = re.compile(r"\{\{(\w+)\}\}")
# Failures come first, since a page has limited room for operations.
_URGENT: Final = {"FAIL": 0, "UNKNOWN": 1, "VACUOUS": 2, "DEVIATION": 3}


def to_page(report: Report) -> str:
    """The report as an HTML document."""
    style, script = _part("page.css"), _part("lanes.js") + _part("page.js")
    filled = {
        "policy": f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'",
        "title": html.escape(f"{report.verdict}: {escape_unseen(describe_target(report))}"),
        "style": style,
        "script": script,
        "data": _inert(_page(report)),
    }
    # In one pass, so that placeholders in the data are not filled in.
    return _BLANK.sub(lambda found: filled[found[1]], _part("page.html"))


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    """The hash by which a content security policy allows a style or a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inert(value: Any) -> str:
    """JSON that cannot end a script element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _page(report: Report) -> dict[str, Any]:
    book = {(found.gate, found.name): found for found in all_cases()}
    timelines = Timelines(report)
    urgent = sorted(report.results, key=lambda result: _URGENT.get(result.verdict, 9))
    kept = {result.id: timelines.build(result) for result in urgent}
    return {
        **describe_run(report),
        "badge": build_badge(report).line,
        "verdicts": list(VERDICTS),
        "gates": [
            {
                "name": gate,
                "about": GATES.get(gate, ""),
                "verdict": report.judge_gate(gate),
                "counts": report.count(gate),
            }
            for gate in report.gates
        ],
        "cases": [
            {
                **describe_result(result),
                "slug": slug(result),
                "does": getattr(book.get((result.gate, result.case)), "does", ""),
                "catches": getattr(book.get((result.gate, result.case)), "catches", ""),
                "reproduce": reproduce(report, result),
                **kept[result.id],
            }
            for result in report.results
        ],
    }
