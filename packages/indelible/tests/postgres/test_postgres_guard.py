"""For random states, the guarded write of an append applies exactly when the rules allow it."""

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indelible
from indelible import ConflictError, LimitError
from indelible.backends.postgres.append import APPEND, build_parameters
from indelible.backends.postgres.arrays import register_arrays
from indelible.backends.postgres.sessions import build_checksum
from indelible.backends.postgres.statements import PostgresContext
from indelible.core import rules
from indelible.core.limits import LOG_ENTRIES_MAX
from indelible.core.operations import Append, Draft
from indelible.core.rows import SessionRow, build_token
from indelible.model import Kind, Status
from indelible.view import View
from tests.support import postgres_server

NOW_MS = 1_800_000_000_000
KEYS = ("entry", "kept", "unused")
INSERT = f"""
    WITH new AS (SELECT %(number)s::bigint AS number, %(life)s::integer AS life,
        %(born)s::bigint AS born, %(log_end)s::bigint AS log_end,
        %(generation)s::bigint AS generation, %(deadline)s::bigint AS deadline,
        %(staged)s::boolean AS staged, %(born)s::bigint AS tail, '{{}}'::bigint[] AS extents,
        0::bigint AS created_at, 0::bigint AS last_activity, 0::bigint AS activity_minute,
        '{{}}'::bytea AS metadata, NULL::bytea AS forked_from,
        %(vacuums)s::integer AS vacuums, ''::bytea AS namespace, 's'::bytea AS name)
    INSERT INTO indelible.session (number, life, born, log_end, generation, deadline, staged, tail,
        extents, created_at, last_activity, activity_minute, metadata, forked_from, vacuums,
        namespace, name, checksum)
    SELECT *, {build_checksum()} FROM new"""
ENTRY = """
    INSERT INTO indelible.entry (session, position, written_at, generation, life, batch, kind, keep,
        key, payload, checksum)
    VALUES (%(number)s, %(born)s, 0, 0, %(key_life)s, 1, 1, false, 'entry', 'x', 0)"""
KEPT = """
    INSERT INTO indelible.kept_key (session, life, position, generation, entries, key, checksums,
        checksum)
    VALUES (%(number)s, %(key_life)s, %(born)s, 0, 1, 'kept', 'x', 0)"""

states = st.fixed_dictionaries(
    {
        "number": st.integers(1, 3),
        "life": st.integers(1, 3),
        "born": st.integers(0, 3),
        "length": st.sampled_from([0, 1, 5, LOG_ENTRIES_MAX - 3, LOG_ENTRIES_MAX - 4]),
        "generation": st.integers(0, 3),
        "deadline": st.sampled_from([None, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 10**12]),
        "staged": st.booleans(),
        "vacuums": st.integers(0, 1),
        # Keys of an earlier life are free.
        "key_life": st.integers(1, 3),
    }
)
requests = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "entries": st.integers(1, 4),
        "expected": st.sampled_from([None, None, "actual", "actual", "new", "1.1.1.0", "", "ä\0"]),
        "ttl_s": st.sampled_from([None, 60.0]),
    }
)


@pytest.fixture(scope="module")
def connection():
    url = postgres_server.fresh_database()
    indelible.open(url).close()
    with psycopg.connect(url) as connected:
        yield connected


def allows(state, op):
    """Whether an active session, or one that was never there, may have this append."""
    status = rules.compute_status(state, NOW_MS)
    if state is not None and status is not Status.ACTIVE:
        # The rules would begin another life, which is not for the guard to do.
        return False
    try:
        rules.refuse_if_moved(op.session, op.expected, rules.compute_version(state, NOW_MS))
        rules.refuse_if_full(op.session, state.end if state else 0, len(op.drafts))
    except (ConflictError, LimitError):
        return False
    return True


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(row=st.none() | states, request=requests)
def test_the_guard_holds_exactly_when_the_rules_allow_it(connection, row, request):
    state, used = None, False
    if row is not None:
        row["log_end"] = row["born"] + row["length"]
        for statement in (INSERT, ENTRY, KEPT):
            connection.execute(statement, row)
        state = SessionRow(
            name="s",
            token=build_token(row["number"], row["life"]),
            born=row["born"],
            end=row["log_end"],
            generation=row["generation"],
            deadline_ms=row["deadline"],
            staged=row["staged"],
            view=View((), row["born"]),
            created_at_ms=0,
            last_activity_ms=0,
        )
        kept = request["key"] == "kept" and row["vacuums"] > 0
        used = row["key_life"] == row["life"] and (request["key"] == "entry" or kept)
    actual = rules.compute_version(state, NOW_MS)
    expected = actual if request["expected"] == "actual" else request["expected"]
    drafts = (Draft(Kind.MESSAGE, b"x"),) * request["entries"]
    # Positions that an entry has already are drawn by no session of ours.
    free = row is None or row["length"] > 0
    op = Append("s", drafts, request["key"], False, expected, request["ttl_s"])
    params = build_parameters(PostgresContext(b"", lambda: NOW_MS / 1000), [op])
    register_arrays(connection)
    cursor = psycopg.RawCursor(connection)
    try:
        if not free:
            connection.execute("DELETE FROM indelible.entry")
            used = used and request["key"] != "entry"
        ((versions,),) = cursor.execute(APPEND.encode(), ("1000", *params)).fetchall()
        assert (versions != [None]) == (allows(state, op) and not used)
        if versions != [None]:
            end = state.end if state else 0
            (version,) = versions
            life, at, generation = version.rsplit(".", 2)
            assert (int(at), int(generation)) == (
                end + len(drafts),
                state.generation if state else 0,
            )
            assert state is None or life == state.token
    finally:
        connection.rollback()
