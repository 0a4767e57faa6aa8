"""The chat that is measured: a graph of messages with one node, and texts of one size."""

from __future__ import annotations

import random
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

# 500 turns of two such texts are 0.6 MB.
TEXT_CHARS = 600
THREAD: Any = {"configurable": {"thread_id": "chat"}}


def _fold_messages(state: Any, writes: Any) -> Any:
    for write in writes:
        state = add_messages(state, write)
    return state


class DeltaState(TypedDict):
    """The state of a chat whose messages are stored as differences."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_fold_messages, list)]


class Texts:
    """Texts of random words, the same in every run."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = [
            "".join(self._random.choices(letters, k=self._random.randint(2, 9)))
            for _ in range(5000)
        ]

    def write(self) -> str:
        """Write the next text."""
        words = self._random.choices(self._words, k=TEXT_CHARS // 2)
        return " ".join(words)[:TEXT_CHARS]


def build_chat(saver: Any, texts: Texts, *, delta: bool) -> Any:
    """Build the graph on a saver, with `DeltaChannel` or without."""
    builder: Any = StateGraph(DeltaState if delta else MessagesState)
    builder.add_node("answer", lambda _state: {"messages": [AIMessage(texts.write())]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def take_turn(graph: Any, texts: Texts) -> None:
    """Say something, and get an answer."""
    graph.invoke({"messages": [("user", texts.write())]}, THREAD)


class CounterState(TypedDict):
    """A number of turns, and what was asked."""

    turns: int
    asked: int


def build_counter(saver: Any) -> Any:
    """Build a graph that counts its turns."""
    builder: Any = StateGraph(CounterState)
    builder.add_node("count", lambda state: {"turns": state.get("turns", 0) + 1})
    builder.add_edge(START, "count")
    return builder.compile(checkpointer=saver)
