"""The fixtures `memory_store` and `async_memory_store`: a store of its own for each test."""

import asyncio

import apsw
import pytest
import redis

import indelible
import indelible.testing.stores
from memory_contract.faults.servers.valkey import ValkeyServer

pytest_plugins = ["pytester"]

TESTS = """
    import asyncio

    def test_first(memory_store):
        memory_store.add_message("ana", "user", "hello")
        assert memory_store.list_sessions().ids == ["ana"]

    def test_second(memory_store):
        assert memory_store.list_sessions().ids == []
        memory_store.add_message("ana", "user", "hello")
        memory_store.close()

    def test_async(async_memory_store):
        async def work():
            await async_memory_store.add_message("ana", "user", "hello")
            return len(await async_memory_store.get_history("ana"))

        assert asyncio.run(work()) == 1
        assert asyncio.run(work()) == 2

    def test_engine(memory_store):
        print("engine:", memory_store.claims().engine)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(TESTS)
    return lambda *args: pytester.runpytest_inprocess("-s", *args, plugins=[indelible.testing])


def engine(ran):
    ran.assert_outcomes(passed=4)
    (line,) = [line for line in ran.outlines if "engine:" in line]
    return line.rpartition("engine: ")[2].removesuffix(".").split()[0].lower()


def test_it_is_in_memory_by_default(run):
    assert engine(run()) == "memory"


def test_a_new_file_by_option_by_setting_and_by_one_line(run, pytester):
    assert engine(run("--memory-store=sqlite:")) == "sqlite"
    pytester.makeini("[pytest]\nmemory_store = sqlite:\n")
    assert engine(run()) == "sqlite"
    assert engine(run("--memory-store=memory:")) == "memory"
    pytester.makeini("[pytest]\n")
    pytester.makeconftest(
        "import pytest\n\n@pytest.fixture\ndef memory_store_url():\n    return 'sqlite:'\n"
    )
    assert engine(run()) == "sqlite"


def test_a_file_that_others_use_is_left_as_it_was(run, tmp_path):
    path = tmp_path / "agent.db"
    with indelible.open(path) as store:
        store.add_message("ana", "user", "mine")
        before = store.get_history("ana")
        run(f"--memory-store={path}").assert_outcomes(passed=4)
        assert store.get_history("ana") == before
    with apsw.Connection(str(path)) as db:
        assert db.execute("SELECT namespace, name FROM session").fetchall() == [("", "ana")]
    db.close()


def test_on_a_server_every_session_is_erased(run, tmp_path):
    server = ValkeyServer(tmp_path / "valkey", {"appendfsync": "no"})
    server.start()
    try:
        run(f"--memory-store={server.url}", "-W", "error::RuntimeWarning").assert_outcomes(passed=4)
        with redis.Redis.from_url(server.url) as client:
            assert [key for key in client.scan_iter("*") if b"ana" in key] == []
    finally:
        server.stop()


def test_a_store_that_cannot_be_opened_is_one_error(pytester, run):
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        @pytest.fixture
        def memory_store_url(tmp_path):
            return f"sqlite:///{tmp_path}/missing/agent.db"

        def test_async(async_memory_store):
            asyncio.run(async_memory_store.add_message("ana", "user", "hello"))
        """
    )
    run().assert_outcomes(errors=1)


def test_a_store_is_closed_in_another_loop_than_it_was_used_in(pytester, run):
    pytester.makepyfile(
        """
        import asyncio
        import indelible
        import pytest

        @pytest.mark.parametrize("memory_store_url", ["memory:", "sqlite:"])
        def test_async(async_memory_store):
            asyncio.run(async_memory_store.add_message("ana", "user", "hello"))
            asyncio.run(async_memory_store.close())
            with pytest.raises(indelible.ClosedError):
                asyncio.run(async_memory_store.get_history("ana"))
        """
    )
    run().assert_outcomes(passed=2)


async def test_it_works_in_a_loop_that_runs_already(async_memory_store):
    await async_memory_store.save_context("ana", "hello", "hi")
    assert len(await async_memory_store.get_history("ana")) == 2
    await asyncio.sleep(0)
