"""Messages in the forms of OpenAI and Anthropic, and back."""

import pytest
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
from pydantic import TypeAdapter

import indelible
from indelible import ChatMessage, Summary, ToolCall, ToolResult, UsageError
from indelible.core.provider_messages import (
    from_anthropic,
    from_openai,
    to_anthropic,
    to_openai,
)

IMAGE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
OPENAI_CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Oslo and Rome?", "name": "ana"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{city}",
                "type": "function",
                "function": {"name": "weather", "arguments": f'{{"city":  "{city}"}}'},
            }
            for city in ("oslo", "rome")
        ],
    },
    {"role": "tool", "tool_call_id": "call_oslo", "content": "4 °C"},
    {"role": "tool", "tool_call_id": "call_rome", "content": "19 °C"},
    {"role": "assistant", "content": "Oslo 4 °C, Rome 19 °C."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ],
    },
    {"role": "assistant", "content": None, "refusal": "I cannot see it."},
]
ANTHROPIC_CHAT = [
    {"role": "user", "content": "Weather in Oslo and Rome?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Two calls.", "signature": "c2ln"},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "tu_oslo", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "tu_rome", "name": "weather", "input": {"city": "Rome"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "tu_oslo", "content": "4 °C"},
            {
                "type": "tool_result",
                "tool_use_id": "tu_rome",
                "content": [{"type": "text", "text": "no answer"}],
                "is_error": True,
            },
            {"type": "text", "text": "And this?"},
            {"type": "image", "source": IMAGE},
        ],
    },
    {"role": "assistant", "content": "Oslo 4 °C."},
]


@pytest.fixture
def store():
    with indelible.open("memory:") as store:
        yield store


def test_openai_messages_come_back_as_they_were(store):
    store.add_messages("s", indelible.from_openai(OPENAI_CHAT))
    assert store.get_history("s").to_openai() == OPENAI_CHAT


def test_what_is_written_for_openai_has_the_types_of_its_sdk(store):
    store.add_messages("s", indelible.from_anthropic(ANTHROPIC_CHAT, system="Be brief."))
    found = store.get_history("s").to_openai()
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(found)
    assert [message["role"] for message in found] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
    ]


def test_anthropic_messages_come_back_as_they_were(store):
    store.add_messages("s", indelible.from_anthropic(ANTHROPIC_CHAT, system="Be brief."))
    assert store.get_history("s").to_anthropic() == {
        "system": "Be brief.",
        "messages": ANTHROPIC_CHAT,
    }


def test_objects_of_the_sdk_are_accepted(store):
    answer = ChatCompletionMessage(role="assistant", content="Hello")
    store.add_messages("s", from_openai([answer]))
    assert store.get_history("s").to_openai() == [{"role": "assistant", "content": "Hello"}]


def test_nothing_of_the_store_is_written(store):
    store.add_message("s", "user", "Hi", metadata={"id": 7}, pinned=True)
    store.add_messages("s", [{"role": "ai", "content": "Hello", "trace": "xyz"}])
    history = store.get_history("s")
    assert history.to_openai() == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]
    assert history.to_anthropic() == {"messages": history.to_openai()}


def test_openai_calls_and_results_become_blocks():
    messages = [ChatMessage(**message) for message in OPENAI_CHAT[:6]]
    calls = to_anthropic(messages)
    assert calls["system"] == "Be brief."
    assert calls["messages"][1:3] == [
        {
            "role": "assistant",
            "content": [
                {
                    "type": "tool_use",
                    "id": "call_oslo",
                    "name": "weather",
                    "input": {"city": "oslo"},
                },
                {
                    "type": "tool_use",
                    "id": "call_rome",
                    "name": "weather",
                    "input": {"city": "rome"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_oslo", "content": "4 °C"},
                {"type": "tool_result", "tool_use_id": "call_rome", "content": "19 °C"},
            ],
        },
    ]


def test_blocks_become_openai_calls_and_results():
    found = to_openai(ChatMessage(**message) for message in from_anthropic(ANTHROPIC_CHAT))
    assert found[1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Looking."}],
        "tool_calls": [
            {
                "id": f"tu_{city.lower()}",
                "type": "function",
                "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'},
            }
            for city in ("Oslo", "Rome")
        ],
    }
    assert found[3]["content"] == [{"type": "text", "text": "no answer"}]
    assert found[4]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


def test_tool_entries_join_the_messages(store):
    store.add_message("s", "user", "Weather?")
    store.add_message("s", "assistant", "Looking.")
    store.add_tool_call("s", "a", "weather", {"city": "Oslo"})
    store.add_tool_call("s", "b", "weather")
    store.add_tool_result("s", "a", {"degrees": 4})
    store.add_tool_result("s", "b", "unknown city", is_error=True)
    store.add_summary("s", "They talk about the weather.")
    entries = store.get_entries("s")
    openai = entries.to_openai()
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(openai)
    assert [call["function"]["arguments"] for call in openai[1]["tool_calls"]] == [
        '{"city": "Oslo"}',
        "{}",
    ]
    assert openai[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": '{"degrees": 4}'},
        {"role": "tool", "tool_call_id": "b", "content": "unknown city"},
    ]
    anthropic = entries.to_anthropic()["messages"]
    assert [block["type"] for block in anthropic[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert anthropic[2]["content"][1] == {
        "type": "tool_result",
        "tool_use_id": "b",
        "content": "unknown city",
        "is_error": True,
    }


def test_a_call_that_is_stored_twice_is_written_once():
    call = {"id": "a", "name": "weather", "arguments": {}}
    values = [
        ChatMessage(role="assistant", content="", tool_calls=[call]),
        ToolCall(call_id="a", name="weather"),
        ChatMessage(role="tool", tool_call_id="a", content="4"),
        ToolResult(call_id="a", content="4"),
        # Models use an id again.
        ChatMessage(role="assistant", content="", tool_calls=[call]),
        ToolResult(call_id="a", content="5"),
    ]
    assert [message["role"] for message in to_openai(values)] == ["assistant", "tool"] * 2
    assert [len(message["content"]) for message in to_anthropic(values)["messages"]] == [1] * 4


def test_results_come_directly_behind_their_calls():
    call = {"id": "a", "name": "weather", "arguments": {}}
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "4"},
        {"type": "text", "text": "Thanks"},
    ]
    for answer in (
        [ChatMessage(role="tool", tool_call_id="a", content="4"), "Thanks"],
        [ToolResult(call_id="a", content="4"), "Thanks"],
        [ChatMessage(role="user", content=blocks)],
    ):
        values = [
            ChatMessage(role="assistant", tool_calls=[call]),
            ChatMessage(role="user", content="Meanwhile"),
            *(ChatMessage(role="user", content=v) if isinstance(v, str) else v for v in answer),
        ]
        found = to_openai(values)
        assert [message["role"] for message in found] == ["assistant", "tool", "user", "user"]
        messages = to_anthropic(values)["messages"]
        assert [message["role"] for message in messages] == ["assistant", "user", "user", "user"]
        assert [block["type"] for block in messages[1]["content"]] == ["tool_result"]


def test_a_result_without_a_call_is_left_out():
    values = [
        ChatMessage(role="tool", tool_call_id="gone", content="4"),
        ChatMessage(role="user", content="Hi"),
    ]
    assert to_openai(values) == [{"role": "user", "content": "Hi"}]
    assert to_anthropic(values) == {"messages": to_openai(values)}


def test_what_has_no_content_is_left_out():
    values = [
        ChatMessage(role="assistant", content=[{"type": "thinking", "thinking": "…"}]),
        ChatMessage(role="assistant"),
        Summary(text="x"),
        ChatMessage(role="user", content="Hi"),
    ]
    assert to_openai(values) == [{"role": "user", "content": "Hi"}]
    assert to_anthropic(values[1:])["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (None, {}),
        ("", {}),
        ("{}", {}),
        ("no json", {"arguments": "no json"}),
        ([1], {"arguments": [1]}),
    ],
)
def test_arguments_for_anthropic_are_an_object(arguments, given):
    (message,) = to_anthropic([ToolCall(call_id="a", name="f", arguments=arguments)])["messages"]
    assert message["content"][0]["input"] == given


def test_several_system_messages_become_one_list():
    values = [ChatMessage(role=role, content=role) for role in ("system", "user", "developer")]
    assert to_anthropic(values)["system"] == [
        {"type": "text", "text": "system"},
        {"type": "text", "text": "developer"},
    ]


def test_images_and_files_change_their_form():
    parts = [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
        },
    ]
    blocks = to_anthropic([ChatMessage(role="user", content=parts)])["messages"][0]["content"]
    assert blocks == [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="},
        },
    ]
    assert to_openai([ChatMessage(role="user", content=blocks)])[0]["content"] == parts


def test_a_block_without_a_form_is_refused():
    audio = {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}
    message = ChatMessage(role="user", content=[audio])
    assert to_openai([message]) == [{"role": "user", "content": [audio]}]
    with pytest.raises(UsageError, match=r"message 0 has a block of type 'input_audio'.*Anthropic"):
        to_anthropic([message])
    with pytest.raises(UsageError, match=r"'video'.*OpenAI"):
        to_openai([ChatMessage(role="user", content=[{"type": "video"}])])
    with pytest.raises(UsageError, match="role 'critic'"):
        to_anthropic([ChatMessage(role="critic", content="Hm")])


@pytest.mark.parametrize("convert", [to_openai, to_anthropic])
def test_an_error_names_the_message_as_it_was_given(convert):
    strange = [{"type": "hologram"}]
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    values = [
        ChatMessage(role="assistant", tool_calls=[call]),
        Summary(text="left out"),
        ChatMessage(role="user", content="and?"),
        ToolResult(call_id="c1", content="moved to its call"),
        ChatMessage(role="user", content=strange),
    ]
    with pytest.raises(UsageError, match=r"message 4 has a block of type 'hologram'"):
        convert(values)
    values[3:] = [ToolResult(call_id="c1", content=strange)]
    with pytest.raises(UsageError, match=r"message 3 has a block of type 'hologram'"):
        convert(values)


def test_what_is_no_message_is_refused():
    with pytest.raises(UsageError, match="not a message: int"):
        from_openai([1])


@pytest.mark.parametrize("given", [{"role": "user", "content": "Hi"}, "Hi", 1])
@pytest.mark.parametrize("convert", [from_openai, from_anthropic])
def test_what_is_no_list_of_messages_is_refused(convert, given):
    with pytest.raises(UsageError, match="a list of messages is needed"):
        convert(given)


def test_what_anthropic_gets_converts_back_as_it_is():
    messages = [
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content="Hi"),
    ]
    assert [ChatMessage(**each) for each in from_anthropic(to_anthropic(messages))] == messages
