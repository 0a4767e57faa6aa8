"""Work in a forked process."""

import os


def in_a_child(work):
    """Do it in a fork, which never comes back here, whatever happens."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)
