"""Right stores for the gates to pass, and to break in one place each.

`Sound` keeps lists in memory, `Filed` keeps one JSON file for all callers on a workspace.
"""

import contextlib
import copy
import hashlib
import json
import sqlite3
import threading
from dataclasses import dataclass

from memory_contract import Adapter, Conflict, NotFound, Refused

EVERYTHING = frozenset(
    {"pop", "trim", "clear", "ttl", "snapshot", "rollback", "fork", "undo"}
    | {"keys", "expected", "list", "limit", "fields"}
)


class Sound:
    """Lists under a lock, with everything that a list can offer."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.lock = threading.RLock()
        self.shown = {}
        self.snapshots = {}
        self.journal = {}
        self.keys = {}
        self.moves = {}

    def copied(self, value):
        return copy.deepcopy(value)

    def append(self, session, messages, *, key=None, expected=None, ttl_s=None):
        with self.lock:
            if key is not None:
                known = self.keys.get((session, key))
                if known is not None:
                    if known != messages:
                        raise Conflict("the key stands for something else")
                    if all(one in self.shown.get(session, []) for one in messages):
                        return
                self.keys[session, key] = copy.deepcopy(messages)
            if expected is not None and expected != self.version(session):
                raise Conflict("somebody wrote since")
            if messages:
                self.add(session, self.copied(messages))

    def add(self, session, messages):
        self.moves[session] = self.moves.get(session, 0) + 1
        self.shown.setdefault(session, []).extend(messages)
        for line in self.journal.get(session, []):
            line.extend(messages)

    def read(self, session, *, limit=None):
        with self.lock:
            found = self.copied(self.shown.get(session, []))
        return found if limit is None else found[max(0, len(found) - limit) :]

    def change(self, session, shown):
        self.moves[session] = self.moves.get(session, 0) + 1
        self.journal.setdefault(session, []).append(self.shown.get(session, []))
        self.shown[session] = shown

    def pop(self, session):
        with self.lock:
            found = self.shown.get(session, [])
            if not found:
                return None
            self.change(session, found[:-1])
            return copy.deepcopy(found[-1])

    def trim(self, session, keep):
        with self.lock:
            found = self.shown.get(session, [])
            self.change(session, found[max(0, len(found) - keep) :])

    def clear(self, session):
        with self.lock:
            self.change(session, [])

    def undo(self, session):
        with self.lock:
            if not self.journal.get(session):
                raise Refused("nothing to undo")
            self.shown[session] = self.journal[session].pop()

    def snapshot(self, session):
        with self.lock:
            name = f"{session}/{len(self.snapshots)}"
            self.snapshots[name] = copy.deepcopy(self.shown.get(session, []))
            return name

    def rollback(self, session, snapshot):
        with self.lock:
            if snapshot not in self.snapshots:
                raise NotFound("no such snapshot")
            self.change(session, copy.deepcopy(self.snapshots[snapshot]))

    def fork(self, session, target):
        with self.lock:
            self.shown[target] = copy.deepcopy(self.shown[session])

    def version(self, session):
        with self.lock:
            return self.moves.get(session, 0)

    def sessions(self):
        with self.lock:
            return list(self.shown)


def awaited(store):
    """The same store with every method a coroutine function."""

    def turned(name):
        async def method(self, *arguments, **options):
            return getattr(self.store, name)(*arguments, **options)

        return method

    def __init__(self, workspace):  # noqa: N807
        self.store = store(workspace)

    names = [name for name in dir(store) if not name.startswith("_")]
    methods = {name: turned(name) for name in names if callable(getattr(store, name))}
    return type(f"Async{store.__name__}", (), {"__init__": __init__, **methods})


def of_memory(store, *, without=(), **options):
    """The adapter of a store like `Sound`, in both flavours."""
    options.setdefault("capabilities", EVERYTHING - set(without))
    return Adapter(
        open=store, open_async=awaited(store), reach="handle", name=store.__name__, **options
    )


class Filed:
    """One JSON file in the workspace, read and written anew by each call: one caller at a time."""

    def __init__(self, workspace):
        self.path = workspace / "store.json"

    def load(self):
        return json.loads(self.path.read_text("utf-8")) if self.path.exists() else {}

    def save(self, sessions):
        self.path.write_text(json.dumps(sessions, ensure_ascii=False), "utf-8")

    def append(self, session, messages):
        sessions = self.load()
        sessions.setdefault(session, []).extend(messages)
        json.dumps(sessions, ensure_ascii=False).encode()
        self.save(sessions)

    def read(self, session):
        return self.load().get(session, [])

    def clear(self, session):
        self.save({**self.load(), session: []})

    def sessions(self):
        return list(self.load())


class FiledBesideADatabase(Filed):
    """The same, with the smallest database that SQLite makes beside the file."""

    def __init__(self, workspace):
        super().__init__(workspace)
        with contextlib.closing(sqlite3.connect(workspace / "lock.db")) as database:
            database.execute("PRAGMA page_size = 512")
            database.execute("PRAGMA user_version = 1")


def of_files(store, *, capabilities=("clear", "list"), **options):
    """The adapter of a store like `Filed`."""
    return Adapter(open=store, capabilities=capabilities, name=store.__name__, **options)


class ListUnderLock:
    """A plain list under a lock, as somebody would write it."""

    def __init__(self):
        self._lock = threading.Lock()
        self._messages = {}

    def add_messages(self, session_id, messages):
        with self._lock:
            self._messages.setdefault(session_id, []).extend(messages)

    def get_history(self, session_id):
        with self._lock:
            return list(self._messages.get(session_id, []))

    def clear(self, session_id):
        with self._lock:
            self._messages.pop(session_id, None)


class AsyncListUnderLock:
    """The same, awaited."""

    def __init__(self):
        self._store = ListUnderLock()

    async def add_messages(self, session_id, messages):
        self._store.add_messages(session_id, messages)

    async def get_history(self, session_id):
        return self._store.get_history(session_id)

    async def clear(self, session_id):
        self._store.clear(session_id)


class Turns:
    """Turns in an SQLite file, in the order of their numbers."""

    def __init__(self, workspace):
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            workspace / "turns.db", timeout=30, isolation_level=None, check_same_thread=False
        )
        self._run("PRAGMA journal_mode=WAL")
        self._run(
            "CREATE TABLE IF NOT EXISTS turn"
            " (number INTEGER PRIMARY KEY, session TEXT, human TEXT, ai TEXT)"
        )

    def _run(self, statement, *values):
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def close(self):
        self._connection.close()

    def save_context(self, session_id, human_msg, ai_msg):
        self._run(
            "INSERT INTO turn (session, human, ai) VALUES (?, ?, ?)", session_id, human_msg, ai_msg
        )

    def load_memory(self, session_id):
        found = self._run(
            "SELECT human, ai FROM turn WHERE session = ? ORDER BY number", session_id
        )
        return [{"human": human, "ai": ai} for human, ai in found]

    async def asave_context(self, session_id, human_msg, ai_msg):
        self.save_context(session_id, human_msg, ai_msg)

    def clear(self, session_id):
        self._run("DELETE FROM turn WHERE session = ?", session_id)

    def list_sessions(self):
        return [session for (session,) in self._run("SELECT DISTINCT session FROM turn")]


class Dumped:
    """A list of plain dicts with every field that a message has, copied in and out."""

    def __init__(self):
        self._messages = {}

    def add_messages(self, session_id, messages):
        dumped = [copy.deepcopy(vars(message)) for message in messages]
        self._messages.setdefault(session_id, []).extend(dumped)

    def get_history(self, session_id):
        return copy.deepcopy(self._messages.get(session_id, []))


@dataclass
class Said:
    """A message that can be changed."""

    role: str
    content: str


class CopiesOfObjects(Dumped):
    """Hands out copies of objects that can be changed."""

    def add_messages(self, session_id, messages):
        kept = [Said(message.role, message.content) for message in messages]
        self._messages.setdefault(session_id, []).extend(kept)


class OwnObjects(CopiesOfObjects):
    """Hands out the very objects that it keeps."""

    def get_history(self, session_id):
        return list(self._messages.get(session_id, []))


class OneByOne(CopiesOfObjects):
    """Stores a batch message by message, until one cannot be stored."""

    def add_messages(self, session_id, messages):
        for message in messages:
            json.dumps(message.content)
            super().add_messages(session_id, [message])


class Describing(CopiesOfObjects):
    """Stores what it cannot store as a description of it."""

    def add_messages(self, session_id, messages):
        described = [Said(message.role, str(message.content)) for message in messages]
        super().add_messages(session_id, described)


class FileForEachSession:
    """A file for each session, named as it comes."""

    def __init__(self, workspace):
        self._workspace = workspace

    def _path(self, session_id):
        return self._workspace / f"{session_id}.json"

    def add_messages(self, session_id, messages):
        kept = self.get_history(session_id)
        kept += [{"role": message.role, "content": message.content} for message in messages]
        text = json.dumps(kept)
        self._path(session_id).write_text(text, "utf-8")

    def get_history(self, session_id):
        path = self._path(session_id)
        return json.loads(path.read_text("utf-8")) if path.exists() else []


class BesideItsWorkspace(FileForEachSession):
    """Keeps all its files right beside the workspace, called after it: nothing escapes."""

    def _path(self, session_id):
        digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self._workspace.with_name(f"{self._workspace.name}.{digest}")
