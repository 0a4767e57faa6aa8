"""A disk that fails where a test says so, below SQLite: every error is SQLite's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

LOG = "-wal"


class Disk(apsw.VFS):
    """The usual file system, but for failures; and a record of what was synced and what was not."""

    def __init__(self) -> None:
        self._usual = apsw.vfs_names()[0]
        super().__init__("failing disk", base=self._usual, makedefault=True)
        # What becomes of the next syncs and writes of the log: a code for each; then all is well.
        self.syncs: list[int] = []
        self.writes: list[int] = []
        # What was done to the log and the database, in order, and whether it worked.
        self.done: list[tuple[str, str, bool]] = []

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return _File(self, self._usual, name, flags)

    def close(self) -> None:
        self.unregister()
        apsw.set_default_vfs(self._usual)

    def attempt(self, what: str, name: str, codes: list[int]) -> None:
        """Note an attempt, and fail it if that is its lot."""
        log = name.endswith(LOG)
        code = codes.pop(0) if log and codes else apsw.SQLITE_OK
        self.done.append((what, "log" if log else "file", code == apsw.SQLITE_OK))
        if code != apsw.SQLITE_OK:
            raise apsw.exception_for(code)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, usual: str, name: Any, flags: list[int]) -> None:
        super().__init__(usual, name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        self._disk.attempt("sync", self._name, self._disk.syncs)
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
        self._disk.attempt("write", self._name, self._disk.writes)
        super().xWrite(data, offset)


@contextmanager
def failing_disk() -> Iterator[Disk]:
    """The file system of this process, for a while."""
    disk = Disk()
    try:
        yield disk
    finally:
        disk.close()
