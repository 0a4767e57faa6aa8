"""Interposes a disk between SQLite and its files.

Every SQLite has a table of functions for its file system (a "VFS"). Two of them are replaced: the
one that opens files, which gives each file our table of methods, and the one that deletes. The
store need not know: every connection of this process goes through them. The table of the standard
library's SQLite is found by a symbol, that of apsw, which exports none, by asking a connection.

The functions stay in place until the process is killed; there is no uninstall.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

from memory_contract.faults.vfs.disk import FULL, OK, Disk

_CREATE: Final = 0x4
# Main journals, super-journals and write-ahead logs: their folder is synced with them.
_JOURNALS: Final = 0x800 | 0x4000 | 0x80000
_FCNTL_VFS_POINTER: Final = 27
# Without the functions for memory maps, whose reads could not be seen.
_VERSION: Final = 2

_Pointer = ctypes.c_void_p
_Long = ctypes.c_int64
_OPEN: Final = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Pointer, _Pointer, ctypes.c_int, _Pointer)
_DELETE: Final = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, ctypes.c_char_p, ctypes.c_int)
_CLOSE: Final = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer)
_MOVE: Final = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Pointer, ctypes.c_int, _Long)
_TRUNCATE: Final = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Long)
_SYNC: Final = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, ctypes.c_int)


class _FileSystem(ctypes.Structure):
    """The head of `sqlite3_vfs`."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("path_max", ctypes.c_int),
        ("next", _Pointer),
        ("name", ctypes.c_char_p),
        ("data", _Pointer),
        ("open", _Pointer),
        ("delete", _Pointer),
    )


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`: what can be done with an open file."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("close", _Pointer),
        ("read", _Pointer),
        ("write", _Pointer),
        ("truncate", _Pointer),
        ("sync", _Pointer),
        ("others", _Pointer * 13),
    )


class _File(ctypes.Structure):
    """The head of `sqlite3_file`; the VFS that opened it knows the rest."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class SymbolsMissing(Exception):  # noqa: N818 -- names what is the matter
    """The symbols of the standard library's SQLite cannot be reached."""


def find_standard() -> int:
    """Return the address of the file system of the standard library's SQLite."""
    import _sqlite3  # noqa: PLC0415 -- not every Python has it

    try:
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        find = library.sqlite3_vfs_find
    except (OSError, AttributeError) as error:
        raise SymbolsMissing("its symbols are not reachable") from error
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    found: int | None = find(None)
    if not found:
        raise SymbolsMissing("it has no file system")
    return found


def find_apsw() -> int:
    """Return the address of the file system of apsw's SQLite."""
    import apsw  # noqa: PLC0415 -- nothing else of the kit needs it

    found = _Pointer()
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        connection.file_control("main", _FCNTL_VFS_POINTER, ctypes.addressof(found))
    assert found.value
    return found.value


def _exit_on_error(function: Callable[..., int]) -> Callable[..., int]:
    """End the process on a defect of the kit, which must not look like one of the store."""

    def guarded(*arguments: Any) -> int:
        try:
            return function(*arguments)
        except BaseException:  # noqa: BLE001 -- SQLite could do nothing with it
            os._exit(70)

    return guarded


class InterposedVfs:
    """Sits between one SQLite and its files. Must be kept as long as the process lives."""

    def __init__(self, disk: Disk, address: int) -> None:
        self._disk = disk
        self._address = address
        self._system = _FileSystem.from_address(address)
        self._open = _OPEN(self._system.open)
        self._delete = _DELETE(self._system.delete)
        # The path of each open file, and its original methods.
        self._paths: dict[int, str | None] = {}
        self._tables: dict[int, tuple[_Methods, _Table]] = {}
        self._theirs: dict[int, _Table] = {}
        self._callbacks = (
            _OPEN(_exit_on_error(self._x_open)),
            _DELETE(_exit_on_error(self._x_delete)),
        )
        self._system.open, self._system.delete = map(_get_address, self._callbacks)

    def _x_open(self, _: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        path = None if not name else os.fsdecode(ctypes.string_at(name))
        opened = _File.from_address(file)
        if code := self._disk.step("open"):
            opened.methods = ctypes.POINTER(_Methods)()
            return code
        with self._disk.lock:
            new = path is not None and bool(flags & _CREATE) and not os.path.exists(path)  # noqa: PTH110
            done: int = self._open(self._address, name, file, flags, out)
            if done == OK and opened.methods:
                self._paths[file] = path
                self._disk.record_open(path, created=new, journal=bool(flags & _JOURNALS))
                self._replace(opened, file)
        return done

    def _replace(self, opened: _File, file: int) -> None:
        """Give an open file our table of methods; there is one for each original table."""
        where = ctypes.addressof(opened.methods.contents)
        if where not in self._tables:
            ours, theirs = _Methods(), _Table(opened.methods.contents)
            ctypes.memmove(ctypes.byref(ours), where, _get_size(opened.methods.contents))
            ours.version = min(ours.version, _VERSION)
            theirs.ours = (
                _CLOSE(_exit_on_error(self._x_close)),
                _MOVE(_exit_on_error(self._x_read)),
                _MOVE(_exit_on_error(self._x_write)),
                _TRUNCATE(_exit_on_error(self._x_truncate)),
                _SYNC(_exit_on_error(self._x_sync)),
            )
            ours.close, ours.read, ours.write, ours.truncate, ours.sync = map(
                _get_address, theirs.ours
            )
            self._tables[where] = (ours, theirs)
        ours, theirs = self._tables[where]
        self._theirs[file] = theirs
        opened.methods = ctypes.pointer(ours)

    def _x_delete(self, _: int, name: bytes, folder: int) -> int:
        if code := self._disk.step("delete"):
            return code
        with self._disk.lock:
            done: int = self._delete(self._address, name, folder)
            if done == OK:
                self._disk.record_delete(os.fsdecode(name), folder=bool(folder))
        return done

    def _x_close(self, file: int) -> int:
        self._paths.pop(file, None)
        code: int = self._theirs.pop(file).close(file)
        return code

    def _x_read(self, file: int, into: int, count: int, at: int) -> int:
        code: int = self._disk.step("read") or self._theirs[file].read(file, into, count, at)
        return code

    def _x_write(self, file: int, data: int, count: int, at: int) -> int:
        theirs, path = self._theirs[file], self._paths[file]
        code = self._disk.step("write")
        # A full disk takes what still fits.
        taken = count if code == OK else count // 2 if code == FULL else 0
        if taken:
            with self._disk.lock:
                done: int = theirs.write(file, data, taken, at)
                if done != OK:
                    return done
                self._disk.record("write", path, lambda: ctypes.string_at(data, taken), at=at)
        return code

    def _x_truncate(self, file: int, size: int) -> int:
        if code := self._disk.step("truncate"):
            return code
        with self._disk.lock:
            done: int = self._theirs[file].truncate(file, size)
            if done == OK:
                self._disk.record("truncate", self._paths[file], at=size)
        return done

    def _x_sync(self, file: int, _: int) -> int:
        # Files that will be thrown away need not reach a real disk.
        if code := self._disk.step("sync"):
            return code
        with self._disk.lock:
            self._disk.record_sync(self._paths[file])
        return OK


class _Table:
    """The original functions."""

    def __init__(self, methods: _Methods) -> None:
        self.close = _CLOSE(methods.close)
        self.read = _MOVE(methods.read)
        self.write = _MOVE(methods.write)
        self.truncate = _TRUNCATE(methods.truncate)
        # Kept from being collected.
        self.ours: tuple[Any, ...] = ()


def _get_size(methods: _Methods) -> int:
    """The size of a table of methods: older versions are shorter."""
    missing = {1: 6, 2: 2}.get(methods.version, 0)
    return ctypes.sizeof(_Methods) - missing * ctypes.sizeof(_Pointer)


def _get_address(callback: Any) -> int | None:
    return ctypes.cast(callback, _Pointer).value
