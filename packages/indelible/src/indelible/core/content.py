"""What content and tool calls say, however models and frameworks spell them: pure.

A block has a `type`, or a `block_type` in LlamaIndex:

| kind     | types                                                    | where its words are     |
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
_WORDS: Final = {"text": ("text", "refusal"), "thinking": ("thinking", "text", "content")}


def get_block_kind(block: Mapping[str, Any]) -> BlockKind:
    """What a content block is."""
    found = block.get("type", block.get("block_type"))
    return _KINDS.get(found, "other") if isinstance(found, str) else "other"


def get_block_text(block: Mapping[str, Any]) -> str | None:
    """The text of a block of text or of thinking; None of any other."""
    for field in _WORDS.get(get_block_kind(block), ()):
        if isinstance(words := block.get(field), str):
            return words
    return None


def get_content_text(content: Any) -> str | None:
    """The text of a message's content, without thinking; None if it holds no text."""
    if isinstance(content, str):
        return content
    blocks = [block for block in content or () if isinstance(block, Mapping)]
    texts = [get_block_text(block) for block in blocks if get_block_kind(block) == "text"]
    found = [text for text in texts if text is not None]
    return "\n".join(found) if found else None


def has_text(content: Any) -> bool:
    """Whether content says something to the other side: not only calls, results or thinking."""
    if isinstance(content, str):
        return True
    kinds = {get_block_kind(block) for block in content or () if isinstance(block, Mapping)}
    return bool(kinds & {"text", "other"})


def parse_arguments(arguments: Any) -> Any:
    """The arguments of a tool call as an object, where they are the JSON text of one."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments
