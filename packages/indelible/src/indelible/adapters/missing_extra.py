"""The error for an adapter whose framework is not installed."""

from __future__ import annotations


def build_missing_framework_error(error: ImportError, *, package: str, extra: str) -> ImportError:
    """Build an error that says which extra to install."""
    return ImportError(
        f"indelible.adapters.{extra.replace('-', '_')} needs the package {package}:"
        f" pip install 'indelible[{extra}]' ({error})",
        name=error.name,
    )
