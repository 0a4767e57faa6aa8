"""Every backend of indelible through every gate of the kit, as anybody would check it."""

import pytest

from indelible.contract import check
from indelible.contract.cases import GATES, all_cases

WRITTEN = {case.gate for case in all_cases()}


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    """Where an engine is; what has no server is a file in a folder of its own."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/agent.db"


@pytest.mark.parametrize("gate", [gate for gate in GATES if gate in WRITTEN])
def test_the_contract_is_kept(url, gate):
    report = check(url, gates=[gate], seed=3, budget_s=0)
    broken = [r for r in report.results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason, r.seed) for r in broken] == []
    assert report.exit_code == 0
