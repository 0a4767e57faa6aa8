"""Hooks of all tests: servers end with a run, and nothing prints or keeps the canary password."""

import gc
import signal

import pytest
from typer.testing import CliRunner

from memory_contract.faults.servers import managed
from tests.support import canary, redis_cluster

canary.watch(CliRunner)

pytest_plugins = ["indelible.testing"]


def pytest_configure(config):
    # A script that runs tests in the background has it ignored, and all processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "canary_in_files: the test itself writes the canary password to its tmp_path"
    )
    config.addinivalue_line(
        "markers", "exhaustive: repeats a proof on another flavour, engine or version"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from visiting thousands of tests, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test whose output shows the canary password has failed, whatever else it found."""
    report = yield
    if any(canary.CANARY in text for _, text in report.sections):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} printed the canary password"
    return report


@pytest.fixture(autouse=True)
def no_canary_in_files(request):
    """No file that a test leaves in its folder holds the canary password."""
    yield
    folder = request.node.funcargs.get("tmp_path")
    if folder is not None and not request.node.get_closest_marker("canary_in_files"):
        assert canary.files_with_canary(folder) == []


def pytest_sessionfinish():
    """Servers are ended with the test run, in each of its processes."""
    managed.end_started()
    redis_cluster.end()
