"""How many modules a call crosses on its way to the engine.

The path of a call is the longest chain of our modules that are on the stack at the same time. A
reader who follows a call meets one new idea for each of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import indelible
from indelible.connect import ENGINES
from tests.support.stores import Stores

PACKAGE = Path(indelible.__file__).parent
APPEND_MODULES_MAX = 9
READ_MODULES_MAX = 10


class PathRecorder:
    """A profiler that keeps the longest chain of modules."""

    def __init__(self) -> None:
        self.longest: list[str] = []
        self._names: dict[str, str | None] = {}

    @contextmanager
    def record(self) -> Iterator[None]:
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            modules: dict[str, None] = {}
            each: FrameType | None = frame
            while each is not None:
                if name := self._find_name(each.f_code.co_filename):
                    modules[name] = None
                each = each.f_back
            if len(modules) > len(self.longest):
                self.longest = list(modules)[::-1]

    def _find_name(self, file: str) -> str | None:
        if file not in self._names:
            path = Path(file)
            ours = path.is_relative_to(PACKAGE)
            self._names[file] = path.relative_to(PACKAGE).as_posix() if ours else None
        return self._names[file]


@pytest.fixture(params=[engine.name for engine in ENGINES])
def store(request, tmp_path):
    stores = Stores(f"{request.param}-blocking", tmp_path)
    yield stores.open()
    stores.close()


def find_path(call: Callable[[], object]) -> list[str]:
    """Return the modules on the longest path of a call that was made before."""
    call()
    recorder = PathRecorder()
    with recorder.record():
        call()
    return recorder.longest


def test_an_append_crosses_few_modules(store):
    path = find_path(lambda: store.add_message("s", "user", "hello"))
    assert 3 < len(path) <= APPEND_MODULES_MAX, path


def test_a_read_of_the_newest_messages_crosses_few_modules(store):
    for _ in range(30):
        store.add_message("s", "user", "hello")
    path = find_path(lambda: store.get_history("s", last=20))
    assert 3 < len(path) <= READ_MODULES_MAX, path
