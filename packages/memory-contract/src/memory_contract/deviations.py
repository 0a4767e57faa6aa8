"""Known failures, listed in a file with their reasons.

    [concurrency.pop_race]
    reason = "two workers may pop the same entry until version 3"
    issue = "https://example.org/mystore/issues/12"
    modes = ["processes"]

A deviation turns a FAIL into a DEVIATION. One that no longer fails is a failure itself, so that
the list never says more than is true. Without `modes` it stands for every mode of the case.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from memory_contract.cases.case import Case
from memory_contract.cases.catalogue import all_cases
from memory_contract.errors import UsageError, suggest
from memory_contract.gates import GATES
from memory_contract.results import CaseResult, build_case_failure

FILE: Final = "indelible-deviations.toml"
_KEYS: Final = ("reason", "issue", "modes")


class DeviationsError(UsageError, ValueError):
    """The list of deviations cannot be read, or names what does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One case that a store is known to fail."""

    case: str
    reason: str
    issue: str
    modes: tuple[str, ...]

    def covers(self, result: CaseResult) -> bool:
        """Whether this is about the case and mode of a result."""
        return f"{result.gate}/{result.case}" == self.case and result.mode in self.modes

    @property
    def words(self) -> str:
        """The reason, with the issue if there is one."""
        return f"{self.reason} ({self.issue})" if self.issue else self.reason


@dataclass(frozen=True, slots=True)
class Deviations:
    """All known deviations of one store."""

    listed: tuple[Deviation, ...] = ()

    def apply(self, result: CaseResult) -> CaseResult:
        """The result with a FAIL made a DEVIATION, and a PASS that is listed made a FAIL."""
        deviation = next((each for each in self.listed if each.covers(result)), None)
        if deviation is None:
            return result
        if result.verdict == "FAIL":
            return replace(result, verdict="DEVIATION", reason=deviation.words)
        if result.verdict == "PASS":
            proof = f"listed as a deviation ({deviation.reason}), but it passes: remove it"
            failure = build_case_failure("stale deviation", proof)
            return replace(result, verdict="FAIL", reason=proof, failures=(failure,))
        return result


def read_deviations(path: Path) -> Deviations:
    """Read a file of deviations; every mistake in it is an error, since it could hide a FAIL."""
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DeviationsError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeviationsError(f"cannot read {path}: {error}") from error
    known = {found.id: found for found in all_cases()}
    found = []
    for gate, inside in tables.items():
        if gate not in GATES:
            raise DeviationsError(
                f"{path}: there is no gate {gate!r}; there are {', '.join(GATES)}"
                + suggest(gate, GATES)
            )
        if not isinstance(inside, dict) or not all(isinstance(t, dict) for t in inside.values()):
            raise DeviationsError(f"{path}: write [{gate}.CASE] with a reason below it")
        found += [
            _parse_deviation(known, gate, name, table, path) for name, table in inside.items()
        ]
    return Deviations(tuple(found))


def find_deviations(*folders: Path) -> Deviations:
    """Read the file in the first folder that has one; without a file, there are none."""
    for folder in folders:
        if (folder / FILE).is_file():
            return read_deviations(folder / FILE)
    return Deviations()


def _parse_deviation(
    known: Mapping[str, Case], gate: str, name: str, table: Mapping[str, Any], file: Path
) -> Deviation:
    found = known.get(f"{gate}/{name}")
    if found is None:
        raise DeviationsError(
            f"{file}: there is no case {name!r} in the gate {gate};"
            " `memory-contract cases` lists them"
            + suggest(name, [each.name for each in known.values() if each.gate == gate])
        )
    where = f"{file}: [{gate}.{name}]"
    if unknown := sorted(set(table) - set(_KEYS)):
        raise DeviationsError(f"{where} has {unknown[0]!r}; it may have {', '.join(_KEYS)}")
    given = {"reason": "", **table}
    for key, article in (("reason", "a"), ("issue", "an")):
        if key in given and (not isinstance(given[key], str) or not given[key].strip()):
            raise DeviationsError(f"{where} needs {article} {key}, in words")
    modes = given.get("modes", list(found.modes))
    if not isinstance(modes, list) or not modes:
        raise DeviationsError(f"{where}: modes is a list, such as [{found.modes[0]!r}]")
    if others := [mode for mode in modes if mode not in found.modes]:
        has = ", ".join(found.modes)
        raise DeviationsError(f"{where}: the case has no mode {others[0]!r}; it has {has}")
    return Deviation(
        case=found.id,
        reason=given["reason"].strip(),
        issue=given.get("issue", "").strip(),
        modes=tuple(modes),
    )
