"""A chat on LangGraph: stop it in the middle of a graph, start it again, and it goes on there."""

import sys

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import indelible
from indelible.adapters.langgraph import IndelibleSaver

THREAD = {"configurable": {"thread_id": "ana"}}


def get_said(state):
    """Return what the user said."""
    messages = state.get("messages", ())
    return [message.content for message in messages if isinstance(message, HumanMessage)]


def answer(state):
    """A stub of a model: it says how much it was told."""
    said = get_said(state)
    return {"messages": [AIMessage(f"{len(said)} things so far; the first was {said[0]!r}")]}


def build_graph(store):
    """Build the graph, with its states in a store."""
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=IndelibleSaver(store))


def resume(graph):
    """Complete a turn that was stopped. A turn that has ended has no tasks left.

    `next` would not do: it leaves out tasks that are done, even if their results were not applied
    yet, and the next input would discard those.
    """
    if graph.get_state(THREAD).tasks:
        graph.invoke(None, THREAD)


def main():
    with indelible.open(sys.argv[1]) as store:
        graph = build_graph(store)
        resume(graph)
        said = get_said(graph.get_state(THREAD).values)
        print(f"You have said {len(said)} things before.", flush=True)
        for line in sys.stdin:
            state = graph.invoke({"messages": [("user", line.strip())]}, THREAD)
            print(state["messages"][-1].content, flush=True)


if __name__ == "__main__":
    main()
