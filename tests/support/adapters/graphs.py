"""Graphs of LangGraph, how they are run, and what must be equal of their threads."""

import operator
from typing import Annotated, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

THREAD = {"configurable": {"thread_id": "t"}}


LONG = "many words of a message " * 20


class Numbers(TypedDict, total=False):
    total: Annotated[int, operator.add]
    seen: Annotated[list[str], operator.add]
    facts: dict


def build_steps():
    builder = StateGraph(Numbers)
    builder.add_node("one", lambda state: {"total": 1, "seen": [LONG + "one"], "facts": {"a": 1}})
    builder.add_node("two", lambda state: {"total": 2, "seen": [LONG + "two"]})
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    return builder


def build_asking():
    def ask(state):
        return {"seen": [interrupt({"question": "go on?"})]}

    builder = build_steps()
    builder.add_node("ask", ask)
    builder.add_edge("two", "ask")
    return builder


def build_nested():
    builder = StateGraph(Numbers)
    builder.add_node("child", build_asking().compile(checkpointer=True))
    builder.add_node("after", lambda state: {"total": 10})
    builder.add_edge(START, "child")
    builder.add_edge("child", "after")
    return builder


def build_sending():
    builder = StateGraph(Numbers)
    builder.add_node("each", lambda state: {"total": state["n"], "seen": [f"n{state['n']}"]})
    builder.add_conditional_edges(START, lambda state: [Send("each", {"n": n}) for n in range(5)])
    return builder


def extend(state, writes):
    return [*state, *(item for write in writes for item in write)]


class DeltaState(TypedDict):
    items: Annotated[list, DeltaChannel(extend, list)]


def build_delta():
    builder = StateGraph(DeltaState)
    builder.add_node("add", lambda state: {"items": [len(state["items"])]})
    builder.add_edge(START, "add")
    return builder


def run_steps(graph):
    graph.invoke({"total": 0, "seen": [], "facts": {}}, THREAD)
    graph.invoke({"total": 5}, THREAD)


def run_asking(graph):
    graph.invoke({"total": 0, "seen": []}, THREAD)
    graph.invoke(Command(resume="yes"), THREAD)


def run_time_travel(graph):
    run_steps(graph)
    past = list(graph.get_state_history(THREAD))[3]
    graph.invoke(None, past.config)
    graph.update_state(past.config, {"total": 100}, as_node="one")
    graph.invoke(None, THREAD)


def run_delta(graph):
    for _ in range(4):
        graph.invoke({"items": ["x"]}, THREAD)


GRAPHS = {
    "steps": (build_steps, run_steps),
    "interrupts": (build_asking, run_asking),
    "time travel": (build_steps, run_time_travel),
    "subgraphs": (build_nested, run_asking),
    "sends": (build_sending, lambda graph: graph.invoke({"total": 0, "seen": []}, THREAD)),
    "delta channels": (build_delta, run_delta),
}


def describe(graph):
    """Every state of a thread, without what differs from run to run."""
    return [
        (
            state.values,
            state.next,
            {key: state.metadata[key] for key in ("source", "step")},
            sorted((task.name, str(task.error), len(task.interrupts)) for task in state.tasks),
        )
        for state in graph.get_state_history(THREAD)
    ]
