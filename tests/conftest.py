"""What several folders of tests share: servers, and processes that do what they are told."""

import sys
from pathlib import Path

import postgres_here

# The crew and its ledger are for every engine that several processes can use; so is the blocking
# face of an async store.
for room in ("processes", "behaviour"):
    sys.path.append(str(Path(__file__).parent / room))


def pytest_sessionfinish():
    """Servers are ended with the test run, in each of its processes."""
    postgres_here.end()
