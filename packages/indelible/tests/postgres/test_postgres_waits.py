"""What happens while a statement waits for another, and which rows it looks at."""

import threading

import psycopg
import pytest

import indelible
from indelible.backends.postgres.read import _Reader
from indelible.core.audit import build_line
from indelible.core.operations import Audited
from tests.support import postgres_server
from tests.support.wait import wait_until

TTL_S = 1.0


@pytest.fixture
def url():
    return postgres_server.fresh_database()


@pytest.fixture
def admin(url):
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def test_a_session_that_ends_while_a_write_waits_for_its_row_begins_anew(url, admin):
    with indelible.open(url, ttl=TTL_S) as store, psycopg.connect(url) as holder:
        store.add_message("s", "user", "Hi")
        expired = "SELECT deadline <= indelible.now_ms(NULL) FROM indelible.session"
        holder.execute("SELECT FROM indelible.session FOR UPDATE")
        if admin.execute(expired).fetchone()[0]:
            pytest.skip("the machine is too slow for this time to live")
        written = []
        writing = threading.Thread(
            target=lambda: written.append(store.set_metadata("s", {"team": "support"}))
        )
        writing.start()
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: admin.execute(blocked).fetchone()[0], "the write waits")
        wait_until(lambda: admin.execute(expired).fetchone()[0], "the session ends")
        holder.rollback()
        writing.join()
        # Acknowledged, so it must be there for as long as the new life lasts.
        assert written[0].metadata == {"team": "support"}
        assert admin.execute("SELECT life FROM indelible.session").fetchone()[0] == 2


@pytest.mark.parametrize("change", ["append", "read"])
def test_a_line_that_another_writes_first_is_followed_where_no_session_is_locked(
    url, admin, change
):
    key = b"a secret of the tests"
    with indelible.open(url, audit="reads", audit_key=key) as store, psycopg.connect(url) as holder:
        first = build_line(
            Audited(None, "s", "ana", "read", 1, key), None, 1_800_000_000_000, "new"
        )
        row = (b"", b"s", *first)
        holder.execute("INSERT INTO indelible.audit VALUES (%s, %s, %s, %s, %s)", row)
        if change == "read":
            store.get_history("s")
        call = store.close if change == "read" else lambda: store.add_message("s", "user", "one")
        writing = threading.Thread(target=call)
        writing.start()
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: admin.execute(blocked).fetchone()[0], "the write waits")
        holder.commit()
        writing.join()
    with indelible.open(url, audit=True, audit_key=key) as store:
        assert [line.change for line in store.audit_log("s")] == ["read", change]
        assert store.verify("s").ok


def test_a_read_that_meets_the_vacuum_of_an_expired_session_finds_it_expired(url, monkeypatch):
    now = [1_800_000_000.0]
    with (
        indelible.open(url, ttl=60, clock=lambda: now[0]) as store,
        indelible.open(url, ttl=60, clock=lambda: now[0]) as other,
    ):
        store.add_messages("s", [{"role": "user", "content": str(n)} for n in range(5)])
        read_rows, vacuumed = _Reader._read_rows, []

        def vacuum_first(self, row, extents):
            if not vacuumed:
                now[0] += 120
                vacuumed.append(other.vacuum())
            return read_rows(self, row, extents)

        monkeypatch.setattr(_Reader, "_read_rows", vacuum_first)
        assert store.get_history("s") == []
        assert vacuumed[0].entries > 0


def test_an_append_looks_at_its_own_session_alone_also_without_statistics(url, admin):
    admin.execute("ALTER DATABASE " + url.rpartition("/")[2] + " SET plan_cache_mode = 'auto'")
    sessions = 200
    with indelible.open(url) as store:
        for number in range(sessions):
            store.add_message(f"s{number}", "user", "Hi")
    with indelible.open(url) as store:
        for _ in range(20):
            store.add_message("s7", "user", "Hi")
        ids = store.list_sessions(order="-last_activity", limit=1).ids
        assert ids == ["s7"]
    query = """
        SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
        WHERE indexrelname IN ('session_activity', 'session_created')"""
    # One list, and no append, reads these indexes.
    assert admin.execute(query).fetchone()[0] <= 2 * sessions
