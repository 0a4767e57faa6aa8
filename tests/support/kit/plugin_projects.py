"""Small projects that use the plugin: a store that keeps its word, and some that do not."""

STORES = '''
import asyncio
import threading
import warnings


class Steady:
    """A plain list under a lock."""

    def __init__(self):
        self._sessions = {}
        self._lock = threading.Lock()

    def add_messages(self, session, messages):
        with self._lock:
            self._sessions.setdefault(session, []).extend(messages)

    def get_history(self, session):
        with self._lock:
            return list(self._sessions.get(session, ()))


class Lossy:
    """Reads, gives way, and writes back what it read."""

    def __init__(self):
        self._sessions = {}

    async def add_messages(self, session, messages):
        before = list(self._sessions.get(session, ()))
        await asyncio.sleep(0)
        self._sessions[session] = [*before, *messages]

    async def get_history(self, session):
        return list(self._sessions.get(session, ()))


class Warning_(Steady):
    """Warns whenever it can."""

    def __init__(self):
        warnings.warn("this store is old", DeprecationWarning, stacklevel=2)
        super().__init__()

    def add_messages(self, session, messages):
        warnings.warn("really old", DeprecationWarning, stacklevel=2)
        super().add_messages(session, messages)


class Closed:
    """Cannot be opened."""

    def __init__(self):
        raise ConnectionError("nobody is there")

    def add_messages(self, session, messages): ...

    def get_history(self, session): ...
'''


def make(pytester, monkeypatch):
    """A project with stores of its own, in which every warning is an error."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # The plugins of our own tests take longer to load than most cases to run.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    pytester.makepyfile(stores=STORES)
    pytester.makepyfile(test_own="def test_own():\n    pass\n")


def run(pytester, *arguments):
    """Run pytest in a process of its own."""
    xdist = ["-p", "xdist"] if "-n" in arguments else []
    return pytester.runpytest_subprocess("-p", "memory_contract", *xdist, *arguments)


def contract(pytester, *arguments, store="Steady", seed=7):
    """Run pytest with the contract of one of the stores."""
    return run(pytester, "--contract", f"stores:{store}", f"--contract-seed={seed}", *arguments)


def ids(ran):
    """The items that a run would have, in their order."""
    return [line for line in ran.outlines if line.startswith(("contract/", "test_"))]


def outcomes(ran):
    """How many items passed, failed and so on."""
    counts = ran.parseoutcomes()
    return {name: counts[name] for name in counts if name not in ("warnings", "deselected")}
