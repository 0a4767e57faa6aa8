"""A failure as a small program that shows it again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from memory_contract.checker.verdict import Anomaly
from memory_contract.history import Operation
from memory_contract.printable import escape_unseen
from memory_contract.report.text import describe_target
from memory_contract.results import CaseResult, Report

_JUDGED: Final = '''\
"""{title}"""

from memory_contract import Operation, Violated, explain, judge

HISTORY = [
{history}
]


def test_{name}():
    verdict = judge(HISTORY{options})
    assert isinstance(verdict, Violated), explain(verdict)
    assert {anomaly} in {{found.name for found in verdict.anomalies}}, explain(verdict)


if __name__ == "__main__":
    print(explain(judge(HISTORY{options})))
    test_{name}()
'''

_CHECKED: Final = '''\
"""{title}"""

from memory_contract import check


def test_{name}():
    report = check({target}, cases=[{case}], seed={seed}{options})
    assert report.verdict == "PASS", [result.reason for result in report.results]


if __name__ == "__main__":
    test_{name}()
'''


def build_program(
    report: Report, result: CaseResult, failure: Anomaly, history: Sequence[Operation]
) -> str:
    """Write a test that judges a proved history again, or else runs the case against the store."""
    title = escape_unseen(f"{failure.name.upper()}: {result.id}, seed {result.seed}")
    title = title.replace("\\", "\\\\").replace('"', "'")
    name = re.sub(r"\W+", "_", failure.name, flags=re.ASCII).strip("_").lower() or "failure"
    if not failure.proved:
        return _CHECKED.format(
            title=title,
            name=name,
            # Without its password, which must be filled in.
            target=_literal(describe_target(report)),
            case=_literal(result.case),
            seed=result.seed,
            options="" if report.keeps_last is None else f", keeps_last={report.keeps_last}",
        )
    began = min((op.invoke_ns for op in history), default=0)
    return _JUDGED.format(
        title=title,
        name=name,
        anomaly=_literal(failure.name),
        history="\n".join(f"    {_operation(op, began)}," for op in history),
        options=", flicker=True" if failure.name == "flickering entry" else "",
    )


def _operation(op: Operation, began: int) -> str:
    """The source of an operation, with times counted from the beginning of the history."""
    shown = []
    for each in fields(Operation):
        value = getattr(op, each.name)
        if each.name in ("invoke_ns", "complete_ns"):
            shown.append(f"{each.name}={None if value is None else value - began}")
        elif value not in (None, ()) or (each.name == "value" and value == ()):
            shown.append(f"{each.name}={_literal(value)}")
    return f"Operation({', '.join(shown)})"


def _literal(value: object) -> str:
    # In ASCII, so that no character looks like another one in an editor.
    return ascii(value)
