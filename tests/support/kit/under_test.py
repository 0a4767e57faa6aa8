"""Small stores that the kit's own tests point it at; importable, so that other processes can."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sqlite3
import sys
import threading
import time
import uuid

from memory_contract import Adapter
from memory_contract.targets import resolve


class ListUnderALock:
    """A right store in memory, blocking."""

    def __init__(self):
        self._sessions = {}
        self._lock = threading.Lock()

    def add_messages(self, session_id, messages):
        with self._lock:
            self._sessions.setdefault(session_id, []).extend(
                m.model_copy(deep=True) for m in messages
            )

    def get_history(self, session_id):
        with self._lock:
            return [m.model_copy(deep=True) for m in self._sessions.get(session_id, [])]


class AwaitedList:
    """A right store in memory, async, whose calls never give way."""

    def __init__(self):
        self._sessions = {}

    async def add_messages(self, session_id, messages):
        self._sessions.setdefault(session_id, []).extend(m.model_copy(deep=True) for m in messages)

    async def get_history(self, session_id):
        return [m.model_copy(deep=True) for m in self._sessions.get(session_id, [])]


class AwaitedListThatGivesWay(AwaitedList):
    """A right store in memory, async, whose calls let others run."""

    def __init__(self):
        super().__init__()
        self._lock = asyncio.Lock()

    async def add_messages(self, session_id, messages):
        async with self._lock:
            await asyncio.sleep(0)
            await super().add_messages(session_id, messages)

    async def get_history(self, session_id):
        async with self._lock:
            await asyncio.sleep(0)
            return await super().get_history(session_id)


class Turns:
    """A right store of turns on one SQLite file, as the standard library opens it."""

    def __init__(self, workspace):
        self._path = workspace / "turns.db"
        with self._connect() as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS turn (id INTEGER PRIMARY KEY, session, human, ai)"
            )

    def _connect(self):
        db = sqlite3.connect(self._path, timeout=5)
        # It claims no durability, and syncing takes most of the time of its tests.
        db.execute("PRAGMA synchronous = OFF")
        return db

    def save_context(self, session_id, human_msg, ai_msg):
        db = self._connect()
        try:
            with db:
                db.execute(
                    "INSERT INTO turn (session, human, ai) VALUES (?, ?, ?)",
                    (session_id, human_msg, ai_msg),
                )
        finally:
            db.close()

    def load_memory(self, session_id):
        db = self._connect()
        try:
            rows = db.execute(
                "SELECT human, ai FROM turn WHERE session = ? ORDER BY id", (session_id,)
            ).fetchall()
        finally:
            db.close()
        return [{"human": human, "ai": ai} for human, ai in rows]

    async def asave_context(self, session_id, human_msg, ai_msg):
        await asyncio.to_thread(self.save_context, session_id, human_msg, ai_msg)


class WritesItAllBack:
    """Reads the list, adds to it, writes it back: two writers, one survivor."""

    def __init__(self, workspace):
        self._folder = workspace

    def _file(self, session_id):
        return self._folder / f"{session_id.encode().hex()[:200]}.json"

    def save_context(self, session_id, human_msg, ai_msg):
        turns = self.load_memory(session_id)
        turns.append({"human": human_msg, "ai": ai_msg})
        fresh = self._file(session_id).with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        fresh.write_text(json.dumps(turns))
        fresh.replace(self._file(session_id))

    def load_memory(self, session_id):
        file = self._file(session_id)
        return json.loads(file.read_text()) if file.exists() else []


class AwaitedWriteBack:
    """The same sin between two awaits."""

    def __init__(self):
        self._sessions = {}

    async def add_messages(self, session_id, messages):
        known = list(self._sessions.get(session_id, []))
        await asyncio.sleep(0)
        self._sessions[session_id] = known + list(messages)

    async def get_history(self, session_id):
        return list(self._sessions.get(session_id, []))


class RaisesWhenCrowded(ListUnderALock):
    """Says no, without saying what that means, whenever somebody else is in."""

    def add_messages(self, session_id, messages):
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("somebody else is in")
        try:
            time.sleep(0.0005)
            self._sessions.setdefault(session_id, []).extend(messages)
        finally:
            self._lock.release()


class CannotBeOpened:
    def __init__(self, workspace):
        raise ConnectionError("nobody there")

    def save_context(self, session_id, human_msg, ai_msg): ...

    def load_memory(self, session_id): ...


class Hangs(ListUnderALock):
    """Never answers an append."""

    def add_messages(self, session_id, messages):
        threading.Event().wait()


class HangsOnceClosed(ListUnderALock):
    """Answers no append after a close."""

    def __init__(self):
        super().__init__()
        self.closed = False

    def add_messages(self, session_id, messages):
        if self.closed:
            threading.Event().wait()
        super().add_messages(session_id, messages)

    def close(self):
        self.closed = True


def open_list(workspace):
    return HandleOnAList()


class HandleOnAList:
    """The protocol itself, at its smallest."""

    def __init__(self):
        self._sessions = {}
        self._lock = threading.Lock()

    def append(self, session, messages):
        with self._lock:
            self._sessions.setdefault(session, []).extend(json.loads(json.dumps(messages)))

    def read(self, session):
        with self._lock:
            return json.loads(json.dumps(self._sessions.get(session, [])))


smallest = Adapter(
    open="tests.support.kit.under_test:open_list", reach="handle", thread_safe=True, name="smallest"
)


class HandsOutItsList:
    """Gives its own list away."""

    def __init__(self):
        self._sessions = {}

    async def add_messages(self, session_id, messages):
        self._sessions.setdefault(session_id, []).extend(messages)

    async def get_history(self, session_id):
        return self._sessions.get(session_id, [])


class KeepsTheCallersList(HandsOutItsList):
    """Takes the caller's list for its own."""

    async def add_messages(self, session_id, messages):
        known = self._sessions.setdefault(session_id, messages)
        if known is not messages:
            known.extend(messages)

    async def get_history(self, session_id):
        return list(self._sessions.get(session_id, []))


class HandsOutItsTurns:
    """The same with turns."""

    def __init__(self):
        self._sessions = {}

    def save_context(self, session_id, human_msg, ai_msg):
        self._sessions.setdefault(session_id, []).append({"human": human_msg, "ai": ai_msg})

    def load_memory(self, session_id):
        return list(self._sessions.get(session_id, []))


class Exits(ListUnderALock):
    """Wants to end the program."""

    def add_messages(self, session_id, messages):
        raise SystemExit(0)


class CancelsItself(AwaitedListThatGivesWay):
    """Lets an error out that means something else to whoever awaits it."""

    async def add_messages(self, session_id, messages):
        raise asyncio.CancelledError


# Made when the module is: a process that shares it with another was not made afresh.
IN_THIS_PROCESS = uuid.uuid4().hex


class NamesItsProcess(Turns):
    """Right, as long as each process imports it by itself."""

    def __init__(self, workspace):
        super().__init__(workspace)
        self._numbers = itertools.count()
        with self._connect() as db:
            db.execute("CREATE TABLE IF NOT EXISTS taken (id TEXT PRIMARY KEY)")

    def save_context(self, session_id, human_msg, ai_msg):
        mine = f"{IN_THIS_PROCESS}-{id(self)}-{next(self._numbers)}"
        db = self._connect()
        try:
            with db:
                db.execute("INSERT INTO taken VALUES (?)", (mine,))
        finally:
            db.close()
        super().save_context(session_id, human_msg, ai_msg)


in_this_process = Adapter(open="tests.support.kit.under_test:open_named", pairs=True, name="named")


def open_named(workspace):
    return resolve(NamesItsProcess).factory("blocking")(workspace)


class StuckElsewhere(Turns):
    """Does not come back from an append in any process but the first."""

    home = os.getpid()

    def save_context(self, session_id, human_msg, ai_msg):
        threading.Event().wait()


class EndsItsProcess(HandleOnAList):
    """Takes its process along with the second append."""

    def __init__(self, workspace):
        super().__init__()

    def append(self, session, messages):
        if self._sessions:
            os._exit(1)
        super().append(session, messages)


class EndsItsProcessAtOnce(HandleOnAList):
    """Takes its process along with the first append."""

    def __init__(self, workspace):
        super().__init__()

    def append(self, session, messages):
        os._exit(1)


class OpensInOneProcess(HandleOnAList):
    """Takes every process along that opens it, but the one that the environment names."""

    def __init__(self, workspace):
        if str(os.getpid()) != os.environ["ONE_PROCESS"]:
            os._exit(1)
        super().__init__()


class SeesModules:
    """A worker plugin that says what its process has imported."""

    def install(self):
        pass

    def imported(self):
        return sorted(sys.modules)
