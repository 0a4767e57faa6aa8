"""The format of the keys: writing and checking it; the secret that signs cursors."""

from __future__ import annotations

from typing import Any

from indelible.backends.redis.keys import FORMAT_KEY, SECRET_KEY
from indelible.backends.redis.requests import HANDLERS, Argument, RedisContext, require
from indelible.backends.redis.risks import read_settings, refuse_weaker
from indelible.backends.redis.scripts import build_permission_check
from indelible.core.cursors import SECRET_BYTES, create_secret, derive_key
from indelible.core.operations import ReadCursorKey
from indelible.core.plan import Plan
from indelible.errors import FormatError, MemoryStoreBackendError

# The format of the keys; the layout is in DESIGN.md.
FORMAT = 7


def refuse_other_format(found: Any, *, shown: str) -> None:
    """Raise if the keys on a server have another format."""
    version = int(found) if isinstance(found, bytes) and found.isdigit() else None
    if version == FORMAT:
        return
    if version is None:
        raise FormatError(f"{FORMAT_KEY} on {shown} is not indelible's; it was left as it is")
    if version > FORMAT:
        raise FormatError(
            f"{shown} was written by a newer indelible (format {version}); upgrade to use it"
        )
    raise FormatError(
        f"{shown} was written by an older indelible (format {version}; this one has {FORMAT});"
        " nothing was changed. Export its sessions with that version, and import them into an empty"
        " database with this one"
    )


@HANDLERS.handles(ReadCursorKey)
def read_cursor_key(context: RedisContext, op: ReadCursorKey) -> Plan[bytes]:
    """Return the key for cursors; the first store that needs it writes the secret."""
    if context.cursor_key is None or op.again:
        secret = yield from _set_once(context, SECRET_KEY, create_secret())
        if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
            raise FormatError(f"the secret that signs cursors on {context.shown} is damaged")
        context.cursor_key = derive_key(secret, context.namespace)
    return context.cursor_key


def prepare(context: RedisContext) -> Plan[None]:
    """Refuse servers that cannot keep what is demanded, and keys of another format."""
    every = yield from read_settings(context)
    refuse_weaker(
        every, demanded=context.demanded, simulated=context.simulated, shown=context.shown
    )
    context.waits_for_disks = all(each.can_wait_for_disks for each in every)
    yield from _refuse_denied_commands(context)
    found = yield from _set_once(context, FORMAT_KEY, FORMAT)
    refuse_other_format(found, shown=context.shown)


def _refuse_denied_commands(context: RedisContext) -> Plan[None]:
    """Refuse a user who may not run all commands: a script would stop in the middle of a change."""
    (reply,) = yield context.send(FORMAT_KEY, build_permission_check(FORMAT_KEY))
    denied = b", ".join(require(context, reply)).decode()
    if denied:
        raise MemoryStoreBackendError(
            f"the user may not run {denied} on {context.shown}, which changes need; nothing was"
            " written",
            code="NOPERM",
        )


def _set_once(context: RedisContext, key: str, value: Argument) -> Plan[Any]:
    """Return the value of a key, after setting it if there is none."""
    commands = (("SET", key, value, "NX"), ("GET", key))
    replies = yield context.send(key, *commands)
    _, found = [require(context, reply) for reply in replies]
    return found
