"""What can be wrong with a golden, or with a file that is held against one."""

from __future__ import annotations


class GoldenError(Exception):
    """A golden could not be used or compared. No golden was changed."""


class TouchedError(GoldenError):
    """A golden is not the file that was written. It was left as it is."""


class GoldenWarning(UserWarning):
    """A golden can be used, and something about it should be looked at."""
