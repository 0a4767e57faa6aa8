"""What can be lost on this file: the library's version, the level of syncing, the file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from indelible.model import Durability, Gravity, Risk

# In these versions, two connections that write and checkpoint at once can damage a WAL database.
WAL_RESET_FIRST: Final = (3, 7, 0)
WAL_RESET_LAST: Final = (3, 51, 2)
# File systems whose locks or shared memory do not reach other machines as SQLite needs it.
NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "afs", "gfs2", "ocfs2", "beegfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.juicefs", "davfs"}
)
MOUNTS: Final = Path("/proc/self/mountinfo")


def find_risks(path: Path, durability: Durability) -> tuple[Risk, ...]:
    """Say what may happen to a file that is opened like this."""
    version = tuple(map(int, apsw.sqlite_lib_version().split(".")[:3]))
    return (
        *_check_version(version),
        *_check_file_system(path, MOUNTS),
        *_check_durability(durability),
    )


def _check_version(version: tuple[int, ...]) -> Iterator[Risk]:
    if WAL_RESET_FIRST <= version <= WAL_RESET_LAST:
        number = ".".join(map(str, version))
        yield Risk(
            severity=Gravity.DANGER,
            subject=f"SQLite {number}",
            risk="two connections that write and checkpoint at the same moment can damage the file",
            remedy="install apsw 3.51.3 or newer, which brings its own SQLite",
        )


def _check_file_system(path: Path, mounts: Path) -> Iterator[Risk]:
    kind = find_file_system(path, mounts)
    if kind in NETWORK:
        yield Risk(
            severity=Gravity.DANGER,
            subject=f"file system {kind}",
            risk="processes on two machines that write at once can damage the file and lose what"
            " was acknowledged",
            remedy="move the file to a local disk, or the sessions to a server",
        )


def _check_durability(durability: Durability) -> Iterator[Risk]:
    if not durability.covers(Durability.POWER):
        yield Risk(
            severity=Gravity.WARNING,
            subject="synchronous=NORMAL",
            risk="a power cut or a system crash takes the newest acknowledged writes with it",
            remedy='open with durability="power"',
        )


def find_file_system(path: Path, mounts: Path) -> str | None:
    """Return the type of the file system that a file lies on; None if the system does not say."""
    try:
        lines = mounts.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    place = path.resolve()
    depths = {str(above): len(above.parts) for above in (place, *place.parents)}
    best: tuple[int, str] | None = None
    for line in lines:
        # mountinfo: the fifth field is the mount point, and the type follows a lone hyphen.
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4]
        if "\\" in point:
            point = point.encode().decode("unicode_escape")
        depth = depths.get(point)
        # Of two mounts on one point, the later one hides the earlier.
        if depth is not None and (best is None or depth >= best[0]):
            best = (depth, after.split()[0])
    return best[1] if best else None
