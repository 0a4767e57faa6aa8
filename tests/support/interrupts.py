"""Raises KeyboardInterrupt at the n-th point of a call at which Python could deliver Ctrl-C.

CPython looks for signals when a function begins, after a call has returned, when a loop goes back,
and inside calls that block. It does not look between other bytecodes: not between the acquisition
of a lock by `with` and its body, and not between two assignments. So interrupts at every line would
include moments that do not exist, such as the one before the lock is released at the end of a
`with`, and miss the one that matters most: a call has returned, and its result is not stored yet.
The interpreter's profile events are exactly these moments; an exception that is raised by their
handler comes out of the call itself.
"""

import contextlib
import dis
import inspect
import sys
import threading
import traceback
from pathlib import Path

import psycopg
import redis

import indelible

# A bound on what hangs, not on what is slow.
HANGS_S = 60

OURS = str(Path(indelible.__file__).parent)
# The libraries on the way to the engine, and Python's own locks and context managers.
BENEATH = (
    *(str(Path(module.__file__).parent) for module in (redis, psycopg)),
    threading.__file__,
    contextlib.__file__,
)
# Calls that wait, and are interrupted before they have done anything.
BLOCKING = {"acquire", "poll", "sleep", "select", "get", "wait", "recv_into", "sendall", "execute"}

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_RETURNS = {dis.opmap["RETURN_VALUE"], dis.opmap["YIELD_VALUE"]}
_CALLS = {number for name, number in dis.opmap.items() if name.startswith(("CALL", "PRECALL"))}
_BACKWARD = {number for name, number in dis.opmap.items() if "BACKWARD" in name}


class Interrupter:
    """A block in which the current thread is interrupted, at one point of its calls.

    `after` names a function: points count from its first call on.
    """

    def __init__(self, at, *, beneath=True, after=None):
        self.at = at
        self.passed = 0
        self.fired = False
        self.where = "nowhere"
        self._files = (OURS, *BENEATH) if beneath else (OURS,)
        self._after = after
        self._watched = {}
        # Frames that are inside of a function in C: what returns to it is not looked at.
        self._in_c = set()

    def __enter__(self):
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        sys.settrace(None)

    @property
    def counts(self):
        """Whether the function was called that points count from."""
        return self._after is None

    def _is_watched(self, frame):
        file = frame.f_code.co_filename
        watched = self._watched.get(file)
        if watched is None:
            watched = self._watched[file] = file.startswith(self._files)
        return watched

    def _profile(self, frame, event, arg):
        if event == "c_call":
            self._in_c.add(frame)
            if self._is_watched(frame) and arg.__name__ in BLOCKING:
                self._point(frame, f"inside {arg.__name__}")
        elif event in ("c_return", "c_exception"):
            self._in_c.discard(frame)
            if event == "c_return" and self._is_watched(frame):
                self._point(frame, f"after {arg.__name__}")
        # What happens when a generator goes on, or ends, is told by the call that made it.
        elif self._is_watched(frame) and not frame.f_code.co_flags & _GENERATORS:
            if event == "call":
                if frame.f_code.co_name == self._after:
                    self._after = None
                self._point(frame, "at the start")
            elif _returns_to_python(frame) and frame.f_back not in self._in_c:
                self._point(frame, "at the return")

    def _trace(self, frame, event, arg):
        if frame.f_code.co_filename.startswith(OURS):
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
            return self._trace_opcode
        return None

    def _trace_opcode(self, frame, event, arg):
        if event == "opcode" and _opcode(frame) in _BACKWARD:
            self._point(frame, "at the next turn")
        return self._trace_opcode

    def _point(self, frame, what):
        if self.fired or self._after is not None or _is_finalizing(frame):
            return
        self.passed += 1
        if self.passed == self.at:
            self.fired = True
            stack = traceback.extract_stack(frame)[-4:]
            way = " > ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in stack)
            self.where = f"point {self.at}, {what} of {way}"
            sys.settrace(None)
            raise KeyboardInterrupt


def _opcode(frame):
    return frame.f_code.co_code[frame.f_lasti]


def _is_finalizing(frame):
    """Whether this is part of a `__del__`, where Python swallows what is raised."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _returns_to_python(frame):
    """Whether a function returns, and to a call: then Python looks for signals."""
    caller = frame.f_back
    return _opcode(frame) in _RETURNS and caller is not None and _opcode(caller) in _CALLS


class Thread:
    """A thread that does one thing after another, and is given up when it hangs."""

    def __init__(self, name):
        self._name = name

    def run(self, work, *arguments):
        """What the work returns or raises."""
        return self.begin(work, *arguments)()

    def begin(self, work, *arguments):
        """Begin the work; what is returned waits for its end."""
        outcome = []

        def attempt():
            try:
                outcome.append((work(*arguments), None))
            except BaseException as error:  # noqa: BLE001 -- raised again by who waits
                outcome.append((None, error))

        thread = threading.Thread(target=attempt, name=self._name, daemon=True)
        thread.start()

        def result():
            thread.join(HANGS_S)
            if thread.is_alive():
                stack = traceback.format_stack(sys._current_frames()[thread.ident])
                raise AssertionError(f"{self._name} hangs:\n{''.join(stack)}")
            value, error = outcome[0]
            if error is not None:
                raise error
            return value

        return result


def interrupted(work, at, **options):
    """Do the work in a thread of its own, interrupted at a point; the interrupter and its error."""
    interrupter = Interrupter(at, **options)

    def attempt():
        with interrupter:
            return work()

    error = None
    try:
        Thread("interrupted").run(attempt)
    except KeyboardInterrupt as raised:
        error = raised
    return interrupter, error
