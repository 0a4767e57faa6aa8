"""Any class with one of two small interfaces, taken as it is.

`add_messages(session_id, messages)` with `get_history(session_id)`, or
`save_context(session_id, human_msg, ai_msg)` with `load_memory(session_id)`; each blocking or
async, `asave_context` and `aload_memory` where they are there. Other methods are used if they go
by a name that the kit knows.

A class declares nothing, so it is tried before it is judged, in folders that are thrown away: how
it is told its workspace, whether it is awaited, and which of its methods do what their names say.
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, Capability, Flavour, Reach
from memory_contract.calls import format_error
from memory_contract.entries import EntryIds, messages_of
from memory_contract.handles import Loop, close, open_handle
from memory_contract.targets.duck_handles import (
    OFFERED,
    IsAwaited,
    Offer,
    OpenDuck,
    offers_of,
)
from memory_contract.targets.placing import Placing, placings
from memory_contract.timeouts import WorkTimedOut, run_with_timeout

# A bound on what hangs: then what was seen until then is all that is known.
TRIAL_S_MAX: Final = 10.0
_SESSION: Final = "indelible-was-here"
# What a turn has no measure for: one message, or so many.
_NOT_OF_TURNS: Final = frozenset({"pop", "trim"})


@dataclass(slots=True, kw_only=True)
class Trial:
    """What is known of a class; trying it adds to that."""

    found: type
    name: str
    pairs: bool
    placing: Placing
    reach: Reach
    flavours: list[Flavour]
    # Whether another thread could call the instance that this one made.
    other_threads: bool = True
    offers: dict[str, Offer] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def opener(self, flavour: Flavour, offers: dict[str, Offer] | None = None) -> OpenDuck | None:
        """What makes instances, if it can be called like that."""
        if flavour not in self.flavours:
            return None
        offers = self.offers if offers is None else offers
        return OpenDuck(self.name, self.pairs, self.placing, flavour == "async", offers)

    def adapter(self, offers: dict[str, Offer] | None = None) -> Adapter:
        """The adapter, as far as it is known."""
        offers = dict(self.offers if offers is None else offers)
        return Adapter(
            open=self.opener("blocking", offers),
            open_async=self.opener("async", offers),
            capabilities=list(offers),
            name=self.name,
            reach=self.reach,
            # Where one instance holds all there is, threads can do nothing but share it.
            thread_safe=self.reach == "handle" and self.other_threads,
            pairs=self.pairs,
            notes=tuple(self.notes),
        )


def adapter_of_class(found: Callable[..., Any], name: str) -> Adapter | None:
    """The adapter of a class; None if it has neither interface."""
    if not isinstance(found, type) or not (_is_list(found) or _is_turns(found)):
        return None
    trial = _untried(found, name)
    with tempfile.TemporaryDirectory(prefix="indelible-trial-", ignore_cleanup_errors=True) as at:
        try:
            run_with_timeout(TRIAL_S_MAX, lambda: _try(trial, _folders(Path(at))))
        except WorkTimedOut as error:
            trial.notes.append(f"a trial did not end, {error}: what was not tried is not claimed")
            trial.notes += error.stacks[:1]
    if not trial.placing.told:
        trial.notes.append("it takes no workspace: each instance is on its own")
    return trial.adapter()


def _is_list(found: type) -> bool:
    return hasattr(found, "add_messages") and hasattr(found, "get_history")


def _is_turns(found: type) -> bool:
    return hasattr(found, "save_context") and hasattr(found, "load_memory")


def _untried(found: type, name: str) -> Trial:
    """What can be told of a class by looking."""
    pairs = not _is_list(found)
    placing = next(placing for placing in placings(found) if placing.sure)
    awaited = _is_coroutine_function(getattr(found, "save_context" if pairs else "add_messages"))
    return Trial(
        found=found,
        name=name,
        pairs=pairs,
        placing=placing,
        reach="machine" if placing.told else "handle",
        flavours=["async" if awaited else "blocking"],
    )


def _is_coroutine_function(method: Any) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(method))


def _folders(home: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        folder = home / f"trial-{number}"
        folder.mkdir()
        yield folder


def _try(trial: Trial, folders: Iterator[Path]) -> None:
    if _find_way(trial, folders):
        _find_offers(trial, folders)


# Opening, appending and reading


@dataclass(slots=True)
class _Seen:
    """What came of one attempt to write and read."""

    opened: bool = False
    works: bool = False
    gave_way: bool = False
    raised: BaseException | None = None
    on_disk: bool = False
    shared: bool = False
    other_threads: bool = True


def _find_way(trial: Trial, folders: Iterator[Path]) -> bool:
    """Find out how it is told its workspace and whether it is awaited; whether it works at all."""
    opened: list[Placing] = []
    for placing in placings(trial.found):
        seen = _attempts(trial, placing, folders)
        works = [flavour for flavour, one in seen.items() if one.works]
        opened += [placing] if any(one.opened for one in seen.values()) else []
        if not works:
            continue
        first = seen[works[0]]
        if placing.sure:
            reach: Reach = "machine" if placing.told else "handle"
        elif first.on_disk or first.shared:
            # It meant a place after all.
            reach = "machine" if first.on_disk else "process"
        else:
            continue
        trial.placing, trial.reach, trial.flavours = placing, reach, works
        trial.other_threads = all(one.other_threads for one in seen.values())
        for lost, one in seen.items():
            if not one.works and one.raised is not None and not isinstance(one.raised, IsAwaited):
                trial.notes.append(f"not driven {lost}: {format_error(one.raised)}")
        return True
    trial.placing = next((placing for placing in opened if placing.sure), trial.placing)
    trial.reach = "machine" if trial.placing.told else "handle"
    return False


def _attempts(trial: Trial, placing: Placing, folders: Iterator[Path]) -> dict[Flavour, _Seen]:
    """Write and read in each way that the class may be meant for."""
    seen: dict[Flavour, _Seen] = {}
    if "blocking" in trial.flavours:
        seen["blocking"] = _attempt(trial, placing, "blocking", next(folders))
        if seen["blocking"].works and not hasattr(trial.found, "asave_context"):
            return seen
    seen["async"] = _attempt(trial, placing, "async", next(folders))
    blocking = seen.get("blocking")
    if blocking is not None and blocking.works and seen["async"].works:
        # Awaiting what need not be awaited shows nothing new.
        if not seen["async"].gave_way:
            del seen["async"]
    elif blocking is not None and not blocking.works and seen["async"].works:
        # Many can only be made, or called, where a loop runs: that is no loss.
        del seen["blocking"]
    return seen


def _attempt(trial: Trial, placing: Placing, flavour: Flavour, workspace: Path) -> _Seen:
    seen = _Seen()
    loop = Loop() if flavour == "async" else None
    opener = OpenDuck(trial.name, trial.pairs, placing, awaited=loop is not None)
    adapter = Adapter(open=opener, name=trial.name)
    handles: list[Any] = []
    try:
        handles.append(open_handle(adapter, workspace, flavour, loop))
        seen.opened = True
        _write_and_read(trial, handles[0], loop)
        seen.gave_way = handles[0].gave_way
        seen.on_disk = any(workspace.iterdir())
        if loop is None:
            seen.other_threads = _from_another_thread(lambda: handles[0].read(_SESSION))
        if not placing.sure:
            handles.append(open_handle(adapter, workspace, flavour, loop))
            seen.shared = bool(_settled(handles[1].read(_SESSION), loop))
        seen.works = True
    except BaseException as error:  # noqa: BLE001 -- told, and looked at again by the kit
        seen.raised = error
    finally:
        _end(handles, loop)
    return seen


def _write_and_read(trial: Trial, handle: Any, loop: Loop | None) -> None:
    messages = messages_of(EntryIds("trial").draw(pairs=trial.pairs))
    _settled(handle.append(_SESSION, messages), loop)
    _settled(handle.read(_SESSION), loop)


def _from_another_thread(call: Callable[[], Any]) -> bool:
    """Whether a thread that did not make it may call it."""
    with futures.ThreadPoolExecutor(1) as other:
        return other.submit(call).exception() is None


def _settled(answer: Any, loop: Loop | None) -> Any:
    return answer if loop is None else loop.settle(answer)


def _end(handles: list[Any], loop: Loop | None) -> None:
    for handle in handles:
        with contextlib.suppress(BaseException):
            close(handle, loop)
    if loop is not None:
        with contextlib.suppress(BaseException):
            loop.close()


# What it offers beside


def _find_offers(trial: Trial, folders: Iterator[Path]) -> None:
    """Claim what does what its name says; what does not is told, and is not asked for."""
    try:
        store = _instance(trial, next(folders))
    except BaseException as error:  # noqa: BLE001 -- told, and looked at again by the kit
        trial.notes.append(f"it could be opened once and not again: {format_error(error)}")
        return
    for what in OFFERED:
        if trial.pairs and what in _NOT_OF_TURNS:
            continue
        whys = []
        for offer in offers_of(store, what):
            why = _fault(trial, what, offer, next(folders))
            if not why:
                trial.offers[what] = offer
                break
            whys.append(f"not claimed: {what} ({offer.method} {why})")
        if what not in trial.offers:
            trial.notes += whys[:1] or _unusable(store, what)


def _instance(trial: Trial, workspace: Path) -> Any:
    """An instance to look at."""
    flavour = trial.flavours[0]
    loop = Loop() if flavour == "async" else None
    handle = open_handle(trial.adapter(), workspace, flavour, loop)
    _end([handle], loop)
    return handle.store


def _unusable(store: Any, what: Capability) -> list[str]:
    names = [name for name in OFFERED[what] if inspect.isroutine(getattr(type(store), name, None))]
    return [f"not claimed: {what} ({name} takes something else)" for name in names[:1]]


def _fault(trial: Trial, what: Capability, offer: Offer, workspace: Path) -> str:
    """Why an offer is none; nothing if it works, tried once."""
    from memory_contract.case_context import CaseContext  # noqa: PLC0415
    from memory_contract.cases.capabilities import ALSO, TRIALS  # noqa: PLC0415

    if lacking := [other for other in ALSO.get(what, ()) if other not in trial.offers]:
        return f"is of no use without {lacking[0]}"
    flavour = trial.flavours[0]
    adapter = trial.adapter({**trial.offers, what: offer})
    context = CaseContext(
        adapter, mode=flavour, flavours=(flavour,), workspace=workspace, seed=0, worker_pool=None
    )
    try:
        works = TRIALS[what](context, context.open())
    except BaseException as error:  # noqa: BLE001 -- whatever it raises, nobody claimed it
        return f"raised {format_error(error)}"
    finally:
        with contextlib.suppress(BaseException):
            context.close()
    return "" if works else "did something else when it was tried"
