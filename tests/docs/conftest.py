"""A page writes modules and imports them: the next page in the same process must not see them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def modules_of_a_page_end_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # A page that puts "." before everything has modules with a relative path.
        if file and (not Path(file).is_absolute() or tmp_path in Path(file).parents):
            del sys.modules[name]
