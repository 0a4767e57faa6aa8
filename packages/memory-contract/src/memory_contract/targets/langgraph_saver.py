"""Checkpoint savers of LangGraph, under a graph whose state is a list of messages.

A saver has no append: a compiled graph reads the newest checkpoint of a thread, adds to its
messages and puts a new checkpoint. So the kit drives the real thing, a graph of one node that
does nothing, and appends with `update_state`, the framework's own way to write to a thread. One
update is one checkpoint; `invoke` would put several, and no more of them hold the messages.

Time travel is the framework's own as well: a checkpoint's id is a snapshot, and a rollback copies
it. What tasks wrote for a checkpoint, copying and pruning are asked of the saver itself.

The graph reads and then writes, and nothing in LangGraph keeps two runs of one thread apart: that
is said in a note, for whoever reads that an append was lost in a race.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from memory_contract.adapter import Message, NotFound
from memory_contract.targets.langchain import from_langchain, to_langchain
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

_NODE: Final = "chat"
_CHANNEL: Final = "note"
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
        """Remove all messages, which is another checkpoint."""
        removed = import_module("langchain_core.messages").RemoveMessage
        everything = import_module("langgraph.graph.message").REMOVE_ALL_MESSAGES
        added = {"messages": [removed(id=everything)]}
        await self.call_twin(self._graph, "update_state", _thread(session), added, _NODE)

    async def snapshot(self, session: str) -> str:
        """The id of the newest checkpoint."""
        state = await self.call_twin(self._graph, "get_state", _thread(session))
        if state.metadata is None:
            raise NotFound(f"the thread {session!r} has no checkpoint")
        checkpoint_id: str = state.config["configurable"]["checkpoint_id"]
        return checkpoint_id

    async def rollback(self, session: str, snapshot: str) -> None:
        """Travel back: a copy of an earlier checkpoint is the newest one."""
        past = _thread(session, checkpoint_id=snapshot, checkpoint_ns="")
        if (await self.call_twin(self._graph, "get_state", past)).metadata is None:
            raise NotFound(f"the thread {session!r} has no checkpoint {snapshot}")
        await self.call_twin(self._graph, "update_state", past, None, "__copy__")

    async def fork(self, session: str, target: str) -> None:
        """Copy the thread."""
        await self.call_twin(self.store, "copy_thread", session, target)

    async def forget(self, session: str) -> None:
        """Delete all checkpoints of the thread."""
        await self.call_twin(self.store, "delete_thread", session)

    async def prune(self, session: str) -> None:
        """Delete all checkpoints but the newest."""
        await self.call_twin(self.store, "prune", [session], strategy="keep_latest")

    async def put_writes(self, session: str, task: str, texts: list[str]) -> None:
        """Store writes for the newest checkpoint, to a channel that the graph does not have."""
        newest = await self.call_twin(self.store, "get_tuple", _thread(session))
        writes = [(_CHANNEL, text) for text in texts]
        await self.call_twin(self.store, "put_writes", newest.config, writes, task)

    async def pending(self, session: str) -> list[tuple[str, Any]]:
        """The writes for the newest checkpoint."""
        newest = await self.call_twin(self.store, "get_tuple", _thread(session))
        return [(task, value) for task, _, value in (newest and newest.pending_writes) or ()]


def _thread(session: str, **options: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": session, **options}}


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
        "capabilities": (
            *("clear", "fields", "snapshot", "rollback", "fork", "forget"),
            *("pending", "prune"),
        ),
        # A graph calls its saver from a pool of threads.
        "thread_safe": True,
        "notes": (_RACES,),
    },
)
