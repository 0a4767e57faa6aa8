"""The end of a run of pytest: was a golden touched, what was written, and who uses what."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_snapshot_db import manifest as manifests
from pytest_snapshot_db import usage
from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.run import forget, notes

WRITTEN = {"new": "new", "changed": "changed", "signed": "kept"}


@dataclass(frozen=True, slots=True)
class End:
    """What is to be said, and whether the run must fail."""

    lines: list[str]
    failed: bool


def end_of(folder: Path, root: Path, cache: Any) -> End:
    """Look at every golden that was used, and let go of what the run's processes shared."""
    said = list(notes(folder))
    touched = list(_touched(said, root))
    written = list(_written(said, root))
    if cache is not None:
        known = cache.get(usage.KEY, {})
        record = known.get("modules", {}) if isinstance(known, dict) else {}
        modules = usage.merged(record, said, root)
        cache.set(usage.KEY, {"root": str(root), "modules": modules})
    forget(folder)
    return End([*touched, *written], bool(touched))


def _touched(said: list[dict[str, Any]], root: Path) -> Iterator[str]:
    for path in sorted({Path(note["golden"]) for note in said if note["kind"] == "used"}):
        why = _trouble(path)
        if why is None:
            continue
        seen = (note for note in said if note["kind"] == "seen")
        tests = [note["test"] for note in seen if note["golden"] == str(path)]
        shown = _shown(path, root)
        quoted = shlex.quote(shown)
        yield f"TOUCHED {shown}: {why}"
        if len(tests) == 1:
            yield f"  by {tests[0]}"
        elif tests:
            yield "  by one of these, which ran at the time:"
            yield from (f"    {test}" for test in tests)
        yield f"  A golden is never written by a test. Bring it back: git checkout -- {quoted}"


def _trouble(path: Path) -> str | None:
    """What is wrong with a golden after the run."""
    try:
        known = manifests.read(path.with_suffix(".json"))
        return None if manifests.sha256_of(path) == known.sha256 else "its bytes were changed"
    except (GoldenError, OSError) as error:
        return "it is gone" if not path.exists() else f"its manifest was changed: {error}"


def _written(said: list[dict[str, Any]], root: Path) -> Iterator[str]:
    for note in said:
        if note["kind"] in WRITTEN:
            why = f" ({note['why']})" if note["why"] else ""
            yield f"{WRITTEN[note['kind']]:8}{_shown(Path(note['golden']), root)}{why}"
            yield f"        by {note['test']}"


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
