"""A model of the OpenAI Agents SDK that says what it is told to, without any network."""

from agents import ModelResponse, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

set_tracing_disabled(disabled=True)


def said(text):
    content = ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])
    return ResponseOutputMessage(
        id=f"msg_{abs(hash(text))}",
        type="message",
        role="assistant",
        status="completed",
        content=[content],
    )


def called(name, arguments, call_id):
    return ResponseFunctionToolCall(
        type="function_call", id=f"fc_{call_id}", call_id=call_id, name=name, arguments=arguments
    )


class StubModel(Model):
    """Gives one reply after the other, and remembers what it was asked."""

    def __init__(self, replies):
        self.replies = list(replies)
        self.seen = []

    async def get_response(self, *given, **named):
        self.seen.append(list(named["input"] if "input" in named else given[1]))
        return ModelResponse(output=[self.replies.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *given, **named):
        raise NotImplementedError
