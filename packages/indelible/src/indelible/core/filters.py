"""The filter language of `where=`: conditions on fields, all of which must hold.

    {"status": "active", "metadata.team": "support", "metadata.score": {"$gte": 3, "$lt": 5}}

A key names a field, or a value inside of one by its path. A plain value must be equal. Values of
different types are neither equal nor ordered, so that a filter never fails on what is stored.
A part of a path in double quotes is one key, whatever is in it: `value."a.b"`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from indelible.errors import UsageError

_ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
OPERATORS: Final = ("$eq", "$ne", *_ORDERED, "$in", "$exists")

_MISSING: Final = object()

# A path that begins with a key in quotes; quotes in the key are doubled.
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"(?:\.(.*))?', re.DOTALL)

# Conditions that people type, such as `metadata.team=support`.
_CONDITION: Final = re.compile(r"(.+?)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_SIGNS: Final = {"=": "$eq", "!=": "$ne", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_TIMES: Final = ("created_at", "last_activity", "expires_at", "written_at")


class Condition(NamedTuple):
    """One comparison of a filter."""

    key: str
    operator: str
    value: Any

    def holds(self, document: Mapping[str, Any]) -> bool:
        """Return whether the comparison holds for a document."""
        found = _look_up(document, self.key)
        match self.operator:
            case "$exists":
                return (found is not _MISSING) is self.value
            case "$ne":
                return not _is_equal(found, self.value)
            case "$in":
                return any(_is_equal(found, value) for value in self.value)
            case "$eq":
                return _is_equal(found, self.value)
        is_comparable = _get_type(found) is _get_type(self.value)
        return is_comparable and _ORDERED[self.operator](found, self.value)


Filter = tuple[Condition, ...]


def parse_filter(where: object, *, fields: Sequence[str], documents: Sequence[str] = ()) -> Filter:
    """Parse a filter on these fields, and on paths inside of these documents."""
    if where is None:
        return ()
    if not isinstance(where, Mapping):
        raise UsageError(f"where is a mapping from fields to values, not {where!r}", value=where)
    conditions: list[Condition] = []
    for key, wanted in where.items():
        document, dot, path = key.partition(".") if isinstance(key, str) else ("", "", "")
        if key not in fields and not (document in documents and dot and path):
            known = ", ".join([*fields, *(f"{name}.<key>" for name in documents)])
            raise UsageError(f"where[{key!r}]: no such field; there are {known}", value=key)
        compared = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
        if not compared:
            raise UsageError(f"where[{key!r}]: no operator; there are {', '.join(OPERATORS)}")
        conditions += [_parse_condition(key, *each) for each in compared.items()]
    # A filter is the same however it was written: cursors are bound to it.
    return tuple(sorted(conditions, key=lambda condition: condition[:2]))


def matches(conditions: Filter, document: Mapping[str, Any]) -> bool:
    """Return whether all conditions of a filter hold for a document."""
    return all(condition.holds(document) for condition in conditions)


def _parse_condition(key: str, name: object, value: object) -> Condition:
    if not isinstance(name, str) or name not in OPERATORS:
        known = ", ".join(OPERATORS)
        raise UsageError(f"where[{key!r}]: no such operator: {name!r}; there are {known}")
    if name == "$exists":
        if not isinstance(value, bool):
            raise UsageError(f"where[{key!r}]: $exists takes True or False, not {value!r}")
    elif name == "$in":
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise UsageError(f"where[{key!r}]: $in takes a list of values, not {value!r}")
        value = tuple(sorted((_check_value(key, name, each) for each in value), key=repr))
    else:
        value = _check_value(key, name, value)
    return Condition(key, name, value)


def _check_value(key: str, name: str, value: object) -> object:
    kind = _get_type(value)
    # Only a value inside of a document can be a list.
    unfit = (bool, list, type(None)) if name in _ORDERED else () if "." in key else (list,)
    if kind is object or kind in unfit:
        wanted = "a text, a number or a time"
        raise UsageError(f"where[{key!r}]: {name} does not take {value!r}, but {wanted}")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise UsageError(f"where[{key!r}]: a time needs a time zone: {value!r}")
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise UsageError(f"where[{key!r}]: no such time in UTC: {value!r}") from None
    return str(value) if isinstance(value, str) else value


def _look_up(document: Any, path: str) -> Any:
    """Return the value at a path; keys that contain dots are found also without quotes."""
    if not isinstance(document, Mapping):
        return _MISSING
    if quoted := _QUOTED.fullmatch(path):
        found = document.get(quoted[1].replace('""', '"'), _MISSING)
        return found if quoted[2] is None else _look_up(found, quoted[2])
    if path in document:
        return document[path]
    first, dot, rest = path.partition(".")
    return _look_up(document[first], rest) if dot and first in document else _MISSING


def _get_type(value: object) -> type:
    """Return the type that values are compared within; `object` if they are not comparable."""
    for kind in (bool, str, datetime, list, type(None)):
        if isinstance(value, kind):
            return kind
    return float if isinstance(value, (int, float)) else object


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    return _get_type(one) is _get_type(other) and one == other


def parse_conditions(texts: Iterable[str]) -> dict[str, dict[str, object]]:
    """Parse conditions that people type; a value is text, unless it is JSON or a date."""
    where: dict[str, dict[str, object]] = {}
    for text in texts:
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise UsageError(f"a condition is a field, an operator and a value, not {text!r}")
        key, sign, value = found.groups()
        compared = where.setdefault(key, {})
        if _SIGNS[sign] in compared:
            raise UsageError(f"there are two conditions with {key}{sign}; give one of them")
        compared[_SIGNS[sign]] = _parse_typed_value(key, value)
    return where


def _parse_typed_value(key: str, text: str) -> object:
    try:
        if key not in _TIMES:
            return json.loads(text)
        moment = datetime.fromisoformat(text)
    except (ValueError, RecursionError):
        # If the field takes no text, the store says so.
        return text
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
