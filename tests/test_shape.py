"""The shape of the package: rooms and arrows, twins, public names, sizes. Read from the source."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import indelible
from indelible import AsyncMemoryStore, MemoryStore, open_async

SRC = Path(indelible.__file__).parent.parent
FILES = sorted(SRC.rglob("*.py"))

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
# Lists of verbs, a line of code each, that belong side by side.
LONGER_FILES = {"indelible/store.py": 700, "indelible/aio.py": 720}

# A room may look into its own and into those before it; the last ones stand side by side.
ROOMS = [
    {"errors", "model", "view", "version", "printable"},
    {"core"},
    {"backends"},
    {"opening"},
    {"store", "aio"},
    {"copying"},
    # The package itself: whoever says `import indelible` gets the stores with it.
    {""},
    {
        *("adapters", "contract", "cli", "golden", "inspector", "recall", "testing"),
        *("__main__", "_indelible_pytest"),
    },
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
# The last rooms do not look into one another, but for these.
SIDEWAYS = {
    ("cli", "contract"),
    ("cli", "adapters"),
    ("cli", "golden"),
    ("__main__", "cli"),
    ("_indelible_pytest", "contract"),
    ("_indelible_pytest", "golden"),
    ("_indelible_pytest", "testing"),
}


def module_name(path):
    """`indelible.core.plan` for packages/indelible/src/indelible/core/plan.py; a package is its `__init__`."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def room_of(module):
    """The room that a module stands in; the package itself is the room without a name."""
    parts = module.split(".")
    return (parts[1] if len(parts) > 1 else "") if parts[0] == "indelible" else parts[0]


def imported_by(path):
    """Every module of the package that a file imports, at its top or inside a function."""
    here = module_name(path)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                package = here.split(".")
                package = package if path.name == "__init__.py" else package[:-1]
                base = package[: len(package) - node.level + 1]
                source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                if inner in MODULES:
                    yield inner
                elif source in MODULES:
                    yield source


ARROWS = [(module_name(path), target) for path in FILES for target in imported_by(path)]


def backend_of(module):
    """`sqlite` for indelible.backends.sqlite.driver; None outside and for the room itself."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["indelible", "backends"] and len(parts) > 2 else None


def test_there_are_arrows_to_look_at():
    assert ("indelible.store", "indelible.opening") in ARROWS
    assert ("indelible.core.plans.changing", "indelible.view") in ARROWS
    assert ("indelible.opening", "indelible.backends.sqlite") in ARROWS, "imports inside functions"


def test_every_file_stands_in_a_room():
    assert {room_of(module) for module in MODULES} <= set(LEVEL)


def test_arrows_point_one_way():
    wrong = []
    for source, target in ARROWS:
        ours, theirs = room_of(source), room_of(target)
        if ours == theirs or (ours, theirs) in SIDEWAYS:
            continue
        level = LEVEL[ours]
        last = level == len(ROOMS) - 1
        if LEVEL[theirs] > level or (last and LEVEL[theirs] == level):
            wrong.append(f"{source} imports {target}")
    assert wrong == []


def test_backends_never_import_one_another():
    wrong = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if backend_of(source) and backend_of(target) not in {None, backend_of(source)}
    ]
    assert wrong == []


def test_only_opening_knows_the_backends():
    wrong = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if room_of(target) == "backends" and room_of(source) not in {"backends", "opening"}
    ]
    assert wrong == []


def test_only_the_command_line_and_the_plugin_import_the_kit():
    wrong = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if room_of(target) == "contract"
        and room_of(source) not in {"contract", "cli", "_indelible_pytest"}
    ]
    assert wrong == []


def test_goldens_know_nothing_of_the_store():
    wrong = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if room_of(source) == "golden" and room_of(target) not in {"golden", "version", "printable"}
    ]
    assert wrong == []


def test_the_plugin_imports_nothing_but_pytest_until_it_is_used():
    for path in SRC.glob("_indelible_pytest.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            else:
                continue
            assert {name.split(".")[0] for name in names} <= {"pytest", *sys.stdlib_module_names}


def test_the_exported_names_are_exactly_the_public_names():
    public = {
        name
        for name, value in vars(indelible).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(indelible.__all__) == public
    assert len(indelible.__all__) == len(set(indelible.__all__))


def test_every_error_is_exported():
    kinds = {
        name
        for name, value in vars(indelible.errors).items()
        if inspect.isclass(value) and value.__module__ == "indelible.errors"
    }
    assert kinds <= set(indelible.__all__)


# Where the twins must differ: the names that Python gives to entering and leaving them, and the
# backend that they are made of.
TWIN_NAME = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
OTHER_BACKEND = "__init__"


def methods(store):
    return {name: value for name, value in vars(store).items() if inspect.isfunction(value)}


def test_the_twins_have_the_same_methods():
    names = {TWIN_NAME.get(name, name) for name in methods(MemoryStore)}
    assert names == set(methods(AsyncMemoryStore))
    assert not [
        name
        for store in (MemoryStore, AsyncMemoryStore)
        for name, value in vars(store).items()
        if not name.startswith("_") and not inspect.isfunction(value)
    ], "an attribute that is no method would slip through"


@pytest.mark.parametrize("name", sorted(methods(MemoryStore)))
def test_the_async_twin_agrees(name):
    one = methods(MemoryStore)[name]
    two = methods(AsyncMemoryStore)[TWIN_NAME.get(name, name)]
    assert one.__doc__ == two.__doc__
    assert name.startswith("_") or one.__doc__
    assert not inspect.iscoroutinefunction(one)
    if name == OTHER_BACKEND:
        assert list(inspect.signature(one).parameters) == list(inspect.signature(two).parameters)
    else:
        assert inspect.signature(one) == inspect.signature(two)
        assert inspect.iscoroutinefunction(two)


def test_both_stores_are_opened_with_the_same_parameters():
    one, two = inspect.signature(indelible.open), inspect.signature(open_async)
    assert one.parameters == two.parameters


def test_no_file_is_a_drawer_for_odds_and_ends():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in FILES if drawers & {path.stem, *path.relative_to(SRC).parts}] == []


def test_no_file_is_too_long():
    lines = {path.relative_to(SRC): len(path.read_text("utf-8").splitlines()) for path in FILES}
    allowed = {path: LONGER_FILES.get(path.as_posix(), FILE_LINES_MAX) for path in lines}
    assert {path: count for path, count in lines.items() if count > allowed[path]} == {}


def test_no_function_is_too_long():
    too_long = {
        f"{path.relative_to(SRC)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert too_long == {}


@pytest.mark.parametrize("module", ["apsw", "psycopg", "typer", "rich"])
def test_importing_the_package_does_not_import(module):
    code = f"import sys, indelible; raise SystemExit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
