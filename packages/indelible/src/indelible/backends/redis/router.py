"""From a step of the waist to commands on the way: routing, retries and deadlines, without I/O.

Everything here is a plan whose steps are `Carry` and `Wait`; the two drivers only carry and wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis import exceptions as theirs

from indelible.backends.redis import (
    append,
    maintenance,
    read,
    risks,
    sessions,
    settings,
    staging,
    views,
)
from indelible.backends.redis.attempts import Attempts
from indelible.backends.redis.calls import Ask, Call, Context, CountServers, Look
from indelible.backends.redis.cluster import Address, SlotMap, map_of
from indelible.backends.redis.errors import (
    Next,
    ends_at_once,
    next_of,
    of_a_cluster,
    refused,
    unknown,
    unreachable,
)
from indelible.backends.redis.keys import FORMAT_KEY, SECRET_KEY
from indelible.backends.redis.protocol import packed
from indelible.backends.redis.settings import read_settings
from indelible.backends.redis.shortcut import Part
from indelible.core import operations
from indelible.core.cursors import SECRET_BYTES, create_secret, derive_key
from indelible.core.deadline import Deadline
from indelible.core.plan import Operation, Plan, perform
from indelible.errors import FormatError, MemoryStoreError
from indelible.model import Claims, Durability

PLANS: dict[type, Callable[[Context, Any], Plan[Any]]] = {
    operations.ChangeView: views.change_view,
    operations.Rollback: views.rollback,
    operations.FindChange: views.find_change,
    operations.SaveSnapshot: views.save_snapshot,
    operations.DeleteSnapshot: views.delete_snapshot,
    operations.ReadSnapshots: views.read_snapshots,
    operations.ReadJournal: views.read_journal,
    operations.ReadHead: sessions.head,
    operations.SetMetadata: sessions.set_metadata,
    operations.ListSessions: sessions.list_sessions,
    operations.Read: read.read,
    operations.FindNearest: read.nearest,
    operations.ReadOutline: read.outline,
    operations.ReadLog: read.read_log,
    operations.BeginStage: staging.begin_stage,
    operations.StageRows: staging.stage_rows,
    operations.ShowStage: staging.show_stage,
    operations.DropStage: staging.drop_stage,
    operations.Reclaim: maintenance.reclaim,
    operations.Erase: maintenance.erase,
    operations.Scrub: maintenance.scrub,
    operations.CheckEngine: maintenance.check_engine,
    operations.CheckSession: maintenance.check_session,
    operations.Quarantine: maintenance.quarantine,
    operations.ReadQuarantine: maintenance.read_quarantine,
    operations.FindRisks: risks.diagnose,
    operations.Identify: settings.identify,
}

# What the keys on a server look like; the layout is in DESIGN.md.
FORMAT = 2
# How many replicas must have a write before it is acknowledged at `replicated`.
REPLICAS_WAITED = 1
# A server that we wait for through WAIT must answer before we stop listening.
WAIT_SHARE = 0.8


@dataclass(slots=True)
class Replies:
    """What came back: replies, errors of the server among them; or how it was lost."""

    replies: list[Any]
    lost: BaseException | None = None
    # Whether anything may have reached the server before it was lost.
    sent: bool = False

    @property
    def reply(self) -> Any:
        """The last reply; None if it was lost."""
        return self.replies[-1] if self.replies else None


@dataclass(slots=True)
class SendCommands(Operation[Replies]):
    """Take commands to a server and bring back their replies. None is the only server there is."""

    address: Address | None
    # As they go over the wire.
    commands: tuple[bytes, ...]
    patience: Deadline
    write: bool = False
    # Whether replicas must confirm the write, on the connection that it was sent on.
    confirmed: bool = False
    # An append in place of commands, which may share one with others.
    part: Part | None = None


@dataclass(slots=True)
class Wait(Operation[None]):
    """Let some time pass."""

    seconds: float


def _refuse_other_format(found: Any, *, shown: str) -> None:
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


class Router:
    """The servers as a store knows them. Threads and tasks share it; nothing here waits."""

    def __init__(self, context: Context, *, timeout_s: float, seeds: tuple[Address, ...]) -> None:
        self.context = context
        self.timeout_s = timeout_s
        # A single server has no map; a cluster has one as soon as somebody looked.
        self._seeds = seeds
        self._map: SlotMap | None = None
        self._disks = False
        self._cursor_key: bytes | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers."""
        return bool(self._seeds)

    @property
    def waits_for_disks(self) -> bool:
        """Whether replicas are asked for what is on their disks, and not just in their memory."""
        return self._disks

    def append(
        self, op: operations.Append, *, lost: BaseException | None, left_s: float
    ) -> Plan[operations.AppendResult]:
        """Do an append; `lost` is why nobody knows whether the shortcut landed, if it was sent."""
        call = append.call_of(self.context, op)
        reply = yield from self._call(call, lost=lost, left_s=left_s)
        appended = append.appended_of(op, reply)
        return appended._replace(resent=call.resent or lost is not None)

    def perform(self, op: Operation[Any]) -> Plan[Any]:
        """Do a step of the waist."""
        if isinstance(op, operations.ReadCursorKey):
            return (yield from self._read_cursor_key(op))
        return (yield from self._relay(PLANS[type(op)](self.context, op)))

    def prepare(self) -> Plan[None]:
        """Reach every server, and refuse what is too new or gives less than was demanded."""
        every = yield from self._relay(read_settings())
        context = self.context
        risks.refuse_less(
            every,
            demanded=context.demanded,
            simulated=context.simulated,
            shown=context.shown,
        )
        self._disks = all(each.can_wait_for_disks for each in every)
        patience = Deadline(self.timeout_s)
        commands = (packed("SET", FORMAT_KEY, FORMAT, "NX"), packed("GET", FORMAT_KEY))
        replies = yield from self._exchange(FORMAT_KEY, commands, patience)
        _refuse_other_format(replies[1], shown=context.shown)

    def _read_cursor_key(self, op: operations.ReadCursorKey) -> Plan[bytes]:
        """The key for cursors; the first one who needs it writes the secret."""
        if self._cursor_key is None or op.again:
            commands = (packed("SET", SECRET_KEY, create_secret(), "NX"), packed("GET", SECRET_KEY))
            replies = yield from self._exchange(SECRET_KEY, commands, Deadline(self.timeout_s))
            secret = replies[1]
            if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
                raise FormatError(
                    f"the secret that signs cursors on {self.context.shown} is damaged"
                )
            self._cursor_key = derive_key(secret, self.context.namespace)
        return self._cursor_key

    def claims(self) -> Plan[Claims]:
        """What is promised, by the settings as they are now."""
        every = yield from self._relay(read_settings())
        return risks.claims_of(
            every,
            demanded=self.context.demanded,
            simulated=self.context.simulated,
            cluster=self.is_cluster,
            ttl_clock="server" if self.context.clock is None else "caller",
        )

    def _relay(self, plan: Plan[Any]) -> Plan[Any]:
        """Run a plan of this room, and answer what it asks for."""
        try:
            asked = next(plan)
            while True:
                try:
                    if type(asked) is Call:
                        answer = yield from self._call(asked)
                    else:
                        answer = yield from self._answer(asked)
                except MemoryStoreError as error:
                    asked = plan.throw(error)
                else:
                    asked = plan.send(answer)
        except StopIteration as finished:
            return finished.value

    def _answer(self, asked: Operation[Any]) -> Plan[Any]:
        patience = Deadline(self.timeout_s)
        if isinstance(asked, Look):
            asked.patience = patience
            return (yield from self._look(asked, patience))
        if isinstance(asked, CountServers):
            if not self.is_cluster:
                return 1
            found = yield from self._learned(patience)
            return len(found.primaries)
        assert isinstance(asked, Ask)
        if not asked.commands:
            return []
        return (yield from self._ask(asked, patience))

    def _ask(self, asked: Ask, patience: Deadline) -> Plan[list[Any]]:
        """Read from one server; what is lost is asked for again."""
        asked_for = tuple(packed(*command) for command in asked.commands)
        while True:
            address = None
            if self.is_cluster:
                primaries = (yield from self._learned(patience)).primaries
                address = primaries[min(asked.server, len(primaries) - 1)]
            carried = yield from perform(SendCommands(address, asked_for, patience))
            if carried.lost is None:
                first = carried.replies[0]
                if not isinstance(first, Exception) or next_of(first) is not Next.WAIT:
                    return carried.replies
                yield from self._pause(patience, refused(first, shown=self.context.shown))
                continue
            self._map = None
            yield from self._pause(patience, unreachable(carried.lost, shown=self.context.shown))

    def _look(self, look: Look, patience: Deadline) -> Plan[list[Any] | None]:
        """Read the keys of one session; None if the server refused, for whatever reason."""
        address = None
        if self._seeds:
            address = yield from self._address_of(look.keys.head, patience)
        carried: Replies = yield SendCommands(address, look.commands, patience)
        if carried.lost is not None:
            self._map = None
            problem = unreachable(carried.lost, shown=self.context.shown)
            yield from self._pause(patience, problem)
            return None
        found = carried.replies[-1]
        if not isinstance(found, Exception):
            # Each is a list, or what its command was refused with.
            return found if all(type(each) is list for each in found) else None
        # What passes by itself is waited for by the script; what does not is not tried again.
        refusal = next(each for each in carried.replies if isinstance(each, Exception))
        self.context.looks = next_of(refusal) is not Next.RAISE
        return None

    def _exchange(
        self, key: str, commands: tuple[bytes, ...], patience: Deadline
    ) -> Plan[list[Any]]:
        """Send commands that do no harm when they are sent twice, to whoever has a key."""
        while True:
            address = yield from self._address_of(key, patience)
            carried = yield from perform(SendCommands(address, commands, patience))
            if carried.lost is not None:
                self._map = None
                yield from self._pause(
                    patience, unreachable(carried.lost, shown=self.context.shown)
                )
                continue
            errors = [reply for reply in carried.replies if isinstance(reply, Exception)]
            if not errors:
                return carried.replies
            if next_of(errors[0]) not in (Next.WAIT, Next.MOVE):
                raise refused(errors[0], shown=self.context.shown)
            self._relearn(errors[0])
            yield from self._pause(patience, refused(errors[0], shown=self.context.shown))

    def _pause(self, patience: Deadline, error: MemoryStoreError) -> Plan[None]:
        """Wait before the next attempt, or give up with this error."""
        wait_s = patience.next_wait_s()
        if wait_s is None or (error.__cause__ is not None and ends_at_once(error.__cause__)):
            raise error
        yield Wait(wait_s)

    def _call(
        self, call: Call, *, lost: BaseException | None = None, left_s: float | None = None
    ) -> Plan[Any]:
        """Call a script until its outcome is known, or the time is up."""
        patience = call.patience or Deadline(self.timeout_s if left_s is None else left_s)
        attempts = Attempts(call, shown=self.context.shown, lost=lost)
        replicated = call.write and self.context.demanded is Durability.REPLICATED
        if lost is not None and not patience.left_s():
            raise unknown(lost, shown=self.context.shown)
        while True:
            try:
                address = attempts.asking
                if address is None and self._seeds:
                    address = yield from self._address_of(call.keys.head, patience)
            except MemoryStoreError as error:
                raise attempts.outcome(error) from error
            commands = attempts.commands()
            carried: Replies = yield SendCommands(
                address, commands, patience, call.write, replicated
            )
            if carried.lost is not None:
                self._map = None
                problem = attempts.lost(carried.lost, sent=carried.sent)
            else:
                reply = carried.replies[-1]
                if not isinstance(reply, Exception):
                    return reply
                refusal = attempts.refused(reply)
                if refusal is None:
                    continue
                problem = refusal
                self._relearn(reply)
            yield from self._pause(patience, problem)

    def _relearn(self, reply: Exception) -> None:
        """Mind what a refusal says of where the keys are."""
        if isinstance(reply, theirs.MovedError) and not self.is_cluster:
            raise of_a_cluster(reply, shown=self.context.shown)
        if next_of(reply) is Next.ASK:
            return
        if isinstance(reply, theirs.MovedError) and self._map is not None:
            self._map = self._map.moved(reply.slot_id, Address(reply.host, reply.port))
        else:
            self._map = None

    def _address_of(self, key: str, patience: Deadline) -> Plan[Address | None]:
        """Who has a key; None where there is but one server."""
        if not self.is_cluster:
            return None
        while True:
            found = yield from self._learned(patience)
            address = found.primary_of(key)
            if address is not None:
                return address
            self._map = None
            nobody = theirs.ClusterDownError("nobody serves this slot")
            yield from self._pause(patience, refused(nobody, shown=self.context.shown))

    def _learned(self, patience: Deadline) -> Plan[SlotMap]:
        """The map of the cluster, from whichever server answers first."""
        while True:
            known = self._map
            if known is not None:
                return known
            last: BaseException = theirs.ClusterDownError("no server was named")
            for seed in self._seeds:
                quick = Deadline(min(patience.left_s(), self.timeout_s / 4))
                carried = yield from perform(
                    SendCommands(seed, (packed("CLUSTER", "SLOTS"),), quick)
                )
                if carried.lost is not None:
                    last = carried.lost
                    continue
                (reply,) = carried.replies
                if isinstance(reply, Exception):
                    raise refused(reply, shown=self.context.shown)
                found = map_of(reply, seed)
                if found.primaries:
                    self._map = found
                    # Servers come and go: whoever is there now is asked next time, too.
                    self._seeds = tuple(dict.fromkeys((*found.primaries, *self._seeds)))[:20]
                    return found
            yield from self._pause(patience, unreachable(last, shown=self.context.shown))
