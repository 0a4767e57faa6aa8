"""Session services for the tests of the target `adk`; they run where the framework is installed."""

from google.adk.events import Event
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService

KEPT = 2


class Forgetful(InMemorySessionService):
    async def get_session(self, **options):
        found = await super().get_session(**options)
        if found is not None:
            found.events = found.events[-KEPT:]
        return found


class Overtaken(SqliteSessionService):
    """Another writer is quicker, each time."""

    async def get_session(self, **options):
        found = await super().get_session(**options)
        if found is not None and "config" not in options:
            theirs = await super().get_session(**options)
            await self.append_event(theirs, Event(author="user"))
        return found


def forgetful(workspace):
    return Forgetful()


def overtaken(workspace):
    return Overtaken(str(workspace / "sessions.db"))
