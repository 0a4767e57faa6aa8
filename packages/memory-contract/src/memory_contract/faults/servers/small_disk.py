"""A disk of a few megabytes that only one server sees, and that can be filled and freed.

It is a tmpfs in a mount namespace of the server. Many systems allow that without root; where not,
there is no such disk. Its files are gone when the server ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from memory_contract.faults.servers import tmpfs_exec
from memory_contract.faults.servers.process import ServerError, unprivileged

# How long the test for namespaces may take.
ASKING_S: Final = 30.0


class SmallDisk:
    """The disk of one server; `folder` is where that server sees it."""

    def __init__(self, folder: Path, *, bytes_max: int, holds: Path | None = None) -> None:
        """`holds`: what is copied to it first, under the same name."""
        self.folder = folder
        self._bytes_max = bytes_max
        self._holds = holds
        self._ballast: int | None = None

    def running(self, arguments: Sequence[str]) -> list[str]:
        """The command that mounts the disk and executes a program on it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        user = unprivileged()
        place = [str(self.folder), str(self._bytes_max), str(self._holds or "")]
        return [
            *(sys.executable, "-I", "-S", str(tmpfs_exec.__file__)),
            *("" if user is None else str(user), *place),
            *arguments,
        ]

    def fill(self, pid: int) -> None:
        """Fill the disk, through the root folder of a process that sees it."""
        seen = Path(f"/proc/{pid}/root") / self.folder.relative_to("/") / tmpfs_exec.BALLAST
        try:
            self._ballast = os.open(seen, os.O_WRONLY)
            while (room := _room(self._ballast)) > 0:
                _take(self._ballast, room)
        except OSError as error:
            self.free()
            raise ServerError(f"the disk cannot be filled: {error}") from error

    def free(self) -> None:
        """Free the space again."""
        ballast, self._ballast = self._ballast, None
        if ballast is not None:
            os.ftruncate(ballast, 0)
            os.close(ballast)


def _room(descriptor: int) -> int:
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize


def _take(descriptor: int, room: int) -> None:
    try:
        os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, room)
    except OSError:
        # The server took some of the space meanwhile; the caller asks for the rest again.
        if _room(descriptor) >= room:
            raise


@cache
def missing() -> str:
    """Why there can be no such disk here; empty if there can be one."""
    with tempfile.TemporaryDirectory(prefix="indelible-disk-") as folder:
        # The server's user must be able to enter.
        Path(folder).chmod(0o755)
        disk = SmallDisk(Path(folder, "disk"), bytes_max=65_536)
        try:
            done = subprocess.run(  # noqa: S603 -- this very Python
                disk.running(["/bin/true"]), check=False, timeout=ASKING_S, capture_output=True
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the system does not say whether there are user namespaces: {error}"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return f"the system gives this user no file system in a namespace of its own ({said})"
