"""The end of a run of pytest: which goldens were touched or written, and which tests use which.

A golden is unused only if that is known: its test module is gone, or in the last run of all of the
module's tests, as the module still is, no test asked for it.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.manifest import hash_file, read_manifest
from pytest_snapshot_db.session import WRITES, read_records, shorten_path
from pytest_snapshot_db.storage import FOLDER, OBTAINED, Golden

# Below pytest's cache folder.
CACHE_KEY: Final = "snapshot_db/goldens"
Usage = dict[str, Any]


class SessionEnd(NamedTuple):
    """What is printed at the end of a run, and whether the run must fail."""

    lines: list[str]
    failed: bool


def end_session(folder: Path, root: Path, cache: Any) -> SessionEnd:
    """Check every golden that was used, update the usage in the cache, and remove the folder."""
    records = list(read_records(folder))
    touched = list(_report_touched(records, root))
    if cache is not None:
        known = cache.get(CACHE_KEY, {})
        usage = known.get("modules", {}) if isinstance(known, dict) else {}
        cache.set(CACHE_KEY, {"root": str(root), "modules": merge_usage(usage, records, root)})
    shutil.rmtree(folder, ignore_errors=True)
    return SessionEnd([*touched, *_report_written(records, root)], bool(touched))


def _report_touched(records: list[dict[str, Any]], root: Path) -> Iterator[str]:
    for path in sorted({Path(each["golden"]) for each in records if each["kind"] == "used"}):
        problem = _find_problem(path)
        if problem is None:
            continue
        seen = (each for each in records if each["kind"] == "seen")
        tests = [each["test"] for each in seen if each["golden"] == str(path)]
        shown = shorten_path(path, root)
        yield f"TOUCHED {shown}: {problem}"
        if len(tests) == 1:
            yield f"  by {tests[0]}"
        elif tests:
            yield "  by one of these, which ran at the time:"
            yield from (f"    {test}" for test in tests)
        yield (
            "  A golden is never written by a test. Bring it back:"
            f" git checkout -- {shlex.quote(shown)}"
        )


def _find_problem(path: Path) -> str | None:
    try:
        manifest = read_manifest(path.with_suffix(".json"))
        return None if hash_file(path) == manifest.sha256 else "its bytes were changed"
    except (GoldenError, OSError) as error:
        return "it is gone" if not path.exists() else f"its manifest was changed: {error}"


def _report_written(records: list[dict[str, Any]], root: Path) -> Iterator[str]:
    for each in records:
        if each["kind"] in WRITES:
            why = f" ({each['why']})" if each["why"] else ""
            yield f"{each['kind']:8}{shorten_path(Path(each['golden']), root)}{why}"
            yield f"        by {each['test']}"


@dataclass(slots=True)
class _Module:
    collected: int = 0
    passed: set[str] = field(default_factory=set)
    is_partial: bool = False
    used: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def is_complete(self) -> bool:
        return bool(self.collected) and not self.is_partial and len(self.passed) == self.collected


def merge_usage(usage: Usage, records: Iterable[Mapping[str, Any]], root: Path) -> Usage:
    """Add the records of one run to what is known of each module."""
    modules: dict[str, _Module] = defaultdict(_Module)
    for record in records:
        if record["kind"] == "ran":
            for name, count in record["collected"].items():
                modules[name].collected = max(modules[name].collected, count)
            for name, tests in record["passed"].items():
                modules[name].passed |= set(tests)
            for name in record["partly"]:
                modules[name].is_partial = True
        elif record["kind"] == "used":
            path = Path(record["golden"])
            name = shorten_path(_find_module(path.parent), root)
            modules[name].used[path.stem].add(record["test"])
    for name, module in modules.items():
        if module.used or name in usage:
            usage[name] = _merge_module(usage.get(name, {}), module, root / name)
    return usage


def _merge_module(known: Usage, module: _Module, path: Path) -> Usage:
    complete_for = known.get("complete_for")
    used = {golden: set(tests) for golden, tests in known.get("used", {}).items()}
    if module.is_complete():
        used = {}
        complete_for = hash_file(path) if path.exists() else complete_for
    for golden, tests in module.used.items():
        used[golden] = used.get(golden, set()) | tests
    return {
        "complete_for": complete_for,
        "used": {golden: sorted(tests) for golden, tests in sorted(used.items())},
    }


def _find_module(folder: Path) -> Path:
    """Return the test module whose goldens are in a folder."""
    return folder.parent.parent / f"{folder.name}.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldenUsage:
    """A golden, and what is known of its use."""

    golden: Golden
    state: Literal["used", "unused", "unknown"]
    tests: tuple[str, ...]
    why: str


def list_goldens(folder: Path, usage: Usage, root: Path) -> Iterator[GoldenUsage]:
    """List every golden below a folder; the names in `usage` are relative to `root`."""
    for path in sorted(folder.rglob(f"{FOLDER}/*/*.db")):
        if not path.stem.endswith(OBTAINED):
            yield _judge_usage(Golden(path.parent, path.stem), usage, root)


def _judge_usage(golden: Golden, usage: Usage, root: Path) -> GoldenUsage:
    module = _find_module(golden.folder)
    known = usage.get(shorten_path(module.resolve(), root), {})
    tests = tuple(known.get("used", {}).get(golden.name, ()))
    state: Literal["used", "unused", "unknown"] = "unknown"
    if not module.exists():
        state, why = "unused", f"there is no {module.name}"
    elif tests:
        state, why = "used", ""
    elif not known.get("complete_for"):
        why = f"not all tests of {module.name} have passed in one run yet"
    elif known["complete_for"] != hash_file(module):
        why = f"{module.name} has changed since all of its tests ran"
    else:
        state, why = "unused", f"no test of {module.name} asked for it"
    return GoldenUsage(golden=golden, state=state, tests=tests, why=why)


def find_usage(start: Path, cache: Path | None = None) -> tuple[Usage, Path]:
    """Find what runs of pytest wrote down, and the folder that its names are relative to."""
    folders = [cache] if cache else [each / ".pytest_cache" for each in (start, *start.parents)]
    for folder in folders:
        try:
            known = json.loads((folder / "v" / CACHE_KEY).read_text("utf-8"))
            return dict(known["modules"]), Path(known["root"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}, start
