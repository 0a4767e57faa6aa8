"""Databases for the tests of the target `agno`; they run where the framework is installed."""

from agno.db.in_memory import InMemoryDb

KEPT = 2


class Forgetful(InMemoryDb):
    def get_session(self, *arguments, **options):
        found = super().get_session(*arguments, **options)
        if found is not None:
            found.runs = (found.runs or [])[-KEPT:]
        return found


class WithoutRuns(InMemoryDb):
    """Has no runs of their own: they are saved with their session."""

    def upsert_run(self, *arguments, **options):
        raise NotImplementedError


class Awaited:
    def __init__(self):
        self._database = InMemoryDb()

    async def get_session(self, **options):
        return self._database.get_session(**options)

    async def upsert_session(self, **options):
        return self._database.upsert_session(**options)

    async def upsert_run(self, **options):
        return self._database.upsert_run(**options)

    async def delete_session(self, **options):
        return self._database.delete_session(**options)

    async def get_sessions(self, **options):
        return self._database.get_sessions(**options)


def forgetful(workspace):
    return Forgetful()


def without_runs(workspace):
    return WithoutRuns()


def awaited(workspace):
    return Awaited()
