"""Mounts a tmpfs in a mount namespace of its own, and executes a server on it.

Run by path, without importing the kit, so that it starts quickly. Arguments: the user to run as
(empty: unchanged), the folder, the size of the disk in bytes, what to copy there first (empty:
nothing), and the server's command line.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
PR_SET_DUMPABLE: Final = 4
# The file that fills the disk; created here, since other users may not.
BALLAST: Final = "ballast"


def main(user: str, folder: str, size: str, holds: str, *server: str) -> None:
    """Mount the disk, and execute the server."""
    libc = ctypes.CDLL(None, use_errno=True)
    if user:
        # Nothing can be imported from here on: the other user may not be able to read Python.
        os.setresuid(int(user), int(user), int(user))
        # Otherwise the files in /proc/self would belong to the previous user.
        _done(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")
    whoever, group = os.geteuid(), os.getegid()
    _done(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    Path("/proc/self/setgroups").write_bytes(b"deny")
    Path("/proc/self/uid_map").write_bytes(b"%d %d 1" % (whoever, whoever))
    Path("/proc/self/gid_map").write_bytes(b"%d %d 1" % (group, group))
    options = os.fsencode(f"size={size},mode=0700")
    place = os.fsencode(folder)
    _done(libc.mount(b"none", place, b"tmpfs", MS_NOSUID | MS_NODEV, options), "mount")
    os.umask(0o077)
    Path(folder, BALLAST).touch()
    if holds:
        shutil.copytree(holds, Path(folder, Path(holds).name))
    os.chdir("/")
    os.execv(server[0], server)  # noqa: S606 -- that is what this is for


def _done(answer: int, name: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
