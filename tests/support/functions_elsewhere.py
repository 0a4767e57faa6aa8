"""Functions that tests run in other processes."""

import os
import sys
import time
from pathlib import Path


class RefusalError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, *, reason):
        super().__init__(f"refused: {reason}")


def save(path):
    import indelible

    with indelible.open(path) as store:
        store.add_message("ana", "user", "one")
        snapshot = store.save_snapshot("ana")
        store.add_message("ana", "user", "two")
    return snapshot.id


def roll_back(path, snapshot):
    import indelible

    with indelible.open(path) as store:
        store.rollback_to_snapshot("ana", snapshot)
        return [message.content for message in store.get_history("ana")]


def who():
    return os.getpid()


def named(*args, **options):
    return args, options


def say(words):
    sys.stdout.write(words)


def raise_it(kind, *args):
    raise kind(*args)


def refuse():
    raise RefusalError(reason="because")


def end(code):
    os._exit(code)


def leave():
    sys.exit(3)


def wait_for_ever(sign=None):
    if sign is not None:
        Path(sign).touch()
    while True:
        time.sleep(0.01)


def unsendable():
    return lambda: None
