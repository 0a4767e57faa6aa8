"""Images of the files that a power cut leaves behind, built from the recorded changes.

What was synced is durable. Of the rest, a disk may have kept anything: all, nothing, some writes
and not those before them, half a write, or garbage in a sector. Until its folder is synced, a
created file may have no name, and a deleted one may still have it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal

from memory_contract.faults.vfs.disk import Change

SECTOR_BYTES: Final = 512
DamageMode = Literal["nothing", "everything", "no names", "names alone", "some", "torn"]
# The part of the unsynced data that the disk kept.
DAMAGE_MODES: Final[dict[DamageMode, str]] = {
    "nothing": "nothing",
    "everything": "everything",
    "no names": "all that was written to files, and no name",
    "names alone": "every name, and nothing that was written",
    "some": "some of it",
    "torn": "some of it, with sectors that are old or hold garbage",
}
Files = dict[str, bytes]


@dataclass(slots=True)
class _Body:
    """The content of a file: durable bytes, and changes that are not durable."""

    safe: bytes = b""
    unsafe: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class State:
    """A disk after some changes: what is durable, and what may be kept."""

    # The contents that each name had since the folder was synced, oldest first; None is no file.
    names: dict[str, list[_Body | None]] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Apply one change."""
        versions = self.names.setdefault(change.name, [None]) if change.name else []
        match change.what:
            case "found":
                versions[:] = [_Body(change.data)]
            case "create":
                versions.append(_Body())
            case "delete":
                versions.append(None)
            case "write" | "truncate":
                if (body := versions[-1]) is not None:
                    body.unsafe.append(change)
            case "sync":
                body = versions[-1] if versions else None
                if body is not None:
                    body.safe = _apply_writes(body.safe, body.unsafe)
                    body.unsafe = []
        if change.folder:
            for known in self.names.values():
                del known[:-1]

    @property
    def at_stake(self) -> int:
        """Return the number of changes that a power cut may undo."""
        bodies = {id(body): body for known in self.names.values() for body in known if body}
        moved = sum(len(known) - 1 for known in self.names.values())
        return moved + sum(len(body.unsafe) for body in bodies.values())

    def image(self, mode: DamageMode, random: Random) -> Files:
        """The files that a power cut leaves behind."""
        found = {}
        for name, versions in sorted(self.names.items()):
            body = _select_version(versions, mode, random)
            if body is not None:
                found[name] = _apply_writes(body.safe, _select_kept(body, mode, random))
        return found


def _select_version(
    versions: Sequence[_Body | None], mode: DamageMode, random: Random
) -> _Body | None:
    if mode in ("some", "torn"):
        return random.choice(versions)
    return versions[0 if mode in ("nothing", "no names") else -1]


def _select_kept(body: _Body, mode: DamageMode, random: Random) -> Iterable[Change]:
    match mode:
        case "nothing" | "names alone":
            return ()
        case "everything" | "no names":
            return body.unsafe
        case "some":
            return [change for change in body.unsafe if random.random() < 0.5]
        case "torn":
            return _tear(body.unsafe, random)


def _tear(changes: Iterable[Change], random: Random) -> Iterator[Change]:
    """Each sector of each write is new, old or garbage."""
    for change in changes:
        if change.what != "write":
            if random.random() < 0.5:
                yield change
            continue
        start, stop = change.at, change.at + len(change.data)
        while start < stop:
            end = min(stop, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            fate = random.randrange(4)
            if fate < 2:
                part = change.data[start - change.at : end - change.at]
                yield Change("write", change.name, part, start)
            elif fate == 2:
                yield Change("write", change.name, random.randbytes(end - start), start)
            start = end


def _apply_writes(data: bytes, changes: Iterable[Change]) -> bytes:
    held = bytearray(data)
    for change in changes:
        if change.what == "truncate":
            held[change.at :] = bytes(max(0, change.at - len(held)))
        else:
            end = change.at + len(change.data)
            held.extend(bytes(max(0, end - len(held))))
            held[change.at : end] = change.data
    return bytes(held)


def read_files(folder: Path) -> Files:
    """The files of a folder, without those that SQLite recreates."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


def write_files(files: Files, folder: Path) -> None:
    """Write files into an empty folder."""
    for name, data in files.items():
        path = folder / name
        os.makedirs(path.parent, exist_ok=True)  # noqa: PTH103 -- a thousand times over
        path.write_bytes(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One power cut: after how many changes, in which manner, and what it left behind."""

    after: int
    mode: DamageMode
    files: Files


_WHOLE_MODES: Final[tuple[DamageMode, ...]] = ("nothing", "everything", "no names", "names alone")
_PARTIAL_MODES: Final[tuple[DamageMode, ...]] = ("some", "torn")
# Rounds of drawing further power cuts to replace duplicates.
_ROUNDS: Final = 4


def build_images(
    changes: Sequence[Change],
    *,
    wanted: int,
    random: Random,
    base: Files,
    stage: Callable[[int], int],
) -> Iterator[Image]:
    """Power cuts at moments when changes are not durable; `base` are the files at the beginning.

    No two are alike: of those that leave the same files behind in the same `stage` of the work,
    one is enough.
    """
    places = [place for place, state in _iter_states(changes, base) if state.at_stake]
    todo = [(place, mode) for place in places for mode in _WHOLE_MODES]
    random.shuffle(todo)
    # At most half of them keep all or nothing of a kind.
    del todo[wanted // 2 :]
    seen: set[int] = set()
    for _ in range(_ROUNDS if places else 0):
        more = wanted - len(seen) - len(todo)
        todo += [(random.choice(places), random.choice(_PARTIAL_MODES)) for _ in range(more)]
        by_place: dict[int, list[DamageMode]] = {}
        for place, mode in todo:
            by_place.setdefault(place, []).append(mode)
        for place, state in _iter_states(changes, base):
            for mode in by_place.get(place, ()):
                files = state.image(mode, random)
                mark = hash((stage(place), *files.items()))
                if mark not in seen:
                    seen.add(mark)
                    yield Image(after=place, mode=mode, files=files)
        todo = []


def _iter_states(changes: Sequence[Change], base: Files) -> Iterator[tuple[int, State]]:
    """The disk after each of the changes."""
    state = State({name: [_Body(data)] for name, data in base.items()})
    for place, change in enumerate(changes, start=1):
        state.apply(change)
        yield place, state


def build_final_files(changes: Sequence[Change], base: Files) -> Files:
    """The files after all changes, without a power cut."""
    state = State({name: [_Body(data)] for name, data in base.items()})
    for change in changes:
        state.apply(change)
    return state.image("everything", Random(0))  # noqa: S311 -- nothing is left to it
