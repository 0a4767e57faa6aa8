"""Write the test that an incident becomes: a short file that a person reads, and its trace."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memory_contract.history import HistoryError
from memory_contract.printable import escape_unseen
from memory_contract.redaction import has_password, redact_url
from memory_contract.traces.diagnosis import Explanation, judge_lines
from memory_contract.traces.diagnosis.render import render_timeline
from memory_contract.traces.format import SUFFIX, ReplayLevel
from memory_contract.traces.replay import LoadedTrace
from memory_contract.traces.shrink import write_small_trace

# Runs of a race: a loss that shows in one of a few runs must not slip through a green test.
TIMES: Final = 10
_WIDTH: Final = 100

_TEST: Final = '''\
"""{title}

{story}
"""

{imports}

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix("{suffix}")
STORE = {store}


def {name}():
    found = replay_trace(TRACE, STORE, {options})
    assert found.verdict == "FIXED", found.told
'''
# A URL with a password is not written down; the test takes it from this variable.
STORE_URL: Final = "STORE_URL"


@dataclass(frozen=True, slots=True)
class WrittenTest:
    """The paths of a test and its trace."""

    test: Path
    trace: Path


def write_test(
    path: str | Path,
    trace: LoadedTrace,
    *,
    store: str,
    level: ReplayLevel = "concurrent",
    times: int = TIMES,
) -> WrittenTest:
    """Write a test file and the trace beside it; what is there already is not overwritten."""
    test = Path(path)
    check_test_path(test)
    beside = test.with_suffix(SUFFIX)
    test.parent.mkdir(parents=True, exist_ok=True)
    write_small_trace(beside, trace)
    explanation = judge_lines(trace.lines, trace.metadata)
    options = [f"times={times}"] if level == "concurrent" else [f"level={level!r}, times={times}"]
    text = _TEST.format(
        title=_format_title(trace),
        story="\n".join(_format_story(explanation)),
        suffix=SUFFIX,
        imports="import os\n" * has_password(store) + "from pathlib import Path",
        store=build_store_source(store),
        name=test.stem if test.stem.startswith("test_") else f"test_{test.stem}",
        options=options[0],
    )
    test.write_text(text, "utf-8")
    return WrittenTest(test, beside)


def build_store_source(store: str) -> str:
    """The expression that names a store in a test."""
    if has_password(store):
        return f'os.environ["{STORE_URL}"]  # {_escape_docstring(redact_url(store))}'
    escaped = store.encode("unicode_escape").decode("ascii").replace('"', r"\"")
    return f'"{escaped}"'


def check_test_path(test: Path) -> None:
    """Raise a `HistoryError` if no test can be written there."""
    if test.suffix != ".py" or not test.stem.isidentifier() or keyword.iskeyword(test.stem):
        raise HistoryError(f"{test} is no name of a test file, such as test_2026_05_amnesia.py")
    for place in (test, test.with_suffix(SUFFIX)):
        if place.exists():
            raise HistoryError(f"{place} is there already: nothing was written")


def _format_title(trace: LoadedTrace) -> str:
    names = " and ".join(sorted(trace.names)) or "an incident"
    lines = len(trace.lines)
    workers = len({line.worker for line in trace.lines})
    text = f"{names[:1].upper()}{names[1:]}: {lines} operations of {workers} workers."
    return _escape_docstring(text)


def _format_story(found: Explanation) -> list[str]:
    if not found.stories:
        return ["What happened is in the trace; it breaks no rule that the checker knows."]
    story = found.stories[0]
    happened = story.anomaly.proof.partition("; ")[0].rstrip(".")
    lines = [f"{happened}."]
    lines += render_timeline(story)[1:]
    return [_escape_docstring(line)[:_WIDTH].rstrip() for line in lines]


def _escape_docstring(text: str) -> str:
    """Escape a text so that it neither ends a docstring nor begins an escape sequence."""
    return re.sub(r'"""', "'''", escape_unseen(text)).replace("\\", "\\\\")
