"""`memory-contract proxy`: what a person sees of it."""

import signal
import subprocess
import sys

import pytest
import redis

from memory_contract.faults.proxy import Proxy
from memory_contract.faults.servers.ports import reserve_port
from tests.support import redis_server

# A background job of a script starts with SIGINT ignored, and its children inherit that.
LAUNCHER = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("memory_contract", run_name="__main__", alter_sys=True)
"""


def begin(*arguments):
    command = [sys.executable, "-c", LAUNCHER, "proxy", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def test_it_says_where_it_listens_and_what_struck():
    server = redis_server.emptied()
    running = begin(server, "--cut-after", "RPUSH:2", "--answer", "GET=OOM", "--delay", "TTL=9")
    try:
        first = running.stdout.readline()
        url, _, rest = first.partition(" leads to ")
        assert rest == f"{server}. Ctrl-C ends it.\n"
        with redis.Redis.from_url(url) as client:
            client.rpush("list", "one")
            with pytest.raises(redis.ConnectionError):
                client.rpush("list", "two")
            assert client.lrange("list", 0, -1) == [b"one", b"two"]
            with pytest.raises(redis.OutOfMemoryError):
                client.get("a")
        assert running.stdout.readline() == "cut after: RPUSH (number 2)\n"
        assert running.stdout.readline() == "answer: GET (number 1)\n"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0
    assert "2 faults struck, 1 did not." in said


def test_the_url_of_an_address_of_version_6_can_be_parsed():
    with Proxy(redis_server.emptied(), host="::1") as proxy:
        assert proxy.url.startswith("redis://[::1]:")
        with redis.Redis.from_url(proxy.url) as client:
            assert client.ping()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["agent.db"], 2, "redis://host:port and postgresql://host:port"),
        (["rediss://localhost"], 2, "without TLS"),
        (["redis://localhost", "--cut-after", "GET:x"], 2, "NAME:N"),
        (["redis://localhost", "--listen", "here"], 2, "HOST:PORT"),
        ([f"redis://user:secret@127.0.0.1:{reserve_port()}"], 4, "cannot be reached"),
    ],
)
def test_what_cannot_be_is_said_in_words(arguments, code, words):
    done = begin(*arguments)
    out, said = done.communicate(timeout=60)
    assert done.returncode == code
    assert words in said
    assert "secret" not in said
    assert out == ""
