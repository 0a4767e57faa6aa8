"""Histories that LangChain's own stores wrote, brought into indelible."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

import indelible
from indelible.adapters.langchain import IndelibleChatMessageHistory
from indelible.adapters.langchain_import import histories, import_histories, open_postgres
from tests.support import postgres_server

with warnings.catch_warnings():
    # Its whole package is deprecated, which is why people come here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from langchain_community.chat_message_histories import (
        FileChatMessageHistory,
        RedisChatMessageHistory,
        SQLChatMessageHistory,
    )

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CALL = {"name": "book", "args": {"to": "Lisbon"}, "id": "c-1", "type": "tool_call"}
TURNS = {
    "ana": [
        HumanMessage("Olá, Lisboa", id="h-1", name="ana"),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("booked", tool_call_id="c-1"),
    ],
    "ben": [HumanMessage("Hello"), AIMessage("Hi", response_metadata={"n": 1})],
}


def in_files(tmp_path):
    folder = tmp_path / "chats"
    folder.mkdir()
    for name, messages in TURNS.items():
        FileChatMessageHistory(str(folder / f"{name}.json")).add_messages(messages)
    return str(folder)


def in_sqlite(tmp_path):
    return _in_sql(f"sqlite:///{tmp_path}/history.db")


def in_sqlite_by_its_file(tmp_path):
    in_sqlite(tmp_path)
    return str(tmp_path / "history.db")


def in_postgres(tmp_path):
    url = postgres_server.fresh_database()
    _in_sql(url.replace("postgresql://", "postgresql+psycopg://"))
    return url


def _in_sql(url):
    for name, messages in TURNS.items():
        history = SQLChatMessageHistory(name, connection=url)
        history.add_messages(messages)
        history.engine.dispose()
    return url


def in_redis(tmp_path):
    from tests.support import redis_server

    url = redis_server.emptied()
    for name, messages in TURNS.items():
        history = RedisChatMessageHistory(name, url=url)
        history.add_messages(messages)
        history.redis_client.close()
    return url


@pytest.mark.parametrize(
    "written", [in_files, in_sqlite, in_sqlite_by_its_file, in_postgres, in_redis]
)
def test_every_message_comes_over_equal_and_once(written, tmp_path):
    source = written(tmp_path)
    with indelible.open("memory:") as store:
        report = import_histories(store, histories(source))
        assert (report.sessions, report.messages, report.ok) == (2, 5, True)
        for name, messages in TURNS.items():
            assert IndelibleChatMessageHistory(name, store).messages == messages
        again = import_histories(store, histories(source))
        assert (again.sessions, again.equal) == (0, 2)
        assert store.get_tool_calls("ana")[0].result == "booked"


def test_a_single_file_is_the_session_of_its_name(tmp_path):
    folder = in_files(tmp_path)
    with indelible.open("memory:") as store:
        import_histories(store, histories(f"{folder}/ben.json"))
        assert store.list_sessions().ids == ["ben"]


def test_what_was_broken_off_is_gone_on_with_and_what_differs_is_left(tmp_path):
    source = in_files(tmp_path)
    with indelible.open("memory:") as store:
        IndelibleChatMessageHistory("ana", store).add_messages(TURNS["ana"][:1])
        store.add_message("ben", "user", "somebody else's")
        report = import_histories(store, histories(source))
        assert (report.sessions, report.messages, report.differ) == (1, 2, ("ben",))
        assert IndelibleChatMessageHistory("ana", store).messages == TURNS["ana"]
        assert len(store.get_history("ben")) == 1


def test_long_histories_come_in_several_batches(tmp_path):
    dicts = [{"type": "human", "data": {"content": str(number)}} for number in range(450)]
    (tmp_path / "long.json").write_text(json.dumps(dicts))
    with indelible.open("memory:") as store:
        import_histories(store, histories(str(tmp_path / "long.json")))
        said = [message.content for message in IndelibleChatMessageHistory("long", store).messages]
    assert said == [str(number) for number in range(450)]


def test_a_file_that_cannot_be_read_is_named_and_those_before_it_stay(tmp_path):
    folder = in_files(tmp_path)
    Path(folder, "z.json").mkdir()
    with indelible.open("memory:") as store:
        with pytest.raises(indelible.UnavailableError, match=r"z\.json cannot be read: Is a dir"):
            import_histories(store, histories(folder))
        assert sorted(store.list_sessions().ids) == ["ana", "ben"]
    with pytest.raises(indelible.UnavailableError, match="cannot be read: File name too long"):
        histories("x" * 300)


@pytest.mark.parametrize(
    "wrong",
    ["{", "7", '[{"type": "human"}]', "[[]]", '["x"]', "[" * 99_999, f'["{"[" * 99_999}"]'],
    ids=len,
)
def test_what_is_no_history_is_named_and_nothing_of_it_comes_in(wrong, tmp_path):
    (tmp_path / "bad.json").write_text(wrong)
    with indelible.open("memory:") as store:
        with pytest.raises(indelible.FormatError, match="bad"):
            import_histories(store, histories(str(tmp_path / "bad.json")))
        assert store.list_sessions().ids == []


@pytest.mark.parametrize("query", ["", "?decode_responses=true"])
def test_a_key_that_is_not_text_is_named(tmp_path, query):
    url = in_redis(tmp_path)
    assert list(histories(url + query)) == list(histories(url))
    with redis.Redis.from_url(url) as client:
        client.rpush(b"message_store:\xff", "{}")
    with pytest.raises(indelible.FormatError, match=r"message_store:\\xff.* is not UTF-8"):
        list(histories(url + query))


def test_an_error_of_an_import_is_not_one_of_the_url():
    url = postgres_server.fresh_database()
    with pytest.raises(UnicodeDecodeError), open_postgres(url):
        b"\xff".decode()
    unread = pytest.raises(indelible.UnavailableError, match="cannot be read: the query has 1")
    with unread, open_postgres(url) as connection:
        connection.execute("SELECT %s", [])
    wrong = pytest.raises(indelible.UnavailableError, match="is not a URL of a PostgreSQL server")
    with wrong, open_postgres("postgresql://localhost/db?no=such"):
        pass


@pytest.mark.parametrize("url", ["redis://a..b/0", "redis://localhost:port/0"])
def test_what_is_no_url_of_a_redis_server_is_refused(url):
    with pytest.raises(indelible.UnavailableError, match="is not a URL of a Redis server"):
        list(histories(url))


def command(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "indelible", "import-langchain", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        input="",
    )


def test_the_command(tmp_path):
    in_files(tmp_path)
    tried = command(tmp_path, "chats", "--url", "agent.db", "--dry-run")
    assert tried.stdout == "Would import 2 sessions with 5 messages.\n"
    assert not (tmp_path / "agent.db").exists()
    unasked = command(tmp_path, "chats", "--url", "agent.db")
    assert (unasked.returncode, (tmp_path / "agent.db").exists()) == (2, False)
    done = command(tmp_path, "chats", "--url", "agent.db", "--yes")
    assert (done.returncode, done.stdout) == (0, "Imported 2 sessions with 5 messages.\n")
    again = command(tmp_path, "chats", "--url", "agent.db", "--yes", "--json")
    assert json.loads(again.stdout)["equal"] == 2


@pytest.mark.parametrize(
    ("source", "code"), [("nowhere.json", 4), ("mysql://host/db", 2), ("redis://127.0.0.1:1", 4)]
)
def test_a_source_that_cannot_be_read_is_said_in_a_sentence(source, code, tmp_path):
    done = command(tmp_path, source, "--url", "agent.db", "--yes")
    assert done.returncode == code
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
