from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sqlite.seams import Seam


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def seam() -> Seam:
    return Seam()
