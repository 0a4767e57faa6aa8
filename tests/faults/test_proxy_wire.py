"""The proxy's reading of both protocols: nothing is understood before it is all there."""

import sys

import pytest

from memory_contract.faults.proxy import ProxyFault, ProxyFaultError
from memory_contract.faults.proxy.fault_queue import FaultQueue
from memory_contract.faults.proxy.frames import ProtocolError
from memory_contract.faults.proxy.pgwire import PostgresWire
from memory_contract.faults.proxy.resp import RespWire

REPLIES = [
    b"+OK\r\n",
    b"-OOM no room\r\n",
    b":12\r\n",
    b"$-1\r\n",
    b"$5\r\na\r\nbc\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n+x\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(123\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"%1\r\n+a\r\n:1\r\n",
    b"~2\r\n:1\r\n:2\r\n",
    b"|1\r\n+ttl\r\n:9\r\n*1\r\n:1\r\n",
]


def fed(parse, data, size):
    return [part for at in range(0, len(data), size) for part in parse(data[at : at + size])]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_replies_of_redis_are_told_apart_wherever_packets_end(size):
    stream = b"".join(REPLIES)
    found = fed(RespWire("here").from_server, stream, size)
    assert [reply.raw for reply in found] == REPLIES
    assert all(reply.ends for reply in found)


def count_calls(work):
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_a_long_reply_in_many_packets_is_parsed_once():
    reply = b"*4000\r\n" + b"$3\r\nabc\r\n" * 4000
    once = count_calls(lambda: fed(RespWire("here").from_server, reply, len(reply)))
    assert count_calls(lambda: fed(RespWire("here").from_server, reply, 100)) < 2 * once


def test_a_push_answers_no_request():
    (push, reply) = RespWire("here").from_server(b">2\r\n+message\r\n+hi\r\n+OK\r\n")
    assert (push.aside, push.ends, reply.aside, reply.ends) == (True, False, False, True)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_commands_go_by_their_names(size):
    stream = b"*2\r\n$3\r\nget\r\n$4\r\n*1\r\n\r\nPING\r\n*1\r\n$4\r\nquit\r\n"
    found = fed(RespWire("here").from_client, stream, size)
    assert [request.name for request in found] == ["GET", "PING", "QUIT"]
    assert b"".join(request.raw for request in found) == stream


def test_what_is_no_redis_is_said():
    with pytest.raises(ProtocolError):
        list(RespWire("here").from_server(b"HTTP/1.1 200 OK\r\n"))


def message(kind, body):
    return kind + (len(body) + 4).to_bytes(4, "big") + body


START = (8).to_bytes(4, "big") + (196608).to_bytes(4, "big")


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_statements_go_by_their_first_words(size):
    stream = (
        START
        + message(b"Q", b"-- why\n /* how */ (select 1)\0")
        + message(b"P", b"\0insert into t\0\0\0")
        + message(b"P", b"kept\0COMMIT\0\0\0")
        + message(b"B", b"\0kept\0\0\0\0\0\0\0")
        + message(b"E", b"\0\0\0\0\0")
        + message(b"B", b"\0\0\0\0\0\0\0\0")
        + message(b"S", b"")
    )
    found = fed(PostgresWire().from_client, stream, size)
    named = [(request.name, request.ends) for request in found if request.name]
    assert named == [("STARTUP", True), ("SELECT", True), ("COMMIT", False), ("INSERT", False)]
    assert [request.ends for request in found][-1] is True
    assert b"".join(request.raw for request in found) == stream


def test_nobody_speaks_tls_through_it():
    ask = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
    (first, then) = PostgresWire().from_client(ask + START)
    assert (first.answer, first.raw, then.name) == (b"N", b"", "STARTUP")


def test_a_trouble_strikes_the_requests_that_it_counts():
    arms = FaultQueue()
    arms.arm(ProxyFault("cut before", "set", 2, times=2), ProxyFault("freeze"))
    found = [arms.match(name) for name in ("SET", "GET", "SET", "SET", "SET")]
    assert [trouble and trouble.what for trouble in found] == [
        "freeze",
        None,
        "cut before",
        "cut before",
        None,
    ]


def test_chatter_is_struck_by_its_name_alone():
    arms = FaultQueue()
    arms.arm(ProxyFault("freeze"), ProxyFault("cut before", "HELLO"))
    assert arms.match("HELLO", chatter=True) == ProxyFault("cut before", "HELLO")
    assert arms.match("GET") == ProxyFault("freeze")


def test_a_trouble_is_read_from_words_and_its_repr_brings_it_back():
    trouble = ProxyFault.parse("cut after", "evalsha:3")
    assert trouble == ProxyFault("cut after", "EVALSHA", 3)
    assert eval(repr(trouble)) == trouble
    assert ProxyFault.parse("delay", "GET=0.5") == ProxyFault("delay", "GET", seconds=0.5)
    assert ProxyFault.parse("answer", "SET:2=OOM") == ProxyFault("answer", "SET", 2, reply="OOM")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("cut after", ""),
        ("cut after", "GET:x"),
        ("cut after", "GET:0"),
        ("cut after", "GET=1"),
        ("delay", "GET"),
        ("delay", "GET=soon"),
        ("delay", "GET=-1"),
        ("answer", "GET:1"),
        ("explode", "GET"),
    ],
)
def test_words_that_mean_nothing_are_refused(what, words):
    with pytest.raises(ProxyFaultError):
        ProxyFault.parse(what, words)
