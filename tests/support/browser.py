"""Debian's Chromium, for tests of pages; `make test-browser` installs it."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

# A bound on what never comes, not on what is slow.
WAIT_MS_MAX = 15_000
CHROMIUM = shutil.which("chromium")
# What WCAG asks of text of this size.
CONTRAST_MIN = 4.5
CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")


@pytest.fixture(scope="module")
def browser():
    """A browser for one module: several folders import this, and two at once cannot run."""
    assert CHROMIUM, "there is no chromium: `make test-browser` installs it"
    with sync_playwright() as playwright:
        # Root has no sandbox in a container; the pages are our own.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
