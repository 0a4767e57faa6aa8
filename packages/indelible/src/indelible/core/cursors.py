"""Page cursors: signed, so that clients cannot forge them.

A cursor is `base64url(tag + payload)`. The payload names a state of the session and the
position where the next page begins. The tag is a keyed BLAKE2b of the payload; the key is derived
from a secret of the store, the namespace and the session.
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
    return base64.urlsafe_b64encode(_compute_tag(key, session, payload) + payload).decode("ascii")


def parse_cursor(key: bytes, session: str, cursor: object) -> tuple[FrozenView, int]:
    """Return the state and the position of a cursor that `build_cursor` built for this session."""
    data = _decode_cursor(cursor)
    tag, payload = data[:_TAG_BYTES], data[_TAG_BYTES:]
    if not hmac.compare_digest(tag, _compute_tag(key, session, payload)):
        raise _build_refusal(cursor)
    try:
        life, extents, version, vacuums, resume = pydantic_core.from_json(payload)
        return FrozenView(life, view.decode(base64.b64decode(extents)), version, vacuums), resume
    except (ValueError, TypeError, FormatError):
        # Signed, but by another version of this code.
        raise _build_refusal(cursor) from None


def _compute_tag(key: bytes, session: str, payload: bytes) -> bytes:
    session_key = blake2b(session.encode(), key=key, digest_size=SECRET_BYTES).digest()
    return blake2b(payload, key=session_key, digest_size=_TAG_BYTES).digest()


def _decode_cursor(cursor: object) -> bytes:
    if not isinstance(cursor, str):
        raise _build_refusal(cursor)
    try:
        data = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise _build_refusal(cursor) from None
    # Refuse a second encoding of the same bytes, with other unused bits at the end.
    if base64.urlsafe_b64encode(data).decode("ascii") != cursor:
        raise _build_refusal(cursor)
    return data


def _build_refusal(cursor: object) -> UsageError:
    shown = repr(cursor)
    shown = shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 1] + "…"
    return UsageError(
        f"not a cursor of this store and session: {shown}. Start again without a cursor.",
        value=cursor,
    )
