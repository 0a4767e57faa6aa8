"""Every command runs as a real process, on a store whose contents repeat.

What a test's commands print is kept as text in golden/, in a file with the test's name. When the
output is meant to change, renew those files and read the difference:

    INDELIBLE_UPDATE_GOLDEN=1 .venv/bin/pytest tests/cli
    git diff tests/cli/golden

Ids and times that a command makes are written as <id> and <time>; those of the prepared store are
its own, and stay. Lines of stderr begin with "! ".
"""

import shutil

import apsw
import pytest

import indelible
from tests.support.prepared_store import prepare
from tests.support.transcripts import GOLDEN, UPDATE, Command


@pytest.fixture
def command(prepared, tmp_path, request):
    """Runs commands beside `agent.db`, the prepared store."""
    shutil.copy(prepared, tmp_path / "agent.db")
    command = Command(tmp_path)
    command.program = getattr(request.module, "PROGRAM", command.program)
    return command


@pytest.fixture
def golden(command, request):
    """Compares what the commands of a test printed with what they printed when it was written."""

    def compare():
        path = GOLDEN / (request.node.name.removeprefix("test_") + ".txt")
        text = "\n".join(command.lines)
        if UPDATE:
            path.write_text(text, "utf-8")
        assert path.exists(), f"no {path.name}: run once with INDELIBLE_UPDATE_GOLDEN=1"
        assert text == path.read_text("utf-8")

    return compare


@pytest.fixture
def store(command):
    """The prepared store, opened from Python."""
    with indelible.open(command.folder / "agent.db") as opened:
        yield opened


@pytest.fixture
def corrupt(command):
    """Flips a byte in the middle of entry 2 of ada, as a bad disk would."""
    with apsw.Connection(str(command.folder / "agent.db")) as connection:
        ((row, payload),) = connection.execute(
            "SELECT e.id, e.payload FROM entry e JOIN session s ON e.id = (s.number << 32 | 2)"
            " WHERE s.name = 'ada'"
        )
        damaged = bytearray(payload)
        damaged[len(damaged) // 2] ^= 1
        connection.execute("UPDATE entry SET payload = ? WHERE id = ?", (bytes(damaged), row))
    connection.close()


@pytest.fixture
def locked(command):
    """Another connection is in the middle of a write, for as long as the test lasts."""
    connection = apsw.Connection(str(command.folder / "agent.db"))
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """The prepared store, made once and copied for each test."""
    path = tmp_path_factory.mktemp("prepared") / "agent.db"
    prepare(path)
    return path
