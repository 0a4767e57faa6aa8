"""A lone append in as few bytes, commands and lines of Python as it can be.

It is for what most appends are: one entry, a made key, no `expected`, on a session that is there
already. The script itself checks the last of these, so a wrong guess writes nothing, and the append
goes the long way.
"""

from __future__ import annotations

from indelible.backends.redis.appending import meta_text
from indelible.backends.redis.calls import KEYS_REMEMBERED_MAX, Context, ttl_ms
from indelible.backends.redis.keys import HEAD, LOG
from indelible.backends.redis.protocol import packed_arguments
from indelible.backends.redis.scripts import EVAL_WORDS, script
from indelible.core.waist import Append, Appended
from indelible.model import Durability

_KEYS = 2
# How many words the command has: without a time to live, and with one.
_PLAIN = b"*%d\r\n" % (EVAL_WORDS + _KEYS + 3)
_ENDING = b"*%d\r\n" % (EVAL_WORDS + _KEYS + 5)
_REST = b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"


class Shortcut:
    """Knows the sessions that this store appended to, and the call that fits them."""

    def __init__(self, context: Context, *, cluster: bool) -> None:
        self._context = context
        plain = script("append_plain", keys=_KEYS)
        self._starts = {False: plain.by_digest, True: plain.by_text}
        self._known: dict[str, bytes] = {}
        # A group waits for replicas and for the server that has the keys; alone, nobody would.
        self.usable = not (
            cluster
            or context.demanded is Durability.REPLICATED
            or context.clock is not None
            or context.simulated
        )

    def command(self, step: Append, *, by_text: bool = False) -> bytes | None:
        """The whole append as one command; None if it must go the long way."""
        keys = self._known.get(step.session)
        if keys is None or not step.fresh or step.expected is not None or len(step.drafts) != 1:
            return None
        kind, envelope, keep, opens, answers = step.drafts[0]
        meta = meta_text(kind, keep, 1, opens, answers).encode()
        key = step.key.encode()
        rest = _REST % (len(key), key, len(meta), meta, len(envelope), envelope)
        if step.ttl_s is None:
            return b"".join((_PLAIN, self._starts[by_text], keys, rest))
        end = packed_arguments((ttl_ms(step.ttl_s), self._context.margin))
        return b"".join((_ENDING, self._starts[by_text], keys, rest, end))

    def appended(self, step: Append, reply: object) -> Appended | None:
        """What became of it; None if it must go the long way."""
        if isinstance(reply, bytes):
            version = reply.decode()
            return Appended(int(version.split(".")[1]) - 1, 1, version)
        if reply == 0:
            self._known.pop(step.session, None)
        return None

    def learn(self, step: Append) -> None:
        """An append went the long way: its session is there now."""
        if step.session not in self._known:
            if len(self._known) >= KEYS_REMEMBERED_MAX:
                self._known.clear()
            tag = self._context.keys(step.session).head[: -len(HEAD)]
            self._known[step.session] = packed_arguments((tag + HEAD, tag + LOG))
