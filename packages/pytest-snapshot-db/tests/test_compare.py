"""Two files are the same if what is in them is; otherwise it is said what is not."""

import ast
import json
import random
import sqlite3
from contextlib import closing

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_snapshot_db.cell_text import diff_json_cells, render_cell_change, suggest_ignore
from pytest_snapshot_db.compare import compare_files
from pytest_snapshot_db.database import COLUMNS_MAX
from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.golden import build_manifest, write_canonical
from tests.support.golden_files import describe, difference, make


@pytest.fixture
def two(tmp_path):
    """Makes two files by two scripts, and says how they differ."""

    def both(before, after, **options):
        make(tmp_path / "a.db", before)
        make(tmp_path / "b.db", after)
        return describe(tmp_path / "a.db", tmp_path / "b.db", **options)

    return both


KEYED = "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b);"
BARE = "CREATE TABLE t (a, b);"
TEXT_KEY = "CREATE TABLE t (id TEXT PRIMARY KEY, a);"
CLUSTERED = "CREATE TABLE t (id TEXT PRIMARY KEY, a) WITHOUT ROWID;"


def test_rows_are_matched_by_their_primary_key(two):
    said = two(
        KEYED + "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2), (3, 'z', 3)",
        KEYED + "INSERT INTO t VALUES (1, 'x', 1), (3, 'Z', 3), (4, NULL, x'00ff')",
    )
    assert said.splitlines() == [
        "table t: 1 gone, 1 changed, 1 added (3 rows expected, 3 obtained)",
        "  - id=2: a='y', b=2",
        "  ~ id=3: a: 'z' → 'Z'",
        "  + id=4: a=NULL, b=x'00ff'",
    ]


def test_the_schema_comes_first(two):
    said = two(
        "CREATE TABLE t (a,\n  b TEXT\n); CREATE TABLE gone (a); INSERT INTO gone VALUES (1), (2);"
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE TABLE t (a,\n  b INTEGER\n); CREATE INDEX i ON t (b); INSERT INTO t VALUES (1, 2);"
        "CREATE VIEW v AS SELECT a FROM t; PRAGMA user_version = 3; PRAGMA application_id = 7",
    )
    assert said.splitlines() == [
        "user_version: 0 expected, 3 obtained",
        "application_id: 0 expected, 7 obtained",
        "index i: added",
        "  + CREATE INDEX i ON t (b)",
        "table gone: gone, with 2 rows",
        "  - CREATE TABLE gone (a)",
        "table t: changed",
        "    CREATE TABLE t (a,",
        "  -   b TEXT",
        "  +   b INTEGER",
        "    )",
        "table t: 1 added (0 rows expected, 1 obtained)",
        "  + row 1: a=1, b=2",
    ]


def test_spaces_and_comments_in_a_schema_change_nothing(two):
    said = two("CREATE TABLE t (a, b)", "CREATE TABLE t (\n  a,  -- the first\n  b /* last */\n)")
    assert said == ""
    assert "changed" in two("CREATE TABLE u (a DEFAULT 'x y')", "CREATE TABLE u (a DEFAULT 'x  y')")


def test_rows_without_a_key_are_named_by_their_place(two):
    said = two(
        BARE + "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        BARE + "INSERT INTO t VALUES (1, 'a'), (3, 'c'), (4, 'D'), (5, 'e')",
    )
    assert said.splitlines()[1:] == [
        "  - row 2: a=2, b='b'",
        "  - row 4: a=4, b='d'",
        "  + row 3: a=4, b='D'",
        "  + row 4: a=5, b='e'",
    ]


@pytest.mark.parametrize("table", [BARE, TEXT_KEY])
def test_the_order_of_rows_counts_where_the_file_has_one(two, table):
    rows = table + "INSERT INTO t VALUES ('a', 1), ('b', 2), ('c', 3)"
    other = table + "INSERT INTO t VALUES ('a', 1), ('c', 3), ('b', 2)"
    said = two(rows, other)
    assert "the same rows in another order" in said
    assert "from row 2 on" in said or "from id='c' on" in said


@pytest.mark.parametrize("table", [BARE, TEXT_KEY])
def test_an_order_that_is_ignored_does_not_hide_a_row(tmp_path, table):
    make(tmp_path / "a.db", table + "INSERT INTO t VALUES ('a', 1), ('b', 2), ('c', 3)")
    make(tmp_path / "b.db", table + "INSERT INTO t VALUES ('c', 3), ('b', 2), ('a', 1)")
    make(tmp_path / "c.db", table + "INSERT INTO t VALUES ('c', 3), ('b', 2), ('a', 4)")
    assert not difference(tmp_path / "a.db", tmp_path / "b.db", ignore={"t.rowid"})
    assert difference(tmp_path / "a.db", tmp_path / "c.db", ignore={"t.rowid"})


def test_rows_without_a_rowid_have_no_order_but_that_of_their_key(two):
    rows = "INSERT INTO t VALUES ('a', 1), ('b', 2)"
    assert two(CLUSTERED + rows, CLUSTERED + "INSERT INTO t VALUES ('b', 2), ('a', 1)") == ""


def test_keys_that_are_null_do_not_hide_rows(two):
    said = two(
        TEXT_KEY + "INSERT INTO t VALUES (NULL, 1), (NULL, 2)",
        TEXT_KEY + "INSERT INTO t VALUES (NULL, 1), (NULL, 3)",
    )
    assert said.splitlines()[1:] == ["  ~ row 2: a: 2 → 3"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("'1'", "1"),
        ("'a'", "x'61'"),
        ("NULL", "''"),
        ("0.0", "-0.0"),
        ("'a'", "'a '"),
    ],
)
def test_values_that_sqlite_may_take_for_equal_are_not(two, one, other):
    table = "CREATE TABLE t (a COLLATE NOCASE);"
    said = two(f"{table} INSERT INTO t VALUES ({one})", f"{table} INSERT INTO t VALUES ({other})")
    assert said.startswith("table t: 1 changed")


def test_invalid_text_is_compared_by_its_bytes(two):
    table = "CREATE TABLE t (a TEXT, b);"
    rows = table + "INSERT INTO t VALUES ('fine', 1), (CAST(x'ff61' AS TEXT), 'é')"
    assert two(rows, rows) == ""


def test_invalid_text_is_shown(tmp_path):
    table = "CREATE TABLE t (a TEXT, b);"
    make(tmp_path / "a.db", table + "INSERT INTO t VALUES ('x', 1), (CAST(x'ff61' AS TEXT), 2)")
    make(tmp_path / "b.db", table + "INSERT INTO t VALUES ('x', 1), (CAST(x'fe61' AS TEXT), 2)")
    said = describe(tmp_path / "a.db", tmp_path / "b.db")
    assert "\\udcff" in said
    assert said.isprintable() or "\n" in said


def test_json_is_compared_by_its_paths(two):
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, body);"
    before = json.dumps({"user": {"name": "Ana", "tags": [1, 2]}, "x-y": None})
    after = json.dumps({"user": {"name": "Bob", "tags": [1, 2, 3]}, "x-y": 0})
    said = two(
        f"{table} INSERT INTO t VALUES (1, '{before}')",
        f"{table} INSERT INTO t VALUES (1, '{after}')",
    )
    assert said.splitlines()[1:] == [
        "  ~ id=1",
        "      body $.user.name: 'Ana' → 'Bob'",
        "      body $.user.tags[2]: nothing → 3",
        '      body $["x-y"]: NULL → 0',
    ]


def test_equal_parts_of_json_are_not_shown(two):
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, body);"
    said = two(
        f'{table} INSERT INTO t VALUES (1, \'{{"n": NaN, "ok": 1}}\')',
        f'{table} INSERT INTO t VALUES (1, \'{{"n": NaN, "ok": true}}\')',
    )
    assert said.splitlines()[1:] == ["  ~ id=1: body $.ok: 1 → true"]


@pytest.mark.parametrize("depth", range(100, 1100, 50))
def test_json_may_be_nested_deeply(depth):
    one, two = ("[" * depth + number + "]" * depth for number in "12")
    paths = diff_json_cells(one, two)
    assert paths in ([], [("$" + "[0]" * depth, 1, 2)])
    (line,) = render_cell_change("body", one, two, paths)
    assert len(line) < 500


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("two\nlines", r"two\nlines", r"'two\nlines' → 'two\\nlines'"),
        ("caf\u00e9", "cafe\u0301", r"'caf\xe9' → 'cafe\u0301'"),
        ("x" * 99 + "\n", "x" * 99 + r"\n", None),
    ],
)
def test_values_that_look_the_same_are_told_apart(one, other, said):
    (line,) = render_cell_change("a", one, other, [])
    if said:
        assert line == f"a: {said}"
    before, after = line.removeprefix("a: ").split(" → ")
    assert before != after


def test_long_values_are_shortened_around_the_change(two):
    said = two(
        f"CREATE TABLE t (a); INSERT INTO t VALUES ('{'x' * 5000}one{'y' * 5000}')",
        f"CREATE TABLE t (a); INSERT INTO t VALUES ('{'x' * 5000}two{'y' * 5000}')",
    )
    line = said.splitlines()[1]
    assert "xone" in line
    assert "xtwo" in line
    assert "10003 characters" in line
    assert len(line) < 250


def test_stored_text_cannot_control_a_terminal(two):
    said = two("CREATE TABLE t (a)", "CREATE TABLE t (a); INSERT INTO t VALUES (char(27) || '[2J')")
    assert "\\x1b[2J" in said
    assert "\x1b" not in said


def test_many_rows_are_counted_and_some_are_shown(tmp_path):
    make(tmp_path / "a.db", KEYED)
    make(tmp_path / "b.db", KEYED, *((n, n, n) for n in range(1000)))
    said = describe(tmp_path / "a.db", tmp_path / "b.db").splitlines()
    assert said[0] == "table t: 1000 added (0 rows expected, 1000 obtained)"
    assert said[-1] == "  … and 980 more"
    assert len(said) == 22
    assert len(describe(tmp_path / "a.db", tmp_path / "b.db", limit=None).splitlines()) == 1001


def test_rows_of_tables_without_a_common_column_are_counted(two):
    said = two(
        "CREATE TABLE t (a); INSERT INTO t VALUES (1)",
        "CREATE TABLE t (b); INSERT INTO t VALUES (1), (2)",
    )
    assert "table t: 1 added (1 row expected, 2 obtained)" in said


def test_a_table_may_have_many_columns(tmp_path):
    table = f"CREATE TABLE t ({', '.join(f'c{n}' for n in range(900))})"
    one = make(tmp_path / "a.db", table, [0.5] * 900)
    two = make(tmp_path / "b.db", table, [0.5] * 899 + [1])
    assert describe(one, two).splitlines()[1:] == ["  ~ row 1: c899: 0.5 → 1"]


def test_generated_columns_are_not_compared(two):
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b AS (a * 2) STORED);"
    said = two(table + "INSERT INTO t VALUES (1, 1)", table + "INSERT INTO t VALUES (1, 2)")
    assert said.splitlines()[1:] == ["  ~ id=1: a: 1 → 2"]


def test_an_index_does_not_sort_what_is_compared(two):
    # Narrower than the table, and with all that is stored: SQLite would rather read the index.
    table = "CREATE TABLE t (a INT, b TEXT AS (hex(zeroblob(99))) STORED); CREATE INDEX i ON t (a);"
    said = two(table + "INSERT INTO t VALUES (2), (1)", table + "INSERT INTO t VALUES (1), (2)")
    assert "another order" in said


def test_the_counters_of_autoincrement_count(two):
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a); INSERT INTO t VALUES (1, 1);"
    said = two(table, table + "INSERT INTO t VALUES (2, 2); DELETE FROM t WHERE id = 2")
    assert said.splitlines()[1:] == ["  ~ name='t': seq: 1 → 2"]


def test_a_full_text_table_is_compared_by_its_rows(tmp_path):
    table = "CREATE VIRTUAL TABLE f USING fts5(body);"
    for name, rows in (("a", "('moon'), ('sun')"), ("b", "('moon'), ('sea')")):
        with closing(apsw.Connection(str(tmp_path / f"{name}.db"))) as db:
            db.execute(f"{table} INSERT INTO f VALUES {rows}")
    assert describe(tmp_path / "a.db", tmp_path / "b.db").splitlines() == [
        "table f: 1 changed (2 rows expected, 2 obtained)",
        "  ~ rowid=2: body: 'sun' → 'sea'",
    ]


@pytest.mark.parametrize("content", ["content=''", "content='t', content_rowid='id'"])
def test_the_index_of_a_full_text_table_without_rows_is_compared_by_its_words(tmp_path, content):
    tables = "CREATE TABLE t (id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'moon');"
    tables += f"CREATE VIRTUAL TABLE f USING fts5(a, {content});"
    one = make(tmp_path / "a.db", tables + "INSERT INTO f (rowid, a) VALUES (1, 'moon')")
    two = make(tmp_path / "b.db", tables + "INSERT INTO f (rowid, a) VALUES (1, 'new moon')")
    assert not difference(one, one)
    assert describe(one, two).splitlines() == [
        "table f (words): 1 gone, 2 added (1 row expected, 2 obtained)",
        "  - term='moon', doc=1, col='a', offset=0",
        "  + term='moon', doc=1, col='a', offset=1",
        "  + term='new', doc=1, col='a', offset=0",
    ]


@pytest.mark.parametrize(
    "name",
    ["before", "after", "matched", "pair", "source", "obtained", "rowid", 'x"y', "it's", "a.b"],
)
def test_a_table_and_its_columns_may_have_any_name(two, name):
    quoted = '"' + name.replace('"', '""') + '"'
    table = f"CREATE TABLE {quoted} ({quoted} PRIMARY KEY, c0, reals, old, new);"
    said = two(
        f"{table} INSERT INTO {quoted} VALUES (1, 2, 3, 4, 5)",
        f"{table} INSERT INTO {quoted} VALUES (1, 2, 9, 4, 5)",
    )
    assert said.splitlines() == [
        f"table {name}: 1 changed (1 row expected, 1 obtained)",
        f"  ~ {name}=1: reals: 3 → 9",
    ]


def test_names_that_differ_in_the_case_of_other_letters_are_different(two):
    tables = "CREATE TABLE É (A); CREATE TABLE é (É, é);"
    said = two(
        tables + "INSERT INTO É VALUES (1); INSERT INTO é VALUES (1, 2)",
        tables + "INSERT INTO É VALUES (2); INSERT INTO é VALUES (2, 2)",
    )
    assert said.splitlines()[1::2] == ["  ~ row 1: A: 1 → 2", "  ~ row 1: É: 1 → 2"]


def test_a_file_that_needs_functions_of_its_program_is_still_compared(tmp_path):
    def program(path, last):
        with closing(sqlite3.connect(path)) as db:
            db.create_function("loud", 1, lambda text: text.upper(), deterministic=True)
            db.create_collation("backwards", lambda a, b: (a < b) - (a > b))
            db.execute("CREATE TABLE t (a TEXT COLLATE backwards PRIMARY KEY, b AS (loud(a)))")
            db.execute("CREATE INDEX i ON t (loud(a))")
            db.executemany("INSERT INTO t (a) VALUES (?)", [("x",), (last,)])
            db.commit()

    program(tmp_path / "a.db", "y")
    program(tmp_path / "b.db", "y")
    program(tmp_path / "c.db", "z")
    assert not difference(tmp_path / "a.db", tmp_path / "b.db")
    assert "a='z'" in describe(tmp_path / "a.db", tmp_path / "c.db")
    write_canonical(tmp_path / "a.db", tmp_path / "d.db")
    assert not difference(tmp_path / "a.db", tmp_path / "d.db")


def test_a_damaged_file_is_reported(tmp_path):
    make(tmp_path / "a.db", KEYED + "CREATE INDEX i ON t (a);", *((n, n, n) for n in range(500)))
    whole = (tmp_path / "a.db").read_bytes()
    (tmp_path / "b.db").write_bytes(whole[:-4096] + b"\xaa" * 4096)
    assert "the obtained file is damaged" in describe(tmp_path / "a.db", tmp_path / "b.db")
    assert "the expected file is damaged" in describe(tmp_path / "b.db", tmp_path / "a.db")
    (tmp_path / "c.db").write_bytes(whole[:-4096] + bytes(4096))
    assert "the expected file is damaged" in describe(tmp_path / "c.db", tmp_path / "a.db")


def test_a_table_of_too_many_columns_is_refused_by_name(tmp_path):
    for columns in (COLUMNS_MAX, COLUMNS_MAX + 1):
        names = ", ".join(f"c{number}" for number in range(columns))
        for file in "ab":
            make(tmp_path / f"{file}{columns}.db", f"CREATE TABLE t ({names})", range(columns))
    assert not difference(*(tmp_path / f"{file}{COLUMNS_MAX}.db" for file in "ab"))
    build_manifest(tmp_path / f"a{COLUMNS_MAX}.db", journal_mode="wal")
    wide = [tmp_path / f"{file}{COLUMNS_MAX + 1}.db" for file in "ab"]
    with pytest.raises(GoldenError, match="the table 't' has 1000 columns"):
        difference(*wide)
    assert not difference(*wide, ignore={"t.*"})
    with pytest.raises(GoldenError, match="the table 't' has 1000 columns"):
        build_manifest(wide[0], journal_mode="wal")


def test_a_schema_that_is_not_text_is_reported(tmp_path):
    make(tmp_path / "a.db", "CREATE TABLE t (a, beta); CREATE TABLE u (a)")
    whole = (tmp_path / "a.db").read_bytes()
    for name, damaged in ((b"beta", b"b\xe9ta"), (b"tableu", b"table\xff")):
        (tmp_path / "b.db").write_bytes(whole.replace(name, damaged))
        with pytest.raises(GoldenError, match="cannot be read: "):
            difference(tmp_path / "a.db", tmp_path / "b.db")


def test_columns_and_tables_can_be_ignored(tmp_path):
    make(tmp_path / "a.db", KEYED, (1, "x", 1))
    make(tmp_path / "b.db", KEYED, (1, "y", 1))
    make(tmp_path / "c.db", KEYED, (2, "x", 2))
    assert not difference(tmp_path / "a.db", tmp_path / "b.db", ignore={"T.A"})
    assert not difference(tmp_path / "a.db", tmp_path / "c.db", ignore={"t.id", "t.b"})
    assert not difference(tmp_path / "a.db", tmp_path / "c.db", ignore={"t.*"})


def test_a_table_that_is_ignored_may_be_missing_or_defined_in_another_way(tmp_path):
    one = make(tmp_path / "a.db", "CREATE TABLE t (a); CREATE TABLE u (a)", (1,))
    two = make(tmp_path / "b.db", "CREATE TABLE t (a, b)", (1, 2))
    assert describe(one, two, ignore={"T.*"}) == "table u: gone\n  - CREATE TABLE u (a)"
    assert not difference(one, two, ignore={"t.*", "u.*"})
    assert not difference(two, one, ignore={"t.*", "u.*"})


@pytest.mark.parametrize("table", [KEYED, CLUSTERED.replace("a)", "a, b)")])
def test_rows_whose_key_is_ignored_are_still_compared(tmp_path, table):
    one = make(tmp_path / "a.db", table, (1, "x", 1), (2, "y", 2))
    keys = make(tmp_path / "b.db", table, (3, "x", 1), (4, "y", 2))
    order = make(tmp_path / "c.db", table, (3, "y", 2), (4, "x", 1))
    other = make(tmp_path / "d.db", table, (3, "x", 1), (4, "z", 2))
    assert not difference(one, keys, ignore={"t.id"})
    assert difference(one, other, ignore={"t.id"})
    # Without a rowid, only the key orders the rows.
    is_ordered = table == KEYED
    assert bool(difference(one, order, ignore={"t.id"})) is is_ordered


@pytest.mark.parametrize(
    ("ignore", "words"),
    [
        ({"nothing.a"}, "'nothing'; there are: t"),
        ({"t.nothing"}, "t has: id, a, b"),
        ({"t"}, "table.column"),
        ("t.a", "a set of names"),
    ],
)
def test_a_rule_that_matches_nothing_is_refused(tmp_path, ignore, words):
    make(tmp_path / "a.db", KEYED)
    with pytest.raises(GoldenError, match=words):
        difference(tmp_path / "a.db", tmp_path / "a.db", ignore=ignore)


cells = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.binary(max_size=8)
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=8),
    table=st.sampled_from(
        ["CREATE TABLE t (a, b)", "CREATE TABLE t (a, b); CREATE INDEX i ON t (b, a)"]
    ),
    seed=st.integers(0, 2**32),
)
def test_the_same_contents_are_the_same_and_one_other_cell_is_not(
    tmp_path_factory, rows, table, seed
):
    folder = tmp_path_factory.mktemp("files")
    one = make(folder / "a.db", table, *rows)
    write_canonical(one, folder / "b.db")
    assert not compare_files(one, folder / "b.db")
    draw = random.Random(seed)
    at, column = draw.randrange(len(rows)), draw.randrange(2)
    changed = [list(row) for row in rows]
    changed[at][column] = "another" if changed[at][column] != "another" else "value"
    two = make(folder / "c.db", table, *changed)
    found = compare_files(one, two)
    assert found


def documents(path, *values):
    """A file with one document in each row."""
    return make(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, body)", *enumerate(values, start=1))


DOCUMENT = '{"name": "Ana", "meta": {"ts": 10, "x-y": [1, 2, 3]}}'


@pytest.mark.parametrize("kind", [str, str.encode])
@pytest.mark.parametrize(
    ("paths", "same"),
    [
        ("$.meta.ts", {'"ts": 10': '"ts": 20'}),
        ("$.meta", {'"ts": 10': '"ts": 20', "[1, 2, 3]": "[]"}),
        (["$.meta.ts", "$.name"], {'"ts": 10': '"ts": 20', "Ana": "Bob"}),
        ('$.meta."x-y"[1]', {"1, 2": "1, 5"}),
        ('$["meta"]["x-y"][1]', {"1, 2": "1, 5"}),
        # Removing one element moves the later ones up.
        (['$.meta["x-y"][0]', '$.meta["x-y"][1]'], {"[1, 2": "[7, 8"}),
        ('$.meta["x-y"][*]', {"[1, 2, 3]": "[4]"}),
        ("$.meta.*", {"10": "20", "[1, 2, 3]": "{}"}),
        ("$.*.ts", {"10": "20"}),
        ("$", {"Ana": "Bob"}),
        ("$.meta.ts", {", ": ",\n  "}),
    ],
)
def test_a_part_of_a_json_document_can_be_ignored(tmp_path, kind, paths, same):
    other = DOCUMENT
    for old, new in same.items():
        assert old in other
        other = other.replace(old, new)
    one = documents(tmp_path / "a.db", kind(DOCUMENT))
    two = documents(tmp_path / "b.db", kind(other))
    assert difference(one, two)
    assert not difference(one, two, ignore={"T.Body": paths})
    three = documents(tmp_path / "c.db", kind(other.replace("3]", "4]").replace("[]", "{}")))
    ignored = paths in ("$", "$.meta", "$.meta.*", '$.meta["x-y"][*]')
    assert bool(difference(one, three, ignore={"t.body": paths})) is not ignored


def test_the_rest_of_a_document_is_shown(tmp_path):
    one = documents(tmp_path / "a.db", '{"ts": 1, "name": "Ana"}', None)
    two = documents(tmp_path / "b.db", '{"ts": 2, "name": "Bob"}', '{"ts": 3}')
    assert describe(one, two, ignore={"t.body": "$.ts"}).splitlines()[1:] == [
        "  ~ id=1: body $.name: 'Ana' → 'Bob'",
        "  ~ id=2: body: NULL → '{}'",
    ]


def test_a_document_without_the_path_is_compared_as_it_is(tmp_path):
    one = documents(tmp_path / "a.db", '{"a": 1}', '{"a": 1, "ts": 1}', "[]", None)
    two = documents(tmp_path / "b.db", '{"a": 1, "ts": 2}', '{"a": 1}', "[]", None)
    three = documents(tmp_path / "c.db", '{"a": 2}', '{"a": 1}', "[]", None)
    assert not difference(one, two, ignore={"t.body": "$.ts"})
    assert difference(one, three, ignore={"t.body": ["$.ts", "$.nowhere.at.all"]})
    assert difference(one, two, ignore={"t.body": "$.tts"})


def test_a_wildcard_is_one_step_of_a_path(tmp_path):
    one = documents(tmp_path / "a.db", '{"l": [{"ts": 1, "m": [{"ts": 1}]}, {"ts": 2}, 5]}', None)
    two = documents(tmp_path / "b.db", '{"l": [{"ts": 3, "m": [{"ts": 1}]}, {"ts": 4}, 5]}', None)
    deeper = documents(tmp_path / "c.db", '{"l": [{"m": [{"ts": 2}]}, {}, 5]}', None)
    assert not difference(one, two, ignore={"t.body": "$.l[*].ts"})
    assert describe(one, deeper, ignore={"t.body": "$.l[*].ts"}).splitlines()[1:] == [
        "  ~ id=1: body $.l[0].m[0].ts: 1 → 2"
    ]
    assert not difference(one, deeper, ignore={"t.body": ["$.l[*].ts", "$.l[*].m[*].*"]})


@pytest.mark.parametrize(
    "name", ["x-y", "a.b", "é", "with space", "a]", "*", "", "0", "a_b", "it's"]
)
def test_a_name_in_a_path_may_be_any(tmp_path, name):
    one = documents(tmp_path / "a.db", json.dumps({name: 1, "z": 1}, ensure_ascii=False))
    two = documents(tmp_path / "b.db", json.dumps({name: 2, "z": 1}, ensure_ascii=False))
    for path in (f'$["{name}"]', f'$."{name}"'):
        assert not difference(one, two, ignore={"t.body": path})
    assert difference(one, two, ignore={"t.body": "$.z"})


def test_bytes_of_sqlites_own_json_are_json(tmp_path):
    for name, document in (("a", '{"ts": 1, "a": 1}'), ("b", '{"ts": 2, "a": 1}')):
        with closing(apsw.Connection(str(tmp_path / f"{name}.db"))) as db:
            db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body)")
            db.execute("INSERT INTO t VALUES (1, jsonb(?))", (document,))
    assert difference(tmp_path / "a.db", tmp_path / "b.db")
    assert not difference(tmp_path / "a.db", tmp_path / "b.db", ignore={"t.body": "$.ts"})
    assert difference(tmp_path / "a.db", tmp_path / "b.db", ignore={"t.body": "$.a"})


def test_text_and_bytes_of_one_document_are_not_the_same(tmp_path):
    one = documents(tmp_path / "a.db", '{"ts": 1}')
    two = documents(tmp_path / "b.db", b'{"ts": 2}')
    assert difference(one, two, ignore={"t.body": "$.ts"})


@pytest.mark.parametrize("value", ["milk", "", 5, 1.5, b"\xff\x00", "{broken", "{'a': 1}"])
def test_a_path_in_a_column_without_json_is_refused(tmp_path, value):
    one = documents(tmp_path / "a.db", "{}", value)
    two = documents(tmp_path / "b.db", "{}", "{}")
    for files in ((one, two), (two, one)):
        with pytest.raises(GoldenError, match=r"JSON path in t\.body, which holds .*: that is not"):
            difference(*files, ignore={"t.body": "$.ts"})
    assert difference(one, two, ignore={"t.id": "$"})


@pytest.mark.parametrize("kind", [str, str.encode])
def test_what_follows_a_document_is_not_json(tmp_path, kind):
    one = documents(tmp_path / "a.db", kind('{"a": 1}\0x'))
    with pytest.raises(GoldenError, match="that is not JSON"):
        difference(one, one, ignore={"t.body": "$.ts"})


def test_invalid_text_in_a_document_is_refused(tmp_path):
    one = documents(tmp_path / "a.db", "{}")
    with closing(sqlite3.connect(one)) as db, db:
        db.execute("UPDATE t SET body = CAST(x'7b2261223a2280227d' AS TEXT)")
    with pytest.raises(GoldenError, match="cannot be read: "):
        difference(one, one, ignore={"t.body": "$.ts"})


def test_a_path_may_match_in_thousands_of_places(tmp_path):
    files = [
        documents(
            tmp_path / f"{number}.db",
            json.dumps({"l": [{"ts": number, "n": n} for n in range(5000)], "z": number // 2}),
        )
        for number in range(3)
    ]
    assert not difference(*files[:2], ignore={"t.body": "$.l[*].ts"})
    said = describe(*files[1:], ignore={"t.body": "$.l[*].ts"})
    assert said.splitlines()[1:] == ["  ~ id=1: body $.z: 0 → 1"]


@pytest.mark.parametrize(
    ("ignore", "words"),
    [
        ({"t.body": "ts"}, "is a JSON path such as"),
        ({"t.body": "$ts"}, "is a JSON path such as"),
        ({"t.body": ["$.a", "$.items[**].ts"]}, "is a JSON path such as"),
        ({"t.body": "$..ts"}, "is a JSON path such as"),
        ({"t.body": ["$.a", 5]}, "is a JSON path such as"),
        ({"t.body": "$[-1]"}, "is a JSON path such as"),
        ({"t.body": []}, "a list without a JSON path"),
        ({"t.*": "$.a"}, "which is no column"),
        ({"t.nothing": "$.a"}, "t has: id, body"),
    ],
)
def test_an_invalid_path_is_refused(tmp_path, ignore, words):
    one = documents(tmp_path / "a.db", "{}")
    with pytest.raises(GoldenError, match=words):
        difference(one, one, ignore=ignore)


def test_paths_that_differ_are_suggested_and_can_be_used(tmp_path):
    table = "CREATE TABLE n (id INTEGER PRIMARY KEY, at, body)"
    one = make(tmp_path / "a.db", table, (1, 1, '{"x-y": 1, "l": [1]}'), (2, 2, "{}"), name="n")
    two = make(tmp_path / "b.db", table, (1, 3, '{"x-y": 2, "l": [2]}'), (2, 4, "{}"), name="n")
    suggested = suggest_ignore(difference(one, two).cells)
    assert json.loads(suggested) == {"n.at": "$", "n.body": ["$.l[0]", '$["x-y"]']}
    assert not difference(one, two, ignore=json.loads(suggested))


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("name", ["é", "🙂 !", 'say "hi"', "back\\slash", "two\nlines", "\x1b"])
def test_suggested_paths_may_have_any_name_however_it_is_spelled(tmp_path, name, is_ascii):
    one, two = (
        documents(tmp_path / f"{n}.db", json.dumps({name: n, "z": 1}, ensure_ascii=is_ascii))
        for n in (1, 2)
    )
    suggested = suggest_ignore(difference(one, two).cells)
    assert suggested.isprintable()
    assert not difference(one, two, ignore=ast.literal_eval(suggested))


def test_suggested_columns_may_have_any_name(tmp_path):
    name = '"say ""hi"""'
    one = make(tmp_path / "a.db", f"CREATE TABLE {name} (a)", (1,), name=name)
    two = make(tmp_path / "b.db", f"CREATE TABLE {name} (a)", (2,), name=name)
    suggested = suggest_ignore(difference(one, two).cells)
    assert suggested == r'{"say \"hi\".a"}'
    assert not difference(one, two, ignore=ast.literal_eval(suggested))


def test_files_of_another_encoding_differ(tmp_path):
    one = make(tmp_path / "a.db", "CREATE TABLE t (a)", ("é",))
    two = make(tmp_path / "b.db", "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a)", ("é",))
    assert describe(one, two) == "encoding: UTF-8 expected, UTF-16le obtained"
    assert not difference(two, two)


def test_invalid_text_of_another_encoding_is_shown(two):
    table = "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a);"
    said = two(
        f"{table} INSERT INTO t VALUES (CAST(x'00d86100' AS TEXT))",
        f"{table} INSERT INTO t VALUES (CAST(x'01d86100' AS TEXT))",
    )
    assert "'\\ud800a' → '\\ud801a'" in said
