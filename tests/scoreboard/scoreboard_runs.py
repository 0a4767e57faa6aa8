"""Runs of the scoreboard, made up small."""

from scoreboard.results import Outcome, Run, Seen

FILE, SQL, OURS = "langchain/file", "langchain/sql", "indelible/sqlite"
LOST = Seen(
    gate="concurrency",
    case="append_storm",
    mode="processes",
    verdict="FAIL",
    reason="e1 is missing",
    seed=41,
    anomalies={"lost append": 3, "unexpected error": 1},
    proof=("  <e1> was acknowledged and is missing.", "    w0 append [e1]"),
)
RAISED = Seen(
    gate="concurrency",
    case="first_open_race",
    mode="threads",
    verdict="FAIL",
    seed=1,
    anomalies={"unexpected error": 1},
)
CUTS = Seen(
    gate="crash",
    case="power_loss",
    mode="processes",
    verdict="NOT CLAIMED",
    reason="the store claims no durability: of 60 power cuts, 7 took acknowledged changes",
)


def passed(gate):
    return Seen(gate=gate, case="any", mode="blocking", verdict="PASS")


def found_by_search(case, verdict):
    anomalies = {"found although removed": 1} if verdict == "FAIL" else {}
    return Seen(gate="recall", case=case, mode="blocking", verdict=verdict, anomalies=anomalies)


def run_of(outcomes):
    return Run(
        date="2026-01-01",
        contract="1.1",
        seed=1,
        budget_s=60,
        rounds=10,
        machine="a machine",
        outcomes={
            store: Outcome(versions="package 1.0", seen=tuple(seen))
            for store, seen in outcomes.items()
        },
    )


def three_stores():
    """One store that loses, one that raises, one that does neither."""
    return run_of(
        {
            OURS: [passed("sequential"), passed("concurrency")],
            FILE: [passed("sequential"), LOST, RAISED],
            SQL: [passed("sequential"), RAISED, CUTS],
        }
    )
