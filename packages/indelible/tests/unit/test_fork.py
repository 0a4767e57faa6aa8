"""Callbacks around a fork: in order, weakly held, called even when another was interrupted."""

from __future__ import annotations

import gc
import os

import pytest

from indelible.core import fork


class Owner:
    """Notes what it is called with."""

    def __init__(self, calls, name="owner"):
        self._calls = calls
        self._name = name

    def before(self):
        self._calls.append(f"{self._name} before")

    def after_in_parent(self):
        self._calls.append(f"{self._name} parent")

    def after_in_child(self):
        self._calls.append(f"{self._name} child")


def fork_and_tell(calls):
    """What the child noted; `calls` is what the parent did."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, ",".join(calls).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told.split(",")


def register(owner):
    fork.register(
        before=owner.before,
        after_in_parent=owner.after_in_parent,
        after_in_child=owner.after_in_child,
    )


def test_both_processes_continue_in_the_reverse_order():
    calls = []
    owners = [Owner(calls, "one"), Owner(calls, "two")]
    for owner in owners:
        register(owner)
    child = fork_and_tell(calls)
    assert child == ["one before", "two before", "two child", "one child"]
    assert calls == ["one before", "two before", "two parent", "one parent"]


def test_an_object_that_is_gone_is_not_called():
    calls = []
    owner = Owner(calls)
    register(owner)
    del owner
    gc.collect()
    assert fork_and_tell(calls) == [""]
    assert calls == []


# Python prints what a callback raises, and forks all the same.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_fork_goes_on_after_a_callback_that_was_interrupted():
    calls = []

    class Interrupted(Owner):
        def before(self):
            raise KeyboardInterrupt

    owners = [Interrupted(calls, "one"), Owner(calls, "two")]
    for owner in owners:
        register(owner)
    child = fork_and_tell(calls)
    assert child == ["two child", "one child"]
    assert calls == ["two parent", "one parent"]
