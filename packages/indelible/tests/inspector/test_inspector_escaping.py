"""Stored text is never markup: every field of every kind of entry tries to be some."""

from base64 import b64encode
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

import indelible
from indelible.model import (
    ChatMessage,
    StoredCheckpoint,
    StoredValue,
    Summary,
    ToolCall,
    ToolResult,
)
from tests.support.inspector import build_report, build_trace, running_inspector

# It ends text, attributes, comments, scripts and styles, and names what would then run.
EVIL = "'\"--></title></style></script><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"
ROLE = "<svg/onload=alert(1)>'\""
SHORT = "<b onclick=alert(1)>'\""
# Characters that turn text around or hide it.
UNSEEN = "a\u202eb\u200bc\x00d\x1b[31m"
SAFE_UNSEEN = "a\\u202eb\\u200bc"

SCRIPTS = {"/static/htmx.min.js", "/static/inspector.js"}
TAG_NAMES = (
    "html head meta title link script body a header div svg path nav p span main h1 h2 form label"
    " input select option button table caption thead tbody tr th td b time ol ul li section aside"
    " datalist dl dt dd details summary code mark"
)
ATTRIBUTE_NAMES = (
    "lang charset name content rel href type src defer class viewbox aria-hidden aria-label"
    " aria-current aria-live aria-describedby title id tabindex method action role value maxlength"
    " autocomplete placeholder selected scope data-label datetime for min max list disabled label"
    " data-slider d hx-get hx-trigger hx-swap hx-target open autofocus required"
)
TAGS, ATTRIBUTES = TAG_NAMES.split(), ATTRIBUTE_NAMES.split()


class PageCheck(HTMLParser):
    """Collects what no page of ours has."""

    def __init__(self):
        super().__init__()
        self.wrong = []
        self.links = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in TAGS or set(given).difference(ATTRIBUTES):
            self.wrong.append((tag, attrs))
        if tag == "script" and given.get("src") not in SCRIPTS:
            self.wrong.append((tag, attrs))
        for name in ("href", "src", "action", "hx-get"):
            if name in given:
                self.links += [given[name]] if tag != "form" else []
                if not given[name].startswith(("/", "#")) or given[name].startswith("//"):
                    self.wrong.append((tag, attrs))

    def handle_comment(self, data):
        self.wrong.append(data)

    def handle_data(self, data):
        if "49" in data and "7*7" in data:
            self.wrong.append(data)


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A store in which everything that a caller may choose is an attack."""
    url = str(tmp_path_factory.mktemp("evil") / "agent.db")
    session, data = EVIL, {EVIL: [EVIL, {EVIL: EVIL}]}
    with indelible.open(url, audit=True, audit_key=b"sixteen bytes at least", actor=EVIL) as store:
        message = ChatMessage(
            role=ROLE, content=EVIL, name=EVIL, metadata=data, tool_call_id=EVIL, extra=EVIL
        )
        calls = [{"id": EVIL, "function": {"name": EVIL, "arguments": EVIL}, EVIL: EVIL}]
        blocks = [
            {"type": "text", "text": EVIL},
            {"type": "thinking", "thinking": EVIL},
            {"type": EVIL, EVIL: EVIL},
            {"type": "tool_use", "id": f"2{EVIL}", "name": EVIL, "input": data},
        ]
        answers = [{"type": "tool_result", "tool_use_id": f"2{EVIL}", "content": EVIL}]
        values = [
            message,
            ChatMessage(role=ROLE, content=None, tool_calls=calls),
            ChatMessage(role=ROLE, content=blocks),
            ChatMessage(role="user", content=answers),
            ToolCall(call_id=EVIL, name=EVIL, arguments=data, metadata=data),
            ToolResult(call_id=EVIL, content=data, is_error=True, metadata=data),
            ToolResult(call_id=f"3{EVIL}", content=EVIL, metadata=data),
            Summary(text=EVIL, embedder=EVIL, covers=((0, 2),), metadata=data),
            StoredValue(type=EVIL, data=b64encode(b"\x93\xa5" + EVIL.encode()).decode()),
            StoredCheckpoint(id=EVIL, record=data),
            StoredValue(type=EVIL, data=b64encode(b"\x93\xa5" + EVIL.encode()).decode()),
            StoredCheckpoint(id=EVIL, record={"id": EVIL, "ns": EVIL, "channels": {EVIL: EVIL}}),
            StoredCheckpoint(id=EVIL, record={"id": EVIL, "parent": EVIL, "channels": EVIL}),
            StoredCheckpoint(id=EVIL, record={"task": EVIL, "path": EVIL, "writes": [EVIL]}),
            StoredCheckpoint(id=EVIL, record={"task": EVIL, "writes": [[0, EVIL, 0]]}),
            StoredCheckpoint(id=EVIL, record={"pack": EVIL, "writes": 5, "channels": 5}),
            StoredCheckpoint(id=EVIL, record={"id": EVIL, "channels": 5, "parent": {EVIL: EVIL}}),
            ChatMessage(role="user", content=UNSEEN),
            ChatMessage(role="user", content=f"```{EVIL}\n{EVIL}\n```\n{EVIL}"),
        ]
        store.add_entries(session, values)
        for text in (f"{EVIL} one", f"{EVIL} two"):
            source = (session, [0])
            store.remember(session, text, id=EVIL, value=data, metadata=data, source=source)
        store.save_snapshot(session, label=SHORT)
        store.add_message(session, "user", EVIL)
        store.rollback_to_snapshot(session, SHORT, key=EVIL)
        store.set_metadata(session, data)
        store.fork(session, f"fork {EVIL}")
    given = {"reports": [build_report(EVIL, EVIL)], "traces": [build_trace(EVIL, EVIL)]}
    with running_inspector(url, write=True, **given) as inspector:
        yield inspector


def check(page):
    parser = PageCheck()
    parser.feed(page.text)
    assert parser.wrong == []
    assert "<script>alert" not in page.text
    return parser


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/", {}),
        ("/", {"prefix": EVIL, "where": f"metadata.x={EVIL}"}),
        ("/session", {"id": EVIL}),
        ("/session", {"id": EVIL, "at": "0"}),
        ("/session/rows", {"id": EVIL}),
        ("/session/news", {"id": EVIL, "after": "0", "version": "1", "change": EVIL}),
        ("/session", {"id": f"fork {EVIL}"}),
        *(("/entry", {"id": EVIL, "position": number}) for number in range(21)),
        ("/diff", {"id": EVIL, "from": "0"}),
        ("/diff", {"id": EVIL, "from": f"before:{EVIL}", "to": f"after:{EVIL}"}),
        ("/memories", {"id": EVIL, "where": f"id={EVIL}"}),
        ("/memory", {"id": EVIL, "memory": EVIL}),
        ("/search", {"q": "alert"}),
        ("/search", {"q": EVIL, "session": EVIL}),
        ("/health", {}),
        *(("/change", {"do": do, "id": EVIL}) for do in ("undo", "snapshot", "fork", "forget")),
        ("/change", {"do": "rollback", "id": EVIL, "snapshot": SHORT}),
        ("/change", {"do": "retract", "id": EVIL, "memory": EVIL}),
    ],
    ids=str,
)
def test_a_page_of_attacks_is_text(evil, path, fields):
    page = evil.get(path, **fields)
    assert page.status == 200
    check(page)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/session", {"id": f"nobody {EVIL}"}),
        ("/session", {"id": EVIL, "at": EVIL}),
        ("/?order=" + quote(EVIL), {}),
        ("/?where=" + quote(EVIL), {}),
        ("/entry", {"id": EVIL, "position": EVIL}),
        ("/change", {"do": EVIL, "id": EVIL}),
        ("/change", {"do": "rollback", "id": EVIL, "snapshot": EVIL}),
        ("/" + quote(EVIL, safe=""), {}),
    ],
    ids=str,
)
def test_an_error_about_an_attack_is_text(evil, path, fields):
    page = evil.get(path, **fields)
    assert page.status in (400, 404)
    check(page)


def test_findings_of_a_verification_are_text(evil):
    evil.post("/health/verify")
    while "/health/progress" in (page := evil.get("/health/progress")).text:
        check(page)
    check(page)
    assert "1 session" in page.text or "2 sessions" in page.text


def test_every_link_of_every_page_leads_somewhere(evil):
    """Ids in links are escaped: those of the attacks lead to their own pages."""
    seen, left = set(), ["/"]
    while left:
        path = left.pop().partition("#")[0]
        if path in seen or not path or path.startswith("/change") or len(seen) > 150:
            continue
        seen.add(path)
        page = evil.request("GET", path, headers=evil.cookie)
        assert page.status in (200, 204), path
        if page.getheader("Content-Type", "").startswith("text/html"):
            left += check(page).links
    assert len(seen) > 20


def test_unseen_characters_are_shown(evil):
    text = evil.get("/session", id=EVIL).text
    assert SAFE_UNSEEN in text
    assert "\u202e" not in text
    assert "\x1b" not in text
