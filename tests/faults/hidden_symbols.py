"""A right store in a Python whose SQLite shows nothing of itself, as where it is built in."""

import _ctypes
import _sqlite3

from memory_contract import Adapter
from tests.support.disk_goldfish import WalFull


def hide():
    """From now on, whoever looks for the symbols of SQLite finds a library without them."""
    _sqlite3.__file__ = _ctypes.__file__
    return Opener()


class Opener:
    """Opens the store; wherever it arrives by pickle, symbols are hidden."""

    def __call__(self, workspace):
        return WalFull(workspace)

    def __reduce__(self):
        return hide, ()


store = Adapter(
    open=Opener(), capabilities=WalFull.capabilities, durability="power", name="hidden symbols"
)
