"""The names of a session's keys. Ids are encoded, never joined; all keys of one share a slot."""

from __future__ import annotations

import re
from typing import NamedTuple

from indelible.backends.redis.protocol import packed_arguments

# Every key of ours begins like this.
PREFIX = "indelible:"
# Says which format the keys of a server, or of a namespace, have.
FORMAT_KEY = PREFIX + "format"
# Holds the secret that signs page cursors.
SECRET_KEY = PREFIX + "secret"

# The parts of a session: what stands after the hash tag.
HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL, ASIDE = "hvlksjq"
PARTS = (HEAD, VIEW, LOG, USED, SNAPSHOTS, JOURNAL, ASIDE)

# What says all about a session but its entries: six fields of its head, and six of its view.
_HEAD_FIELDS = packed_arguments(("life", "born", "end", "gen", "deadline", "staged"))
_VIEW_FIELDS = packed_arguments(("tail", "extents", "created", "metadata", "forked", "vacuums"))
_LOOK = b"*8\r\n$5\r\nHMGET\r\n%b%b"

# Everything else is written as %xx: no brace can end a hash tag, no star can match, and what is
# the beginning of an id is the beginning of its encoding.
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.@-]")
_ESCAPED = re.compile(rb"%([0-9a-f]{2})")


class SessionKeys(NamedTuple):
    """The keys of one session: the head, and others as they are sent."""

    head: str
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
    head, view = packed_arguments((tag + HEAD,)), packed_arguments((tag + VIEW,))
    return SessionKeys(
        tag + HEAD,
        packed_arguments(tag + part for part in PARTS),
        (_LOOK % (head, _HEAD_FIELDS), _LOOK % (view, _VIEW_FIELDS)),
        packed_arguments((tag + LOG,)),
    )


def heads_pattern(namespace: str, prefix: str) -> str:
    """What SCAN matches: the heads of the sessions of a namespace whose ids begin like this."""
    return f"{PREFIX}{{{encoded(namespace)}:{encoded(prefix)}*}}{HEAD}"


def session_of(key: bytes) -> str:
    """The session whose key this is."""
    inside = key[key.index(b"{") + 1 : key.rindex(b"}")]
    return decoded(inside.partition(b":")[2])


def view_key_of(head: bytes) -> bytes:
    """The key of a session's view, from that of its head."""
    return head[:-1] + VIEW.encode()
