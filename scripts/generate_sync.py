"""Write the blocking twins of async modules, or check that they are up to date.

    python scripts/generate_sync.py          write them
    python scripts/generate_sync.py --check  exit 1 if one is not what would be written

A twin is the async source with some words replaced: `x_async.py` becomes `x.py`, `AsyncName`
becomes `Name`, `name_async` becomes `name`, `asyncio.sleep` becomes `time.sleep`, and `await` goes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
INDELIBLE = "packages/indelible/src/indelible"
REDIS = f"{INDELIBLE}/backends/redis"
# Async sources; the twin of each stands beside it.
SOURCES = (
    f"{INDELIBLE}/store_async.py",
    f"{REDIS}/driver_async.py",
)
# In this order.
REPLACEMENTS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\b(\w+)_async\b", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\.aclose\b", ".close"),
    (r"\bawaited=True\b", "awaited=False"),
    (r"\bimport asyncio\b", "import threading\nimport time"),
    (r"\basyncio\.Lock\b", "threading.Lock"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bOne task\b", "One thread"),
    (r"(?<=[,;]) async(?=[.\n\"])", " blocking"),
    (r"# noqa: ASYNC109, ", "# noqa: "),
)
HEADER = "# Generated from {source} by scripts/generate_sync.py: edit that file instead.\n"


def convert(source: Path) -> str:
    """Return the text of a blocking twin."""
    text = source.read_text("utf-8")
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    text = HEADER.format(source=source.name) + text
    # Imports that are not needed any more, their order, and lines that have become shorter.
    for command in (["check", "--fix", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(get_twin(source))]
        text = subprocess.run(  # noqa: S603 (a fixed command)
            [*ruff, "-"], input=text, text=True, capture_output=True, check=True
        ).stdout
    return text


def get_twin(source: Path) -> Path:
    """Return where the blocking twin stands."""
    return source.with_name(source.name.replace("_async.py", ".py"))


def main() -> int:
    """Write the twins, or check them."""
    stale = []
    for name in SOURCES:
        source = ROOT / name
        twin, text = get_twin(source), convert(source)
        if twin.exists() and twin.read_text("utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(name)
        else:
            twin.write_text(text, "utf-8")
    for name in stale:
        print(f"the blocking twin of {name} is not up to date: run scripts/generate_sync.py")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
