"""The stored form of an entry: a versioned JSON envelope that begins with its own checksum.

    {"sum":"9f86d081884c7d65","v":1,"message":{"role":"user","content":"hello"}}

The checksum covers every byte after it. It shows damage, and whether two appends with one key have
the same content: the body holds the caller's fields and nothing else. There is no pickle, and there
are no class names, so that any later version can read it.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import pydantic_core

from indelible.core.content import get_content_text
from indelible.core.limits import (
    ENTRY_BYTES_MAX,
    INTEGER_DIGITS_MAX,
    JSON_DEPTH_MAX,
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    ROLE_CHARS_MAX,
    TTL_S_MAX,
)
from indelible.core.operations import Draft, LogRow, StoredEntry
from indelible.core.tool_calls import find_answers_given, iter_calls
from indelible.errors import CorruptEntryError, FormatError, LimitError, UsageError
from indelible.model import (
    KIND_OF,
    ChatMessage,
    Kind,
    StoredCheckpoint,
    StoredMemory,
    StoredValue,
    Summary,
    ToolCall,
    Value,
)

ENVELOPE_VERSION = 1

_OPEN = b'{"sum":"'
CHECKSUM_BYTES = 16
# Offsets of the checksum, and of the text behind it that names the kind. Some engines read both
# without Python.
CHECKSUM_FROM = len(_OPEN)
CHECKSUM_TO = CHECKSUM_FROM + CHECKSUM_BYTES
KIND_FROM = CHECKSUM_TO + len(b'",')
# Leading digits of the checksum that are part of the checksum of an entry's row: see `checksums`.
CONTENT_DIGITS = 12
_PREFIX = {kind: b'"v":%d,"%s":' % (ENVELOPE_VERSION, kind.encode()) for kind in Kind}

_MESSAGE_PREFIX = _PREFIX[Kind.MESSAGE].decode()

_INTEGER_LIMIT = 10**INTEGER_DIGITS_MAX

# Quotes JSON text in C, with the same output as the model's serializer.
_quoted = json.encoder.encode_basestring

# The kinds of entries that a search finds.
SEARCHED_KINDS: Final = (Kind.MESSAGE, Kind.SUMMARY, Kind.MEMORY)
# Trim keeps these messages: without its system text an agent answers differently.
_KEPT_ROLES = frozenset({"system", "developer"})


def encode(value: Value) -> Draft:
    """Encode a value, or raise if it cannot be stored."""
    kind = KIND_OF.get(type(value))
    if kind is None:
        raise UsageError(f"a session cannot store this type: {format_value(value)}", value=value)
    if isinstance(value, ChatMessage) and (text := _get_plain_text(value)) is not None:
        return encode_text(value.role, text)
    rest = b"%b%b}" % (_PREFIX[kind], _encode_body(value))
    envelope = b'%b%b",%b' % (_OPEN, compute_digest(rest), rest)
    if len(envelope) > ENTRY_BYTES_MAX:
        raise _build_size_error(envelope)
    return Draft(kind, envelope, *build_trim_columns(value))


def encode_text(role: str, text: str) -> Draft:
    """Encode a message of role and text only: the same bytes as `encode`, much faster."""
    rest = f'{_MESSAGE_PREFIX}{{"role":{_quoted(role)},"content":{_quoted(text)}}}}}'
    try:
        summed = blake2b(rest.encode(), digest_size=8).hexdigest()
    except UnicodeEncodeError:
        check_json(role, "role")
        check_json(text, "content")
        raise
    envelope = f'{{"sum":"{summed}",{rest}'.encode()
    if len(envelope) > ENTRY_BYTES_MAX:
        raise _build_size_error(envelope)
    return Draft(Kind.MESSAGE, envelope, keep=role in _KEPT_ROLES)


def _build_size_error(envelope: bytes) -> LimitError:
    return LimitError(
        f"an entry takes {len(envelope)} bytes; the limit is {ENTRY_BYTES_MAX}",
        limit=ENTRY_BYTES_MAX,
        actual=len(envelope),
    )


def build_trim_columns(value: Value) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    """Return what trim needs: whether the value is always kept, and its call and answer ids."""
    if isinstance(value, ChatMessage):
        keep = value.pinned or value.role in _KEPT_ROLES
        if value.tool_calls is None and value.tool_call_id is None and type(value.content) is str:
            return keep, (), ()
        ids = [call.get("id") for call in iter_calls(value)]
        opens = tuple(call_id for call_id in ids if isinstance(call_id, str))
    else:
        keep = isinstance(value, _KEPT)
        opens = (value.call_id,) if isinstance(value, ToolCall) else ()
    return keep, opens, tuple(call_id for call_id, _, _ in find_answers_given(value))


# Trim keeps these: they are not part of a conversation.
_KEPT = (Summary, StoredMemory, StoredValue, StoredCheckpoint)


def decode_row(row: StoredEntry | LogRow, *, session: str) -> Value:
    """Decode the entry of a row, or raise a `CorruptEntryError`."""
    kind = check_row(row, session=session)
    _, body, parse = _FORMS[kind]
    try:
        return parse(row.envelope[body:-1])
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        why = "its body is not a " + kind
        raise _build_corrupt_error(session, row.position, why, row.envelope) from exc


def check_row(row: StoredEntry | LogRow, *, session: str) -> Kind:
    """Return the kind of an entry; raise a `CorruptEntryError` if it is damaged or misplaced."""
    kind, envelope, content = row.kind, row.envelope, row.content
    if kind is None:
        why = "its kind is unknown" if envelope else "it is missing"
        raise _build_corrupt_error(session, row.position, why, envelope)
    summed = compute_digest(envelope[KIND_FROM:])
    if not envelope.startswith(_FORMS[kind].start % summed):
        if envelope[:KIND_FROM] != b'%b%b",' % (_OPEN, summed):
            why = "its checksum does not match"
            raise _build_corrupt_error(session, row.position, why, envelope)
        raise _build_foreign_error(session, row.position, envelope)
    if content is not None and content != int(summed[:CONTENT_DIGITS], 16):
        why = "it was written for another place"
        raise _build_corrupt_error(session, row.position, why, envelope)
    return kind


# Entries of these kinds have an id, and are in the index of items.
ITEM_KINDS = frozenset({Kind.MEMORY, Kind.CHECKPOINT})

# How many bytes of an envelope show its kind.
KIND_BYTES = KIND_FROM + max(map(len, _PREFIX.values()))


def has_kind(kind: Kind | None, start: bytes) -> bool:
    """Return whether an envelope with this start is of this kind."""
    return kind is not None and start.startswith(_PREFIX[kind], KIND_FROM)


def get_kind_prefix(kind: Kind) -> bytes:
    """Return the bytes of an envelope from `KIND_FROM` on that name the kind."""
    return _PREFIX[kind]


def compute_digest(data: bytes) -> bytes:
    """Compute 64 bits of BLAKE2b, in hexadecimal."""
    return blake2b(data, digest_size=8).hexdigest().encode()


def parse_checksum(envelope: bytes) -> bytes:
    """Return the checksum in an envelope: equal for equal content."""
    return envelope[CHECKSUM_FROM:CHECKSUM_TO]


def parse_item(kind: Kind | None, envelope: bytes) -> str | None:
    """Return the id of an item, for the index of items; None for what is none, or damaged."""
    if kind not in ITEM_KINDS or not has_kind(kind, envelope):
        return None
    try:
        item = pydantic_core.from_json(envelope[_FORMS[kind].body : -1]).get("id")
    except (ValueError, AttributeError):
        return None
    return item if isinstance(item, str) and item else None


def get_searched_text(kind: Kind, fields: Mapping[str, Any]) -> str:
    """Return the text by which a search finds an entry, from the fields of its value."""
    if kind is Kind.MESSAGE:
        content = fields.get("content")
        return content if isinstance(content, str) else get_content_text(content) or ""
    text = fields.get("text")
    if text is None and kind is Kind.MEMORY:
        return _join_texts(fields.get("value"))
    return text or ""


def _join_texts(value: object) -> str:
    """Join all texts in a JSON value."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(_join_texts(item) for item in value.values())
    return " ".join(map(_join_texts, value)) if isinstance(value, list) else ""


class Indexed(NamedTuple):
    """What a search finds an entry by."""

    text: str
    # The embedder is None if there is no vector.
    embedder: str | None
    vector: Sequence[float] | None


def parse_indexed(kind: Kind | None, envelope: bytes) -> Indexed | None:
    """Return what a search finds an entry by; None if it is damaged, or of another kind."""
    rest = envelope[KIND_FROM:]
    if kind not in SEARCHED_KINDS or not has_kind(kind, envelope):
        return None
    if parse_checksum(envelope) != compute_digest(rest):
        return None
    try:
        fields = pydantic_core.from_json(envelope[_FORMS[kind].body : -1])
        packed = None if kind is Kind.MESSAGE else fields.get("vector")
        vector = None if packed is None else _unpack_vector(packed)
        embedder = None if vector is None else fields.get("embedder")
        return Indexed(get_searched_text(kind, fields), embedder, vector)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def encode_json(value: Any, *, what: str) -> bytes:
    """Encode JSON that reads back equal, or raise a `UsageError` that shows the offending part."""
    check_json(value, what)
    return pydantic_core.to_json(value)


def encode_metadata(metadata: dict[str, Any]) -> bytes:
    """Encode the metadata of a session, or raise if it cannot be stored."""
    data = encode_json(metadata, what="metadata")
    if len(data) > METADATA_BYTES_MAX:
        raise LimitError(
            f"metadata takes {len(data)} bytes; the limit is {METADATA_BYTES_MAX}",
            limit=METADATA_BYTES_MAX,
            actual=len(data),
        )
    return data


def check_json(value: Any, path: str, depth: int = 0) -> None:  # noqa: C901 (a case a type)
    """Raise if JSON would change a value or cannot represent it."""
    if depth > JSON_DEPTH_MAX:
        raise LimitError(
            f"{path} is nested deeper than {JSON_DEPTH_MAX} levels",
            limit=JSON_DEPTH_MAX,
            actual=depth,
        )
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _build_refusal(path, value, "JSON has no such number")
    elif type(value) is list:
        for index, item in enumerate(value):
            check_json(item, f"{path}[{index}]", depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if not isinstance(key, str):
                raise _build_refusal(path, value, f"the key {key!r} would read back as text")
            _check_text(key, path)
            check_json(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, int):
        if not -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
            raise LimitError(
                f"{path} is a whole number of {value.bit_length()} bits; the limit is"
                f" {INTEGER_DIGITS_MAX} digits",
                limit=INTEGER_DIGITS_MAX,
                actual=int(value.bit_length() * math.log10(2)) + 1,
            )
    elif value is not None:
        raise _build_refusal(path, value, f"a {type(value).__name__} would not read back equal")


def format_value(value: object) -> str:
    """Format a value for an error message, shortened."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        return f"<a {type(value).__name__} without a repr>"
    return text if len(text) <= 120 else text[:80] + " … " + text[-30:]


def describe_invalid(error: pydantic_core.ValidationError) -> tuple[str, str, Any]:
    """Return the path of the first invalid field, why it is invalid, and its value."""
    first, *others = error.errors(include_url=False)
    # A value that fits no type of a union has an error for each of them.
    reasons = [
        first["msg"],
        *(each["msg"] for each in others if each["loc"][:1] == first["loc"][:1]),
    ]
    where = first["loc"] if len(reasons) == 1 else first["loc"][:1]
    why = f"{' or '.join(reasons)}: {format_value(first['input'])}"
    return ".".join(map(str, where)), why, first["input"]


def _check_text(text: str, path: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            part = text[max(0, exc.start - 10) : exc.end + 10]
            raise _build_refusal(path, part, "a lone surrogate is not text") from None


def _build_refusal(path: str, value: object, why: str) -> UsageError:
    return UsageError(
        f"{path} cannot be stored: {why}: {format_value(value)}", path=path, value=value
    )


def _encode_body(value: Value) -> bytes:
    """Encode the caller's fields as JSON."""
    if isinstance(value, Summary | StoredMemory):
        return _encode_with_vector(value)
    try:
        _check_fields(value)
        body = value.__pydantic_serializer__.to_json(value, exclude_defaults=True, warnings=False)
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError) as exc:
        _check_fields(value)
        raise UsageError(f"cannot be stored: {format_value(value)}", value=value) from exc
    return _check_reads_back(value, body)


def _check_reads_back(value: Value, body: bytes) -> bytes:
    """Raise if the body does not decode to an equal value: `model_copy` does not validate."""
    try:
        again = _FORMS[KIND_OF[type(value)]].parse(body)
    except ValueError as exc:
        raise UsageError(f"cannot be stored: {format_value(value)}", value=value) from exc
    if again != value:
        raise UsageError(f"would not read back equal: {format_value(value)}", value=value)
    return body


def _get_plain_text(message: ChatMessage) -> str | None:
    """Return the text of a message that has role and text only; None for any other."""
    content = message.content
    if (
        type(content) is str
        and type(message.role) is str
        and 0 < len(message.role) <= ROLE_CHARS_MAX
        and message.metadata == {}
        and not message.pinned
        and message.name is None
        and message.tool_calls is None
        and message.tool_call_id is None
        and not message.__pydantic_extra__
    ):
        return content
    return None


# Fields that are checked by their types.
_TYPED_FIELDS = frozenset({"vector", "covers", "source"})


def _check_fields(value: Value) -> None:
    typed = _TYPED_FIELDS if isinstance(value, Summary | StoredMemory) else ()
    for name, item in (*value.__dict__.items(), *(value.__pydantic_extra__ or {}).items()):
        if name not in typed:
            check_json(item, name)


def _encode_with_vector(value: Summary | StoredMemory) -> bytes:
    _check_fields(value)
    fields = value.model_dump(exclude_defaults=True, exclude={"vector"})
    if value.vector is not None:
        fields["vector"] = _pack_vector(value.vector)
    return _check_reads_back(value, pydantic_core.to_json(fields))


def _decode_with_vector(model: type[Summary | StoredMemory], body: bytes) -> Summary | StoredMemory:
    fields = pydantic_core.from_json(body)
    packed = fields.pop("vector", None)
    if packed is not None:
        fields["vector"] = _unpack_vector(packed)
    value = model.model_validate(fields)
    if isinstance(value, StoredMemory):
        # Indexes separate an id from what follows by a zero, and have a limit.
        if "\0" in value.id or len(value.id.encode()) > KEY_BYTES_MAX:
            raise ValueError(value.id)
        if value.ttl_s is not None and not 0 < value.ttl_s <= TTL_S_MAX:
            raise ValueError(value.ttl_s)
    return value


def _pack_vector(vector: tuple[float, ...]) -> dict[str, str]:
    """Pack a vector in single precision if that loses nothing, else in double precision."""
    if not all(map(math.isfinite, vector)):
        bad = next(number for number in vector if not math.isfinite(number))
        raise _build_refusal("vector", bad, "it cannot be compared with anything")
    try:
        single = array("f", vector)
    except OverflowError:
        single = array("f")
    name, numbers = ("f32", single) if tuple(single) == vector else ("f64", array("d", vector))
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        numbers.byteswap()
    return {name: base64.b64encode(numbers.tobytes()).decode("ascii")}


def _unpack_vector(packed: dict[str, str]) -> tuple[float, ...]:
    ((name, text),) = packed.items()
    numbers = array({"f32": "f", "f64": "d"}[name], base64.b64decode(text, validate=True))
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        numbers.byteswap()
    return tuple(numbers)


def _build_corrupt_error(
    session: str, position: int, why: str, envelope: bytes
) -> CorruptEntryError:
    return CorruptEntryError(
        f"entry {position} of session {session!r} cannot be read: {why}; its bytes were not"
        ' changed. Read the other entries with on_corrupt="quarantine".',
        session=session,
        position=position,
        reason=why,
        raw=envelope,
    )


def _build_foreign_error(session: str, position: int, envelope: bytes) -> Exception:
    """Build the error for an intact envelope of another version."""
    try:
        version = pydantic_core.from_json(envelope).get("v")
    except (ValueError, AttributeError):
        return _build_corrupt_error(session, position, "it is not an envelope", envelope)
    if isinstance(version, int) and version > ENVELOPE_VERSION:
        return FormatError(
            f"entry {position} of session {session!r} was written by a newer indelible"
            f" (envelope {version}); upgrade to read it",
            session=session,
            position=position,
        )
    return _build_corrupt_error(session, position, "its envelope names another kind", envelope)


class _Form(NamedTuple):
    """How entries of a kind are stored."""

    # The start of an envelope, with a placeholder for the checksum.
    start: bytes
    # Where the body begins.
    body: int
    parse: Callable[[bytes], Value]


def _build_form(model: type[Value], kind: Kind) -> _Form:
    prefix = _PREFIX[kind]
    parse: Callable[[bytes], Value] = model.__pydantic_validator__.validate_json
    if issubclass(model, (Summary, StoredMemory)):
        parse = partial(_decode_with_vector, model)
    return _Form(b'%b%%b",%b' % (_OPEN, prefix), KIND_FROM + len(prefix), parse)


# A table with one lookup for an entry: to hash a `Kind` is a call of Python.
_FORMS: Final = {kind: _build_form(model, kind) for model, kind in KIND_OF.items()}
