"""What to install, for whoever imports an adapter without its framework."""

from __future__ import annotations


def build_missing_framework_error(error: ImportError, *, package: str, extra: str) -> ImportError:
    """The error to raise instead of the bare one, if it is the framework that is not there."""
    return ImportError(
        f"indelible.adapters.{extra.replace('-', '_')} needs the package {package}:"
        f" pip install 'indelible[{extra}]' ({error})",
        name=error.name,
    )
