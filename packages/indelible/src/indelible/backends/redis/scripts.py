"""The Lua scripts: one for each atomic operation, called by its digest."""

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

# A server runs one script at a time while all clients wait. So no call handles more than this;
# longer work continues in the next call, in the state of the first.
READ_ROWS: Final = 1000
READ_LOOKED: Final = 5000
READ_BYTES: Final = 8 * 1024 * 1024
MEASURE_BYTES: Final = 32 * 1024 * 1024
REMOVE_ENTRIES: Final = 2000
# Rows that a script reads from the log by one command.
READ_PAGE: Final = 100
# Rows that a script adds to the log by one command: Lua passes only some thousand values to a call.
PUSHED: Final = 1000
# The text of a view up to this length is within the limits of a snapshot.
TEXT_SMALL: Final = 3300
# The server frees the keys of a session later than at its deadline, by this part of its time to
# live and at most this long. Within that slack, an append need not update the expiry of every key.
SLACK_SHARE: Final = 8
SLACK_MS: Final = 3600 * 1000


class LuaScript(NamedTuple):
    """A script, and the digest by which it is called."""

    digest: bytes
    text: str

    def start(self, *, by_text: bool) -> tuple[str | bytes, str | bytes]:
        """Return the beginning of a call, before its keys."""
        return ("EVAL", self.text) if by_text else (b"EVALSHA", self.digest)


# What a script checks before it runs: the head of the session ("head"), also the parts by which its
# entries are found ("entries"), or all parts ("all", the default). With None it checks nothing.
_CHECKS: Final[dict[str, str | None]] = {
    "erase": None,
    "measure_entries": None,
    # Its arguments say what is checked.
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
    """Load a script with the code that it needs, and insert constants.

    If it is `audited`, it also adds a line to the session's audit.
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
    # Inserted as text: variables would be captured by the functions in every call.
    constants = _constants()
    names = "|".join(constants)
    text = re.sub(rf"\b({names})\b", lambda found: str(constants[found[1]]), text)
    digest = sha1(text.encode()).hexdigest()  # noqa: S324 (how servers name scripts)
    return LuaScript(digest.encode(), text)


def build_permission_check(key: str) -> tuple[str | int, ...]:
    """Build the command that returns which commands of the scripts the user may not run."""
    texts = (each.read_text("utf-8") for each in files(__package__).joinpath("scripts").iterdir())
    used = {name for text in texts for name in re.findall(r"\bp?call\('([A-Z]+)'", text)}
    return ("EVAL", _read("denied_commands"), 1, key, *sorted(used))


def _read(name: str) -> str:
    return files(__package__).joinpath("scripts", f"{name}.lua").read_text("utf-8")


def _constants() -> dict[str, object]:
    marks = ", ".join(
        f"['{number}'] = '{get_kind_prefix(kind).decode()}'" for kind, number in KIND_NUMBER.items()
    )
    items = "".join(str(KIND_NUMBER[kind]) for kind in sorted(ITEM_KINDS))
    # Lua counts from 1 and includes both ends of a range.
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
