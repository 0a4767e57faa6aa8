"""Plans that append, and the builders of the entries. An append is one batch with one key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, get_args

from pydantic import JsonValue, ValidationError

from indelible.core.codec import describe_invalid, encode, encode_text, format_value
from indelible.core.embedding import NO_EMBEDDER, is_several, to_floats
from indelible.core.ids import MADE_PREFIX
from indelible.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    KEY_BYTES_MAX,
    ROLE_CHARS_MAX,
)
from indelible.core.operations import Append, Draft, ReadHead
from indelible.core.plan import Plan, perform, send_until_known
from indelible.core.rules import refuse_if_hidden, refuse_if_moved
from indelible.core.settings import (
    Settings,
    check_session_id,
    check_text,
    check_ttl_s,
    check_version,
)
from indelible.errors import LimitError, UsageError
from indelible.model import (
    NEVER,
    ChatMessage,
    Never,
    Payload,
    Receipt,
    Summary,
    ToolCall,
    ToolResult,
    Value,
    parse_covers,
)

P = TypeVar("P", bound=Payload)

# When a repeated key returns the first receipt: only while all entries of that append are visible,
# or also after some were hidden or vacuumed.
Replay = Literal["visible", "hidden-ok"]
_REPLAYS: Final = get_args(Replay)


def append_drafts(
    settings: Settings,
    session_id: str,
    drafts: tuple[Draft, ...],
    *,
    key: str | None,
    expected: str | None,
    ttl: float | Never | None,
    replay: Replay = "visible",
) -> Plan[Receipt]:
    """Check the arguments of an append and send it."""
    check_append(session_id, drafts, key=key, expected=expected, ttl=ttl, replay=replay)
    if not drafts:
        return _append_nothing(session_id, key, expected)
    return send_append(
        Append(
            session_id,
            drafts,
            key=MADE_PREFIX + settings.ids() if key is None else key,
            fresh=key is None,
            expected=expected,
            ttl_s=None if ttl is None and settings.ttl is NEVER else settings.ttl_s(ttl),
        ),
        hidden_ok=replay == "hidden-ok",
    )


def check_append(
    session_id: str,
    drafts: tuple[Draft, ...],
    *,
    key: str | None,
    expected: str | None,
    ttl: float | Never | None,
    replay: Replay,
) -> None:
    """Check the arguments of an append."""
    check_session_id(session_id)
    if key is not None:
        check_key(key)
    check_version(expected)
    if ttl is not None:
        check_ttl_s(ttl)
    if replay not in _REPLAYS:
        raise UsageError(
            f'replay is "visible" or "hidden-ok", not {format_value(replay)}', value=replay
        )
    if len(drafts) > 1:
        _check_batch(drafts)


def send_append(op: Append, *, hidden_ok: bool) -> Plan[Receipt]:
    """Send an append until its outcome is known. Its key makes it safe to send it again.

    Unless `hidden_ok`, a key whose entries were hidden since an earlier call is a conflict.
    """
    appended, repeated = yield from send_until_known(op, key=op.key, session=op.session)
    first, count, version, replayed, visible, resent = appended
    # After a lost reply, the earlier append with this key may be this call's own first attempt.
    if replayed and not (hidden_ok or resent or repeated):
        refuse_if_hidden(op, appended)
    positions = range(first, first + count)
    return Receipt(op.session, positions, op.key, version, replayed, visible)


def check_key(key: str) -> str:
    """Check a key."""
    return check_text(key, what="a key", bytes_max=KEY_BYTES_MAX)


def build_message(
    role: str,
    content: Any,
    *,
    name: str | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
    pinned: bool = False,
) -> Draft:
    """Build a message, or raise a `UsageError` that shows the invalid part."""
    is_text = type(role) is str and 0 < len(role) <= ROLE_CHARS_MAX and type(content) is str
    if is_text and name is None and (metadata is None or metadata == {}) and pinned is False:
        return encode_text(role, content)
    fields = {"role": role, "content": content, "name": name, "pinned": pinned}
    return encode(validate(ChatMessage, {**fields, "metadata": to_dict(metadata)}))


def build_messages(items: Iterable[ChatMessage | Mapping[str, Any]]) -> tuple[Draft, ...]:
    """Build messages; mappings are converted."""
    return tuple(encode(_to_message(item)) for item in check_several(items))


def build_entries(items: Iterable[Value]) -> tuple[Draft, ...]:
    """Build entries of any kind."""
    return tuple(map(encode, check_several(items)))


def check_several(items: Iterable[Any]) -> Iterable[Any]:
    """Refuse a single value where several are expected: iterating over it would not fail."""
    if not is_several(items):
        raise UsageError(f"expected a list, not {format_value(items)}", value=items)
    return items


def _to_message(item: object) -> ChatMessage:
    if isinstance(item, ChatMessage):
        return item
    if isinstance(item, Mapping):
        return validate(ChatMessage, item)
    raise UsageError(f"not a message: {format_value(item)}; nothing was written", value=item)


def build_tool_call(
    call_id: str, name: str, arguments: JsonValue, metadata: Mapping[str, JsonValue] | None
) -> Draft:
    """Build a tool call."""
    fields = {"call_id": call_id, "name": name, "arguments": arguments}
    return encode(validate(ToolCall, {**fields, "metadata": to_dict(metadata)}))


def build_tool_result(
    call_id: str,
    content: JsonValue,
    is_error: bool,
    metadata: Mapping[str, JsonValue] | None,
) -> Draft:
    """Build a tool result."""
    fields = {"call_id": call_id, "content": content, "is_error": is_error}
    return encode(validate(ToolResult, {**fields, "metadata": to_dict(metadata)}))


def build_summary(
    text: str,
    vector: Sequence[float] | None,
    covers: Any,
    embedder: str | None,
    metadata: Mapping[str, JsonValue] | None,
) -> Summary:
    """Build a summary; `embedder` names what computed the vector."""
    fields = {
        "text": text,
        "vector": None if vector is None else to_floats(vector),
        "embedder": None if vector is None else embedder or NO_EMBEDDER,
        "covers": parse_covers(covers),
    }
    return validate(Summary, {**fields, "metadata": to_dict(metadata)})


def to_dict(metadata: Mapping[str, JsonValue] | None) -> Any:
    """Convert metadata to a dict; other types are left for the model to refuse."""
    if metadata is None:
        return {}
    return dict(metadata) if isinstance(metadata, Mapping) else metadata


def validate(model: type[P], fields: Mapping[str, Any]) -> P:
    """Build a value, or raise a `UsageError` that shows the offending field."""
    try:
        return model.model_validate(dict(fields))
    except ValidationError as error:
        where, why, value = describe_invalid(error)
        raise UsageError(f"{where} cannot be stored: {why}", path=where, value=value) from None


def _check_batch(drafts: tuple[Draft, ...]) -> None:
    if len(drafts) > BATCH_ENTRIES_MAX:
        raise LimitError(
            f"a batch of {len(drafts)} entries is over the limit of {BATCH_ENTRIES_MAX};"
            " nothing was written",
            limit=BATCH_ENTRIES_MAX,
            actual=len(drafts),
        )
    size = sum(len(draft.envelope) for draft in drafts)
    if size > BATCH_BYTES_MAX:
        raise LimitError(
            f"a batch of {size} bytes is over the limit of {BATCH_BYTES_MAX}; nothing was written",
            limit=BATCH_BYTES_MAX,
            actual=size,
        )


def _append_nothing(session: str, key: str | None, expected: str | None) -> Plan[Receipt]:
    """Build the receipt of an empty batch, which writes nothing but checks `expected`."""
    head = yield from perform(ReadHead(session))
    refuse_if_moved(session, expected, head.version)
    return Receipt(
        session_id=session,
        positions=range(head.end, head.end),
        key=key or "",
        version=head.version,
    )
