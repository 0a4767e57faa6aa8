"""A memory for the tests of the target `mem0`; it runs where that is installed."""

from scoreboard.factories.mem0 import open_qdrant


def forgetful(workspace):
    memory = open_qdrant(workspace)
    memory.delete = lambda memory_id: None
    return memory
