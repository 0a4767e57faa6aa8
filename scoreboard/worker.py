"""python -m scoreboard.worker STORE FILE GATE: one store, in its framework's environment."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from memory_contract.contract_run import Item, check
from memory_contract.printable import escape_unseen
from memory_contract.report.text import proof_lines
from memory_contract.results import CaseResult
from scoreboard.cases import BUDGET_S, ROUNDS, SEED, list_cases
from scoreboard.results import Outcome, Seen
from scoreboard.stores import STORES, Store


def build_target(store: Store) -> str:
    """What the kit is pointed at; indelible on a server is told which one."""
    if store.environment is None and store.server is not None:
        return os.environ[f"SCOREBOARD_{store.server.upper()}"]
    return store.target


def run_store(store: Store, gate: str) -> Outcome:
    """Run the kit; all gates, or one."""
    report = check(
        build_target(store),
        cases=[case.id for case in list_cases(gate)],
        seed=SEED,
        budget_s=BUDGET_S,
        rounds=ROUNDS,
        progress=_progress,
    )
    return Outcome(
        versions=", ".join(f"{name} {version(name)}" for name in store.packages),
        notes=tuple(escape_unseen(note) for note in report.notes),
        duration_s=round(report.duration_s, 1),
        seen=tuple(_summarize(result) for result in report.results),
    )


def _summarize(result: CaseResult) -> Seen:
    first = result.failures[0] if result.failures else None
    return Seen(
        gate=result.gate,
        case=result.case,
        mode=result.mode,
        verdict=result.verdict,
        reason=escape_unseen(result.reason),
        seed=result.seed,
        anomalies=dict(Counter(escape_unseen(failure.name) for failure in result.failures)),
        proof=tuple(proof_lines(result, first)) if first is not None else (),
    )


def _progress(item: Item, result: CaseResult | None) -> None:
    """A line for each case that is done, for whoever waits."""
    if result is not None:
        sys.stdout.write(f"{result.verdict}\t{item.id}\t{result.duration_s:.1f}\n")
        sys.stdout.flush()


def main() -> int:
    """Try the store, and write what came of it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    name, file, gate = sys.argv[1:]
    store = next(store for store in STORES if store.id == name)
    Path(file).write_text(json.dumps(asdict(run_store(store, gate))), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
