"""Two threads add messages to one thread of a LangGraph graph with SqliteSaver; some are gone.

Each update reads the newest checkpoint and writes a new one on top of it. Of two that read the
same one, both are stored, as two branches, and the state of the conversation shows one.

Run it:   .venv-frameworks/langgraph/bin/python docs/scoreboard/langgraph_sqlite_two_writers.py
Printed:  100 calls returned without an error; 37 (37, 39, 40, 42) of their messages are not in the
          state
"""

import tempfile
import threading
from pathlib import Path

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

EACH = 50
CONFIG = {"configurable": {"thread_id": "ana"}}


def listen(state):
    return {}


def graph_on(saver):
    graph = StateGraph(MessagesState)
    graph.add_node("listen", listen)
    graph.add_edge(START, "listen")
    return graph.compile(checkpointer=saver)


def write(graph, name, go, acknowledged):
    go.wait()
    for number in range(EACH):
        graph.invoke({"messages": [HumanMessage(f"{name}{number}")]}, CONFIG)
        acknowledged.add(f"{name}{number}")


if __name__ == "__main__":
    path = str(Path(tempfile.mkdtemp()) / "checkpoints.db")
    with SqliteSaver.from_conn_string(path) as saver:
        graph = graph_on(saver)
        go, acknowledged = threading.Barrier(2), set()
        threads = [threading.Thread(target=write, args=(graph, n, go, acknowledged)) for n in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = {message.content for message in graph.get_state(CONFIG).values["messages"]}
    print(f"{len(acknowledged)} calls returned without an error;")
    print(f"{len(acknowledged - kept)} of their messages are not in the state")
