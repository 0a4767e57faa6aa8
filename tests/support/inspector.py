"""The inspector on a real port, and a store that has everything that its pages can show."""

import asyncio
import re
import socket
import threading
from base64 import b64encode
from collections import Counter
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import quote, urlencode

import indelible
from indelible.inspector import app, artifacts, security, server
from indelible.model import StoredCheckpoint, StoredValue

# A bound on what never comes, not on what is slow.
WAIT_S_MAX = 60


class Inspector:
    """A running inspector, and a client of it that has the cookie."""

    def __init__(self, access, port):
        self.access = access
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.cookie = {"Cookie": f"{access.cookie_name}={access.cookie}"}

    def request(self, method, path, *, headers=None, body=None):
        """Send a request with these headers alone; the response, with `text` and `headers`."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S_MAX)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        given = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        if body is not None:
            given.setdefault("Content-Length", str(len(body)))
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        response.text = response.read().decode()
        connection.close()
        return response

    def get(self, path, **fields):
        """Get a page as the browser does that opened the address."""
        path = f"{path}?{urlencode(fields)}" if fields else path
        return self.request("GET", path, headers=self.cookie)

    def post(self, path, headers=None, **fields):
        """Send a form as our own page does."""
        fields.setdefault("csrf", self.access.csrf)
        own = {
            **self.cookie,
            "Origin": self.base,
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return self.request(
            "POST", path, headers={**own, **(headers or {})}, body=urlencode(fields).encode()
        )

    def confirm(self, **fields):
        """Preview a change, and send the form of the preview."""
        preview = self.get("/change", **fields)
        assert preview.status == 200, preview.text
        return self.post("/change", **{**fields, **form_fields(preview.text)})

    def connect(self):
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S_MAX)


def form_fields(page):
    """The hidden fields of the form that changes something."""
    names = ("csrf", "do", "expected", "key")
    found = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page))
    return {name: found[name] for name in names}


@contextmanager
def running_inspector(
    url, *, write=False, protocol=server.LimitedConnection, reports=(), traces=(), **options
):
    """Run the inspector of a store in a thread."""
    listener = server.bind(0)
    port = listener.getsockname()[1]
    access = security.Access(port)
    running, ended = [], []

    async def serve():
        async with indelible.open_async(url, **options) as store:
            inspector = app.build_app(
                store, access, target="agent.db", write=write, reports=reports, traces=traces
            )
            started = server.build_server(inspector, protocol=protocol)
            running.append((started, asyncio.get_running_loop()))
            await started.serve(sockets=[listener])
        ended.append(True)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        client = Inspector(access, port)
        assert client.get("/").status == 200
        yield client
    finally:
        for started, _ in running:
            started.should_exit = True
        thread.join(WAIT_S_MAX)
        listener.close()
    assert ended, "the inspector ended with an error"


SESSION = "support/ana"
FACTS = "ana/facts"
LONG = "long"


def fill(store):
    """A conversation with everything in it, a collection of memories, and a long session."""
    s = SESSION
    store.add_message(s, "system", "You are a patient support agent. Be brief.", pinned=True)
    store.add_message(s, "user", "Where is my order 1047?", name="ana")
    thinking = {"type": "thinking", "thinking": "Look it up first."}
    words = {"type": "text", "text": "Let me look."}
    use = {"type": "tool_use", "id": "c1", "name": "find_order", "input": {"order": 1047}}
    store.add_message(s, "assistant", [thinking, words, use])
    given = {"type": "tool_result", "tool_use_id": "c1", "content": "in transit"}
    store.add_message(s, "user", [given])
    image = {"type": "image", "source": {"data": "iVBORw0KGgo="}}
    store.add_message(s, "assistant", [{"type": "text", "text": "It comes on Friday."}, image])
    store.save_snapshot(s, label="before the refund")
    store.add_message(s, "user", "That is too late, please refund it.")
    store.add_tool_call(s, "c2", "refund", {"order": 1047, "amount": 235.0})
    store.add_tool_result(s, "c2", "the provider did not answer", is_error=True)
    store.save_snapshot(s)
    store.rollback_to_snapshot(s, "before the refund")
    store.add_message(s, "user", "Could you refund it?")
    store.add_tool_call(s, "c3", "refund", {"order": 1047, "amount": 23.5})
    store.add_tool_result(s, "c3", {"refunded": 23.5, "note": "x" * 100})
    store.add_message(s, "assistant", "Your 23.50 EUR are on their way.", metadata={"tokens": 81})
    store.add_summary(s, "Order 1047 was late, and refunded.", covers=[(1, 5), (8, 11)])
    store.add_tool_call(s, "c4", "send_mail", {"to": "ana@example.org"})
    store.set_metadata(s, {"team": "support", "customer": "Ana"})
    store.remember(FACTS, "Likes tea", id="drink")
    store.remember(FACTS, "Likes green tea", id="drink", source=(s, [1]), metadata={"a": 1})
    store.remember(FACTS, "Lives in Lisbon", id="city", source=(s, [(1, 3)]), value={"a": 1})
    store.remember(FACTS, "Is away", id="away")
    store.retract(FACTS, "away")
    for number in range(70):
        store.save_context(LONG, f"question {number} about tea", "A long answer. " * (number % 9))
    store.add_message("big", "user", "y" * 9000)
    store.add_entries("thread", build_thread())
    store.hide(s, [0])
    store.undo(s)
    store.fork(s, "support/ana-retry", at="before the refund")


def build_thread():
    """A checkpointed thread with a branch, a task, a pack, and a record that is none."""

    def checkpoint(name, parent, *channels, namespace=""):
        changed = dict.fromkeys(channels)
        record = {"id": name, "parent": parent, "ns": namespace, "channels": changed}
        return StoredCheckpoint(id=f"c\x1f{namespace}", record=record)

    packed = b"\x92\xa4user\xd9\x2ePlan a weekend in Porto, and trains from Lisbon"
    value = StoredValue(type="msgpack", data=b64encode(packed).decode())
    writes = {"task": "t1", "path": "~__pregel_pull, answer", "writes": [[0, "messages", -1]]}
    return [
        value,
        checkpoint("first", None, "__start__"),
        value,
        value,
        checkpoint("second", "first", "messages", "branch:to:answer"),
        value,
        StoredCheckpoint(id="w\x1f\x1fsecond", record=writes),
        checkpoint("third", "second", "messages"),
        checkpoint("other", "first", "messages"),
        checkpoint("inner", None, "plan", namespace="planner"),
        StoredCheckpoint(id="p\x1f0000000009\x1f0000000002", record={"pack": "eA=="}),
        StoredCheckpoint(id="c", record={"a": 1}),
        value,
    ]


def build_report(text="lost append", name="report.json"):
    """A report of the kit in which everything that is text is the same."""
    anomaly = artifacts.ReportAnomaly(name=text, session=text, proof=f"{text}\n{text}")
    case = artifacts.ReportCase(
        gate=text, case=text, mode=text, verdict="FAIL", reason=text, anomalies=[anomaly] * 3
    )
    report = artifacts.Report(
        contract="1.1",
        target=text,
        verdict="FAIL",
        seed=7,
        duration_s=1.5,
        gates=[text, "crash"],
        notes=[text],
        cases=[case, case.model_copy(update={"verdict": text})],
    )
    return name, report


def build_trace(text="add_message", name="trace.jsonl"):
    """A trace in which everything that is text is the same."""
    return name, artifacts.Trace(
        calls=Counter({text: 3, "read": 1}),
        outcomes=Counter({"ok": 2, "fail": 1, text: 1}),
        sessions=Counter({text: 4}),
        failed=[{"verb": text, "session": text, "error": text}],
        processes=2,
        closed=1,
        dropped=3,
        unreadable=1,
    )


def every_page(*, write):
    """The addresses of all pages that a store filled by `fill` has."""
    s, facts = quote(SESSION, safe=""), quote(FACTS, safe="")
    pages = {
        "sessions": "/",
        "filtered": "/?prefix=support&order=id&where=metadata.team%3Dsupport&since=2020-01-01",
        "no sessions": "/?prefix=nobody",
        "session": f"/session?id={s}",
        "session before": f"/session?id={s}&at=0",
        "session at a change": f"/session?id={s}&at=3",
        "collection": f"/session?id={facts}",
        "checkpoints": "/session?id=thread",
        "long session": f"/session?id={LONG}",
        "older page": f"/session?id={LONG}&before=90",
        "big entry": "/session?id=big",
        "entry": f"/entry?id={s}&position=2",
        "comparison": f"/diff?id={s}&from=0&to=3",
        "no difference": f"/diff?id={s}&from=0&to=0",
        "memories": f"/memories?id={facts}",
        "memory": f"/memory?id={facts}&memory=drink",
        "search": "/search",
        "found": "/search?q=tea",
        "found in a session": f"/search?q=refund&session={s}",
        "health": "/health",
    }
    if write:
        changes = ("undo", "redo", "snapshot", "fork", "forget", "rollback&snapshot=latest")
        pages |= {each: f"/change?id={s}&do={each}" for each in changes}
        pages["retract"] = f"/change?id={facts}&memory=drink&do=retract"
    return pages
