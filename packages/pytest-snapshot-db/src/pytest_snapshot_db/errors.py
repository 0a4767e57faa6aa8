"""The errors and warnings of goldens."""

from __future__ import annotations


class GoldenError(Exception):
    """A golden could not be used or compared. No golden was changed."""


class TouchedError(GoldenError):
    """A golden is not the file that its manifest describes. It was not changed."""


class GoldenWarning(UserWarning):
    """A golden can be used, but something about it should be looked at."""
