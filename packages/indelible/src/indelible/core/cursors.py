"""Page cursors: signed, so that clients cannot forge them.

A cursor is `base64url(tag + payload)`. The payload of a page of entries names a state of the
session and the position where the next page begins; that of a page of sessions only where it
begins. The tag is a keyed BLAKE2b of the payload; the key is derived from a secret of the store,
the namespace, and the session or what the list was asked for.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from hashlib import blake2b

import pydantic_core

from indelible import view
from indelible.core.operations import FrozenView
from indelible.errors import FormatError, UsageError

SECRET_BYTES = 32
_TAG_BYTES = 16
_SHOWN_CHARS = 60
# What a cursor pages through: a session's entries, or a list of sessions.
_ENTRIES = b"entries"
_SESSIONS = b"sessions"


def create_secret() -> bytes:
    """Create the secret of a store."""
    return secrets.token_bytes(SECRET_BYTES)


def derive_key(secret: bytes, namespace: str) -> bytes:
    """Derive the key for the cursors of a namespace."""
    return blake2b(namespace.encode(), key=secret, digest_size=SECRET_BYTES).digest()


def build_cursor(key: bytes, session: str, frozen: FrozenView, resume: int) -> str:
    """Build a cursor that continues at `resume`, in the state `frozen`."""
    extents = base64.b64encode(view.encode(frozen.extents)).decode("ascii")
    payload = pydantic_core.to_json([frozen.life, extents, frozen.version, frozen.vacuums, resume])
    return _sign(key, _ENTRIES, session, payload)


def parse_cursor(key: bytes, session: str, cursor: object) -> tuple[FrozenView, int]:
    """Return the state and the position of a cursor that `build_cursor` built for this session."""
    payload = _verify(key, _ENTRIES, session, cursor)
    try:
        life, extents, version, vacuums, resume = pydantic_core.from_json(payload)
        return FrozenView(life, view.decode(base64.b64decode(extents)), version, vacuums), resume
    except (ValueError, TypeError, FormatError):
        # Signed, but by another version of this code.
        raise _build_refusal(_ENTRIES, cursor) from None


def build_list_cursor(key: bytes, asked: str, resume: str) -> str:
    """Build a cursor that continues a list of sessions; `asked` says which list it is."""
    return _sign(key, _SESSIONS, asked, resume.encode())


def parse_list_cursor(key: bytes, asked: str, cursor: object) -> str:
    """Return where a list continues, by a cursor that `build_list_cursor` built for this list."""
    return _verify(key, _SESSIONS, asked, cursor).decode()


def _sign(key: bytes, kind: bytes, of: str, payload: bytes) -> str:
    tag = _compute_tag(key, kind, of, payload)
    return base64.urlsafe_b64encode(tag + payload).decode("ascii")


def _verify(key: bytes, kind: bytes, of: str, cursor: object) -> bytes:
    """Return the payload of a cursor of this kind, or refuse it."""
    data = _decode_cursor(kind, cursor)
    tag, payload = data[:_TAG_BYTES], data[_TAG_BYTES:]
    if not hmac.compare_digest(tag, _compute_tag(key, kind, of, payload)):
        raise _build_refusal(kind, cursor)
    return payload


def _compute_tag(key: bytes, kind: bytes, of: str, payload: bytes) -> bytes:
    own_key = blake2b(of.encode(), key=key, digest_size=SECRET_BYTES, person=kind).digest()
    return blake2b(payload, key=own_key, digest_size=_TAG_BYTES).digest()


def _decode_cursor(kind: bytes, cursor: object) -> bytes:
    if not isinstance(cursor, str):
        raise _build_refusal(kind, cursor)
    try:
        data = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise _build_refusal(kind, cursor) from None
    # Refuse a second encoding of the same bytes, with other unused bits at the end.
    if base64.urlsafe_b64encode(data).decode("ascii") != cursor:
        raise _build_refusal(kind, cursor)
    return data


def _build_refusal(kind: bytes, cursor: object) -> UsageError:
    shown = repr(cursor)
    shown = shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 1] + "…"
    what = "session" if kind == _ENTRIES else "list, with the same prefix, where and order"
    return UsageError(
        f"not a cursor of this store and {what}: {shown}. Start again without a cursor.",
        value=cursor,
    )
