"""What to install for a part of indelible that needs more packages."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit


def format_install_command(extra: str) -> str:
    """Return the command that installs an extra, from the clone that this was installed from."""
    try:
        text = distribution("indelible").read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    folder = unquote(urlsplit(origin.get("url", "")).path)
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e {shlex.quote(f'{folder}[{extra}]')}"
    if "dir_info" in origin and Path(folder, "pyproject.toml").is_file():
        return f"pip install {shlex.quote(f'{folder}[{extra}]')}"
    return f"pip install 'indelible[{extra}]'"


@contextmanager
def need_extra(extra: str) -> Iterator[None]:
    """Import inside what an extra brings; if it is missing, the error says what to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"this needs the extra `{extra}`: {format_install_command(extra)} ({error})",
            name=error.name,
        ) from error
