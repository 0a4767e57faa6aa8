"""Imports LangChain's own chat histories. LangChain itself is not needed.

Reads what `FileChatMessageHistory`, `SQLChatMessageHistory` and `RedisChatMessageHistory` wrote,
and changes nothing there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from indelible import ChatMessage, FormatError, MemoryStore, UnavailableError, UnsupportedError
from indelible.adapters.langchain_forms import from_dict
from indelible.connect import format_target, refuse_ambiguous
from indelible.core.extras import format_install_command

if TYPE_CHECKING:
    import psycopg

# LangChain's own defaults.
TABLE: Final = "message_store"
KEY_PREFIX: Final = "message_store:"
# Messages of one append: far below the limits of a batch.
_BATCH: Final = 200
_SQLITE: Final = b"SQLite format 3\x00"

Progress = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceReport:
    """The result of an import: `equal` counts and `differ` lists what existed already."""

    equal: int
    differ: tuple[str, ...]
    dry_run: bool

    @property
    def ok(self) -> bool:
        """Whether all that was read is in the store."""
        return not self.differ


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport(SourceReport):
    """The result of an import of histories."""

    sessions: int
    messages: int


def import_histories(
    store: MemoryStore,
    found: Iterable[tuple[str, list[Any]]],
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Bring histories in, each under its session id: `import_histories(store, histories("chats"))`.

    No session is overwritten. An interrupted import is completed by importing again.
    """
    sessions = messages = equal = 0
    differ: list[str] = []
    for session_id, dicts in found:
        wanted = _parse_messages(session_id, dicts)
        there = store.get_history(session_id)
        rest = wanted[len(there) :]
        if there != wanted[: len(there)]:
            differ.append(session_id)
        elif not rest:
            equal += 1
        else:
            sessions, messages = sessions + 1, messages + len(rest)
            if not dry_run:
                version = there.version
                for start in range(0, len(rest), _BATCH):
                    batch = rest[start : start + _BATCH]
                    version = store.add_messages(session_id, batch, expected=version).version
        if progress is not None:
            progress(session_id, messages)
    return ImportReport(
        sessions=sessions, messages=messages, equal=equal, differ=tuple(differ), dry_run=dry_run
    )


def _parse_messages(session_id: str, dicts: list[Any]) -> list[ChatMessage]:
    found = []
    for number, each in enumerate(dicts):
        try:
            found.append(from_dict(json.loads(each) if isinstance(each, str | bytes) else each))
        except (ValueError, AttributeError, RecursionError, FormatError) as error:
            raise FormatError(
                f"message {number} of session {session_id!r} is not one of LangChain: {error}."
                " Nothing of this session was imported",
                session=session_id,
            ) from error
    return found


def histories(
    source: str, *, table: str = TABLE, key_prefix: str = KEY_PREFIX
) -> Iterator[tuple[str, list[Any]]]:
    """Iterate over the session ids and messages of a source.

    The source is a JSON file or a folder of them (the session is the file's name without `.json`),
    a SQLite file, or the URL of a SQLite, PostgreSQL or Redis database.
    """
    scheme, separator, rest = source.partition("://")
    # SQLAlchemy names a driver behind a plus.
    scheme = scheme.partition("+")[0]
    refuse_ambiguous(f"{scheme}://{rest}" if separator else source)
    if scheme in ("postgresql", "postgres") and separator:
        return _read_postgres(f"postgresql://{rest}", table)
    if scheme in ("redis", "rediss", "unix") and separator:
        return _read_redis(source, key_prefix)
    if separator and scheme != "sqlite":
        raise UnsupportedError(
            f"cannot read {format_target(source)}: name a JSON file, a folder of them, sqlite:///name.db,"
            " postgresql://… or redis://…. Nothing was imported"
        )
    path = Path(rest.removeprefix("/") if separator else source)
    with translate_file_errors(path):
        if not path.exists():
            raise UnavailableError(f"there is no file {path}: nothing was imported")
        return _read_sqlite(path, table) if separator or _is_sqlite(path) else _read_files(path)


def _is_sqlite(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


@contextmanager
def translate_file_errors(path: Path) -> Iterator[None]:
    """Report errors of a file as errors of indelible."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from error


def _read_files(path: Path) -> Iterator[tuple[str, list[Any]]]:
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            with translate_file_errors(file):
                found = json.loads(file.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{file} is not JSON: {error}", file=str(file)) from error
        if not isinstance(found, list):
            raise FormatError(f"{file} holds no list of messages", file=str(file))
        yield file.stem, found


def _read_sqlite(path: Path, table: str) -> Iterator[tuple[str, list[Any]]]:
    with open_sqlite(str(path)) as database:
        yield from _group_by_session(database.execute(_build_query(table)))


@contextmanager
def open_sqlite(path: str) -> Iterator[sqlite3.Connection]:
    """Open a file to read, for any thread."""
    uri = f"file:{quote(path)}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as database:
            yield database
    except sqlite3.Error as error:
        raise UnavailableError(f"{path} cannot be read: {error}") from error


def _read_postgres(url: str, table: str) -> Iterator[tuple[str, list[Any]]]:
    with open_postgres(url) as connection, connection.cursor("histories") as cursor:
        yield from _group_by_session(cursor.execute(_build_query(table).encode()))


@contextmanager
def open_postgres(url: str) -> Iterator[psycopg.Connection]:
    """Connect to a database to read."""
    try:
        import psycopg  # noqa: PLC0415 (an extra)
    except ImportError:
        raise UnsupportedError(
            f"{format_target(url)} needs the package psycopg: {format_install_command('postgres')}"
        ) from None
    try:
        try:
            connection = psycopg.connect(url)
        except (psycopg.ProgrammingError, UnicodeDecodeError):
            # libpq quotes the part of a URL that it cannot read, which may be the password.
            raise UnavailableError(
                f"{format_target(url)} is not a URL of a PostgreSQL server"
            ) from None
        with connection:
            yield connection
    except psycopg.Error as error:
        raise UnavailableError(f"{format_target(url)} cannot be read: {error}") from error


def _build_query(table: str) -> str:
    quoted = table.replace('"', '""')
    return f'SELECT session_id, message FROM "{quoted}" ORDER BY session_id, id'  # noqa: S608


def _group_by_session(rows: Iterable[Any]) -> Iterator[tuple[str, list[Any]]]:
    for session_id, group in groupby(rows, key=lambda row: row[0]):
        yield str(session_id), [message for _, message in group]


def _read_redis(url: str, prefix: str) -> Iterator[tuple[str, list[Any]]]:
    try:
        import redis  # noqa: PLC0415 (an extra)
    except ImportError:
        raise UnsupportedError(
            f"{format_target(url)} needs the package redis: {format_install_command('redis')}"
        ) from None
    pattern = "".join(f"[{each}]" if each in "*?[" else each for each in prefix) + "*"
    try:
        client = redis.Redis.from_url(url)
        # A URL may ask for text, but keys and messages need not be UTF-8.
        client.connection_pool.connection_kwargs["decode_responses"] = False
    except ValueError:
        # Its words may quote the URL, and with it the password.
        raise UnavailableError(f"{format_target(url)} is not a URL of a Redis server") from None
    try:
        with client:
            for key in client.scan_iter(pattern, _type="list"):
                # The newest is first.
                messages: Any = client.lrange(key, 0, -1)
                yield _decode_key(key).removeprefix(prefix), messages[::-1]
    except UnicodeError:
        # A host name that cannot be encoded.
        raise UnavailableError(f"{format_target(url)} is not a URL of a Redis server") from None
    except redis.RedisError as error:
        raise UnavailableError(f"{format_target(url)} cannot be read: {error}") from error


def _decode_key(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise FormatError(f"the key {key!r} is not UTF-8, so it names no session") from None
