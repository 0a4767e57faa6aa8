"""What has to happen when the process forks, registered in one place.

Connections and thread pools must not be used on both sides of a fork. The owner of one registers
here. This module calls `os.register_at_fork` once, when it is imported;
that is the only process-wide hook of the library.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from types import MethodType
from typing import NamedTuple
from weakref import WeakMethod

Callback = Callable[[], None]
# Returns the callback, or None if its object is gone.
_Reference = Callable[[], Callback | None]


class _Hooks(NamedTuple):
    before: _Reference
    after_in_parent: _Reference
    after_in_child: _Reference


_registered: list[_Hooks] = []
# Two threads may fork at once; each prepares and continues by itself. Meanwhile no hook is
# registered.
_forking = threading.Lock()


def register(
    *,
    after_in_child: Callback,
    before: Callback | None = None,
    after_in_parent: Callback | None = None,
) -> None:
    """Call these around every fork; methods only as long as their object lives.

    The two `after` callbacks are called even if `before` was interrupted, or was not called because
    that of another was interrupted.
    """
    hooks = _Hooks(_refer(before), _refer(after_in_parent), _refer(after_in_child))
    with _forking:
        living = [each for each in _registered if each.after_in_child() is not None]
        _registered[:] = [*living, hooks]


def _refer(callback: Callback | None) -> _Reference:
    return WeakMethod(callback) if isinstance(callback, MethodType) else lambda: callback


def _call(references: Iterator[_Reference]) -> None:
    for reference in references:
        callback = reference()
        if callback is not None:
            callback()


def _before_fork() -> None:
    _forking.acquire()
    _call(hooks.before for hooks in _registered)


def _after_fork_in_parent() -> None:
    try:
        _call(hooks.after_in_parent for hooks in reversed(_registered))
    finally:
        _forking.release()


def _after_fork_in_child() -> None:
    try:
        _call(hooks.after_in_child for hooks in reversed(_registered))
    finally:
        _forking.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
