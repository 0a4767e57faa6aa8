"""Checkpoint savers of LangGraph, under a graph whose state is a list of messages.

A saver has no append: a compiled graph reads the newest checkpoint of a thread, adds to its
messages and puts a new checkpoint. So the kit drives the real thing, a graph of one node that
does nothing, and appends with `update_state`, the framework's own way to write to a thread. One
update is one checkpoint; `invoke` would put several, and no more of them hold the messages.

The graph reads and then writes, and nothing in LangGraph keeps two runs of one thread apart: that
is said in a note, for whoever reads that an append was lost in a race.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.targets.langchain import from_langchain, to_langchain
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

_NODE: Final = "chat"
_RACES: Final = (
    "a graph reads a thread and puts it back with more: LangGraph leaves it to the application "
    "that one thread is written by one run at a time"
)


@cache
def _builder() -> Any:
    graph = import_module("langgraph.graph")
    builder = graph.StateGraph(graph.MessagesState)
    builder.add_node(_NODE, lambda _: {})
    builder.add_edge(graph.START, _NODE)
    return builder


class SaverHandle(StoreHandle):
    """Threads of a graph that is compiled with the saver."""

    def __init__(self, store: Any, *, awaited: bool) -> None:
        super().__init__(store, awaited=awaited)
        self._graph = _builder().compile(checkpointer=store)

    async def append(self, session: str, messages: list[Message]) -> None:
        """Add messages to the state of a thread."""
        added = {"messages": list(map(_to_graph, messages))}
        await self.call_twin(self._graph, "update_state", _thread(session), added, _NODE)

    async def read(self, session: str) -> list[Any]:
        """The messages of the newest checkpoint."""
        state = await self.call_twin(self._graph, "get_state", _thread(session))
        return list(map(_from_graph, state.values.get("messages", ())))

    async def clear(self, session: str) -> None:
        """Delete all checkpoints of the thread."""
        await self.call_twin(self.store, "delete_thread", session)


def _thread(session: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": session}}


# Messages of a graph's state have an id of the graph's own, and one with the same id takes the
# place of the other. So an id that the kit gives goes along beside it.


def _to_graph(message: Message) -> Any:
    ours = to_langchain({name: value for name, value in message.items() if name != "id"})
    if "id" in message:
        ours.additional_kwargs["id"] = message["id"]
    return ours


def _from_graph(message: Any) -> Any:
    found = from_langchain(message)
    if isinstance(found, dict):
        found.pop("id", None)
        given = getattr(message, "additional_kwargs", {})
        return found | ({"id": given["id"]} if "id" in given else {})
    return found


VOCABULARY: Final = Vocabulary(
    package="langgraph",
    module="langgraph",
    described="a BaseCheckpointSaver of LangGraph",
    methods=("get_tuple", "put", "put_writes"),
    handle=SaverHandle,
    inherited="langgraph.checkpoint.base:BaseCheckpointSaver.aput",
    claims={
        "capabilities": ("clear", "fields"),
        # A graph calls its saver from a pool of threads.
        "thread_safe": True,
        "notes": (_RACES,),
    },
)
