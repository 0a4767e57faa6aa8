"""Waiting for a state, with a bound on what never comes: never for a while."""

import time

# A bound on what hangs, not on what is slow.
WAIT_S_MAX = 120
LOOK_AGAIN_S = 0.002


def wait_until(condition, what="the state that the test waits for"):
    """Wait until a condition holds; return what it returned."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it never came: {what}"
        time.sleep(LOOK_AGAIN_S)
    return found
