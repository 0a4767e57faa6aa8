"""Factories of small stores of frameworks that are not installed here, by stand-ins of their types.

A module of its own: other processes import it, and need nothing large for that.
"""

from __future__ import annotations

import asyncio
import copy
import json

# Broken ones keep so many messages of a session and forget the rest.
KEPT = 3


def nothing_of_the_kind(workspace):
    return 7


no_factory = 7


class OneByOne:
    """No framework's: it takes a batch, message by message, and stops at what it cannot keep."""

    def __init__(self, workspace):
        self._kept = {}

    def append(self, session, messages):
        for message in messages:
            self._kept.setdefault(session, []).append(json.dumps(message))

    def read(self, session):
        return [json.loads(line) for line in self._kept.get(session, ())]


# The Agent Development Kit, by a stand-in of its types


class AlreadyExistsError(Exception):
    pass


class StaleSessionError(ValueError):
    pass


class SessionNotFoundError(ValueError):
    pass


class Session:
    def __init__(self, session_id):
        self.id = session_id
        self.events = []


class ListedSessions:
    def __init__(self, sessions):
        self.sessions = sessions


class Service:
    """A session service that refuses a session that was written to since."""

    refuses_stale = True

    def __init__(self):
        self._sessions = {}

    async def create_session(self, *, app_name, user_id, session_id):
        await asyncio.sleep(0)
        if session_id in self._sessions:
            raise AlreadyExistsError(session_id)
        self._sessions[session_id] = Session(session_id)
        return copy.deepcopy(self._sessions[session_id])

    async def get_session(self, *, app_name, user_id, session_id, config=None):
        found = copy.deepcopy(self._sessions.get(session_id))
        await asyncio.sleep(0)
        if found is not None and config is not None:
            recent = config.num_recent_events
            found.events = found.events[-recent:] if recent else []
        return found

    async def append_event(self, session, event):
        ours = self._sessions.get(session.id)
        if ours is None:
            raise SessionNotFoundError(session.id)
        if self.refuses_stale and len(session.events) != len(ours.events):
            raise StaleSessionError("the session was written to since")
        ours.events = [*session.events, event]

    async def delete_session(self, *, app_name, user_id, session_id):
        self._sessions.pop(session_id, None)

    async def list_sessions(self, *, app_name, user_id):
        return ListedSessions(list(self._sessions.values()))


class ForgetfulService(Service):
    refuses_stale = False


def service(workspace):
    return Service()


def forgetful_service(workspace):
    return ForgetfulService()


# Strands, by a stand-in of its types


class Repository:
    """Messages in files, each with its index for a name."""

    def __init__(self, workspace):
        self._folder = workspace

    def _place(self, session_id):
        return self._folder / session_id.encode("utf-8", "surrogatepass").hex()[:200]

    def read_session(self, session_id):
        return session_id if self._place(session_id).exists() else None

    def create_session(self, session):
        self._place(session.session_id).mkdir()

    def read_agent(self, session_id, agent_id):
        return agent_id if (self._place(session_id) / agent_id).exists() else None

    def create_agent(self, session_id, agent):
        (self._place(session_id) / agent.agent_id).mkdir(exist_ok=True)

    def create_message(self, session_id, agent_id, message):
        path = self._place(session_id) / agent_id / f"{message.message_id}.json"
        path.write_text(json.dumps(message.message))

    def list_messages(self, session_id, agent_id):
        from strands.types.session import SessionMessage

        paths = (self._place(session_id) / agent_id).glob("*.json")
        return [
            SessionMessage(json.loads(path.read_text()), int(path.stem))
            for path in sorted(paths, key=lambda path: int(path.stem))
        ]


class ForgetfulRepository(Repository):
    def list_messages(self, session_id, agent_id):
        return super().list_messages(session_id, agent_id)[-KEPT:]


def repository(workspace):
    return Repository(workspace)


def forgetful_repository(workspace):
    return ForgetfulRepository(workspace)


# Agno, by a stand-in of its types


class Database:
    """Sessions and their runs, as databases with a table of runs keep them."""

    def __init__(self):
        self._sessions = {}
        self._runs = {}

    def get_session(self, session_id, session_type):
        found = copy.deepcopy(self._sessions.get(session_id))
        if found is not None:
            found.runs = [copy.deepcopy(run) for _, run in self._runs.get(session_id, ())]
        return found

    def upsert_session(self, session):
        self._sessions[session.session_id] = copy.deepcopy(session)

    def upsert_run(self, run, session_id, run_index):
        self._runs.setdefault(session_id, []).append((run_index, copy.deepcopy(run)))
        self._runs[session_id].sort(key=lambda each: each[0])

    def delete_session(self, session_id):
        self._sessions.pop(session_id, None)
        self._runs.pop(session_id, None)

    def get_sessions(self, session_type):
        return list(self._sessions.values())


class OlderDatabase(Database):
    """Runs stand in their session."""

    def get_session(self, session_id, session_type):
        return copy.deepcopy(self._sessions.get(session_id))

    def upsert_run(self, run, session_id, run_index):
        raise NotImplementedError


class ForgetfulDatabase(Database):
    def upsert_run(self, run, session_id, run_index):
        super().upsert_run(run, session_id, run_index)
        del self._runs[session_id][:-KEPT]


class AwaitedDatabase:
    """The same, awaited."""

    def __init__(self):
        self._database = Database()

    async def get_session(self, session_id, session_type):
        return self._database.get_session(session_id, session_type)

    async def upsert_session(self, session):
        self._database.upsert_session(session)

    async def upsert_run(self, run, session_id, run_index):
        self._database.upsert_run(run, session_id, run_index)

    async def delete_session(self, session_id):
        self._database.delete_session(session_id)

    async def get_sessions(self, session_type):
        return self._database.get_sessions(session_type)


def database(workspace):
    return Database()


class ClosedDatabase(Database):
    closed = 0

    def close(self):
        self.closed += 1


def database_to_close(workspace):
    return ClosedDatabase()


def older_database(workspace):
    return OlderDatabase()


def forgetful_database(workspace):
    return ForgetfulDatabase()


def awaited_database(workspace):
    return AwaitedDatabase()
