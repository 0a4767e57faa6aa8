"""Work in a new process: "A saves and exits, B rolls back" in three lines.

The process is a new interpreter with the same module path, and without the open files, threads and
caches of its parent. It inherits stdout and stderr.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

TIMEOUT_S: Final = 60.0
SIZE_BYTES: Final = 8
# Children of a killed process may hold its pipe open.
LINGER_S: Final = 5.0
# Loads only this file, since importing the package is slow.
_LAUNCH: Final = """
import sys
sys.path[:] = {path!r}
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_indelible_child", {file!r})
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.run_child({pipe})
"""


class ChildError(Exception):
    """The other process was killed, or its error or result cannot be pickled."""


class Started:
    """A function that runs in a process of its own."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], named: Any) -> None:
        self._name = getattr(function, "__qualname__", repr(function))
        work = _pickle_call(function, args, named)
        ours, theirs = os.pipe()
        code = _LAUNCH.format(path=sys.path, file=__file__, pipe=theirs)
        try:
            self._process = subprocess.Popen(  # noqa: S603 (this interpreter, our own code)
                [sys.executable, "-c", code], stdin=subprocess.PIPE, pass_fds=[theirs]
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._answer = b""
        self._reading = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reading.start()
        assert self._process.stdin is not None
        # A child that died at once has closed the pipe.
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(work)

    def _read(self, pipe: int) -> None:
        with open(pipe, "rb") as file:
            size = int.from_bytes(file.read(SIZE_BYTES))
            self._answer = file.read(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def running(self) -> bool:
        """Return whether it still runs."""
        return self._process.poll() is None

    def kill(self) -> int:
        """Kill it if it still runs; return its exit code, -9 if it was killed."""
        if self.running():
            self._process.kill()
        code = self._process.wait()
        self._reading.join(LINGER_S)
        return code

    def result(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the result of the function, or raise its error, or `ChildError` if it was killed.

        A process that takes longer than `timeout_s` is killed, and a `TimeoutError` raised.
        """
        __tracebackhide__ = True
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(
                f"{self._name} did not end within {timeout_s:g} s, and was killed"
            ) from None
        self._reading.join(LINGER_S)
        if not self._answer:
            raise ChildError(f"{self._name} gave no answer: its process {_describe_exit(code)}")
        try:
            kind, value, said = pickle.loads(self._answer)  # noqa: S301 (our own child's)
        except Exception as error:  # noqa: BLE001 (a class may fail in any way to be made again)
            raise ChildError(f"the answer of {self._name} cannot be pickled: {error}") from None
        if kind == "returned":
            return value
        if isinstance(value, BaseException):
            value.add_note(f"in another process:\n{said}")
            raise value
        raise ChildError(f"{self._name} raised in another process:\n{said}")


def start_in_process(function: Callable[..., Any], /, *args: Any, **named: Any) -> Started:
    """Start `function(*args, **named)` in a new process, to be killed or waited for."""
    return Started(function, args, named)


def run_in_process(
    function: Callable[..., Any], /, *args: Any, timeout_s: float = TIMEOUT_S, **named: Any
) -> Any:
    """Run `function(*args, **named)` in a new process; return its result or raise its error.

    The function must be importable by its name; its arguments are pickled. A process that takes
    longer than `timeout_s` is killed.
    """
    __tracebackhide__ = True
    with Started(function, args, named) as started:
        return started.result(timeout_s)


@contextmanager
def starting() -> Iterator[Callable[..., Started]]:
    """Yield `start_in_process`; kill the processes that it started at the end."""
    begun: list[Started] = []

    def start(function: Callable[..., Any], /, *args: Any, **named: Any) -> Started:
        begun.append(start_in_process(function, *args, **named))
        return begun[-1]

    try:
        yield start
    finally:
        for each in begun:
            each.kill()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"


def _pickle_call(function: Callable[..., Any], args: tuple[Any, ...], named: Any) -> bytes:
    """Pickle the arguments, with the module and name of the function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    if module is None or not name or "<" in name:
        raise ValueError(
            f"{name or function!r} cannot be found by another process: it must stand in a module by"
            " its own name, and not inside a function"
        )
    where = json.dumps({"module": module, "file": file, "name": name})
    try:
        return where.encode() + b"\n" + pickle.dumps((args, named))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(f"an argument of {name} cannot be pickled: {error}") from None


def run_child(pipe: int) -> None:
    """In the new process: call the function, and answer through the pipe."""
    os.set_inheritable(pipe, False)
    where = json.loads(sys.stdin.buffer.readline())
    try:
        function = _find_function(where["module"], where["file"], where["name"])
        args, named = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 (our own parent's)
        answer = _pickle_answer("returned", function(*args, **named), "")
    except BaseException as error:  # noqa: BLE001 (all of it is the parent's)
        answer = _pickle_answer("raised", error, traceback.format_exc())
    with open(pipe, "wb") as file:
        file.write(len(answer).to_bytes(SIZE_BYTES) + answer)


def _pickle_answer(kind: str, value: Any, said: str) -> bytes:
    try:
        answer = pickle.dumps((kind, value, said))
        if kind == "raised":
            # Some errors can be pickled but not unpickled.
            pickle.loads(answer)  # noqa: S301 (our own)
        return answer
    except Exception as error:  # noqa: BLE001 (a class may fail in any way)
        said = said or f"its result cannot be pickled: {error}"
        return pickle.dumps(("raised", None, said))


def _find_function(module: str, file: str | None, name: str) -> Callable[..., Any]:
    """Find the function. A test module may not be importable by name; then it is loaded by file."""
    import importlib.util  # noqa: PLC0415 (only the child looks for modules)

    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        spec = importlib.util.spec_from_file_location(module, file) if file else None
        if spec is None or spec.loader is None:
            raise
        found = sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]
