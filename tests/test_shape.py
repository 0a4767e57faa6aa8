"""The shape of the packages: which imports which, twins, public names. Read from the source."""

import ast
import inspect
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

import indelible
from indelible import AsyncMemoryStore, MemoryStore, open_async

PACKAGES = Path(__file__).parents[1] / "packages"
NAMES = ("indelible", "memory-contract", "pytest-snapshot-db")
SOURCES = [PACKAGES / name / "src" for name in NAMES]
FILES = sorted(path for source in SOURCES for path in source.rglob("*.py"))

# A part of indelible may import its own modules and those of parts before it; the last ones stand
# side by side.
PARTS = [
    {"errors", "model", "view", "version", "printable"},
    {"core"},
    {"backends"},
    {"addresses"},
    {"connect"},
    {"store", "store_async"},
    {"telemetry"},
    {"openers"},
    {"session_copy"},
    # The package itself: whoever says `import indelible` gets the stores with it.
    {""},
    {"adapters", "cli", "inspector", "testing", "__main__"},
]
LEVEL = {part: level for level, parts in enumerate(PARTS) for part in parts}
# The last parts do not import one another, but for these.
SIDEWAYS = {
    ("cli", "adapters"),
    ("cli", "inspector"),
    ("inspector", "adapters"),
    ("__main__", "cli"),
}
# Only the module that describes indelible to the kit imports the kit.
KIT_USERS = {"indelible.testing.contract_target", "indelible.testing.recording"}


def module_name(path):
    """`indelible.core.plan` for indelible/core/plan.py; a package is its `__init__`."""
    (source,) = (source for source in SOURCES if path.is_relative_to(source))
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def package_of(module):
    return module.partition(".")[0]


def part_of(module):
    """The part of indelible that a module belongs to; the package itself has no name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


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
    """`sqlite` for indelible.backends.sqlite.database; None outside and for the room itself."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["indelible", "backends"] and len(parts) > 2 else None


def test_there_are_arrows_to_look_at():
    assert ("indelible.openers", "indelible.connect") in ARROWS
    assert ("indelible.core.plans.view_changes", "indelible.view") in ARROWS
    assert ("indelible.connect", "indelible.backends.sqlite") in ARROWS, "imports inside functions"


def test_every_file_of_the_store_belongs_to_a_part():
    ours = [module for module in MODULES if package_of(module) == "indelible"]
    assert {part_of(module) for module in ours} <= set(LEVEL)


def test_imports_point_one_way():
    wrong = []
    for source, target in ARROWS:
        if {package_of(source), package_of(target)} != {"indelible"}:
            continue
        ours, theirs = part_of(source), part_of(target)
        if ours == theirs or (ours, theirs) in SIDEWAYS:
            continue
        level = LEVEL[ours]
        last = level == len(PARTS) - 1
        if LEVEL[theirs] > level or (last and LEVEL[theirs] == level):
            wrong.append(f"{source} imports {target}")
    assert wrong == []


def test_packages_do_not_import_one_another():
    wrong = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if package_of(source) != package_of(target) and source not in KIT_USERS
    ]
    assert wrong == []


def test_backends_never_import_one_another():
    wrong = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if backend_of(source) and backend_of(target) not in {None, backend_of(source)}
    ]
    assert wrong == []


def test_only_connect_knows_the_backends():
    wrong = [
        f"{source} imports {target}"
        for source, target in ARROWS
        if target.startswith("indelible.backends")
        and part_of(source) not in {"backends", "connect"}
    ]
    assert wrong == []


@pytest.mark.parametrize("plugin", ["memory_contract", "pytest_snapshot_db"])
def test_a_plugin_imports_nothing_but_pytest_until_it_is_used(plugin):
    for node in ast.parse(MODULES[f"{plugin}.pytest_plugin"].read_text("utf-8")).body:
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
        # Python calls `__repr__` without awaiting it.
        assert inspect.iscoroutinefunction(two) == (name != "__repr__")


def test_both_stores_are_opened_with_the_same_parameters():
    one, two = inspect.signature(indelible.open), inspect.signature(open_async)
    assert one.parameters == two.parameters


def test_no_file_is_a_drawer_for_odds_and_ends():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in FILES if drawers & {path.stem, *path.parts}] == []


def find_cycles(modules, arrows):
    """Groups of modules that import one another, at their top, inside functions or for types."""
    reached = {module: set() for module in modules}
    for source, target in arrows:
        reached[source].add(target)
    while True:
        grown = {one: two.union(*(reached[each] for each in two)) for one, two in reached.items()}
        if grown == reached:
            break
        reached = grown
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in modules
        if module in reached[module]
    }


@pytest.mark.parametrize("package", ["memory_contract", "pytest_snapshot_db"])
def test_no_modules_import_one_another(package):
    arrows = [
        (source, target)
        for source, target in ARROWS
        if package_of(source) == package_of(target) == package and source != target
    ]
    modules = {module for arrow in arrows for module in arrow}
    assert find_cycles(modules, arrows) == set()


def test_a_cycle_is_found_through_a_third_module():
    arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
    assert find_cycles({"a", "b", "c", "d"}, arrows) == {frozenset("abc")}


# Public classes that still share their name with one of another module. Nothing may be added.
SHARED_CLASS_NAMES = {
    "indelible": set(),
    "memory_contract": set(),
    "pytest_snapshot_db": set(),
}


@pytest.mark.parametrize("package", SHARED_CLASS_NAMES)
def test_no_two_modules_of_a_package_define_a_public_class_of_one_name(package):
    modules = defaultdict(set)
    for module, path in MODULES.items():
        if package_of(module) == package:
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].add(module)
    shared = {name: found for name, found in modules.items() if len(found) > 1}
    assert shared.keys() <= SHARED_CLASS_NAMES[package], shared


@pytest.mark.parametrize("module", ["apsw", "psycopg", "typer", "rich"])
def test_importing_the_package_does_not_import(module):
    code = f"import sys, indelible; raise SystemExit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_packages_share_without_sharing_is_the_same_text():
    copies = ("indelible.core.redaction", "memory_contract.redaction")
    assert len({MODULES[name].read_text("utf-8") for name in copies}) == 1


@pytest.mark.parametrize("package", NAMES)
def test_each_package_has_the_license(package):
    assert (PACKAGES / package / "LICENSE").read_text() == (PACKAGES.parent / "LICENSE").read_text()
