"""Classes as people write them, which the kit takes as they are; importable by its workers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from pathlib import Path

HERE = Path(__file__).parent


class Kept:
    """A right store on SQLite, which others here differ from in one thing."""

    def __init__(self, workspace):
        self.at(workspace / "kept.db")

    def at(self, path):
        self.path = path
        with closing(self.connect()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, session, j)")

    def connect(self):
        return sqlite3.connect(self.path, timeout=30)

    def run(self, statement, *values):
        with closing(self.connect()) as db, db:
            return db.execute(statement, values).fetchall()

    def keep(self, session, messages):
        rows = [(session, json.dumps([m.role, m.content])) for m in messages]
        with closing(self.connect()) as db, db:
            db.executemany("INSERT INTO said (session, j) VALUES (?, ?)", rows)

    def kept(self, session):
        rows = self.run("SELECT j FROM said WHERE session = ? ORDER BY id", session)
        return [dict(zip(("role", "content"), json.loads(j), strict=True)) for (j,) in rows]

    def forget(self, session):
        self.run("DELETE FROM said WHERE session = ?", session)

    def add_messages(self, session_id, messages):
        self.keep(session_id, messages)

    def get_history(self, session_id):
        return self.kept(session_id)


# How a class is told its place


class FolderByDefault(Kept):
    def __init__(self, directory: Path = HERE / "never"):
        self.at(directory / "x.db")


class KeywordOnly(Kept):
    def __init__(self, *, where, ttl=3600):
        self.at(where / "x.db")


class WorkspaceBesideOthers(Kept):
    def __init__(self, ttl=3600, workspace=None):
        self.at(workspace / "x.db")


class FileInMemory(Kept):
    def __init__(self, path: str = ":memory:"):
        self.at(path)


class FileThatMustBeGiven(Kept):
    def __init__(self, path):
        self.at(path)


class TextThatMustBeGiven(Kept):
    def __init__(self, base):
        self.at(base + "/x.db")


class FolderAndName(Kept):
    def __init__(self, data_dir="never", db_name="x.db"):
        self.at(f"{data_dir}/{db_name}")


class UrlByDefault(Kept):
    def __init__(self, url="sqlite:///never.db"):
        self.at(url.removeprefix("sqlite:///"))


class Unsynced(Kept):
    """Acknowledges before the disk has it."""

    def connect(self):
        db = super().connect()
        db.execute("PRAGMA synchronous = OFF")
        return db


class NewestTwenty(Kept):
    """Keeps a window on purpose."""

    def kept(self, session):
        return super().kept(session)[-20:]


class NewestTen(NewestTwenty):
    def kept(self, session):
        return super().kept(session)[-10:]


class NewestTurns:
    """Keeps a window of three turns, in memory."""

    def __init__(self):
        self._turns = {}

    def save_context(self, session_id, human_msg, ai_msg):
        self._turns.setdefault(session_id, []).append((human_msg, ai_msg))

    def load_memory(self, session_id):
        return self._turns.get(session_id, [])[-3:]


class OnAServer(Kept):
    def __init__(self, host, port, *, log_file, retries=3):
        raise AssertionError("nobody knows what to pass")


class PathBesideOthers(Kept):
    def __init__(self, path, name):
        self.at(path)


class PathAndSession(Kept):
    """Takes a session when it is made, and with each call."""

    def __init__(self, session_id, path):
        self.at(path)


class InMemory:
    """A right store in memory."""

    def __init__(self):
        self._sessions = {}
        self._lock = threading.Lock()

    def add_messages(self, session_id, messages):
        with self._lock:
            self._sessions.setdefault(session_id, []).extend(
                {"role": m.role, "content": m.content} for m in messages
            )

    def get_history(self, session_id):
        with self._lock:
            return [dict(m) for m in self._sessions.get(session_id, [])]


class Settings(InMemory):
    def __init__(self, ttl: int = 3600, embedder=None):
        super().__init__()


class Limit(InMemory):
    def __init__(self, max_messages=50):
        super().__init__()


# Factories


def make_kept(workspace):
    return Kept(workspace)


def make_in_memory(workspace):
    return InMemory()


def make_from_nothing():
    return InMemory()


class Notes(Kept):
    def __init__(self, file="class_stores_notes.db"):
        self.at(file)


class FixedPlace(Kept):
    def __init__(self):
        self.at("class_stores_notes.db")


def make_in_current_folder():
    return Notes()


def make_in_home():
    return Notes(Path.home() / "notes.db")


SHARED = {}


def make_shared(workspace):
    return SHARED.setdefault(str(workspace), InMemory())


async def make_awaited(workspace):
    return Decorated(workspace)


@contextlib.contextmanager
def make_opened(workspace):
    yield Kept(workspace)


def make_from_two(host, port):
    return InMemory()


def make_number(workspace):
    return 7


def make_nothing(workspace):
    raise ConnectionError("nobody is there")


SERVER = {}


class OnServer:
    def __init__(self, url):
        self._sessions = SERVER.setdefault(url, {})

    def add_messages(self, session_id, messages):
        self._sessions.setdefault(session_id, []).extend(messages)

    def get_history(self, session_id):
        return list(self._sessions.get(session_id, []))

    def list_sessions(self):
        return list(self._sessions)


class NamedServer(OnServer):
    """Must be told its server."""

    def __init__(self, server):
        super().__init__(server)


def make_on_server(url="redis://localhost:1"):
    return OnServer(url)


# Awaited in other ways


def logged(method):
    @functools.wraps(method)
    def inner(*args, **kwargs):
        return method(*args, **kwargs)

    return inner


def unnamed(method):
    def inner(*args, **kwargs):
        return method(*args, **kwargs)

    return inner


class Decorated(Kept):
    @unnamed
    async def add_messages(self, session_id, messages):
        self.keep(session_id, messages)

    @logged
    async def get_history(self, session_id):
        return self.kept(session_id)


class InThreads(Kept):
    def add_messages(self, session_id, messages):
        return asyncio.to_thread(self.keep, session_id, list(messages))

    def get_history(self, session_id):
        return asyncio.get_running_loop().run_in_executor(None, self.kept, session_id)


class HalfAwaited(Kept):
    async def get_history(self, session_id):
        return self.kept(session_id)


class AsyncGenerator(Kept):
    async def get_history(self, session_id):
        for message in self.kept(session_id):
            yield message


class MadeOnALoop(Kept):
    def __init__(self, workspace):
        asyncio.get_running_loop()
        super().__init__(workspace)


# One message at a time


class RoleAndContent(Kept):
    add_messages = None

    def add_message(self, session_id, role, content):
        self.keep(session_id, [Said(role, content)])

    def get_history(self, session_id):
        return [(m["role"], m["content"]) for m in self.kept(session_id)]


class ContentAndRole(RoleAndContent):
    def add_message(self, session_id, content, role="user"):
        self.keep(session_id, [Said(role, content)])


class SessionLast(RoleAndContent):
    def add_message(self, role, content, session_id):
        self.keep(session_id, [Said(role, content)])


class CustomerLast(RoleAndContent):
    def add_message(self, role, content, customer):
        self.keep(customer, [Said(role, content)])

    def get_history(self, customer):
        return self.kept(customer)


class SessionByKeyword(RoleAndContent):
    def add_message(self, *, session_id, role, content):
        self.keep(session_id, [Said(role, content)])

    def get_history(self, *, session_id):
        return self.kept(session_id)


class MessagesThenSession(Kept):
    def add_messages(self, messages, session_id):
        self.keep(session_id, messages)

    def get_history(self, limit=None, session_id="default"):
        return self.kept(session_id) if limit is None else self.kept(session_id)[-limit:]


class RolesOfLangChain(Kept):
    """Says human and ai, in objects without a role."""

    def get_history(self, session_id):
        names = {"user": "human", "assistant": "ai"}
        return [TypedMessage(names[m["role"]], m["content"]) for m in self.kept(session_id)]


@dataclass
class TypedMessage:
    type: str
    content: str


class HistoryInADict(Kept):
    def get_history(self, session_id):
        return {"session_id": session_id, "messages": self.kept(session_id)}


class HistoryObject(Kept):
    def get_history(self, session_id):
        return History(self.kept(session_id))


@dataclass
class History:
    messages: list


class DictByIndex(Kept):
    def get_history(self, session_id):
        return dict(enumerate(self.kept(session_id)))


class OpaqueMessages(Kept):
    """Keeps the text of a message under a name that the kit does not know."""

    def get_history(self, session_id):
        return [Opaque(m) for m in self.kept(session_id)]


class Opaque:
    def __init__(self, message):
        self.body = message["content"]


class PagesOfTwenty(Kept):
    def get_history(self, session_id, page=1, page_size=20):
        return self.kept(session_id)[(page - 1) * page_size : page * page_size]


class OldestFirst(Kept):
    """A limit that pages from the oldest message on, which may be meant."""

    def get_history(self, session_id, limit=None):
        return self.kept(session_id)[:limit]


class LastFromTheFront(Kept):
    def get_history(self, session_id, last_n=None):
        return self.kept(session_id)[:last_n]


class PopsTheOldest(Kept):
    def pop(self, session_id):
        first = "(SELECT MIN(id) FROM said WHERE session = ?)"
        rows = self.run(f"DELETE FROM said WHERE id = {first} RETURNING j", session_id)
        return [dict(zip(("role", "content"), json.loads(j), strict=True)) for (j,) in rows]


class UnknownSessionsRaise(Kept):
    def get_history(self, session_id):
        found = self.kept(session_id)
        if not found:
            raise KeyError(session_id)
        return found


class TextAndSender(RoleAndContent):
    def add_message(self, session_id, text, sender):
        self.keep(session_id, [Said(sender, text)])


class TextAlone(InMemory):
    add_messages = None

    def add_message(self, session_id, text):
        self._sessions.setdefault(session_id, []).append({"role": "user", "content": text})


class OneDict(Kept):
    add_messages = None

    def add_message(self, session_id, message, metadata=None):
        assert metadata is None
        self.keep(session_id, [Said(message["role"], message["content"])])


class OneObject(Kept):
    add_messages = None

    def add_message(self, session_id, message):
        self.keep(session_id, [message])


class Dicts(Kept):
    def add_messages(self, session_id, messages):
        self.keep(session_id, [Said(m["role"], m["content"]) for m in messages])


class OneAnnotated(Kept):
    add_messages = None

    def add_message(self, session_id: str, message: Said):
        self.keep(session_id, [replace(message)])


class Annotated(Kept):
    def add_messages(self, session_id: str, messages: list[Said]):
        self.keep(session_id, [replace(message) for message in messages])


class TakesItsOwnAlone(Kept):
    def add_messages(self, session_id, messages):
        self.keep(session_id, [replace(message) for message in messages])


# Text that is more than text


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


class PlainRole(Enum):
    USER = "user"
    ASSISTANT = "assistant"


class Words(str):
    __slots__ = ()

    def __str__(self):
        return "something else"


@dataclass
class Said:
    role: object
    content: str


class TenByDefault(Kept):
    def get_history(self, session_id, limit=10):
        return self.kept(session_id)[-limit:]


class RefusesLargeLimits(Kept):
    def get_history(self, session_id, limit=500):
        if limit > 1000:
            raise ValueError("limit is at most 1000")
        return self.kept(session_id)[-limit:]


class TwentyByDefault(Kept):
    def get_history(self, session_id, last_n=20):
        return self.kept(session_id)[-last_n:]


class ZeroMeansAll(Kept):
    def get_history(self, session_id, limit=0):
        return self.kept(session_id)[-limit:]


class EnumRoles(Kept):
    def get_history(self, session_id):
        return (Said(Role(m["role"]), Words(m["content"])) for m in self.kept(session_id))


class EnumRolesInDicts(Kept):
    def get_history(self, session_id):
        return [m | {"role": PlainRole(m["role"])} for m in self.kept(session_id)]


class NoneAtFirst(Kept):
    def get_history(self, session_id):
        return self.kept(session_id) or None


# Methods by known names


class ClearsAll(Kept):
    def clear(self):
        self.run("DELETE FROM said")


class ClearsIfSure(Kept):
    def clear(self, sure: bool = False):
        self.run("DELETE FROM said")


class ForksIntoNew(Kept):
    def fork(self, session_id):
        return session_id + "-2"


class PopsMany(Kept):
    def pop(self, session_id, n=1):
        taken = self.kept(session_id)[-n:]
        self.run(
            "DELETE FROM said WHERE id IN "
            "(SELECT id FROM said WHERE session = ? ORDER BY id DESC LIMIT ?)",
            session_id,
            n,
        )
        return taken


class PopRaises(PopsMany):
    def pop(self, session_id):
        return super().pop(session_id).pop()


class ClearRaises(Kept):
    def clear(self, session_id):
        if not self.kept(session_id):
            raise KeyError(session_id)
        self.forget(session_id)


class TrimRaises(Kept):
    def trim(self, session_id, keep_last):
        if not self.kept(session_id):
            raise KeyError(session_id)
        self.run(
            "DELETE FROM said WHERE session = ? AND id NOT IN "
            "(SELECT id FROM said WHERE session = ? ORDER BY id DESC LIMIT ?)",
            session_id,
            session_id,
            keep_last,
        )


class ListsDicts(Kept):
    def list_sessions(self):
        rows = self.run("SELECT session, count(*) FROM said GROUP BY session")
        return ({"session_id": session, "count": count} for session, count in rows)


class ListsRows(Kept):
    def list_sessions(self):
        return self.run("SELECT session, count(*) FROM said GROUP BY session")


class NamesAreNoMethods(Kept):
    @property
    def clear(self):
        raise AssertionError("nobody asked")

    pop = {}  # noqa: RUF012 -- an attribute by a known name
    fork = Said


class Snapshots(Kept):
    def save_snapshot(self, session_id):
        name = len(self.run("SELECT id FROM said"))
        self.run(
            "INSERT INTO said (session, j) SELECT ?, j FROM said WHERE session = ?",
            f"{session_id}/{name}",
            session_id,
        )
        return name

    def rollback_to_snapshot(self, session_id, name):
        self.forget(session_id)
        self.run(
            "INSERT INTO said (session, j) SELECT ?, j FROM said WHERE session = ?",
            session_id,
            f"{session_id}/{name}",
        )


class RollbackDropsLater(Snapshots):
    """Deletes the snapshots that are later than the one that it rolls back to."""

    def __init__(self, workspace):
        super().__init__(workspace)
        self.run("CREATE TABLE IF NOT EXISTS taken (session, name)")

    def save_snapshot(self, session_id):
        name = super().save_snapshot(session_id)
        self.run("INSERT INTO taken VALUES (?, ?)", session_id, name)
        return name

    def rollback_to_snapshot(self, session_id, name):
        if not self.run("SELECT 1 FROM taken WHERE (session, name) = (?, ?)", session_id, name):
            raise KeyError(name)
        super().rollback_to_snapshot(session_id, name)
        self.run("DELETE FROM taken WHERE session = ? AND name > ?", session_id, name)


class NamedSnapshots(Snapshots):
    def save_snapshot(self, session_id, name):
        self.run(
            "INSERT INTO said (session, j) SELECT ?, j FROM said WHERE session = ?",
            f"{session_id}/{name}",
            session_id,
        )


class LabelledSnapshots(Snapshots):
    def save_snapshot(self, session_id, label):
        return str(super().save_snapshot(session_id))


class NameFirst(NamedSnapshots):
    def save_snapshot(self, name, session_id):
        super().save_snapshot(session_id, name)

    def rollback_to_snapshot(self, name, session_id):
        super().rollback_to_snapshot(session_id, name)


class StateOfTheCaller(Kept):
    def save_snapshot(self, session_id, messages):
        self.snapshot = messages

    def rollback_to_snapshot(self, session_id, snapshot_id):
        return self.snapshot


class SnapshotFirst(Snapshots):
    def rollback_to_snapshot(self, snapshot_id, session_id):
        if self.kept(f"{session_id}/{snapshot_id}"):
            super().rollback_to_snapshot(session_id, snapshot_id)


class SnapshotsByReference(InMemory):
    """A snapshot is the list itself, which goes on growing."""

    def save_snapshot(self, session_id):
        return session_id

    def rollback_to_snapshot(self, session_id, snapshot_id): ...


class FailsOnce(InMemory):
    """Its first append fails, as it may on a busy machine."""

    failed = False

    def add_messages(self, session_id, messages):
        if not FailsOnce.failed:
            FailsOnce.failed = True
            raise TimeoutError("busy")
        super().add_messages(session_id, messages)


class OpensAtTheSecondTry(InMemory):
    """Cannot be created at first, as may happen on a busy machine."""

    failed = False

    def __init__(self):
        if not OpensAtTheSecondTry.failed:
            OpensAtTheSecondTry.failed = True
            raise RuntimeError("can't start new thread")
        super().__init__()


class ClearDoesNothing(Kept):
    def clear(self, session_id): ...

    def fork(self, session_id, target):
        raise NotImplementedError("some day")

    async def pop(self, session_id): ...


class ClearTakesMore(Kept):
    """Works when it is tried once, and takes with it what only begins alike."""

    def clear(self, session_id):
        self.run("DELETE FROM said WHERE session LIKE ?", session_id + "%")


# Turns


@dataclass
class Turn:
    human: str
    ai: str


class TurnTuples:
    def __init__(self):
        self._turns = {}

    def save_context(self, session_id, human_msg, ai_msg):
        self._turns.setdefault(session_id, []).append((human_msg, ai_msg))

    def load_memory(self, session_id):
        return self._turns.get(session_id, [])[:] or None


class TurnsSessionLast(TurnTuples):
    def save_context(self, human_msg, ai_msg, session_id):
        super().save_context(session_id, human_msg, ai_msg)

    def load_memory(self, session_id):
        turns = super().load_memory(session_id) or []
        return [{"user": human, "assistant": ai} for human, ai in turns]


class TurnsInPart(TurnTuples):
    def load_memory(self, session_id, k=5):
        return self._turns.get(session_id, [])[-k:]

    async def asave_context(self, session_id, human_msg, ai_msg):
        await asyncio.sleep(0)
        self.save_context(session_id, human_msg, ai_msg)

    async def aload_memory(self, session_id):
        await asyncio.sleep(0)
        return self._turns.get(session_id, [])[:]


class TurnsAwaitedAlone(Kept):
    add_messages = get_history = None

    async def asave_context(self, session_id, human_msg, ai_msg):
        await asyncio.sleep(0)
        self.keep(session_id, [Said("user", human_msg), Said("assistant", ai_msg)])

    async def aload_memory(self, session_id):
        await asyncio.sleep(0)
        said = [message["content"] for message in self.kept(session_id)]
        return list(zip(said[::2], said[1::2], strict=True))


class TurnObjects(TurnTuples):
    def load_memory(self, session_id):
        return [Turn(*turn) for turn in self._turns.get(session_id, [])]

    async def asave_context(self, session_id, human_msg, ai_msg):
        raise NotImplementedError("some day")


# What is no text


class WritesItsDescription(Kept):
    def keep(self, session, messages):
        super().keep(session, [Said(m.role, str(m.content)) for m in messages])


class WritesItsDump(Kept):
    def keep(self, session, messages):
        dumps = [m.model_dump_json() for m in messages]
        super().keep(session, [Said(d["role"], d["content"]) for d in map(json.loads, dumps)])


class DictsAndNoRead(Dicts):
    def get_history(self, session_id):
        raise RuntimeError("the index is broken")


class NeverAnswers(Kept):
    def add_messages(self, session_id, messages):
        threading.Event().wait()


class OneText:
    """It returns the conversation as one text, as prompts want it."""

    def __init__(self):
        self._kept = {}

    def save_context(self, session_id, human_msg, ai_msg):
        self._kept[session_id] = (
            f"{self._kept.get(session_id, '')}Human: {human_msg}\nAI: {ai_msg}\n"
        )

    def load_memory(self, session_id):
        return self._kept.get(session_id, "")
