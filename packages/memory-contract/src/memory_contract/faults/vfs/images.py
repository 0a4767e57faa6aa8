"""What a power cut leaves behind: images of the files, made from the list of what was done to them.

What was synced is safe. Of what was not, a disk may have kept anything: all, nothing, some writes
and not those before them, half a write, or rubbish in one of its sectors. A file that was created
may have no name yet, one that was deleted may have it still, until the folder is synced.
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
# Of what was not synced, the disk kept ...
DAMAGE_MODES: Final[dict[DamageMode, str]] = {
    "nothing": "nothing",
    "everything": "everything",
    "no names": "all that was written to files, and no name",
    "names alone": "every name, and nothing that was written",
    "some": "some of it",
    "torn": "some of it, with sectors that are old or hold rubbish",
}
Files = dict[str, bytes]


@dataclass(slots=True)
class _Body:
    """What a name may stand for: bytes that are safe, and changes that are not."""

    safe: bytes = b""
    unsafe: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class State:
    """A disk after some changes: what would be there, and what may be."""

    # Every body that each name stands for or stood for since the folder was synced, oldest first;
    # None is no file.
    names: dict[str, list[_Body | None]] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Go one change further."""
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
                    body.safe = _written(body.safe, body.unsafe)
                    body.unsafe = []
        if change.folder:
            for known in self.names.values():
                del known[:-1]

    @property
    def at_stake(self) -> int:
        """How many changes a power cut may take back."""
        bodies = {id(body): body for known in self.names.values() for body in known if body}
        moved = sum(len(known) - 1 for known in self.names.values())
        return moved + sum(len(body.unsafe) for body in bodies.values())

    def image(self, manner: DamageMode, random: Random) -> Files:
        """The files that a power cut leaves behind."""
        found = {}
        for name, versions in sorted(self.names.items()):
            body = _version(versions, manner, random)
            if body is not None:
                found[name] = _written(body.safe, _kept(body, manner, random))
        return found


def _version(versions: Sequence[_Body | None], manner: DamageMode, random: Random) -> _Body | None:
    if manner in ("some", "torn"):
        return random.choice(versions)
    return versions[0 if manner in ("nothing", "no names") else -1]


def _kept(body: _Body, manner: DamageMode, random: Random) -> Iterable[Change]:
    match manner:
        case "nothing" | "names alone":
            return ()
        case "everything" | "no names":
            return body.unsafe
        case "some":
            return [change for change in body.unsafe if random.random() < 0.5]
        case "torn":
            return _torn(body.unsafe, random)


def _torn(changes: Iterable[Change], random: Random) -> Iterator[Change]:
    """Each sector of each write is new, old or rubbish."""
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


def _written(data: bytes, changes: Iterable[Change]) -> bytes:
    held = bytearray(data)
    for change in changes:
        if change.what == "truncate":
            held[change.at :] = bytes(max(0, change.at - len(held)))
        else:
            end = change.at + len(change.data)
            held.extend(bytes(max(0, end - len(held))))
            held[change.at : end] = change.data
    return bytes(held)


def files_of(folder: Path) -> Files:
    """What is in a folder, but for what SQLite makes anew by itself."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


def write_files(files: Files, folder: Path) -> None:
    """Put an image into an empty folder."""
    for name, data in files.items():
        path = folder / name
        os.makedirs(path.parent, exist_ok=True)  # noqa: PTH103 -- a thousand times over
        path.write_bytes(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One power cut: after how many changes, in which manner, and what it left behind."""

    after: int
    manner: DamageMode
    files: Files


_PLAIN: Final[tuple[DamageMode, ...]] = ("nothing", "everything", "no names", "names alone")
_WILD: Final[tuple[DamageMode, ...]] = ("some", "torn")
# How often it is tried to find power cuts that differ from those that were found.
_ROUNDS: Final = 4


def images(
    changes: Sequence[Change],
    *,
    wanted: int,
    random: Random,
    base: Files,
    stage: Callable[[int], int],
) -> Iterator[Image]:
    """Power cuts at moments when something is at stake; `base` is what was there at first.

    No two are alike: of those that left the same files behind, and came in the same `stage` of
    what was being done, one is enough.
    """
    places = [place for place, state in _states(changes, base) if state.at_stake]
    todo = [(place, manner) for place in places for manner in _PLAIN]
    random.shuffle(todo)
    # At least half of them are not the plain ones.
    del todo[wanted // 2 :]
    seen: set[int] = set()
    for _ in range(_ROUNDS if places else 0):
        more = wanted - len(seen) - len(todo)
        todo += [(random.choice(places), random.choice(_WILD)) for _ in range(more)]
        by_place: dict[int, list[DamageMode]] = {}
        for place, manner in todo:
            by_place.setdefault(place, []).append(manner)
        for place, state in _states(changes, base):
            for manner in by_place.get(place, ()):
                files = state.image(manner, random)
                mark = hash((stage(place), *files.items()))
                if mark not in seen:
                    seen.add(mark)
                    yield Image(after=place, manner=manner, files=files)
        todo = []


def _states(changes: Sequence[Change], base: Files) -> Iterator[tuple[int, State]]:
    """The disk after each of the changes."""
    state = State({name: [_Body(data)] for name, data in base.items()})
    for place, change in enumerate(changes, start=1):
        state.apply(change)
        yield place, state


def build_final_files(changes: Sequence[Change], base: Files) -> Files:
    """What is there when all is done and no power was cut."""
    state = State({name: [_Body(data)] for name, data in base.items()})
    for change in changes:
        state.apply(change)
    return state.image("everything", Random(0))  # noqa: S311 -- nothing is left to it
