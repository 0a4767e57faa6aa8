"""Session services of Google's Agent Development Kit, used as its runner does.

The runner gets a session, or creates it, and hands what it got to `append_event` with each event.
Some services refuse a session that somebody else has written to since: that is a refusal, which
says that nothing was written, and no loss. An event is one message, so there are no batches to
keep whole.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from memory_contract.adapter import Conflict, Message, NotFound, Refused
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

_PLACE: Final = {"app_name": "indelible", "user_id": "kit"}
# Roles of the kit, and those of contents.
_ROLES: Final = {"user": "user", "assistant": "model"}
_NAMES: Final = {"user": "user", "model": "assistant"}
# Errors by which a service says that nothing was written: somebody else created, wrote to or
# deleted the session since it was got.
_EXISTS: Final = "AlreadyExistsError"
_REFUSALS: Final[dict[str, type[Refused]]] = {
    "StaleSessionError": Conflict,
    "SessionNotFoundError": NotFound,
}


class ServiceHandle(StoreHandle):
    """Sessions of one user of one app."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Append an event for each message."""
        events = import_module("google.adk.events")
        for said in list(map(_to_content, messages)):
            ours = await self._session(session)
            author = _NAMES[said.role]
            try:
                # Made only now: services keep events in the order in which they were made.
                await self.store.append_event(ours, events.Event(author=author, content=said))
            except Exception as error:
                if refusal := _REFUSALS.get(type(error).__name__):
                    raise refusal(str(error)) from error
                raise

    async def read(self, session: str, *, limit: int | None = None) -> list[Any]:
        """The messages of the session's events."""
        options: dict[str, Any] = {}
        if limit is not None:
            base = import_module("google.adk.sessions.base_session_service")
            options["config"] = base.GetSessionConfig(num_recent_events=limit)
        found = await self.store.get_session(**_PLACE, session_id=session, **options)
        return [] if found is None else list(map(_from_event, found.events))

    async def clear(self, session: str) -> None:
        await self.store.delete_session(**_PLACE, session_id=session)

    async def sessions(self) -> list[str]:
        """The ids of the user's sessions."""
        found = await self.store.list_sessions(**_PLACE)
        return [session.id for session in found.sessions]

    async def _session(self, session: str) -> Any:
        place = {**_PLACE, "session_id": session}
        found = await self.store.get_session(**place)
        if found is not None:
            return found
        try:
            return await self.store.create_session(**place)
        except Exception as error:
            # Another writer created the session first; this one uses it.
            if type(error).__name__ != _EXISTS:
                raise
            found = await self.store.get_session(**place)
            if found is None:
                raise Refused(f"no session to write to: {error}") from error
            return found


def _to_content(message: Message) -> Any:
    role, content = message["role"], message["content"]
    if role not in _ROLES or not isinstance(content, str):
        raise Refused("an event of the Agent Development Kit is text of the user or of the model")
    types = import_module("google.genai.types")
    return types.Content(role=_ROLES[role], parts=[types.Part(text=content)])


def _from_event(event: Any) -> Any:
    said = getattr(event, "content", None)
    if said is None or not said.parts:
        return event
    text = "".join(part.text or "" for part in said.parts)
    return {"role": _NAMES.get(said.role, said.role), "content": text}


VOCABULARY: Final = Vocabulary(
    package="google-adk",
    module="google.adk",
    described="a BaseSessionService of the Agent Development Kit",
    methods=("create_session", "get_session", "append_event", "delete_session"),
    handle=ServiceHandle,
    flavours=("async",),
    claims={"capabilities": ("clear", "list", "limit"), "batches": False},
)
