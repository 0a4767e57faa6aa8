"""What of a message is written down: by default a keyed hash, its size and who spoke.

A hash is keyed with a secret of the trace, so that nobody who has the trace alone can try out
what was said. Other fields of a message are hashed one by one: so a trace shows that one was lost
or changed, and not what it held.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memory_contract.traces.format import BY_ID, FIELD, Contents

# Twelve digits: that two things that were said share them is a matter of once in a trillion, and
# then they count as said twice, which accuses nobody.
DIGEST_BYTES: Final = 6
# Of a text that is cut, what is kept.
CUT_CHARACTERS: Final = 80
HIDDEN: Final = "[secret]"
# What looks like a credential, whoever said it: keys of providers, tokens, passwords in a URL or
# behind their name, private keys, and digits that a card may have.
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
# A field that says nothing: stores may leave it out or fill it in.
_NOTHING: Final[tuple[Any, ...]] = (None, "", False, [], {}, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is written of what was said: hashed, cut to its first characters, or kept.

    What looks like a credential is written in none of the three. `hide` is applied to every text
    before it is cut or kept, and may hide more.
    """

    contents: Contents = "hashed"
    cut: int = CUT_CHARACTERS
    hide: Callable[[str], str] | None = None

    def shown(self, value: Any) -> Any:
        """A value as it may be written."""
        if isinstance(value, str):
            text = _SECRETS.sub(HIDDEN, value)
            text = self.hide(text) if self.hide is not None else text
            return text[: self.cut] if self.contents == "cut" else text
        if isinstance(value, Mapping):
            return {str(name): self.shown(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.shown(inner) for inner in value]
        return value if isinstance(value, int | float | bool | None) else type(value).__name__


@dataclass(frozen=True, slots=True)
class HashedMessage:
    """A message with more to it than who said which text: taken down when it was seen."""

    token: str
    size: int
    role: str
    structured: bool
    # What is kept of it; None where nothing is.
    kept: Any = None


# Most messages are a role and a text, which nobody can change later: they are hashed in the
# background. `None` is a message without a text.
PlainMessage = tuple[str, str]
CapturedMessage = PlainMessage | HashedMessage


class Hasher:
    """Takes messages down by a policy, with the key of one trace."""

    def __init__(self, policy: Policy, key: bytes) -> None:
        self._policy = policy
        # Begun once: a copy costs less than to begin with the key for each message.
        self._keyed = hashlib.blake2b(digest_size=DIGEST_BYTES, key=key)
        # Whether nothing but hashes is written, so that most can be taken down later.
        self.plain = policy.contents == "hashed"

    def digest(self, text: str) -> str:
        """The keyed hash of a text."""
        found = self._keyed.copy()
        found.update(text.encode("utf-8", "surrogatepass"))
        return found.hexdigest()

    def noted(self, message: Mapping[str, Any]) -> CapturedMessage:
        """What is to be remembered of a message, given as its fields."""
        role, content = message.get("role"), message.get("content")
        if self.plain and len(message) == 2 and type(role) is str and type(content) is str:
            return role, content
        return self._spoken(message)

    def said(self, noted: CapturedMessage) -> HashedMessage:
        """The same, hashed."""
        if isinstance(noted, HashedMessage):
            return noted
        role, content = noted
        token = self.digest(f"{role}\0{content}")
        return HashedMessage(token, len(content), role, structured=role == "system")

    def _spoken(self, message: Mapping[str, Any]) -> HashedMessage:
        rest = {
            str(name): value
            for name, value in message.items()
            if name not in ("role", "content") and value not in _NOTHING
        }
        role, content = str(message.get("role")), message.get("content")
        text = content if isinstance(content, str) else to_canonical_json(content)
        own = rest.get("id")
        if isinstance(own, str):
            # Its id is who it is, and what was said is one of its fields.
            token = BY_ID + self.digest(own)
            rest["content"] = f"{role}\0{text}"
            del rest["id"]
        else:
            token = self.digest(f"{role}\0{text}")
        for name in sorted(rest):
            token += (
                f"{FIELD}{self.digest(name)[:4]}{self.digest(to_canonical_json(rest[name]))[:8]}"
            )
        tied = {"tool_calls", "tool_call_id", "pinned"} & rest.keys()
        return HashedMessage(
            token=token,
            size=len(text),
            role=role,
            # Of blocks, a conversation in turns gives the text alone.
            structured=bool(tied) or role in ("system", "tool") or isinstance(content, list),
            kept=None if self.plain else self._policy.shown(dict(message)),
        )


def to_canonical_json(value: Any) -> str:
    """One text for equal values; of what is no JSON, the type alone."""
    return json.dumps(value, sort_keys=True, default=lambda found: type(found).__name__)
