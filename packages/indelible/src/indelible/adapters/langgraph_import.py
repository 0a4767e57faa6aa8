"""Brings threads over from LangGraph's own SqliteSaver and PostgresSaver.

with open_source("checkpoints.db") as source:
    report = import_threads(IndelibleSaver(store), source)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from indelible.adapters.checkpoint_reader import build_session
from indelible.adapters.langchain_import import (
    Progress,
    SourceReport,
    open_postgres,
    open_sqlite,
    translate_file_errors,
)
from indelible.adapters.langgraph_saver import IndelibleSaver
from indelible.connect import format_target, refuse_ambiguous
from indelible.core.extras import need_extra
from indelible.errors import FormatError, UnavailableError, UnsupportedError

with need_extra("langgraph"):
    from langgraph.checkpoint.base import WRITES_IDX_MAP

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

_QUERY = (
    "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints"
    " ORDER BY thread_id, checkpoint_id, checkpoint_ns"
)
_PATHS_QUERY = (
    "SELECT DISTINCT task_id, task_path FROM {}"
    " WHERE thread_id = {} AND checkpoint_ns = {} AND checkpoint_id = {}"
)


class CheckpointPlace(NamedTuple):
    """Where a checkpoint of another saver is."""

    thread: str
    namespace: str
    id: str

    def to_config(self) -> RunnableConfig:
        """Return the config that names it."""
        return {
            "configurable": {
                "thread_id": self.thread,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": self.id,
            }
        }


class ImportSource(NamedTuple):
    """A saver to read from, and all its checkpoints: by thread, and the oldest first."""

    saver: Any
    places: Sequence[CheckpointPlace]
    # Returns the paths of tasks that wrote for a checkpoint: tuples of it leave them out.
    get_paths: Callable[[CheckpointPlace], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadImportReport(SourceReport):
    """The result of an import of threads."""

    threads: int
    checkpoints: int


def import_threads(
    target: IndelibleSaver,
    source: ImportSource,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ThreadImportReport:
    """Bring threads in, checkpoint by checkpoint, and read each again to compare it.

    A thread that has other checkpoints already is left as it is. An interrupted import is completed
    by importing again.
    """
    threads = checkpoints = equal = 0
    differ: list[str] = []
    for thread, group in groupby(source.places, key=lambda place: place.thread):
        places = list(group)
        there = {
            (each.config["configurable"]["checkpoint_ns"], each.checkpoint["id"])
            for each in target.list({"configurable": {"thread_id": thread}})
        }
        if not there <= {(place.namespace, place.id) for place in places}:
            differ.append(thread)
            continue
        count = 0
        for place in places:
            found = _read(source, place)
            if (place.namespace, place.id) not in there:
                count += 1
                if not dry_run:
                    _copy(target, source, place, found)
            if not dry_run or count == 0:
                _compare(target, place, found)
            if progress is not None:
                progress(thread, checkpoints + count)
        threads, checkpoints, equal = (
            threads + bool(count),
            checkpoints + count,
            equal + (not count),
        )
    return ThreadImportReport(
        threads=threads,
        checkpoints=checkpoints,
        equal=equal,
        differ=tuple(differ),
        dry_run=dry_run,
    )


def _read(source: ImportSource, place: CheckpointPlace) -> CheckpointTuple:
    found: CheckpointTuple | None = source.saver.get_tuple(place.to_config())
    if found is None:
        raise FormatError(
            f"checkpoint {place.id!r} of thread {place.thread!r} was deleted while it was read"
        )
    return found


def _copy(
    target: IndelibleSaver, source: ImportSource, place: CheckpointPlace, found: CheckpointTuple
) -> None:
    """Store a checkpoint with its writes."""
    parent = found.parent_config
    before: Any = {}
    configurable: dict[str, Any] = {"thread_id": place.thread, "checkpoint_ns": place.namespace}
    if parent is not None:
        configurable["checkpoint_id"] = parent["configurable"]["checkpoint_id"]
        older = source.saver.get_tuple(parent)
        before = {} if older is None else older.checkpoint["channel_versions"]
        # Read, so that the checkpoint refers to values that its parent has.
        target.get_tuple({"configurable": configurable})
    versions = found.checkpoint["channel_versions"]
    changed = {name: version for name, version in versions.items() if before.get(name) != version}
    stored = target.put({"configurable": configurable}, found.checkpoint, found.metadata, changed)
    paths = source.get_paths(place) if found.pending_writes else {}
    for task, group in groupby(found.pending_writes or (), key=lambda write: write[0]):
        writes = [(channel, value) for _, channel, value in group]
        # Special writes have numbers of their own; others are numbered from the first on.
        writes.sort(key=lambda write: write[0] in WRITES_IDX_MAP)
        target.put_writes(stored, writes, task, paths.get(task, ""))


def _compare(target: IndelibleSaver, place: CheckpointPlace, found: CheckpointTuple) -> None:
    """Raise unless a checkpoint reads back as it is in the source."""
    ours = target.get_tuple(place.to_config())
    if ours is None or _describe(ours) != _describe(found):
        raise FormatError(
            f"checkpoint {place.id!r} of thread {place.thread!r} does not read back as it is in the"
            " source; what came in before it stays",
            session=build_session(place.thread),
        )


def _describe(found: CheckpointTuple) -> tuple[Any, ...]:
    parent = found.parent_config
    return (
        found.checkpoint,
        found.metadata,
        None if parent is None else parent["configurable"]["checkpoint_id"],
        found.pending_writes or [],
    )


# Sources


@contextmanager
def open_source(source: str) -> Iterator[ImportSource]:
    """Open the file of a SqliteSaver, or the database of a PostgresSaver by its URL, to read."""
    refuse_ambiguous(source)
    if source.startswith(("postgresql://", "postgres://")):
        with _open_postgres(source) as opened:
            yield opened
        return
    name = source.removeprefix("sqlite:///")
    if "://" in name:
        raise UnsupportedError(
            f"cannot read {format_target(source)}: name the file of a SqliteSaver, or"
            " postgresql://…. Nothing was imported"
        )
    with translate_file_errors(path := Path(name)):
        if not path.is_file():
            raise UnavailableError(f"there is no file {name}: nothing was imported")
    with _open_sqlite(name) as opened:
        yield opened


@contextmanager
def _open_sqlite(path: str) -> Iterator[ImportSource]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 (not of our extra)
    except ImportError:
        raise _build_missing_error("langgraph-checkpoint-sqlite") from None
    with open_sqlite(path) as connection:
        places = [CheckpointPlace(*row) for row in connection.execute(_QUERY)]
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(writes)")]
        if "task_path" not in columns:
            # An older saver wrote it, and those of today read the column. The view is not stored.
            connection.execute("CREATE TEMP VIEW writes AS SELECT *, '' task_path FROM main.writes")
        saver = SqliteSaver(connection)
        # Its tables are there, and nothing may be written.
        saver.is_setup = True
        paths_query = _PATHS_QUERY.format("writes", *"???")
        yield ImportSource(
            saver, places, lambda place: dict(connection.execute(paths_query, place).fetchall())
        )


@contextmanager
def _open_postgres(url: str) -> Iterator[ImportSource]:
    try:
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 (not of our extra)
    except ImportError:
        raise _build_missing_error("langgraph-checkpoint-postgres") from None
    with open_postgres(url) as connection, PostgresSaver.from_conn_string(url) as saver:
        rows = connection.execute(_QUERY).fetchall()
        # Ordered here: a database may collate otherwise.
        places = sorted((CheckpointPlace(*row) for row in rows), key=_get_order)
        paths_query = _PATHS_QUERY.format("checkpoint_writes", *["%s"] * 3).encode()
        yield ImportSource(
            saver, places, lambda place: dict(connection.execute(paths_query, place).fetchall())
        )


def _get_order(place: CheckpointPlace) -> tuple[str, str, str]:
    return place.thread, place.id, place.namespace


def _build_missing_error(package: str) -> UnsupportedError:
    return UnsupportedError(f"this needs the package {package}: pip install {package}")
