"""Manifests of goldens that were damaged or made up: refused in our words, or nothing is different.

A manifest says what its file holds. A comparison must come to what the file itself says, or say
that the two do not belong together.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_snapshot_db.compare import compare_files
from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.golden import (
    FOLDER,
    Golden,
    build_manifest,
    find_golden,
)

# The same examples in every run: a failure here is a failure everywhere.
fuzz = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=list(HealthCheck),
)


def make(path, rows):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE said (id INTEGER PRIMARY KEY, text TEXT)")
        database.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, at REAL)")
        database.executemany("INSERT INTO said (text) VALUES (?)", [(row,) for row in rows])


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The bytes of a golden, its manifest, and a file that differs from it."""
    folder = tmp_path_factory.mktemp("honest")
    golden, other = folder / "golden.db", folder / "other.db"
    make(golden, ["hello", "where is it?"])
    make(other, ["hello", "something else"])
    manifest = build_manifest(golden, journal_mode="delete")
    Golden(folder, "golden").replace_manifest(manifest, folder)
    return golden.read_bytes(), (folder / "golden.json").read_text("utf-8"), other


NASTY = st.sampled_from(
    [
        *(None, True, False, 0, -1, 1, 2, 2**70, 0.5, float("nan"), float("inf")),
        *("", "wal", "../../x", "/etc/passwd", "os:system", "\0", "\ud800", "a" * 5000),
        *([], {}, [1], {"said": 1}, {"said": {}}, {"said": {"rows": 1, "digest": "x"}}),
        *({"said": {"rows": "1", "digest": 2}}, {"../x": {"rows": 0, "digest": ""}}),
    ]
)
FIELDS = (
    *("format", "sha256", "journal_mode", "user_version", "application_id", "schema", "tables"),
    *("sqlite", "indelible", "builder", "built_by", "path", "unknown"),
)


def placed(folder, data, text):
    golden = Golden(Path(folder) / FOLDER / "test_it", "golden")
    golden.folder.mkdir(parents=True)
    golden.path.write_bytes(data)
    golden.manifest_path.write_bytes(text)
    return golden


@st.composite
def mutations(draw):
    """What is done to the fields of a manifest: taken out, or another value."""
    names = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True))
    return [(name, draw(st.booleans()), draw(NASTY)) for name in names]


def outcome(golden, other):
    """Whether a file differs from the golden; None if the golden was refused."""
    try:
        golden.copy(golden.folder / "copy.db")
        return bool(compare_files(golden.path, other))
    except GoldenError as error:
        return None if str(error) else pytest.fail("an error without words")


@fuzz
@given(mutations())
def test_a_changed_manifest_is_refused_or_changes_no_verdict(honest, changes):
    data, text, other = honest
    said = json.loads(text)
    for name, remove, value in changes:
        if remove:
            said.pop(name, None)
        else:
            said[name] = value
    with TemporaryDirectory() as folder:
        golden = placed(folder, data, json.dumps(said).encode())
        assert outcome(golden, other) in (None, True)
        assert {each.name for each in Path(folder).iterdir()} == {FOLDER}


@fuzz
@given(st.data())
def test_any_bytes_are_refused_or_change_no_verdict(honest, data_):
    data, text, other = honest
    raw = bytearray(text.encode())
    for _ in range(data_.draw(st.integers(1, 5))):
        at = data_.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data_.draw(st.integers(0, 9))] = data_.draw(
            st.one_of(st.binary(max_size=6), st.just(b"[" * 100_000))
        )
    with TemporaryDirectory() as folder:
        assert outcome(placed(folder, data, bytes(raw)), other) in (None, True)


def test_digests_of_another_file_do_not_make_it_the_same(honest):
    data, text, other = honest
    said = json.loads(text)
    said["tables"] = build_manifest(other, journal_mode="delete")["tables"]
    with TemporaryDirectory() as folder:
        golden = placed(folder, data, json.dumps(said).encode())
        assert outcome(golden, other) is True


def test_an_honest_manifest_is_taken(honest):
    data, text, other = honest
    with TemporaryDirectory() as folder:
        golden = placed(folder, data, text.encode())
        assert outcome(golden, other) is True
        assert not compare_files(golden.path, golden.folder / "copy.db")


@fuzz
@given(st.text(max_size=60))
def test_the_name_of_a_golden_stays_in_its_folder(name):
    module = Path("/somewhere/test_it.py")
    try:
        golden = find_golden(module, name)
    except GoldenError:
        return
    for path in (golden.path, golden.manifest_path):
        assert path.parent == module.parent / FOLDER / "test_it"
        assert ".." not in path.parts
