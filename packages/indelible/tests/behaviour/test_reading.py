"""Reading: one state of the session, literally what was asked for, in order."""

import pytest

from indelible import CallStatus, ConflictError, Kind, LimitError, Status, UsageError
from indelible.core.limits import PAGE_ENTRIES_DEFAULT, PAGE_ENTRIES_MAX
from tests.support.stores import call, message, one_of_each_kind, result, said, say, shown


def pages(store, session, **options):
    """Every page, from the first to the last."""
    page = store.get_entries(session, **options)
    found = [page]
    while page.cursor is not None:
        page = store.get_entries(session, cursor=page.cursor, **options)
        found.append(page)
    return found


# History


def test_a_session_that_is_not_there_is_an_empty_history_of_a_stranger(store):
    history = store.get_history("nobody")
    assert (history, history.status) == ([], Status.NEW)
    assert store.get_entries("nobody") == []
    assert store.load_memory("nobody") == []
    assert store.get_tool_calls("nobody") == []
    assert store.get_summaries("nobody") == []
    assert store.list_snapshots("nobody") == []
    assert store.list_sessions().ids == [], "reading does not begin a session"


def test_history_is_messages_alone(store):
    store.add_entries("s", one_of_each_kind())
    assert said(store, "s") == ["look it up"]
    assert store.get_history("s").status is Status.ACTIVE


def test_last_is_literal(store):
    say(store, "s", "one", "two", "three")
    for last, expected in [(1, ["three"]), (2, ["two", "three"]), (3, 3), (99, 3)]:
        texts = ["one", "two", "three"] if expected == 3 else expected
        assert said(store, "s", last=last) == texts


def test_a_slice_is_a_history_of_the_same_state(store):
    for number in range(3):
        say(store, "s", str(number))
    history = store.get_history("s")
    newest = history[-2:]
    assert [each["content"] for each in newest.to_openai()] == ["1", "2"]
    assert (newest.version, newest.status) == (history.version, Status.ACTIVE)
    assert history[0] == history[:1][0]
    assert len(store.get_entries("s")[1:].to_openai()) == 2


def test_last_zero_is_nothing(store):
    (first,) = say(store, "s", "one")
    history = store.get_history("s", last=0)
    assert (history, history.version, history.status) == ([], first.version, Status.ACTIVE)


def test_last_counts_messages_and_not_what_stands_between(store):
    store.add_entries("s", [message("one"), call("c"), result("c"), message("two"), call("d")])
    assert said(store, "s", last=2) == ["one", "two"]
    assert said(store, "s", last=1) == ["two"]


def test_last_counts_what_shows(store):
    say(store, "s", "one", "two")
    snapshot = store.save_snapshot("s")
    say(store, "s", "three")
    store.rollback_to_snapshot("s", snapshot.id)
    say(store, "s", "four")
    assert said(store, "s", last=2) == ["two", "four"]


def test_what_is_no_count_is_refused(store):
    for bad in (-1, 1.5, "3", True):
        for option in ("last", "max_tokens"):
            with pytest.raises(UsageError) as caught:
                store.get_history("s", **{option: bad})
            assert repr(bad) in str(caught.value)


def test_a_budget_takes_the_newest_messages_that_fit(store):
    say(store, "s", "aaaa", "bb", "c")
    counted = {"count_tokens": lambda m: len(m.content)}
    expected = {0: [], 1: ["c"], 2: ["c"], 3: ["bb", "c"], 6: ["bb", "c"], 7: ["aaaa", "bb", "c"]}
    for budget, texts in expected.items():
        assert said(store, "s", max_tokens=budget, **counted) == texts


def test_a_message_that_does_not_fit_ends_the_taking(store):
    say(store, "s", "a", "x" * 50, "b")
    assert said(store, "s", max_tokens=10, count_tokens=lambda m: len(m.content)) == ["b"]


def test_a_budget_and_a_count_hold_together(store):
    say(store, "s", *"abcdef")
    one_each = {"count_tokens": lambda _: 1}
    assert said(store, "s", max_tokens=4, last=2, **one_each) == ["e", "f"]
    assert said(store, "s", max_tokens=2, last=4, **one_each) == ["e", "f"]
    assert said(store, "s", max_tokens=4, last=0, **one_each) == []


def test_a_budget_reaches_over_many_pages(store):
    texts = [str(number) for number in range(300)]
    store.add_messages("s", [message(text) for text in texts])
    assert said(store, "s", max_tokens=200, count_tokens=lambda _: 1) == texts[-200:]
    assert said(store, "s", max_tokens=10_000, count_tokens=lambda _: 1) == texts


def test_tokens_are_estimated_from_what_is_stored(store):
    say(store, "s", "x" * 4000, "y" * 400)
    assert said(store, "s", max_tokens=99) == []
    assert said(store, "s", max_tokens=150) == ["y" * 400]
    assert said(store, "s", max_tokens=1099) == ["y" * 400]
    assert len(said(store, "s", max_tokens=1200)) == 2


def test_memory_is_a_list_of_turns(store):
    store.save_context("s", "hi", "hello")
    store.save_context("s", "how?", "so.")
    assert store.load_memory("s") == [
        {"human": "hi", "ai": "hello"},
        {"human": "how?", "ai": "so."},
    ]


def test_what_has_no_partner_in_memory_is_not_dropped(store):
    say(store, "s", "greeting", role="assistant")
    say(store, "s", "anyone?", "hello?")
    say(store, "s", "yes", "go on", role="assistant")
    say(store, "s", "thanks")
    assert store.load_memory("s") == [
        {"human": None, "ai": "greeting"},
        {"human": "anyone?", "ai": None},
        {"human": "hello?", "ai": "yes"},
        {"human": None, "ai": "go on"},
        {"human": "thanks", "ai": None},
    ]


def test_messages_of_other_roles_belong_to_no_turn(store):
    say(store, "s", "be kind", role="system")
    say(store, "s", "hi")
    say(store, "s", "42", role="tool")
    say(store, "s", "hello", role="assistant")
    assert store.load_memory("s") == [{"human": "hi", "ai": "hello"}]


@pytest.mark.parametrize("role", ["ai", "model", "chatbot"])
def test_memory_knows_the_names_that_frameworks_give_to_roles(store, role):
    say(store, "s", "hi", role="human")
    say(store, "s", "hello", role=role)
    assert store.load_memory("s") == [{"human": "hi", "ai": "hello"}]


# Entries in pages


def test_entries_are_everything_in_order(store, clock):
    batch = one_of_each_kind()
    store.add_entries("s", batch)
    entries = store.get_entries("s")
    assert [entry.value for entry in entries] == batch
    assert [entry.position for entry in entries] == list(range(len(batch)))
    assert [entry.kind for entry in entries] == list(Kind)
    assert (entries.cursor, entries.status) == (None, Status.ACTIVE)


def test_entries_of_some_kinds(store):
    store.add_entries("s", one_of_each_kind())
    assert [e.position for e in store.get_entries("s", kinds=["tool_call", Kind.SUMMARY])] == [1, 3]
    assert [e.position for e in store.get_entries("s", kinds="message")] == [0]
    assert store.get_entries("s", kinds=[]) == []
    with pytest.raises(UsageError, match="thought"):
        store.get_entries("s", kinds=["thought"])


def test_pages_together_are_the_whole(store):
    say(store, "s", *map(str, range(10)))
    store.trim("s", before=2)
    for limit in (1, 2, 3, 7, 10, 11):
        found = pages(store, "s", limit=limit)
        assert [entry.position for page in found for entry in page] == list(range(2, 10))
        assert all(len(page) == limit for page in found[:-1])
        assert 0 < len(found[-1]) <= limit


def test_pages_of_some_kinds_are_full(store):
    for number in range(4):
        store.add_entries("s", [message(str(number)), call(f"c{number}"), result(f"c{number}")])
    for limit in (1, 2, 5):
        found = pages(store, "s", limit=limit, kinds=["tool_call"])
        assert [entry.position for page in found for entry in page] == [1, 4, 7, 10]
        assert all(len(page) == limit for page in found[:-1])


@pytest.mark.parametrize("change", ["append", "trim", "clear", "rollback", "undo"])
def test_a_later_page_belongs_to_the_state_that_the_first_page_saw(store, change):
    say(store, "s", *map(str, range(4)))
    snapshot = store.save_snapshot("s")
    say(store, "s", *map(str, range(4, 8)))
    store.trim("s", before=1)
    first = store.get_entries("s", limit=3)
    if change == "append":
        say(store, "s", "late")
    elif change == "trim":
        store.trim("s", keep_last=1)
    elif change == "clear":
        store.clear("s")
    elif change == "rollback":
        store.rollback_to_snapshot("s", snapshot.id)
        say(store, "s", "late")
    else:
        store.undo("s")
    second = store.get_entries("s", limit=3, cursor=first.cursor)
    third = store.get_entries("s", limit=3, cursor=second.cursor)
    assert [e.position for page in (first, second, third) for e in page] == list(range(1, 8))
    assert second.version == third.version == first.version
    assert third.cursor is None


def test_a_page_of_an_earlier_state_refuses_an_append_that_expects_it(store):
    say(store, "s", "one", "two", "three")
    first = store.get_entries("s", limit=1)
    say(store, "s", "four")
    second = store.get_entries("s", limit=1, cursor=first.cursor)
    with pytest.raises(ConflictError):
        store.add_message("s", "user", "late", expected=second.version)


def test_a_cursor_opens_its_page_as_often_as_one_likes(store, reopened):
    say(store, "s", "one", "two", "three")
    first = store.get_entries("s", limit=1)
    one = store.get_entries("s", limit=1, cursor=first.cursor)
    store = reopened(store)
    assert store.get_entries("s", limit=1, cursor=first.cursor) == one


def test_a_slice_without_the_last_entry_opens_no_page(store):
    say(store, "s", *map(str, range(6)))
    page = store.get_entries("s", limit=4)
    assert page[1:].cursor == page[::-1].cursor == page.cursor is not None
    # The page behind the cursor begins after what these leave out.
    assert page[:2].cursor is None
    assert page[:2].version == page.version


def test_a_cursor_of_another_session_is_refused(store):
    for session in ("a", "b"):
        say(store, session, "one", "two")
    first = store.get_entries("a", limit=1)
    for session in ("b", "nobody"):
        with pytest.raises(UsageError):
            store.get_entries(session, cursor=first.cursor)


def test_what_is_no_cursor_is_refused(store):
    say(store, "s", "one")
    for cursor in ("", "x", "bm9uc2Vuc2U=", "\0", 5, b"x"):
        with pytest.raises(UsageError):
            store.get_entries("s", cursor=cursor)


def test_a_page_has_a_limit(store):
    store.add_messages("s", [message(str(n)) for n in range(PAGE_ENTRIES_DEFAULT + 1)])
    assert len(store.get_entries("s")) == PAGE_ENTRIES_DEFAULT
    assert len(store.get_entries("s", limit=PAGE_ENTRIES_MAX)) == PAGE_ENTRIES_DEFAULT + 1
    for limit in (0, -1, "5", True):
        with pytest.raises(UsageError):
            store.get_entries("s", limit=limit)
    with pytest.raises(LimitError) as caught:
        store.get_entries("s", limit=PAGE_ENTRIES_MAX + 1)
    assert caught.value.limit == PAGE_ENTRIES_MAX


def test_an_unknown_way_with_corrupt_entries_is_refused(store):
    for read in (store.get_history, store.get_entries):
        with pytest.raises(UsageError, match="ignore"):
            read("s", on_corrupt="ignore")
    say(store, "s", "fine")
    assert store.get_history("s", on_corrupt="quarantine").corrupt == ()


# Tool calls


def calls(store, session="s"):
    return [
        (record.call_id, record.status, record.call_position, record.result_position)
        for record in store.get_tool_calls(session)
    ]


def test_turns_have_the_text_of_blocks(store):
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"q": 1}}
    found = {"type": "tool_result", "tool_use_id": "c", "content": "found"}
    image = {"type": "image", "source": {}}
    thought = {"type": "thinking", "thinking": "hm"}
    store.add_messages(
        "s",
        [
            message(
                [{"type": "input_text", "text": "one"}, image, {"type": "text", "text": "two"}]
            ),
            message([thought, use], role="assistant"),
            message([found]),
            message([thought, {"type": "output_text", "text": "three"}], role="assistant"),
            message([image]),
            message([{"type": "refusal", "refusal": "no"}], role="assistant"),
        ],
    )
    assert store.load_memory("s") == [
        {"human": "one\ntwo", "ai": "three"},
        {"human": "", "ai": "no"},
    ]


def test_a_call_and_its_result_are_joined(store):
    store.add_tool_call("s", "c1", "search", {"q": "x"})
    say(store, "s", "meanwhile")
    store.add_tool_result("s", "c1", ["found"])
    (record,) = store.get_tool_calls("s")
    assert (record.name, record.arguments, record.result) == ("search", {"q": "x"}, ["found"])
    assert calls(store) == [("c1", CallStatus.DONE, 0, 2)]


def test_a_failed_call_says_so(store):
    store.add_tool_call("s", "c1", "search")
    store.add_tool_result("s", "c1", "no network", is_error=True)
    assert calls(store) == [("c1", CallStatus.FAILED, 0, 1)]


def test_a_call_without_a_result_dangles_and_a_result_without_a_call_is_an_orphan(store):
    store.add_tool_result("s", "lost", 1)
    store.add_tool_call("s", "waiting", "search")
    assert calls(store) == [
        ("waiting", CallStatus.DANGLING, 1, None),
        ("lost", CallStatus.ORPHAN, None, 0),
    ]
    assert store.get_tool_calls("s")[1].result == 1


def test_calls_in_message_fields_are_joined_as_openai_spells_them(store):
    function = {"name": "search", "arguments": '{"q": "x"}'}
    store.add_messages(
        "s",
        [
            message("find x"),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": function},
                    {"id": "c2", "type": "function", "function": {**function, "name": "other"}},
                ],
            },
            {"role": "tool", "content": "found", "tool_call_id": "c1"},
        ],
    )
    first, second = store.get_tool_calls("s")
    assert (first.name, first.arguments, first.result) == ("search", {"q": "x"}, "found")
    assert second.name == "other"
    assert calls(store) == [
        ("c1", CallStatus.DONE, 1, 2),
        ("c2", CallStatus.DANGLING, 1, None),
    ]


def test_calls_in_content_blocks_are_joined_as_anthropic_spells_them(store):
    use = {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "x"}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "nothing", "is_error": True}
    store.add_messages(
        "s",
        [
            message([{"type": "text", "text": "let me see"}, use], role="assistant"),
            message([answer, {"type": "text", "text": "well?"}]),
        ],
    )
    (record,) = store.get_tool_calls("s")
    assert (record.name, record.arguments, record.result) == ("search", {"q": "x"}, "nothing")
    assert calls(store) == [("c1", CallStatus.FAILED, 0, 1)]


def test_calls_in_message_fields_are_joined_as_langchain_spells_them(store):
    store.add_messages(
        "s",
        [
            message("", role="ai", tool_calls=[{"id": "c", "name": "f", "args": {"q": 1}}]),
            message("found", role="tool", tool_call_id="c"),
        ],
    )
    (record,) = store.get_tool_calls("s")
    assert (record.name, record.arguments, record.result) == ("f", {"q": 1}, "found")


def test_a_call_in_a_message_is_joined_with_a_result_in_an_entry(store):
    store.add_messages("s", [message(None, role="assistant", tool_calls=[{"id": "c"}])])
    store.add_tool_result("s", "c", 42)
    assert calls(store) == [("c", CallStatus.DONE, 0, 1)]


def test_only_calls_that_show_are_joined(store):
    store.add_tool_call("s", "c1", "search")
    snapshot = store.save_snapshot("s")
    store.add_tool_result("s", "c1", "found")
    store.add_tool_call("s", "c2", "search")
    store.rollback_to_snapshot("s", snapshot.id)
    assert calls(store) == [("c1", CallStatus.DANGLING, 0, None)]
    store.clear("s")
    assert calls(store) == []


def test_call_ids_may_be_any_text(store):
    for call_id in ("\0", '"', "é", "a,b", "[]", "~"):
        store.add_tool_call("s", call_id, "f")
        store.add_tool_result("s", call_id, call_id)
    assert [record.result for record in store.get_tool_calls("s")] == [
        "\0",
        '"',
        "é",
        "a,b",
        "[]",
        "~",
    ]
    store.trim("s", keep_last=0)
    assert shown(store, "s") == []
