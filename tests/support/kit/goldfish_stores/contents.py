"""Goldfish that keep something else than what they were given."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from memory_contract.adapter import Conflict, Refused
from memory_contract.goldfish.lives import Damaged, Life, Messages, copy_messages, digest
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import FileStore, ListStore


class _Changed(ListStore):
    """Stores what a message is made into."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        super().append(session, self._made(copy_messages(messages)), **options)

    def _made(self, batch: Messages) -> Messages:
        raise NotImplementedError


@goldfish("silent deserialization, langgraph#6970", caught_by="damaged_entry_is_loud")
class EmptyListOnBadPayload(FileStore):
    """Takes a session that it cannot read for a new one."""

    def _load(self, session: str) -> Life | None:
        try:
            return super()._load(session)
        except (Damaged, ValueError):
            return None


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _text(inner) for name, inner in value.items()}
    return [_text(inner) for inner in value] if isinstance(value, list) else str(value)


@goldfish("langgraph#8184, adk#3633", caught_by="json_values_survive")
class StringifiedValues(_Changed):
    """Makes text of every value that is none."""

    def _made(self, batch: Messages) -> Messages:
        return [_text(message) for message in batch]


@goldfish("adk#2883", caught_by="huge_message_is_whole_or_refused")
class TruncatedContent(_Changed):
    """Cuts long contents to what a column holds."""

    def _made(self, batch: Messages) -> Messages:
        return [
            {**m, "content": m["content"][:65_535]} if isinstance(m.get("content"), str) else m
            for m in batch
        ]


@goldfish("OpenMAIC#1493, HugAgentOS PR #93", caught_by="unicode_survives")
class NormalisedText(_Changed):
    """Writes every text in its composed form."""

    def _made(self, batch: Messages) -> Messages:
        return [
            {k: unicodedata.normalize("NFC", v) if isinstance(v, str) else v for k, v in m.items()}
            for m in batch
        ]


@goldfish("class: an answer without text is no answer", caught_by="blank_contents_survive")
class DroppedBlanks(_Changed):
    """Takes a message without text for no message."""

    def _made(self, batch: Messages) -> Messages:
        return [m for m in batch if not isinstance(m["content"], str) or m["content"].strip()]


@goldfish("MAF#4682", caught_by="same_words_twice")
class DedupeByContent(ListStore):
    """Takes the same words for the same message."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        said = self.read(session)
        super().append(session, [m for m in messages if m not in said], **options)


@goldfish("honcho#982", caught_by="same_key_once")
class DuplicateOnRetry(ListStore):
    """Takes keys and does not look at them."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        options.pop("key", None)
        super().append(session, messages, **options)


@goldfish(
    "agno PR #10108: another's run under one id", caught_by="key_with_other_content_is_refused"
)
class SwallowedByAKey(ListStore):
    """Takes whatever comes with a used key for the same append."""

    def append(
        self, session: str, messages: Messages, *, key: str | None = None, **options: Any
    ) -> None:
        if key is None or key not in self._alive(session).keys:
            super().append(session, messages, key=key, **options)


@goldfish("strands harness-sdk#2531", caught_by="stale_version_is_refused")
class VersionIgnored(ListStore):
    """Takes the expected version and does not look at it."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        options.pop("expected", None)
        super().append(session, messages, **options)


@goldfish("class: the length as a version", caught_by="stale_version_is_refused")
class VersionIsALength(ListStore):
    """Takes a session of as many entries as before for one that nobody changed."""

    def version(self, session: str) -> str:
        return str(len(self._alive(session).shown))

    def append(
        self, session: str, messages: Messages, *, expected: Any = None, **options: Any
    ) -> None:
        if expected is not None and expected != self.version(session):
            raise Conflict("somebody wrote since")
        super().append(session, messages, **options)


@goldfish("class: a version that begins anew", caught_by="stale_version_is_refused")
class VersionSinceTheClear(VersionIsALength):
    """Counts changes since the last clear, so that an empty session looks like a new one."""

    def clear(self, session: str) -> None:
        super().clear(session)
        self._alive(session).moves = 0

    def version(self, session: str) -> str:
        return str(self._alive(session).moves)


@goldfish("class: texts through YAML or CSV", caught_by="unicode_survives")
class NumbersOfTexts(ListStore):
    """Takes a text that could be a number for one."""

    capabilities = frozenset({"list", "fields"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        batch = copy_messages(messages)
        for message in batch:
            if str(message["content"]).isdigit():
                message["content"] = int(message["content"])
        super().append(session, batch)


@goldfish("semantic-kernel#12612: roles of a chat", caught_by="message_fields_survive")
class TwoRoles(ListStore):
    """Keeps what the user and the model say, and nothing of a system or a tool."""

    capabilities = frozenset({"list"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        super().append(session, [m for m in messages if m["role"] in ("user", "assistant")])


@goldfish("adk PRs #7105 and #7213", caught_by="reads_are_copies")
class AliasedInput(ListStore):
    """Keeps the caller's own messages instead of copies."""

    capabilities = frozenset({"list", "fields"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        copy_messages(messages)
        with self._changing(session) as life:
            life.add(messages)


@goldfish("langgraph#8835", caught_by="reads_are_copies")
class AliasedOutput(ListStore):
    """Hands out its own list instead of a copy."""

    capabilities = frozenset({"list", "fields"})

    def read(self, session: str) -> Messages:  # type: ignore[override]
        return self._alive(session).shown


@goldfish(
    "openai-agents PR #4163, llama_index PR #23183", caught_by="refused_append_leaves_nothing"
)
class HalfARefusedBatch(ListStore):
    """Finds out in the middle of a batch that a message cannot be stored."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        for message in messages:
            super().append(session, [message], **options)


@goldfish(
    "langgraph#7066: unknown types come back as others", caught_by="unserialisable_is_refused"
)
class StringifiedObjects(ListStore):
    """Stores the description of whatever it cannot store."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        try:
            super().append(session, messages, **options)
        except Refused:
            super().append(session, json.loads(json.dumps(messages, default=str)), **options)


@goldfish("class: a request that is delivered again", caught_by="key_of_what_was_cleared")
class AcknowledgesWhatIsHidden(ListStore):
    """Acknowledges a repeated key although its entries were taken away since."""

    def append(
        self, session: str, messages: Messages, *, key: str | None = None, **options: Any
    ) -> None:
        with self._locked():
            if key is None or self._alive(session).keys.get(key) != digest(copy_messages(messages)):
                super().append(session, messages, key=key, **options)


@goldfish("class: a small cache that was taken for a store", caught_by="nothing_goes_unasked")
class OnlyTheLastOnes(ListStore):
    """Keeps the sessions that were used last, and lets go of the others."""

    def _load(self, session: str) -> Life | None:
        life = self._lives.pop(session, None)
        if life is not None:
            self._lives[session] = life
        for oldest in list(self._lives)[:-100]:
            del self._lives[oldest]
        return life


@goldfish("openai-agents#5010", caught_by="long_session")
class CappedSession(ListStore):
    """Keeps the last few hundred entries, whoever needs the others."""

    def _save(self, session: str, life: Life) -> None:
        del life.shown[:-256]
        super()._save(session, life)
