"""The scripts: one for each thing that is done atomically, known to the server by its digest."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple

from indelible.backends.redis.keys import HEAD_FIELDS, PARTS, STATE_FIELDS, VIEW_FIELDS
from indelible.backends.redis.protocol import packed_arguments
from indelible.core.codec import CHECKSUM_FROM, CHECKSUM_TO, KIND_FROM, get_kind_prefix
from indelible.core.limits import EXPIRED_KNOWN_S, KEYS_KEPT, LOG_ENTRIES_MAX
from indelible.model import Kind

# Kinds as entries keep them.
KIND_NUMBER: Final = {Kind.MESSAGE: 1, Kind.TOOL_CALL: 2, Kind.TOOL_RESULT: 3, Kind.SUMMARY: 4}
KIND_OF_NUMBER: Final = {b"%d" % number: kind for kind, number in KIND_NUMBER.items()}

# A server runs one script at a time, and everybody waits. So no call looks at more than this; what
# is longer goes on in the next call, inside the state that the first one saw.
READ_ROWS: Final = 1000
READ_LOOKED: Final = 5000
READ_BYTES: Final = 8 * 1024 * 1024
MEASURE_BYTES: Final = 32 * 1024 * 1024
REMOVE_ENTRIES: Final = 2000
# Rows that are asked for without a script while nobody knows how long they are.
READ_ROWS_FIRST: Final = 100
# Entries that a script takes from the log at once.
READ_PAGE: Final = 100
# A view that is written in fewer characters fits every limit on snapshots.
TEXT_SMALL: Final = 3300
# The engine keeps the keys of a session for this share of its time to live, and at most this long,
# after the deadline. Until that is used up, an append need not tell every key of its new end.
SLACK_SHARE: Final = 8
SLACK_MS: Final = 3600 * 1000


# The words of a call before its keys.
EVAL_WORDS: Final = 3


class Script(NamedTuple):
    """A script as a call of it begins: by its digest, or with its text."""

    name: str
    by_digest: bytes
    by_text: bytes


@cache
def script(name: str, *, keys: int = len(PARTS)) -> Script:
    """One script, with the constants that it names and, but for appends, the prelude."""
    before = () if name.startswith("append") else ("prelude", "guard", *_guards(name))
    seals = () if name in ("append_plain", "append_group") else ("seals",)
    text = "".join(map(_file, ("sums", *seals, *before, name)))
    # Each is made anew in every call, so that a script has only those that it uses.
    constants = [
        f"local {constant} = {value}\n"
        for constant, value in _constants().items()
        if constant in text
    ]
    text = "".join([*constants, text])
    digest = sha1(text.encode()).hexdigest()  # noqa: S324 (how servers name scripts)
    return Script(
        name,
        packed_arguments(("EVALSHA", digest, keys)),
        packed_arguments(("EVAL", text, keys)),
    )


# What works on whatever is left of a session; what needs its head alone; what needs its entries.
_WITHOUT_GUARD: Final = {"erase", "measure"}
_OF_HEAD: Final = {"bury", "check_part", "read_quarantine", "remove"}
_OF_ENTRIES: Final = {"read", "read_log"}


def _guards(name: str) -> tuple[str, ...]:
    """What refuses to run a script on a session that is damaged."""
    if name in _WITHOUT_GUARD:
        return ()
    if name in _OF_HEAD:
        return ("guard_head",)
    return ("guard_entries" if name in _OF_ENTRIES else "guard_all",)


def _file(name: str) -> str:
    return files(__package__).joinpath("scripts", f"{name}.lua").read_text("utf-8")


def _table(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(f"'{name}'" for name in names) + "}"


def _constants() -> dict[str, object]:
    marks = ", ".join(
        f"['{number}'] = '{get_kind_prefix(kind).decode()}'" for kind, number in KIND_NUMBER.items()
    )
    # Lua counts from 1, and both ends are included.
    return {
        "KNOWN_MS": EXPIRED_KNOWN_S * 1000,
        "KEYS_KEPT": KEYS_KEPT,
        "LOG_MAX": LOG_ENTRIES_MAX,
        "SUM_FROM": CHECKSUM_FROM + 1,
        "SUM_TO": CHECKSUM_TO,
        "MARK_FROM": KIND_FROM + 1,
        "MARKS": f"{{{marks}}}",
        "READ_LOOKED": READ_LOOKED,
        "READ_BYTES": READ_BYTES,
        "READ_PAGE": READ_PAGE,
        "MEASURE_BYTES": MEASURE_BYTES,
        "REMOVE_ENTRIES": REMOVE_ENTRIES,
        "TEXT_SMALL": TEXT_SMALL,
        "SLACK_SHARE": SLACK_SHARE,
        "SLACK_MS": SLACK_MS,
        "HEAD_FIELDS": _table(HEAD_FIELDS),
        "VIEW_FIELDS": _table(VIEW_FIELDS),
        "STATE": "'^" + " ".join(["(%d*)"] * len(STATE_FIELDS)) + "$'",
    }
