"""From an operation to requests to servers: routing, retries and deadlines, without I/O.

Everything here is a plan whose operations are `SendCommands`, `CountServers` and `Wait`; the two
drivers perform these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from indelible.backends.redis import (  # noqa: F401 (each registers its handlers)
    append,
    maintenance,
    read,
    risks,
    sessions,
    staging,
    views,
)
from indelible.backends.redis.attempts import Attempts
from indelible.backends.redis.calls import (
    HANDLERS,
    Ask,
    Command,
    Context,
    Exchange,
    ScriptCall,
)
from indelible.backends.redis.connections import is_cluster, is_simulated
from indelible.backends.redis.errors import (
    Next,
    build_cluster_error,
    build_refused_error,
    build_unknown_error,
    build_unreachable_error,
    choose_next,
    is_final,
)
from indelible.backends.redis.keys import FORMAT_KEY, SECRET_KEY
from indelible.backends.redis.options import RedisOptions
from indelible.backends.redis.settings import read_settings
from indelible.core.cursors import SECRET_BYTES, create_secret, derive_key
from indelible.core.deadline import Deadline
from indelible.core.operations import ReadCursorKey
from indelible.core.plan import Operation, Plan, perform
from indelible.errors import FormatError, MemoryStoreError
from indelible.model import Claims, Durability
from redis import exceptions as theirs

R = TypeVar("R")

# What the keys on a server look like; the layout is in DESIGN.md.
FORMAT = 3


@dataclass(slots=True)
class Replies:
    """What came back: replies, errors of the server among them; or how it was lost."""

    replies: list[Any]
    lost: BaseException | None = None
    # Whether anything may have reached the server before it was lost.
    sent: bool = False


@dataclass(slots=True)
class SendCommands(Operation[Replies]):
    """Send commands to a server and return their replies."""

    # The key whose server is meant, or the number of a server.
    to: str | int
    deadline: Deadline
    commands: tuple[Command, ...] = ()
    # A script call in place of commands; an append may share its command with others.
    call: ScriptCall | None = None
    by_text: bool = False
    write: bool = False
    # Whether replicas must confirm the write, on the connection that it was sent on.
    confirmed: bool = False
    # Why the attempt before this one failed: a cluster's client learns from it where the keys are.
    failed: BaseException | None = None

    @property
    def is_asking(self) -> bool:
        """Whether it follows an ASK: a slot on the move is asked for by commands of their own."""
        return isinstance(self.failed, theirs.AskError)

    def build_commands(self) -> tuple[Command, ...]:
        """The commands as they are sent if none is shared with other requests."""
        commands = self.commands
        if self.call is not None:
            commands = (self.call.build_command(by_text=self.by_text),)
        return (("ASKING",), *commands) if self.is_asking else commands


@dataclass(slots=True)
class Wait(Operation[None]):
    """Let some time pass."""

    seconds: float


def refuse_other_format(found: Any, *, shown: str) -> None:
    """Raise if the keys on a server are not of the format that is read and written here."""
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
def read_cursor_key(context: Context, op: ReadCursorKey) -> Plan[bytes]:
    """Return the key for cursors; the first store that needs it writes the secret."""
    if context.cursor_key is None or op.again:
        commands: tuple[Command, ...]
        commands = (("SET", SECRET_KEY, create_secret(), "NX"), ("GET", SECRET_KEY))
        _, secret = yield from perform(Exchange(SECRET_KEY, commands))
        if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
            raise FormatError(f"the secret that signs cursors on {context.shown} is damaged")
        context.cursor_key = derive_key(secret, context.namespace)
    return context.cursor_key


def prepare(context: Context) -> Plan[None]:
    """Reach every server, and refuse what is too new or gives less than was demanded."""
    every = yield from read_settings()
    risks.refuse_weaker(
        every, demanded=context.demanded, simulated=context.simulated, shown=context.shown
    )
    context.waits_for_disks = all(each.can_wait_for_disks for each in every)
    commands: tuple[Command, ...] = (("SET", FORMAT_KEY, FORMAT, "NX"), ("GET", FORMAT_KEY))
    _, found = yield from perform(Exchange(FORMAT_KEY, commands))
    refuse_other_format(found, shown=context.shown)


def read_claims(context: Context) -> Plan[Claims]:
    """What is promised, by the settings as they are now."""
    every = yield from read_settings()
    return risks.build_claims(
        every,
        demanded=context.demanded,
        simulated=context.simulated,
        cluster=context.is_cluster,
        ttl_clock="server" if context.clock is None else "caller",
    )


def build_context(options: RedisOptions) -> Context:
    """What the handlers of a store share."""
    return Context(
        namespace=options.namespace,
        clock=options.clock,
        durability=options.durability,
        shown=options.shown,
        timeout_s=options.timeout_s,
        simulated=is_simulated(options.target),
        is_cluster=is_cluster(options.target),
    )


class Router:
    """Turns what handlers yield into requests. Threads and tasks share it; nothing here waits."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._replicated = context.demanded is Durability.REPLICATED

    def perform(self, op: Operation[R]) -> Plan[R]:
        """Perform an operation of the core."""
        return self.run(HANDLERS.plan(self.context, op))

    def run(self, plan: Plan[R]) -> Plan[R]:
        """Run a plan of this backend, and answer what it yields."""
        try:
            asked = next(plan)
            while True:
                try:
                    if isinstance(asked, ScriptCall):
                        answer = yield from self._call(asked)
                    elif isinstance(asked, Exchange):
                        answer = yield from self._exchange(asked)
                    elif isinstance(asked, Ask):
                        answer = yield from self._ask(asked)
                    else:
                        answer = yield from self._count(asked)
                except MemoryStoreError as error:
                    asked = plan.throw(error)
                else:
                    asked = plan.send(answer)
        except StopIteration as finished:
            result: R = finished.value
            return result

    def _call(self, call: ScriptCall) -> Plan[Any]:
        """Call a script until its outcome is known, or the time is up."""
        shown = self.context.shown
        deadline = call.deadline or Deadline(self.context.timeout_s)
        if call.lost is not None and not deadline.left_s():
            raise build_unknown_error(call.lost, shown=shown)
        attempts = Attempts(call, shown=shown)
        confirmed = call.write and self._replicated
        failed: BaseException | None = None
        while True:
            sent: Replies = yield SendCommands(
                to=call.sessions[0].head,
                deadline=deadline,
                call=call,
                by_text=attempts.by_text,
                write=call.write,
                confirmed=confirmed,
                failed=failed,
            )
            failed = sent.lost
            if failed is not None:
                problem = attempts.note_lost(failed, sent=sent.sent)
            else:
                reply = sent.replies[-1]
                if not isinstance(reply, Exception):
                    return reply
                refusal = attempts.note_refused(reply)
                if refusal is None:
                    continue
                problem, failed = refusal, reply
                self._refuse_cluster(reply)
            yield from self._pause(deadline, problem)

    def _ask(self, asked: Ask) -> Plan[list[Any]]:
        """Read from one server; what is lost is asked for again."""
        deadline = Deadline(self.context.timeout_s)
        failed: BaseException | None = None
        if not asked.commands:
            return []
        while True:
            sent: Replies = yield SendCommands(
                asked.server, deadline, asked.commands, failed=failed
            )
            failed = sent.lost
            if failed is None:
                first = sent.replies[0]
                if not isinstance(first, Exception) or choose_next(first) is not Next.WAIT:
                    return sent.replies
                yield from self._pause(deadline, self._build_refused(first))
            else:
                yield from self._pause(deadline, self._build_unreachable(failed))

    def _count(self, asked: Operation[Any]) -> Plan[int]:
        """Count the servers, as soon as they are known."""
        deadline = Deadline(self.context.timeout_s)
        while True:
            counted: int | BaseException = yield asked
            if isinstance(counted, int):
                return counted
            yield from self._pause(deadline, self._build_unreachable(counted))

    def _exchange(self, asked: Exchange) -> Plan[list[Any]]:
        """Send commands on one key until they are answered, or the time is up."""
        deadline = Deadline(self.context.timeout_s)
        failed: BaseException | None = None
        while True:
            sent: Replies = yield SendCommands(asked.key, deadline, asked.commands, failed=failed)
            failed = sent.lost
            if failed is not None:
                yield from self._pause(deadline, self._build_unreachable(failed))
                continue
            errors = [reply for reply in sent.replies if isinstance(reply, Exception)]
            if not errors:
                return sent.replies
            failed = errors[0]
            self._refuse_cluster(failed)
            if choose_next(failed) not in (Next.WAIT, Next.MOVE):
                raise self._build_refused(failed)
            yield from self._pause(deadline, self._build_refused(failed))

    def _pause(self, deadline: Deadline, error: MemoryStoreError) -> Plan[None]:
        """Wait before the next attempt, or give up with this error."""
        wait_s = deadline.next_wait_s()
        if wait_s is None or (error.__cause__ is not None and is_final(error.__cause__)):
            raise error
        yield Wait(wait_s)

    def _refuse_cluster(self, reply: Exception) -> None:
        """Raise if a server sends us to another, but only one was named."""
        if isinstance(reply, theirs.MovedError) and not self.context.is_cluster:
            raise build_cluster_error(reply, shown=self.context.shown)

    def _build_refused(self, reply: Exception) -> MemoryStoreError:
        return build_refused_error(reply, shown=self.context.shown)

    def _build_unreachable(self, error: BaseException) -> MemoryStoreError:
        return build_unreachable_error(error, shown=self.context.shown)
