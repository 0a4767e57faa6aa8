"""Stores on a server that has pgvector, with whatever stands at their seam."""

import itertools

import indelible
from indelible.backends.postgres import PostgresBackend, PostgresOptions
from indelible.core.settings import Settings
from tests.support.postgres.seam import put_between

_numbers = itertools.count(1)


class Watch:
    """Sees every statement, and may do something before one that compares vectors."""

    def __init__(self):
        self.steps = []
        self.compared = 0
        self.before = None

    def __call__(self, step, run):
        self.steps.append(step)
        if "<=>" in step.text:
            self.compared += 1
            if self.before is not None:
                first, self.before = self.before, None
                first()
        return run()


def opened(url, watch, settings=None):
    """A store with something at its seam."""
    options = PostgresOptions(
        target=url, shown="it", namespace="", durability=None, timeout_s=30, clock=None
    )
    backend = PostgresBackend(options)
    put_between(backend, watch)
    backend.prepare()
    return indelible.MemoryStore(backend, settings or Settings())


def new_session():
    """A name that no test has used."""
    return f"s{next(_numbers)}"
