"""What may be opened, told apart without reaching anything."""

import asyncio
import re

import pytest
import redis.asyncio
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import indelible
from indelible import UnsupportedError, UsageError
from indelible.connect import format_target
from indelible.core.extras import format_install_command
from tests.support.canary import CANARY

PASSWORD = CANARY


def open_async(target, **options):
    async def opened():
        return await indelible.open_async(target, **options)

    return asyncio.run(opened())


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("agent.db", "agent.db"),
        ("memory:", "memory:"),
        (f"redis://:{PASSWORD}@example.org:6379/0", "redis://:***@example.org:6379/0"),
        (f"rediss://ann:{PASSWORD}@example.org", "rediss://ann:***@example.org"),
        (
            f"unix://:{PASSWORD}@/run/redis.sock?db=1&password={PASSWORD}",
            "unix://:***@/run/redis.sock?db=1&password=***",
        ),
        (
            f"postgresql://ann:{PASSWORD}@a,b:5433/agents?password={PASSWORD}",
            "postgresql://ann:***@a,b:5433/agents?password=***",
        ),
        (f"redis://[{PASSWORD}", "redis://…"),
    ],
)
def test_no_message_shows_a_password(target, said):
    assert format_target(target) == said


@pytest.mark.parametrize("scheme", ["mysql", "mongodb", "http"])
def test_what_is_unknown_is_refused_without_its_password(scheme):
    with pytest.raises(UsageError) as caught:
        indelible.open(f"{scheme}://ann:{PASSWORD}@example.org/agents")
    assert PASSWORD not in repr(caught.value) + str(caught.value.details)


AWAITED = [
    redis.asyncio.Redis,
    lambda: AsyncConnectionPool(open=False),
]
BLOCKING = [
    redis.Redis,
    lambda: ConnectionPool(open=False),
]


@pytest.mark.parametrize("make", AWAITED)
def test_a_client_that_must_be_awaited_is_refused_where_nobody_awaits(make):
    with pytest.raises(UsageError, match="open_async"):
        indelible.open(make())


@pytest.mark.parametrize("make", BLOCKING)
def test_a_client_that_blocks_is_refused_where_nothing_may_block(make):
    with pytest.raises(UsageError, match=r"indelible\.open, or hand in"):
        open_async(make())


class Mine(redis.asyncio.Redis):
    pass


def test_a_client_is_recognised_by_what_it_descends_from():
    with pytest.raises(UsageError, match="open_async"):
        indelible.open(Mine())


@pytest.mark.parametrize("target", ["redis://:secret@[::1", "postgresql://[x/y", "a\udcff.db"])
def test_a_target_that_is_no_url_and_no_file_name_is_refused(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no valid URL or file name") as refused:
        indelible.open(target)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", [None, 7, object(), ""])
def test_what_is_no_target_is_refused(target):
    with pytest.raises(UsageError, match="cannot open"):
        indelible.open(target)


@pytest.mark.parametrize(
    "target",
    [
        ":memory:",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////:memory:",
        "sqlite:///:memory:?cache=shared",
        "sqlite::memory:",
        "file::memory:",
    ],
)
def test_sqlites_names_for_memory_are_refused_with_ours(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="Write memory: "):
        indelible.open(target)
    with pytest.raises(UsageError, match="Write memory: "):
        open_async(target)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("file:x.db", "'x.db'"),
        ("file:x.db?mode=ro", "'x.db'"),
        ("file:///srv/x.db", "'/srv/x.db'"),
        ("sqlite:///file:x.db?uri=true", "'x.db'"),
    ],
)
def test_a_file_uri_is_refused_with_the_right_spelling(target, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="Write the file's name: " + re.escape(name)):
        indelible.open(target)
    assert list(tmp_path.iterdir()) == []


def test_a_file_whose_name_begins_like_a_uri_can_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    indelible.open("./file:x.db").close()
    assert [path.name for path in tmp_path.iterdir()] == ["file:x.db"]


@pytest.mark.parametrize("timeout_s", [0, -1, "10", None, float("nan"), 3601])
def test_a_deadline_is_a_number_of_seconds(timeout_s):
    with pytest.raises(UsageError, match="timeout_s"):
        indelible.open("memory:", timeout_s=timeout_s)


def test_an_engine_whose_extra_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError) as caught:
        indelible.open(f"redis://:{PASSWORD}@localhost")
    assert format_install_command("redis") in str(caught.value)
    assert PASSWORD not in str(caught.value)
    with pytest.raises(UnsupportedError, match=r"indelible.*\[postgres\]"):
        indelible.open("postgresql://localhost")


def test_a_store_that_was_not_awaited_says_so():
    with pytest.raises(AttributeError, match=r"not awaited, so there is no 'add_message'"):
        indelible.open_async("memory:").add_message("s", "user", "hi")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("sqlite:///agent.db?mode=ro", "a URL of a file has no parameters"),
        ("redis://localhost/agents", "a database of Redis is a number, not 'agents'"),
        ("redis://localhost/0/1", "a database of Redis is a number, not '0/1'"),
        ("postgresql://localhost:abc/agents", "the port of a PostgreSQL server is a number"),
    ],
)
def test_what_would_be_ignored_in_a_url_is_refused(tmp_path, monkeypatch, target, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(told)):
        indelible.open(target)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_not_worth_a_retry(tmp_path):
    with pytest.raises(indelible.MemoryStoreBackendError, match="there is no folder") as caught:
        indelible.open(tmp_path / "no" / "agent.db")
    assert not caught.value.retryable


def test_the_home_of_a_user_who_is_not_there_is_a_wrong_call():
    with pytest.raises(UsageError, match="cannot open '~nobody-of-this-name"):
        indelible.open("~nobody-of-this-name/agent.db")
