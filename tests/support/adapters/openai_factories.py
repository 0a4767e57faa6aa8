"""What `memory-contract check openai-agents:…` is pointed at."""

from indelible.adapters.openai_agents import IndelibleSession
from tests.support.adapters import engines


def on_sqlite(session_id, workspace):
    return IndelibleSession(session_id, engines.sqlite(workspace))


def on_memory(session_id, workspace):
    return IndelibleSession(session_id, engines.memory(workspace))


def on_redis(session_id, workspace):
    return IndelibleSession(session_id, engines.redis(workspace))
