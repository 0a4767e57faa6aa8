"""What to install for a part of indelible that needs more packages."""

from __future__ import annotations

import json
import shlex
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


def build_missing_framework_error(error: ImportError, *, package: str, extra: str) -> ImportError:
    """Build the error for an adapter whose framework is not installed."""
    return ImportError(
        f"indelible.adapters.{extra.replace('-', '_')} needs the package {package}:"
        f" {format_install_command(extra)} ({error})",
        name=error.name,
    )
