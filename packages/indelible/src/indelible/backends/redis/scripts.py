"""The scripts: one for each thing that is done atomically, known to the server by its digest."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple

from indelible.backends.redis.keys import VIEW_FIELDS
from indelible.backends.redis.log_rows import ROW_PATTERN
from indelible.core.codec import (
    CHECKSUM_FROM,
    CHECKSUM_TO,
    ITEM_KINDS,
    KIND_FROM,
    get_kind_prefix,
)
from indelible.core.limits import EXPIRED_KNOWN_S, KEYS_KEPT, LOG_ENTRIES_MAX
from indelible.core.rows import KIND_NUMBER

# A server runs one script at a time, and everybody waits. So no call looks at more than this; what
# is longer goes on in the next call, inside the state that the first one saw.
READ_ROWS: Final = 1000
READ_LOOKED: Final = 5000
READ_BYTES: Final = 8 * 1024 * 1024
MEASURE_BYTES: Final = 32 * 1024 * 1024
REMOVE_ENTRIES: Final = 2000
# Rows that a script takes from the log at once.
READ_PAGE: Final = 100
# Rows that a script adds to the log at once: Lua passes at most some thousand values to a call.
PUSHED: Final = 1000
# A view that is written in fewer characters fits every limit on snapshots.
TEXT_SMALL: Final = 3300
# The engine keeps the keys of a session for this share of its time to live, and at most this long,
# after the deadline. Until that is used up, an append need not tell every key of its new end.
SLACK_SHARE: Final = 8
SLACK_MS: Final = 3600 * 1000


class LuaScript(NamedTuple):
    """A script, and the digest by which a server knows it."""

    name: str
    digest: bytes
    text: str

    def start(self, *, by_text: bool) -> tuple[str | bytes, str | bytes]:
        """Return the words of a call before its keys."""
        return ("EVAL", self.text) if by_text else (b"EVALSHA", self.digest)


# What a script refuses to run on: a session whose head is damaged ("head"), one that lost what its
# entries are found by ("entries"), or any part ("all", unless said otherwise here). None runs on
# whatever is left of a session.
_CHECKS: Final[dict[str, str | None]] = {
    "erase": None,
    "measure_entries": None,
    "import_audit": None,
    # It says itself what must be whole.
    "read_parts": None,
    "check_items": "head",
    "delete_expired": "head",
    "read": "entries",
}
_WRONG: Final = {
    "head": "s.wrong",
    "entries": "s.wrong or (s.active and find_wrong_entries(s))",
    "all": "s.wrong or (s.active and (find_wrong_entries(s) or find_wrong_parts(s, 1, 5)))",
}


@cache
def load_script(name: str, *, audited: bool = False) -> LuaScript:
    """Load a script, with the code that it begins with and the constants that it names.

    If it is `audited`, it writes a line of the session's audit with the change.
    """
    before, after = _read("audited").split("-- The script.\n")
    text = _read("prelude")
    if audited:
        takes, guards = before.split("-- The prelude.\n")
        text = takes + text + guards
    changes = _read("changes")
    if name == "append":
        changes += _read("append_parts")
        found = re.findall(r"^local function (\w+)", changes, re.MULTILINE)
        table = ", ".join(f"{each} = {each}" for each in found)
        text += f"local function load_changes()\n{changes}return {{{table}}}\nend\n"
    else:
        text += changes + _read("session")
        check = _CHECKS.get(name, "all")
        if check is not None:
            text += f"local found = {_WRONG[check]}\nif found then return build_error(found) end\n"
    text += _read(name)
    if audited:
        text += after
    # Not as variables: functions would capture them, in every call.
    constants = _constants()
    names = "|".join(constants)
    text = re.sub(rf"\b({names})\b", lambda found: str(constants[found[1]]), text)
    digest = sha1(text.encode()).hexdigest()  # noqa: S324 (how servers name scripts)
    return LuaScript(name, digest.encode(), text)


def _read(name: str) -> str:
    return files(__package__).joinpath("scripts", f"{name}.lua").read_text("utf-8")


def _constants() -> dict[str, object]:
    marks = ", ".join(
        f"['{number}'] = '{get_kind_prefix(kind).decode()}'" for kind, number in KIND_NUMBER.items()
    )
    items = "".join(str(KIND_NUMBER[kind]) for kind in sorted(ITEM_KINDS))
    # Lua counts from 1, and both ends are included.
    return {
        "KNOWN_MS": EXPIRED_KNOWN_S * 1000,
        "KEYS_KEPT": KEYS_KEPT,
        "LOG_MAX": LOG_ENTRIES_MAX,
        "SUM_FROM": CHECKSUM_FROM + 1,
        "SUM_TO": CHECKSUM_TO,
        "MARK_FROM": KIND_FROM + 1,
        "MARKS": f"({{{marks}}})",
        "READ_LOOKED": READ_LOOKED,
        "READ_BYTES": READ_BYTES,
        "READ_PAGE": READ_PAGE,
        "PUSHED": PUSHED,
        "ROW": f"'{ROW_PATTERN}'",
        "ITEM_KINDS": f"'{items}'",
        "MEASURE_BYTES": MEASURE_BYTES,
        "REMOVE_ENTRIES": REMOVE_ENTRIES,
        "TEXT_SMALL": TEXT_SMALL,
        "SLACK_SHARE": SLACK_SHARE,
        "SLACK_MS": SLACK_MS,
        "VIEW_FIELDS": ", ".join(f"'{name}'" for name in VIEW_FIELDS),
    }
