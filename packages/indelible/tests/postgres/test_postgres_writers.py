"""Many writers: one order, one entry for one key, and nobody's refusal is another's loss."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

import indelible
from indelible import BusyError, ClosedError, ConflictError, UnavailableError
from indelible.backends.postgres.append import APPEND, build_parameters
from indelible.backends.postgres.arrays import register_arrays
from indelible.backends.postgres.connection import PostgresConnection
from indelible.backends.postgres.connection_pool import CONNECTIONS_MAX
from indelible.backends.postgres.statements import PostgresContext
from indelible.core.operations import Append, Draft
from indelible.model import Kind
from tests.support import os_forks, postgres_server
from tests.support.ledger import check
from tests.support.postgres.pg_workers import append_in_a_forked_child, one_key, write_batches
from tests.support.wait import wait_until
from tests.support.worker_processes import in_another_process

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
def other(url):
    """A connection of somebody else."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


class Held:
    """Holds a session's row until told otherwise."""

    def __init__(self, connection):
        self._connection = connection

    def __enter__(self):
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT FROM indelible.session WHERE name = 's' FOR UPDATE")

    def __exit__(self, *_):
        self._connection.execute("ROLLBACK")


def waiting(connection):
    return connection.execute(WAITING).fetchone()[0]


def test_many_processes_append_to_one_session(worker_pool, url):
    writes = [write for each in worker_pool.run(write_batches, url, 6) for write in each]
    with indelible.open(url) as store:
        check(store, writes)
        assert store.verify().ok


def test_one_key_of_sixteen_processes_is_one_entry(worker_pool, url):
    answers = worker_pool.run(one_key, url, "k")
    assert {position for position, _ in answers} == {0}
    assert sum(not replayed for _, replayed in answers) == 1


def test_one_key_of_two_writers_that_wait_for_the_row_is_one_entry(url, other):
    with indelible.open(url) as one, indelible.open(url) as two, ThreadPoolExecutor(2) as threads:
        one.add_message("s", "user", "first")
        with Held(other), psycopg.connect(url, autocommit=True) as looker:
            appends = [
                threads.submit(store.add_message, "s", "user", "hi", key="k")
                for store in (one, two)
            ]
            wait_until(lambda: waiting(looker) == 2)
        receipts = [append.result() for append in appends]
        assert [receipt.positions for receipt in receipts] == [range(1, 2)] * 2
        assert sorted(receipt.replayed for receipt in receipts) == [False, True]
        assert len(one.get_history("s")) == 2


def test_an_attempt_that_was_given_up_does_not_land_beside_its_retry(url, other):
    """The first attempt still waits in the server when the retry comes; the index lets one in."""
    with indelible.open(url) as store, ThreadPoolExecutor(2) as threads:
        store.add_message("s", "user", "first")
        payload = b'{"sum":"0000000000000000","v":1,"message":{"role":"user","content":"hi"}}'
        given_up = Append("s", (Draft(Kind.MESSAGE, payload),), "k", True, None, None)
        params = build_parameters(PostgresContext(b"", None), [given_up])
        with psycopg.connect(url, autocommit=True) as ghost:
            with Held(other), psycopg.connect(url, autocommit=True) as looker:
                register_arrays(ghost)
                cursor = psycopg.RawCursor(ghost)
                landed = threads.submit(cursor.execute, APPEND.encode(), ("60000", *params))
                wait_until(lambda: waiting(looker) == 1)
                retry = threads.submit(store.add_message, "s", "user", "hi", key="k")
                wait_until(lambda: waiting(looker) == 2)
            outcomes = [landed.exception(), retry.exception()]
        lost = [error for error in outcomes if error is not None]
        assert len(lost) == 1
        assert isinstance(lost[0], (psycopg.errors.UniqueViolation, ConflictError))
        assert other.execute("SELECT count(*) FROM indelible.entry").fetchone() == (2,)


def test_a_rollback_that_was_given_up_and_lands_late_is_one_change(url, other):
    with indelible.open(url, timeout_s=60) as store, ThreadPoolExecutor(2) as threads:
        store.add_message("s", "user", "first")
        snapshot = store.save_snapshot("s").id
        store.clear("s")
        with psycopg.connect(url, autocommit=True) as ghost:
            with Held(other), psycopg.connect(url, autocommit=True) as looker:
                call = "indelible.roll_back('60000', '', 's', NULL, NULL, %s, 'k', 'rollback')"
                params = (snapshot.encode(),)
                given_up = threads.submit(ghost.execute, f"SELECT o_version FROM {call}", params)
                wait_until(lambda: waiting(looker) == 1)
                retry = threads.submit(store.rollback_to_snapshot, "s", snapshot, key="k")
                wait_until(lambda: waiting(looker) == 2)
            ((version,),) = given_up.result().fetchall()
            assert retry.result().replayed == (version is not None)
        assert [line.change for line in store.timeline("s").changes] == ["rollback", "clear"]
        assert [message.content for message in store.get_history("s")] == ["first"]
        assert store.verify().ok


def test_two_groups_that_begin_a_session_are_both_written(url):
    """The second group waits in the insert of the session's row, and finds that of the first."""
    indelible.open(url).close()
    payload = b'{"sum":"0000000000000000","v":1,"message":{"role":"user","content":"hi"}}'
    context = PostgresContext(b"", None)

    def build(key):
        op = Append("s", (Draft(Kind.MESSAGE, payload),), key, True, None, None)
        return ("60000", *build_parameters(context, [op]))

    with ThreadPoolExecutor(1) as threads, ExitStack() as opened:
        one, two, looker = (
            opened.enter_context(psycopg.connect(url, autocommit=True)) for _ in range(3)
        )
        for connection in (one, two):
            register_arrays(connection)
        one.execute("BEGIN")
        (first,) = psycopg.RawCursor(one).execute(APPEND.encode(), build("k")).fetchone()
        second = threads.submit(psycopg.RawCursor(two).execute, APPEND.encode(), build("l"))
        wait_until(lambda: waiting(looker) == 1)
        one.execute("COMMIT")
        (later,) = second.result().fetchone()
        number, *_ = first[0].split(".")
        assert (first, later) == ([f"{number}.1.1.0"], [f"{number}.1.2.0"])


def test_whoever_waits_too_long_for_a_row_is_told_that_nothing_was_written(url, other):
    with indelible.open(url, timeout_s=3) as store, ThreadPoolExecutor(2) as threads:
        store.add_message("s", "user", "first")
        with Held(other):
            append = threads.submit(store.add_message, "s", "user", "second")
            clear = threads.submit(store.clear, "s")
            assert store.add_message("t", "user", "elsewhere").positions == range(1)
            for held_up in (append.exception(), clear.exception()):
                # Busy, unless the machine was: then the server's word came too late.
                assert isinstance(held_up, (BusyError, UnavailableError))
                assert held_up.landed == "no"
        assert store.add_message("s", "user", "second").positions == range(1, 2)


def test_a_transaction_that_takes_too_long_for_its_role_is_tried_again(url, other):
    if not other.execute("SELECT FROM pg_settings WHERE name = 'transaction_timeout'").rowcount:
        pytest.skip("this server has no such limit")
    # As another role, and without its limit.
    indelible.open(url).close()
    other.execute("DROP ROLE IF EXISTS hasty")
    other.execute("CREATE ROLE hasty LOGIN SUPERUSER")
    other.execute("ALTER ROLE hasty SET transaction_timeout = '100ms'")
    hasty = url.replace("//postgres@", "//hasty@")
    pid = "SELECT min(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with indelible.open(hasty, timeout_s=60) as store, ThreadPoolExecutor(1) as threads:
        store.add_message("s", "user", "first")
        with Held(other), psycopg.connect(url, autocommit=True) as looker:
            append = threads.submit(store.add_message, "s", "user", "second")
            first = wait_until(lambda: looker.execute(pid).fetchone()[0])
            again = f"{pid} AND pid <> {first}"
            wait_until(lambda: append.done() or looker.execute(again).fetchone()[0])
        append.result()


def test_a_session_whose_row_is_held_does_not_hold_up_the_others(url, other):
    with indelible.open(url, timeout_s=30) as store, ThreadPoolExecutor(12) as threads:
        store.add_message("s", "user", "first")
        with Held(other):
            stuck = [threads.submit(store.add_message, "s", "user", "x") for _ in range(4)]
            free = [threads.submit(store.add_message, f"t{n}", "user", "x") for n in range(8)]
            for append in free:
                append.result()
            assert not any(append.done() for append in stuck)
        for append in stuck:
            append.result()
        assert len(store.get_history("s")) == 5


async def test_tasks_share_statements_and_get_their_own_receipts(url, monkeypatch):
    statements = []
    call = PostgresConnection.call

    def watched(connection, text, *arguments, **options):
        statements.append(text)
        return call(connection, text, *arguments, **options)

    monkeypatch.setattr(PostgresConnection, "call", watched)
    async with indelible.open_async(url) as store:
        receipts = await asyncio.gather(
            *(store.add_message(f"s{n % 7}", "user", str(n)) for n in range(100))
        )
        assert statements.count(APPEND) < 20
        for n in range(7):
            mine = [r for r in receipts if r.session_id == f"s{n}"]
            assert sorted(r.positions.start for r in mine) == list(range(len(mine)))
            shown = [m.content for m in await store.get_history(f"s{n}")]
            assert [shown[r.positions.start] for r in mine] == [
                str(k) for k in range(100) if k % 7 == n
            ]


async def test_a_refusal_in_a_group_is_its_callers_alone(url):
    async with indelible.open_async(url) as store:
        first = await store.add_message("s", "user", "first", key="k")
        await store.add_message("s", "user", "second")
        outcomes = await asyncio.gather(
            store.add_message("s", "user", "other", key="k"),
            store.add_message("s", "user", "first", key="k"),
            store.add_message("s", "user", "late", expected=first.version),
            *(store.add_message("t", "user", str(n)) for n in range(20)),
            return_exceptions=True,
        )
        other, again, late, *free = outcomes
        assert (other.reason, late.reason) == ("key", "version")
        assert again.replayed
        assert sorted(receipt.positions.start for receipt in free) == list(range(20))
        assert [m.content for m in await store.get_history("s")] == ["first", "second"]


def test_threads_of_one_store_append_in_groups(url):
    with indelible.open(url) as store, ThreadPoolExecutor(16) as threads:
        gate = threading.Barrier(16)

        def append(n):
            gate.wait()
            return [store.add_message("s", "user", f"{n}").positions.start for _ in range(10)]

        positions = [at for each in threads.map(append, range(16)) for at in each]
        assert sorted(positions) == list(range(160))


async def test_a_cancelled_append_is_waited_for(url, other):
    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "first")
        with Held(other), psycopg.connect(url, autocommit=True) as looker:
            append = asyncio.create_task(store.add_message("s", "user", "second"))
            await asyncio.to_thread(wait_until, lambda: waiting(looker) == 1)
            append.cancel()
            await asyncio.sleep(0)
            assert not append.done()
        with pytest.raises(asyncio.CancelledError):
            await append
        assert len(await store.get_history("s")) == 2


async def test_closing_waits_for_writes_that_are_under_way(url, other):
    store = await indelible.open_async(url)
    await store.add_message("s", "user", "first")
    with Held(other), psycopg.connect(url, autocommit=True) as looker:
        append = asyncio.create_task(store.add_message("s", "user", "second"))
        await asyncio.to_thread(wait_until, lambda: waiting(looker) == 1)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        assert not closing.done()
    await closing
    assert append.done()
    assert (await append).positions == range(1, 2)


def test_closing_waits_for_the_next_attempt_of_another_threads_call(url, other):
    store = indelible.open(url, timeout_s=30)
    store.add_message("s", "user", "first")
    with ThreadPoolExecutor(2) as threads, psycopg.connect(url, autocommit=True) as looker:
        with Held(other):
            append = threads.submit(store.add_message, "s", "user", "second")
            wait_until(lambda: waiting(looker) == 1)
            closing = threads.submit(store.close)
            # Its group gives up first; the attempt alone locks the row by this statement.
            alone = WAITING + " AND query LIKE '%FOR UPDATE%'"
            wait_until(lambda: append.done() or looker.execute(alone).fetchone()[0] == 1)
            assert not closing.done()
        assert append.result().positions == range(1, 2)
        closing.result()
    with pytest.raises(ClosedError):
        store.get_history("s")


async def test_a_cancelled_read_leaves_no_connection_behind_that_is_in_use(url, other):
    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "first")
        other.execute("BEGIN; LOCK indelible.entry IN ACCESS EXCLUSIVE MODE")
        with psycopg.connect(url, autocommit=True) as looker:
            read = asyncio.create_task(store.get_history("s"))
            await asyncio.to_thread(wait_until, lambda: waiting(looker) == 1)
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        other.execute("ROLLBACK")
        assert [m.content for m in await store.get_history("s")] == ["first"]


def test_event_loops_may_share_a_store(url):
    store = asyncio.run(_opened(url))
    for number in range(3):
        assert asyncio.run(_append(store)).positions.start == number
    asyncio.run(store.close())


def test_event_loops_in_several_threads_share_the_connections():
    url = postgres_server.fresh_database()
    store = asyncio.run(_opened(url))
    gate = threading.Barrier(4)

    async def write(loop):
        gate.wait()
        await asyncio.gather(*(store.add_message(f"s{loop}", "user", str(n)) for n in range(50)))
        await asyncio.gather(*(store.get_history(f"s{loop}") for _ in range(50)))
        return len(await store.get_history(f"s{loop}"))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda loop: asyncio.run(write(loop)), range(4))) == [50] * 4
    with psycopg.connect(url) as looker:
        count = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'indelible' AND datname = current_database()"
        )
        assert looker.execute(count).fetchone()[0] <= CONNECTIONS_MAX
    asyncio.run(store.close())


async def _opened(url):
    return await indelible.open_async(url)


async def _append(store):
    return await store.add_message("s", "user", "hi")


def test_both_sides_of_a_fork_go_on(url):
    code, contents = in_another_process(append_in_a_forked_child, url)
    assert code == 0
    assert contents == ["after", "before", "child", "parent"]


@pytest.mark.parametrize(
    "fork", [os_forks.fork_while_threads_write, os_forks.fork_while_tasks_write]
)
def test_both_sides_of_a_fork_in_the_middle_of_writing_go_on(url, fork):
    writes = in_another_process(fork, url)
    assert any(write.writer.startswith("child") for write in writes)
    with indelible.open(url) as store:
        check(store, writes)
        assert store.verify().ok
