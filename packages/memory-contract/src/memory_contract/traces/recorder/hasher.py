"""Hashes messages for a trace, which by default holds their size, role and keyed hash alone.

The hash is keyed with a secret that is not part of the trace, so that a trace alone does not let
anybody test guesses. Other fields are hashed one by one: a trace shows that a field was lost or
changed, not what it held.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memory_contract.targets.simple_messages import to_role
from memory_contract.traces.format import BY_ID, CONTENT, FIELD, Contents

# Two texts share twelve digits once in a trillion; they then count as one text said twice, which
# accuses nobody.
DIGEST_BYTES: Final = 6
HIDDEN: Final = "[secret]"
# Credentials: keys of providers, tokens, passwords in a URL or after their name, private keys, and
# the digits of a card.
_SECRETS: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abpr]|AKIA|ASIA|AIza|hf)[-_A-Za-z0-9]{12,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    r"|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"
    r"|(?i:\bbearer\s+)[^\s\"']+"
    r"|(?i:\b(?:password|passwd|secret|token|api[-_ ]?key)\b[\"']?\s*[:=]\s*[\"']?)[^\s\"',}]+"
    r"|\b(?:\d[ -]?){12,18}\d\b",
    re.DOTALL,
)
_EMPTY: Final[tuple[Any, ...]] = ("", [], {}, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much of a message is written: its hash, or its contents too.

    What looks like a credential is never written. `hide` is applied to every text that is kept,
    and may hide or shorten more.
    """

    contents: Contents = "hashed"
    hide: Callable[[str], str] | None = None

    def redact(self, value: Any) -> Any:
        """Return a value as it may be written."""
        if isinstance(value, str):
            text = _SECRETS.sub(HIDDEN, value)
            return self.hide(text) if self.hide is not None else text
        if isinstance(value, Mapping):
            return {str(name): self.redact(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact(inner) for inner in value]
        return value if isinstance(value, int | float | bool | None) else type(value).__name__


@dataclass(slots=True)
class HashedMessage:
    """A message as a trace has it."""

    token: str
    size: int
    role: str
    structured: bool
    # The message as the policy keeps it; None where it keeps hashes alone.
    kept: Any = None


class Hasher:
    """Hashes messages with the key of one trace, as a policy says."""

    def __init__(self, policy: Policy, key: bytes) -> None:
        self._policy = policy
        # A copy costs less than starting with the key for each message.
        self._keyed = hashlib.blake2b(digest_size=DIGEST_BYTES, key=key)
        self._only_hashes = policy.contents == "hashed"

    @property
    def key_id(self) -> str:
        """Return what tells this key from others, and does not give it away."""
        return self.digest("")

    def digest(self, text: str) -> str:
        """Return the keyed hash of a text."""
        found = self._keyed.copy()
        found.update(text.encode("utf-8", "surrogatepass"))
        return found.hexdigest()

    def hash_message(self, message: Mapping[str, Any]) -> HashedMessage:
        """Hash the fields of a message."""
        rest = {
            str(name): value
            for name, value in message.items()
            if name not in ("role", "content") and not _is_empty(value)
        }
        # Stores may give a role back in capitals, or as LangChain calls it.
        role = to_role(str(to_role(message.get("role"))).lower())
        content = message.get("content")
        text = content if isinstance(content, str) else to_canonical_json(content)
        token = self.digest(f"{role}\0{text}")
        if isinstance(own := rest.get("id"), str):
            # The id identifies the entry, and its text is one of its fields.
            token = f"{BY_ID}{self.digest(own)}{FIELD}{CONTENT}{token}"
            del rest["id"]
        for name in sorted(rest):
            value = self.digest(to_canonical_json(rest[name]))
            token += f"{FIELD}{self.digest(name)[:4]}{value[:8]}"
        tied = {"tool_calls", "tool_call_id", "pinned"} & rest.keys()
        return HashedMessage(
            token=token,
            size=len(text),
            role=role,
            # Of a message in blocks, a conversation in turns shows the text alone.
            structured=bool(tied) or role in ("system", "tool") or isinstance(content, list),
            kept=None if self._only_hashes else self._policy.redact(dict(message)),
        )


def _is_empty(value: Any) -> bool:
    """Whether a field says nothing: stores may leave it out or fill it in. 0 is a value."""
    return value is None or value is False or value in _EMPTY


def to_canonical_json(value: Any) -> str:
    """Return one text for equal values; what JSON cannot hold is named by its type."""
    return json.dumps(value, sort_keys=True, default=lambda found: type(found).__name__)
