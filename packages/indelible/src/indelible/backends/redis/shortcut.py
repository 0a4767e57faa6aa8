"""A lone append in as few bytes, commands and lines of Python as it can be.

It is for what most appends are: one entry, a made key, no `expected`, on a session that is there
already. The script itself checks the last of these, so a wrong guess writes nothing, and the append
goes the long way. Those that come at once are one call of a script together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from indelible.backends.redis.append import meta_text
from indelible.backends.redis.calls import EXPIRY_MARGIN_MS, KEYS_REMEMBERED_MAX, Context, ttl_ms
from indelible.backends.redis.keys import HEAD, LOG, VIEW
from indelible.backends.redis.protocol import packed_arguments
from indelible.backends.redis.scripts import EVAL_WORDS, script
from indelible.core.checksums import compute_entry_checksum
from indelible.core.operations import Append, AppendResult
from indelible.model import Durability

_KEYS = 3
# How many words the command has: without a time to live, and with one.
_PLAIN = b"*%d\r\n" % (EVAL_WORDS + _KEYS + 4)
_ENDING = b"*%d\r\n" % (EVAL_WORDS + _KEYS + 6)
_ENTRY = b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
_MARGIN = packed_arguments((EXPIRY_MARGIN_MS,))
_NO_TTL = packed_arguments((b"",))


class Part(NamedTuple):
    """One append: a command by itself, or a part of one."""

    # Head, log and view of its session, and its key, meta, envelope and checksum, as sent.
    keys: bytes
    entry: bytes
    # The time to live, as it is sent; empty for none.
    ttl: bytes
    # Whether the server does not know the script.
    by_text: bool = False


def alone(part: Part) -> bytes:
    """An append as one command."""
    plain = script("append_plain", keys=_KEYS)
    start = plain.by_text if part.by_text else plain.by_digest
    if not part.ttl:
        return b"".join((_PLAIN, start, part.keys, part.entry))
    return b"".join((_ENDING, start, part.keys, part.entry, part.ttl, _MARGIN))


@cache
def _how_many(count: int) -> bytes:
    """A number of appends as it is sent; a group has but few different ones."""
    return packed_arguments((count,))


def together(parts: Sequence[Part]) -> tuple[bytes, list[int]]:
    """Many appends as one command, and in which order it answers for them."""
    of_session: defaultdict[bytes, list[int]] = defaultdict(list)
    by_text = False
    for number, part in enumerate(parts):
        of_session[part.keys].append(number)
        by_text = by_text or part.by_text
    keys = _KEYS * len(of_session)
    group = script("append_group", keys=keys)
    words = EVAL_WORDS + keys + 1 + len(of_session) + 5 * len(parts)
    pieces = [b"*%d\r\n" % words, group.by_text if by_text else group.by_digest]
    pieces += of_session
    pieces.append(_MARGIN)
    order: list[int] = []
    for numbers in of_session.values():
        pieces.append(_how_many(len(numbers)))
        for number in numbers:
            _, entry, ttl, _ = parts[number]
            pieces += (entry, ttl or _NO_TTL)
        order += numbers
    return b"".join(pieces), order


class Shortcut:
    """Knows the sessions that this store appended to, and the call that fits them."""

    def __init__(self, context: Context, *, cluster: bool) -> None:
        self._context = context
        # Of each session its keys as they are sent, and its salt.
        self._known: dict[str, tuple[bytes, int]] = {}
        # A group waits for replicas and for the server that has the keys; alone, nobody would.
        self.usable = not (
            cluster
            or context.demanded is Durability.REPLICATED
            or context.clock is not None
            or context.simulated
        )

    def part(self, op: Append) -> Part | None:
        """The append, to be sent alone or with others; None if it must go the long way."""
        known = self._known.get(op.session)
        if known is None or not op.fresh or op.expected is not None or len(op.drafts) != 1:
            return None
        kind, envelope, keep, opens, answers = op.drafts[0]
        meta = meta_text(kind, keep, 1, opens, answers).encode()
        key = op.key.encode()
        keys, salt = known
        summed = b"%d" % compute_entry_checksum(salt, envelope, batch=1)
        entry = _ENTRY % (
            *(len(key), key, len(meta), meta),
            *(len(envelope), envelope, len(summed), summed),
        )
        ttl = b"" if op.ttl_s is None else packed_arguments((ttl_ms(op.ttl_s),))
        return Part(keys, entry, ttl)

    def appended(self, op: Append, reply: object) -> AppendResult | None:
        """What became of it; None if it must go the long way."""
        if isinstance(reply, bytes):
            version = reply.decode()
            return AppendResult(int(version.split(".")[1]) - 1, 1, version)
        if reply == 0:
            self._known.pop(op.session, None)
        return None

    def learn(self, op: Append) -> None:
        """An append went the long way: its session is there now."""
        if op.session not in self._known:
            if len(self._known) >= KEYS_REMEMBERED_MAX:
                self._known.clear()
            keys = self._context.keys(op.session)
            tag = keys.head[: -len(HEAD)]
            packed = packed_arguments((tag + HEAD, tag + LOG, tag + VIEW))
            self._known[op.session] = packed, keys.salt
