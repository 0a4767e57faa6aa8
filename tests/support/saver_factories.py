"""A checkpointer on any server, as the kit's workers import it."""

import contextlib

import indelible
from indelible.adapters.langgraph import IndelibleSaver


@contextlib.contextmanager
def saver(workspace, server):
    with indelible.open(server, namespace=workspace.name, timeout_s=2.0) as store:
        yield IndelibleSaver(store)
