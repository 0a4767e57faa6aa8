"""The page of all cases, written from the registry.

python -m memory_contract.cases.catalogue > docs/cases.md
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from memory_contract import cases
from memory_contract.adapter import CAPABILITIES
from memory_contract.cases.case import REGISTRY, Case
from memory_contract.gates import FAULT_GATES, GATES, TIERS, Gate
from memory_contract.results import CONTRACT_VERSION

OPENING: Final = f"""\
# Cases

What the contract, version {CONTRACT_VERSION}, asks of a store, gate by gate.
`memory-contract cases` lists the same, and [Check your store](how-to/check-your-store.md) says how
to run them.

A case runs in each of its modes that the store has: `blocking` and `async` callers, and races
between `threads`, `tasks` of one event loop, and `processes`. What a case needs beyond `append` and
`read`, the store must claim; if it does not, the case is NOT CLAIMED, which says nothing about the
store. *Shared* means that what one handle writes is seen by others, of the same process or of every
process of the machine; *durability*, that the store claims any.

The cases of the gates `faults` and `crash` make faults. Errors are allowed there: a store fails for
what it lost, doubled or tore, never for raising. A case in which no fault struck
while a call was open is VACUOUS. The *tier* says what a case needs of the machine; where that is
missing, the case is NOT RUN, and `memory-contract faults` says why.
"""


def all_cases() -> list[Case]:
    """Every case, gate by gate, then by module; the order does not depend on earlier imports."""
    # Importing a module registers its cases.
    for module in pkgutil.iter_modules(cases.__path__):
        import_module(f"{cases.__name__}.{module.name}")
    order = list(GATES)
    return sorted(
        REGISTRY.values(), key=lambda found: (order.index(found.gate), found.run.__module__)
    )


def catalogue() -> str:
    """The whole page."""
    everything = all_cases()
    parts = [OPENING, "| gate | cases | |\n|---|---|---|"]
    for gate in GATES:
        count = sum(each.gate == gate for each in everything)
        parts.append(f"| [{gate}](#{gate}) | {count} | {_cell(GATES[gate])} |")
    for gate in GATES:
        parts += ["", *_section(gate, [each for each in everything if each.gate == gate])]
    parts += ["", "## Tiers\n", "| tier | |\n|---|---|"]
    parts += [f"| {tier} | {_cell(about)} |" for tier, about in TIERS.items()]
    parts += ["", "## What a store can claim\n", "| capability | |\n|---|---|"]
    parts += [f"| `{name}` | {_cell(does)} |" for name, does in CAPABILITIES.items()]
    return "\n".join(parts) + "\n"


def _section(gate: Gate, cases: list[Case]) -> Iterator[str]:
    yield f"## {gate}\n"
    yield f"{GATES[gate][0].upper()}{GATES[gate][1:]}.\n"
    tiers = gate in FAULT_GATES
    more, rule = (" tier |", "---|") if tiers else ("", "")
    yield f"| case | does | catches | needs | modes |{more}\n|---|---|---|---|---|{rule}"
    for each in cases:
        needs = [f"`{need}`" for need in sorted(each.needs)]
        if each.reach != "handle":
            needs.append(f"*shared by a {each.reach}*")
        if each.durable:
            needs.append("*durability*")
        cells = (
            f"`{each.name}`",
            _cell(each.does),
            _cell(each.catches),
            ", ".join(needs),
            ", ".join(each.modes),
            *([each.tier] if tiers else []),
        )
        yield f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(catalogue())
