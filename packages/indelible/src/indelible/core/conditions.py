"""Conditions that people type, such as `metadata.team=support`, for the filter language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from indelible.errors import UsageError

_CONDITION: Final = re.compile(r"(.+?)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_OPERATORS: Final = {"=": "$eq", "!=": "$ne", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_TIMES: Final = ("created_at", "last_activity", "expires_at", "written_at")


def parse_conditions(texts: Iterable[str]) -> dict[str, dict[str, object]]:
    """Parse conditions; a value is text, unless it is a JSON value or that of a date."""
    where: dict[str, dict[str, object]] = {}
    for text in texts:
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise UsageError(f"a condition is a field, an operator and a value, not {text!r}")
        key, sign, value = found.groups()
        compared = where.setdefault(key, {})
        if _OPERATORS[sign] in compared:
            raise UsageError(f"there are two conditions with {key}{sign}; give one of them")
        compared[_OPERATORS[sign]] = _parse_value(key, value)
    return where


def _parse_value(key: str, text: str) -> object:
    try:
        if key not in _TIMES:
            return json.loads(text)
        moment = datetime.fromisoformat(text)
    except (ValueError, RecursionError):
        # If the field takes no text, the store says so.
        return text
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
