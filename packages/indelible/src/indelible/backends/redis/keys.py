"""The names of a session's keys. Ids are encoded, never joined; all keys of one share a slot."""

from __future__ import annotations

import re
from typing import NamedTuple

from indelible.backends.redis.protocol import packed, packed_arguments
from indelible.core.checksums import compute_session_salt

# Every key of ours begins like this.
PREFIX = "indelible:"
# Says which format the keys of a server, or of a namespace, have.
FORMAT_KEY = PREFIX + "format"
# Holds the secret that signs page cursors.
SECRET_KEY = PREFIX + "secret"

# The parts of a session: what stands after the hash tag.
HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL, ASIDE = "hvlksjq"
PARTS = (HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL, ASIDE)

# What says all about a session but its entries, in the order that checksums take. Most appends
# change only the end and the deadline of a head; the rest is one text, its state, so that it is
# read and checked at once.
HEAD_FIELDS = ("state", "end", "deadline", "sum")
# The words of a state. `until` is when the engine frees the keys; `lines` and `snaps` count what
# was ever written; the last four say how many fields the other hashes have.
STATE_FIELDS = (
    *("life", "born", "gen", "staged", "until", "lines", "snaps"),
    *("keys", "snapshots", "journal", "aside"),
)
VIEW_FIELDS = ("tail", "extents", "created", "metadata", "forked", "vacuums", "sum")


def _look(key: str, fields: tuple[str, ...]) -> bytes:
    return packed("HMGET", key, *fields)


# Everything else is written as %xx: no brace can end a hash tag, no star can match, and what is
# the beginning of an id is the beginning of its encoding.
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.@-]")
_ESCAPED = re.compile(rb"%([0-9a-f]{2})")


class SessionKeys(NamedTuple):
    """The keys of one session: the head, and others as they are sent."""

    head: str
    # What the checksums of its entries begin with.
    salt: int
    # All of them, as every script takes them.
    packed: bytes
    # What looks at the head and at the view, and the log.
    looks: tuple[bytes, bytes]
    log: bytes


def encoded(text: str) -> str:
    """Text as a part of a key."""
    if text.isascii() and text.isalnum():
        return text
    return _UNSAFE.sub(lambda found: b"%%%02x" % found[0][0], text.encode()).decode("ascii")


def decoded(part: bytes) -> str:
    """The text that `encoded` made a part of."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), part).decode()


def keys_of(namespace: str, session: str) -> SessionKeys:
    """All keys of a session."""
    tag = f"{PREFIX}{{{encoded(namespace)}:{encoded(session)}}}"
    return SessionKeys(
        tag + HEAD,
        compute_session_salt(namespace, session),
        packed_arguments(tag + part for part in PARTS),
        (_look(tag + HEAD, HEAD_FIELDS), _look(tag + VIEW, VIEW_FIELDS)),
        packed_arguments((tag + LOG,)),
    )


def heads_pattern(namespace: str, prefix: str) -> str:
    """What SCAN matches: the heads of the sessions of a namespace whose ids begin like this."""
    return f"{PREFIX}{{{encoded(namespace)}:{encoded(prefix)}*}}{HEAD}"


def parts_pattern(namespace: str, prefix: str) -> str:
    """What SCAN matches: every key of these sessions."""
    return f"{PREFIX}{{{encoded(namespace)}:{encoded(prefix)}*}}?"


def is_head(key: bytes) -> bool:
    """Whether this is the head of a session."""
    return key.endswith(HEAD.encode())


def head_key_of(part: bytes) -> bytes:
    """The key of a session's head, from any other of its keys."""
    return part[:-1] + HEAD.encode()


def session_of(key: bytes) -> str | None:
    """The session whose key this is; None if it only looks like a key of ours."""
    inside = key[key.index(b"{") + 1 : key.rindex(b"}")]
    name = inside.partition(b":")[2]
    try:
        session = decoded(name)
    except UnicodeDecodeError:
        return None
    return session if encoded(session).encode() == name else None


def view_key_of(head: bytes) -> bytes:
    """The key of a session's view, from that of its head."""
    return head[:-1] + VIEW.encode()
