"""What the pages show, on every engine that has a file or a server."""

import asyncio
import json
import re

import apsw
import pytest

import indelible
from indelible.inspector import app, pages
from indelible.inspector.pages import ENTRIES_PAGE, SESSIONS_PAGE
from indelible.inspector.rows import TextWriter
from tests.support.inspector import FACTS, LONG, SESSION, every_page, running_inspector


def positions(page):
    return [int(each) for each in re.findall(r'<li class="entry[^>]* id="e(\d+)"', page.text)]


def hidden(page):
    return [
        int(e) for e in re.findall(r'<li class="entry[^>]* is-hidden[^>]* id="e(\d+)"', page.text)
    ]


@pytest.mark.parametrize("name", every_page(write=False))
def test_every_page_is_there(reader, name):
    page = reader.get(every_page(write=False)[name])
    assert page.status == 200
    assert page.text.rstrip().endswith("</html>")


def test_a_page_that_takes_too_long_says_so(reader, monkeypatch):
    async def search_for_ever(*_, **__):
        await asyncio.Event().wait()

    monkeypatch.setattr(app, "PAGE_S_MAX", 0.01)
    monkeypatch.setattr(indelible.AsyncMemoryStore, "search", search_for_ever)
    answer = reader.get("/search", q="tea")
    assert answer.status == 503
    assert "This takes too long" in answer.text
    assert "any order.</p>" in answer.text
    monkeypatch.undo()
    assert reader.get("/search", q="tea").status == 200


def test_sessions_are_listed_filtered_and_ordered(reader):
    page = reader.get("/", order="id").text
    assert page.index("big") < page.index(FACTS) if FACTS > "big" else page.index(FACTS)
    assert "team <b>support</b>" in page
    assert f"fork of <b>{SESSION}</b>" in page
    found = reader.get("/", where="metadata.team=support", prefix="support/ana-").text
    assert "support/ana-retry" in found
    assert f'id={LONG}"' not in found
    assert "No session matches" in reader.get("/", prefix="nobody").text
    assert "No session matches" in reader.get("/", since="2100-01-01").text
    both = reader.get("/", where="last_activity<2001-01-01", since="2000-01-01").text
    assert "No session matches" in both
    assert reader.get("/", where="status=active", status="expired").status == 400


def test_a_session_shows_calls_with_their_results_and_what_is_hidden(reader):
    page = reader.get("/session", id=SESSION)
    # The results of calls are shown with their calls.
    assert positions(page) == [0, 1, 2, 4, 5, 6, 8, 9, 11, 12, 13]
    assert hidden(page) == [5, 6]
    assert re.search(r'find_order.*id="e3".*in transit', page.text, re.DOTALL)
    assert "hidden by the rollback" in page.text
    assert "before the refund" in page.text
    assert page.text.count("no result up to 13") == 1
    assert "failed" in page.text
    assert "1–4, 8–10" in page.text


def test_indentation_does_not_make_a_deep_value_many_times_longer():
    value = [1] * 50_000
    for _ in range(90):
        value = [value]
    written = TextWriter().write(value)
    assert len(written.text) + written.cut == len(json.dumps(value))


def test_json_is_indented_and_no_text_is_empty(reader):
    page = reader.get("/session", id=SESSION).text
    assert "{\n  &#34;refunded&#34;: " in page
    assert "\n}</div>" in page
    assert (
        '<div class="text"><span class="muted">empty</span></div>'
        in reader.get("/session", id=LONG).text
    )


def test_a_session_shows_who_changed_it(tmp_path):
    url = str(tmp_path / "agent.db")
    with indelible.open(url, audit=True, audit_key=b"sixteen bytes at least", actor="ana") as store:
        store.add_message("s", "user", "hello")
        with indelible.actor("ben"):
            store.clear("s")
        lines = store.audit_log("s")
    with running_inspector(url) as inspector:
        page = inspector.get("/session", id="s").text
    assert re.search(r"<b>ben</b> clear.*line 1.*<b>ana</b> append 1.*line 0", page, re.DOTALL)
    assert lines[0].hash[:12] in page


def test_a_session_as_it_was(reader):
    was = reader.get("/session", id=SESSION, at="0")
    assert positions(was) == [0, 1, 2, 4]
    assert "This is the session <b>snapshot “before the refund”</b>" in was.text
    before = reader.get("/session", id=SESSION, at="2")
    assert "before the rollback" in before.text
    assert (positions(before), hidden(before)) == ([0, 1, 2, 4, 5, 6], [])
    after = reader.get("/session", id=SESSION, at="3")
    assert "after the rollback" in after.text
    assert (positions(after), hidden(after)) == ([0, 1, 2, 4, 5, 6], [5, 6])
    assert "This is the session" not in reader.get("/session", id=SESSION, at="99").text


def test_any_two_moments_are_compared(reader):
    rolled_back = reader.get("/diff", id=SESSION, **{"from": "2", "to": "3"})
    assert positions(rolled_back) == [5, 6]
    assert rolled_back.text.count("is-removed") == 2
    back = reader.get("/diff", id=SESSION, **{"from": "3", "to": "2"})
    assert back.text.count("is-added") == 2
    now = reader.get("/diff", id=SESSION, **{"from": "0"})
    assert positions(now) == [8, 9, 11, 12, 13]
    assert (
        "Both moments show the same"
        in reader.get("/diff", id=SESSION, **{"from": "2", "to": "1"}).text
    )


def test_a_long_session_is_paged_to_its_begin_and_back(reader):
    page = reader.get("/session", id=LONG)
    assert positions(page) == list(range(140 - ENTRIES_PAGE, 140))
    seen = positions(page)
    while older := re.search(r'href="(/session\?[^"]*before=\d+)" hx-get="([^"]*)"', page.text):
        page = reader.get(older[1].replace("&amp;", "&"))
        part = reader.get(older[2].replace("&amp;", "&"))
        assert positions(part) == positions(page)
        seen = positions(page) + seen
    assert seen == list(range(140))
    assert "Newest" in page.text
    newer = re.search(r'href="([^"]*)">Newer entries', page.text)[1].replace("&amp;", "&")
    assert positions(reader.get(newer))[-1] > positions(page)[-1]


def test_a_long_text_is_cut_and_its_entry_has_all_of_it(reader):
    assert "5,000 more characters" in reader.get("/session", id="big").text
    assert "y" * 9000 in reader.get("/entry", id="big", position=0).text


def test_an_entry_has_the_result_of_its_call_and_a_result_the_way_to_its_call(reader):
    call = reader.get("/entry", id=SESSION, position=2).text
    assert re.search(r'find_order.*id="e3".*in transit', call, re.DOTALL)
    assert "no result" not in call
    result = reader.get("/entry", id=SESSION, position=3).text
    assert re.search(r"answers <a [^>]*position=2", result)
    assert "in transit" in result


def test_memories_have_versions_sources_and_ends(reader):
    page = reader.get("/memories", id=FACTS).text
    assert "Likes green tea" in page
    assert "Likes tea<" not in page
    assert "Is away" not in page
    assert "Lives in Lisbon" in reader.get("/memories", id=FACTS, where="id=city").text
    history = reader.get("/memory", id=FACTS, memory="drink").text
    assert history.index("Likes green tea") < history.index("Likes tea<")
    assert "replaced" in history
    assert f'from <a href="/session?id={SESSION.replace("/", "%2F")}&amp;before=2#e1"' in history
    assert "retracted" in reader.get("/memory", id=FACTS, memory="away").text
    assert "There is no memory" in reader.get("/memory", id=FACTS, memory="nobody").text


def test_a_search_has_snippets_and_links(reader):
    page = reader.get("/search", q="refund").text
    assert "<mark>refund</mark>" in page
    assert "#e8" in page
    only = reader.get("/search", q="tea", kind="memory").text
    assert "Likes green tea".replace("tea", "<mark>tea</mark>") in only
    assert LONG not in only
    more = re.search(r'href="([^"]*offset=20)"', reader.get("/search", q="question").text)[1]
    assert reader.get(more.replace("&amp;", "&")).status == 200


def test_health_has_claims_and_a_verification(reader):
    assert "an acknowledged append survives" in reader.get("/health").text
    assert reader.post("/health/verify").status == 303
    while "/health/progress" in reader.get("/health").text:
        pass
    assert "no errors" in reader.get("/health").text


def test_new_entries_are_sent_to_an_open_page(store, url):
    store.add_message("s", "user", "first")
    with running_inspector(url) as inspector:
        page = inspector.get("/session", id="s").text
        news = re.search(r'hx-get="(/session/news[^"]*)"', page)[1].replace("&amp;", "&")
        assert inspector.get(news).status == 204
        store.add_message("s", "assistant", "second")
        found = inspector.get(news)
        assert positions(found) == [1]
        assert "second" in found.text
        after = re.search(r'hx-get="(/session/news[^"]*)"', found.text)[1].replace("&amp;", "&")
        assert inspector.get(after).status == 204
        store.hide("s", [0])
        changed = inspector.get(after).text
        assert "reload" in changed
        assert "/session/news" not in changed
        store.add_messages("s", [{"role": "user", "content": "x"}] * 60)
        assert "reload" in inspector.get(after).text


def test_many_sessions_are_paged(store, url):
    for number in range(SESSIONS_PAGE + 3):
        store.add_message(f"s{number:03}", "user", "x")
    with running_inspector(url) as inspector:
        first = inspector.get("/", order="id").text
        next_page = re.search(r'href="([^"]*cursor=[^"]*)"', first)[1].replace("&amp;", "&")
        second = inspector.get(next_page).text
    ids = [re.findall(r'href="/session\?id=(s\d+)"', each) for each in (first, second)]
    assert [len(each) for each in ids] == [SESSIONS_PAGE, 3]
    assert sorted(ids[0] + ids[1]) == [f"s{number:03}" for number in range(SESSIONS_PAGE + 3)]


@pytest.mark.parametrize("name", ["a/b", "a&b=c", "a\nb", "a\r\nb", "#%2e", " spaced ", "é\u202e"])
def test_any_id_has_its_page_and_its_forms(store, url, name):
    store.add_message(name, "user", "found")
    store.save_snapshot(name)
    with running_inspector(url, write=True) as inspector:
        listed = re.findall(r'<th scope="row"><a href="([^"]*)"', inspector.get("/").text)
        page = inspector.get(listed[0])
        assert "found" in page.text
        assert "\u202e" not in page.text
        hidden_id = re.search(r'name="id_" value="([^"]*)"', page.text)[1]
        # Browsers send line breaks in forms as \r\n; this field has none.
        assert inspector.get("/session", id_=hidden_id, at="0").status == 200
        inspector.confirm(do="snapshot", id=name)
    assert len(store.list_snapshots(name)) == 2


def test_an_empty_store_and_a_session_without_entries(store, url):
    store.set_metadata("empty", {})
    with running_inspector(url) as inspector:
        assert "Nothing here yet" in inspector.get("/session", id="empty").text
        assert inspector.get("/session", id="nobody").status == 404


def test_damaged_entries_are_shown(url):
    with indelible.open(url) as store:
        store.add_message("s", "user", "whole")
        store.add_message("s", "user", "damaged")
    database = apsw.Connection(url)
    database.execute("UPDATE entry SET payload = x'00' WHERE id = (SELECT max(id) FROM entry)")
    database.close()
    with running_inspector(url) as inspector:
        page = inspector.get("/session", id="s")
        assert "unreadable" in page.text
        assert inspector.get("/entry", id="s", position=1).status == 200


def test_a_filter_that_few_sessions_match_is_paged(store, url, monkeypatch):
    monkeypatch.setattr(pages, "SCAN_MAX", 4)
    for number in range(10):
        store.add_message(f"s{number}", "user", "x")
    store.set_metadata("s9", {"team": "sales"})
    with running_inspector(url) as inspector:
        fields = {"order": "id", "where": "metadata.team=sales"}
        page = inspector.get("/", **fields).text
        assert "Look further" in page
        found = []
        while further := re.search(r'href="([^"]*cursor=[^"]*)"', page):
            found += re.findall(r'href="/session\?id=(s\d+)"', page)
            page = inspector.get(further[1].replace("&amp;", "&")).text
        assert found + re.findall(r'href="/session\?id=(s\d+)"', page) == ["s9"]
        assert "No session matches" in inspector.get("/", prefix="nobody").text


def test_a_thread_is_shown_in_steps(reader):
    page = reader.get("/session", id="thread").text
    for text in ("first", "second", "third", "planner", "answer", "branch:to:answer"):
        assert text in page
    assert page.count('<span class="badge warn">branch</span>') == 1
    assert page.count("value stored for it") == 2
    assert page.count("2 values stored for it") == 1
    # Values are shown with their steps; the last one has none.
    assert positions(reader.get("/session", id="thread")) == [1, 4, 6, 7, 8, 9, 10, 11, 12]
    assert "entries between 2 and 9, compressed" in page
    assert "user · Plan a weekend" in page
    for position in range(13):
        entry = reader.get("/entry", id="thread", position=position)
        assert (entry.status, positions(entry)) == (200, [position])
