"""What a result is to pytest: passed, skipped, xfailed, or failed with the proof."""

from __future__ import annotations

import pytest

from memory_contract.printable import escape_unseen
from memory_contract.redaction import redact
from memory_contract.report.text import failure_lines
from memory_contract.results import CaseResult, Report


def raise_outcome(result: CaseResult, target: str) -> None:
    """Pass, or raise what pytest takes for the result. Nothing passes by not running."""
    if result.verdict == "PASS":
        return
    if result.verdict == "NOT CLAIMED":
        pytest.skip(format_unclaimed(result))
    if result.verdict == "DEVIATION":
        pytest.xfail(escape_unseen(result.reason))
    # A DEVIATION comes here too if pytest was told to --runxfail.
    pytest.fail(format_proof(result, target), pytrace=False)


def format_unclaimed(result: CaseResult) -> str:
    """Why a case says nothing about this store."""
    return f"NOT CLAIMED: {escape_unseen(result.reason)}"


def format_proof(result: CaseResult, target: str) -> str:
    """What was found, in words: the first line says it, the last brings it back."""
    report = Report(target=target, seed=0, gates=(), results=(result,))
    lines = failure_lines(report, result)
    if not result.failures:
        return f"{result.verdict}: {escape_unseen(result.reason)}\n{lines[-1]}"
    # pytest says the id itself.
    return "\n".join(lines).removeprefix(result.id).lstrip()


def format_target(text: str) -> str:
    """A target, or what is said about one, as it may be shown: without its password."""
    return escape_unseen(redact(text))
