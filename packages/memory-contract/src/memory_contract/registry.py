"""What other packages register with the kit, by entry point.

A package that brings a store declares up to three entry points in its `pyproject.toml`, each under
the name of the package:

    [project.entry-points."memory_contract.targets"]     # (target: str) -> Adapter | None
    [project.entry-points."memory_contract.recorders"]   # (store) -> its verbs, or None
    [project.entry-points."memory_contract.faults"]      # () -> context manager of its faults

Nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, Final

TARGETS: Final = "memory_contract.targets"
RECORDERS: Final = "memory_contract.recorders"
FAULTS: Final = "memory_contract.faults"


class RegistrationError(ValueError):
    """A package registers something with the kit that cannot be loaded."""


def load_registered(group: str, name: str | None = None) -> Iterator[Callable[..., Any]]:
    """What packages have registered in a group; only the one of this name, if there is one."""
    found = entry_points(group=group) if name is None else entry_points(group=group, name=name)
    for each in found:
        try:
            yield each.load()
        except (ImportError, AttributeError) as error:
            package = each.dist.name if each.dist else each.value
            raise RegistrationError(
                f"the package {package} registers {each.value} in {group}, which cannot be loaded:"
                f" {error}. Upgrade it, or remove it"
            ) from error
