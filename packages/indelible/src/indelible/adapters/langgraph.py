"""indelible under LangGraph: the checkpointer of a graph, and its store.

store = indelible.open("agent.db")
graph = builder.compile(
checkpointer=IndelibleSaver(store), store=IndelibleLangGraphStore(store)
)
"""

from indelible.adapters.langgraph_saver import IndelibleSaver, Keep, PruneReceipt
from indelible.adapters.langgraph_store import IndelibleLangGraphStore

__all__ = ["IndelibleLangGraphStore", "IndelibleSaver", "Keep", "PruneReceipt"]
