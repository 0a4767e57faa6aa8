"""Text and tool calls in message content, in the forms of models and frameworks.

A block has a `type`, or a `block_type` in LlamaIndex:

| kind     | types                                                    | fields of the text      |
|----------|----------------------------------------------------------|-------------------------|
| text     | text, input_text, output_text, refusal                   | text, refusal           |
| thinking | thinking, redacted_thinking, reasoning, reasoning_text,  | thinking, text, content |
|          | summary_text                                             |                         |
| call     | tool_use, tool_call                                      |                         |
| result   | tool_result                                              | content                 |
| other    | all else: images, files                                  |                         |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

BlockKind = Literal["text", "thinking", "call", "result", "other"]

_KINDS: Final[dict[Any, BlockKind]] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "text",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "reasoning": "thinking",
    "reasoning_text": "thinking",
    "summary_text": "thinking",
    "tool_use": "call",
    "tool_call": "call",
    "tool_result": "result",
}
# Other names of the same roles.
_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "function": "tool",
}
KNOWN_ROLES: Final = ("user", "assistant", "system", "developer", "tool", *_ROLES)
_WORDS: Final = {"text": ("text", "refusal"), "thinking": ("thinking", "text", "content")}


def to_common_role(role: str) -> str:
    """Return the role under the name that most models use for it."""
    return _ROLES.get(role, role)


def get_block_kind(block: Mapping[str, Any]) -> BlockKind:
    """Return the kind of a content block."""
    found = block.get("type", block.get("block_type"))
    return _KINDS.get(found, "other") if isinstance(found, str) else "other"


def get_block_text(block: Mapping[str, Any]) -> str | None:
    """Return the text of a text or thinking block; None for any other."""
    for field in _WORDS.get(get_block_kind(block), ()):
        if isinstance(words := block.get(field), str):
            return words
    return None


def get_content_text(content: Any) -> str | None:
    """Return the text of content, without thinking; None if there is none."""
    if isinstance(content, str):
        return content
    blocks = [block for block in content or () if isinstance(block, Mapping)]
    texts = [get_block_text(block) for block in blocks if get_block_kind(block) == "text"]
    found = [text for text in texts if text is not None]
    return "\n".join(found) if found else None


def has_text(content: Any) -> bool:
    """Return whether content has more than calls, results and thinking."""
    if isinstance(content, str):
        return True
    kinds = {get_block_kind(block) for block in content or () if isinstance(block, Mapping)}
    return bool(kinds & {"text", "other"})


def parse_arguments(arguments: Any) -> Any:
    """Parse the arguments of a tool call if they are the JSON text of an object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments
