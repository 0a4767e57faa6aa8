"""What to install for a part of indelible that needs more packages."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit


def format_install_command(extra: str) -> str:
    """Return the command that installs an extra, from the clone if this runs from one."""
    folder = _find_clone()
    if folder is None:
        return f"pip install 'indelible[{extra}]'"
    return f"pip install -e {shlex.quote(f'{folder}[{extra}]')}"


def build_missing_framework_error(error: ImportError, *, package: str, extra: str) -> ImportError:
    """Build the error for an adapter whose framework is not installed."""
    return ImportError(
        f"indelible.adapters.{extra.replace('-', '_')} needs the package {package}:"
        f" {format_install_command(extra)} ({error})",
        name=error.name,
    )


def _find_clone() -> str | None:
    """Return the folder that indelible was installed from in editable mode."""
    try:
        text = distribution("indelible").read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return unquote(urlsplit(origin["url"]).path)
