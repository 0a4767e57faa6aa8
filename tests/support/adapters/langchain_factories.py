"""What `memory-contract check langchain:…` is pointed at."""

from indelible.adapters.langchain import IndelibleChatMessageHistory
from tests.support.adapters import engines


def on_sqlite(session_id, workspace):
    return IndelibleChatMessageHistory(session_id, engines.sqlite(workspace))


def on_memory(session_id, workspace):
    return IndelibleChatMessageHistory(session_id, engines.memory(workspace))
