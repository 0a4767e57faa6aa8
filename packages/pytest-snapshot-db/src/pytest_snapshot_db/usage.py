"""Which test uses which golden: written down by runs of pytest, for `golden list` and `prune`.

A golden is unused only if that is known: its test module is gone, or the last run of all of the
module's tests, as the module still is, asked for every other golden of the module but not for this.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pytest_snapshot_db.keeping import FOLDER, OBTAINED, Golden
from pytest_snapshot_db.manifest import sha256_of

# Where pytest keeps what one run tells the next, below its cache folder.
KEY: Final = "snapshot_db/goldens"
State = Literal["used", "unused", "unknown"]
Record = dict[str, Any]


@dataclass(slots=True)
class _Module:
    collected: int = 0
    passed: set[str] = field(default_factory=set)
    partly: bool = False
    used: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def complete(self) -> bool:
        """Whether all of its tests ran to their end."""
        return bool(self.collected) and not self.partly and len(self.passed) == self.collected


def merged(record: Record, said: Iterable[Mapping[str, Any]], root: Path) -> Record:
    """The record with what one more run wrote down."""
    modules: dict[str, _Module] = defaultdict(_Module)
    for note in said:
        if note["kind"] == "ran":
            for name, count in note["collected"].items():
                modules[name].collected = max(modules[name].collected, count)
            for name, tests in note["passed"].items():
                modules[name].passed |= set(tests)
            for name in note["partly"]:
                modules[name].partly = True
        elif note["kind"] == "used":
            golden = Path(note["golden"])
            modules[_relative(_module_of(golden.parent), root)].used[golden.stem].add(note["test"])
    for name, module in modules.items():
        known = record.get(name, {})
        if not module.used and name not in record:
            continue
        used = {} if module.complete else {n: set(t) for n, t in known.get("used", {}).items()}
        for asked, tests in module.used.items():
            used[asked] = used.get(asked, set()) | tests
        path = root / name
        record[name] = {
            "complete_for": sha256_of(path)
            if module.complete and path.exists()
            else known.get("complete_for"),
            "used": {asked: sorted(tests) for asked, tests in sorted(used.items())},
        }
    return record


def _module_of(folder: Path) -> Path:
    """The test module whose goldens lie in a folder."""
    return folder.parent.parent / f"{folder.name}.py"


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A golden, and what is known of its use."""

    golden: Golden
    state: State
    tests: tuple[str, ...]
    why: str


def listed(root: Path, record: Record, record_root: Path) -> Iterator[Listed]:
    """Every golden below a folder."""
    for path in sorted(root.rglob(f"{FOLDER}/*/*.db")):
        if not path.stem.endswith(OBTAINED):
            yield _judged(Golden(path.parent, path.stem), record, record_root)


def _judged(golden: Golden, record: Record, root: Path) -> Listed:
    module = _module_of(golden.folder)
    known = record.get(_relative(module.resolve(), root), {})
    tests = tuple(known.get("used", {}).get(golden.name, ()))
    state: State = "unknown"
    if not module.exists():
        state, why = "unused", f"there is no {module.name}"
    elif tests:
        state, why = "used", ""
    elif not known.get("complete_for"):
        why = f"not all tests of {module.name} have passed in one run yet"
    elif known["complete_for"] != sha256_of(module):
        why = f"{module.name} has changed since all of its tests ran"
    else:
        state, why = "unused", f"no test of {module.name} asked for it"
    return Listed(golden=golden, state=state, tests=tests, why=why)


def find_record(start: Path, cache: Path | None = None) -> tuple[Record, Path]:
    """What runs of pytest wrote down, and the folder that its names start from."""
    folders = [cache] if cache else [each / ".pytest_cache" for each in (start, *start.parents)]
    for folder in folders:
        try:
            said = json.loads((folder / "v" / KEY).read_text("utf-8"))
            return dict(said["modules"]), Path(said["root"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}, start
