"""File calls of Python code: steps at which a process can be killed, and syncs.

A profile function sees each call of a C function before it happens. That is enough to kill a
process between any two of its writes, without changing what the store does.
"""

from __future__ import annotations

import contextlib
import io
import os
import posix
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

from memory_contract.faults.vfs.disk import Disk

_CALLS: Final = frozenset(
    {
        *("open", "write", "writelines", "pwrite", "writev", "flush", "close"),
        *("truncate", "ftruncate", "fsync", "fdatasync", "sendfile", "copy_file_range"),
        *("replace", "rename", "link", "symlink", "unlink", "remove", "mkdir", "rmdir"),
    }
)


def count_steps(disk: Disk) -> None:
    """Count every call that may change a file as a step, in this thread and in new ones."""

    def look(frame: FrameType, event: str, function: Any) -> None:
        # Opening for writing truncates: there is a step before and one after.
        told = event == "c_call" or (event == "c_return" and function.__name__ == "open")
        if (
            told
            and function.__name__ in _CALLS
            and _is_file_call(function)
            and not _is_kit_call(frame)
        ):
            disk.count_step()

    sys.setprofile(look)
    threading.setprofile(look)


def _is_file_call(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return owner is posix or owner is io or function is open or isinstance(owner, io.IOBase)


def _is_kit_call(frame: FrameType) -> bool:
    """Whether the call belongs to the kit's own communication."""
    name = str(frame.f_globals.get("__name__"))
    return name.startswith(("multiprocessing.", "memory_contract.faults."))


def watch_syncs(disk: Disk) -> None:
    """Tell the disk what Python code syncs."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _wrap_sync(getattr(os, name), disk))


def _wrap_sync(sync: Any, disk: Disk) -> Any:
    def fsync(fd: Any) -> None:
        with disk.lock:
            sync(fd)
            number = fd if isinstance(fd, int) else fd.fileno()
            with contextlib.suppress(OSError):
                disk.record_outside_sync(str(Path(f"/proc/self/fd/{number}").readlink()))

    return fsync
