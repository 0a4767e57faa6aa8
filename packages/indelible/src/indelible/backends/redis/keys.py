"""The names of a session's keys. Ids are encoded; all keys of a session share a slot."""

from __future__ import annotations

import re
from typing import NamedTuple

from redis.crc import key_slot

from indelible.core.checksums import compute_session_salt

# The beginning of every key.
PREFIX = "indelible:"
# Holds the format of the keys of a server.
FORMAT_KEY = PREFIX + "format"
# Holds the secret that signs page cursors.
SECRET_KEY = PREFIX + "secret"

# The parts of a session: the end of each key's name, in the order in which scripts take them.
HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL, QUARANTINE, ITEMS = "hvlksjqi"
PARTS = (HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL, QUARANTINE, ITEMS)

ANY_PART = "?"

# The list of its audit, which scripts take after the parts. It is not a part, since it stays when
# the session is erased or expires.
AUDIT = "audit"

VIEW_FIELDS = ("tail", "extents", "metadata", "forked", "vacuums", "sum")

# Other characters are written as %xx, so that no brace ends a hash tag and no star matches in a
# pattern. The prefix of an id is the prefix of its encoding.
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.@-]")
_ESCAPED = re.compile(rb"%([0-9a-f]{2})")


class SessionKeys(NamedTuple):
    """The keys of one session."""

    session: str
    head: str
    # Its parts, in the order of `PARTS`.
    names: tuple[bytes, ...]
    audit: bytes
    # Their slot in a cluster.
    slot: int
    # Binds the checksums of entries to the session.
    salt: int


def encode_part(text: str) -> str:
    """Encode text as a part of a key."""
    if text.isascii() and text.isalnum():
        return text
    return _UNSAFE.sub(lambda found: b"%%%02x" % found[0][0], text.encode()).decode("ascii")


def decode_part(part: bytes) -> str:
    """Return the text that `encode_part` encoded."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), part).decode()


def build_keys(namespace: str, session: str) -> SessionKeys:
    """Build the keys of a session."""
    tag = f"{PREFIX}{{{encode_part(namespace)}:{encode_part(session)}}}"
    names = tuple((tag + part).encode() for part in PARTS)
    salt = compute_session_salt(namespace, session)
    return SessionKeys(session, tag + HEAD, names, (tag + AUDIT).encode(), key_slot(names[0]), salt)


def build_pattern(namespace: str, part: str, prefix: str = "") -> str:
    """Build the pattern for one part, or `ANY_PART`, of sessions whose ids begin with a prefix."""
    return f"{PREFIX}{{{encode_part(namespace)}:{encode_part(prefix)}*}}{part}"


def replace_part(key: bytes, part: str) -> bytes:
    """Return the key of another part of the same session."""
    return key[:-1] + part.encode()


def parse_session(key: bytes) -> str | None:
    """Return the session of a key; None if it only resembles a key of ours."""
    inside = key[key.index(b"{") + 1 : key.rindex(b"}")]
    name = inside.partition(b":")[2]
    try:
        session = decode_part(name)
    except UnicodeDecodeError:
        return None
    return session if encode_part(session).encode() == name else None
