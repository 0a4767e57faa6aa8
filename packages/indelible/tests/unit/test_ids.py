"""Ids: no two alike, in threads and in processes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from indelible.core.ids import random_ids


def test_a_forked_child_draws_none_of_its_parents_ids() -> None:
    first = random_ids()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, " ".join(random_ids() for _ in range(200)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        theirs = answer.read().split()
    os.waitpid(child, 0)
    ours = [random_ids() for _ in range(200)]
    assert len({first, *ours, *theirs}) == 401


def test_threads_draw_no_id_twice() -> None:
    def draw(_: int) -> list[str]:
        return [random_ids() for _ in range(500)]

    with ThreadPoolExecutor(8) as pool:
        drawn = [each for some in pool.map(draw, range(16)) for each in some]
    assert len(set(drawn)) == len(drawn) == 8000
    assert all(len(each) == 16 for each in drawn)
