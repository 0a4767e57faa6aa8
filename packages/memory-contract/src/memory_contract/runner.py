"""Runs cases against a store, as far as the store claims what they need, with a time limit."""

from __future__ import annotations

import contextlib
import faulthandler
import inspect
import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from memory_contract.adapter import Adapter, Flavour
from memory_contract.calls import format_error
from memory_contract.case_context import OPENING, CaseContext, CaseFailed, Inconclusive
from memory_contract.cases.case import Case
from memory_contract.checker import judge
from memory_contract.checker.search import STEPS_MAX
from memory_contract.checker.verdict import (
    Anomaly,
    Ok,
    Undecided,
    Verdict,
    Violated,
    quote_name,
)
from memory_contract.coverage import check_fault_coverage, check_race_coverage
from memory_contract.gates import FAULT_GATES, Mode
from memory_contract.handles import Loop, LoopFactory, close, open_handle
from memory_contract.results import (
    RAISED,
    UNCLAIMED,
    CaseResult,
    CaseVerdict,
    Unreachable,
    build_case_failure,
    select_failures,
)
from memory_contract.timeouts import WorkTimedOut, run_with_timeout
from memory_contract.workers.pool import WorkerLost, WorkerPool, WorkersUnavailable

# For calls that hang; slow ones must fit in easily.
CASE_S_MAX: Final = 240.0
# How often, and how long, a race that proved nothing is repeated before the verdict is VACUOUS.
TRIES_MIN: Final = 6
TRYING_S: Final = 4.0
FLAVOUR: Final[dict[Mode, Flavour]] = {
    "blocking": "blocking",
    "threads": "blocking",
    "async": "async",
    "tasks": "async",
}
STDERR: Final = 2
# Verdicts that no other seed changes.
_FINAL: Final = ("FAIL", "NOT CLAIMED", "NOT RUN")
_REACHES: Final = ("handle", "process", "machine")


class StoreUnderTest:
    """One store under test: its workspaces and its worker processes."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self._folder = _create_folder(adapter)
        self._workspaces = 0
        self.worker_pool: WorkerPool | None = None
        self.no_workers_reason = ""
        try:
            self.flavours = run_with_timeout(CASE_S_MAX, self._look)
            self._start_workers()
        except WorkTimedOut as error:
            self.close()
            raise Unreachable(f"the store does not answer: {error}") from error
        except BaseException:
            self.close()
            raise

    def _look(self) -> tuple[Flavour, ...]:
        """Open the store once, to see whether it can be reached and how it is called."""
        loop, adapter = Loop(), self.adapter
        with self.workspace() as workspace:
            try:
                first: Flavour = "blocking" if adapter.open is not None else "async"
                handle = open_handle(adapter, workspace, first, loop)
                try:
                    # What returns something to await need not look like it.
                    is_awaited = inspect.iscoroutinefunction(inspect.unwrap(handle.append))
                    # A case judges whether a missing session reads as empty.
                    with contextlib.suppress(LookupError):
                        answer = handle.read("memory-contract-was-here")
                        is_awaited = is_awaited or inspect.isawaitable(answer)
                        loop.settle(answer)
                finally:
                    close(handle, loop)
            except BaseException as error:
                raise Unreachable(
                    f"the store cannot be opened and read: {format_error(error)}"
                ) from error
            finally:
                loop.close()
        if adapter.open is not None and adapter.open_async is not None:
            return ("blocking", "async")
        return ("async",) if is_awaited or adapter.open is None else ("blocking",)

    def _start_workers(self) -> None:
        if self.adapter.reach != "machine":
            self.no_workers_reason = "the store is not shared between processes"
            return
        try:
            self.worker_pool = WorkerPool(self.adapter)
        except WorkersUnavailable as error:
            self.no_workers_reason = str(error)

    @contextmanager
    def workspace(self, sessions: Iterable[str] = ()) -> Iterator[Path]:
        """A folder for one run of a case, which adds the sessions that it uses to `sessions`."""
        self._workspaces += 1
        # A folder around it, so that everything beside the workspace is deleted with it.
        around = self._folder / str(self._workspaces)
        folder = around / f"{self._folder.name.rpartition('-')[2]}-{self._workspaces}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise Unreachable(f"cannot work in {self._folder}: {error.strerror}") from error
        try:
            yield folder
        finally:
            self._discard(around, sessions)

    def _discard(self, around: Path, sessions: Iterable[str]) -> None:
        """Remove everything that a run wrote. If that fails, no further case runs."""
        for used in around.iterdir():
            if self.adapter.discard is not None and used.is_dir():
                try:
                    self.adapter.discard(used, sessions)
                except Exception as error:
                    raise Unreachable(
                        f"what the kit wrote as {used.name} may still be there: "
                        f"{format_error(error)}"
                    ) from error
        shutil.rmtree(around, ignore_errors=True)

    def close(self) -> None:
        """End the processes and remove the folders."""
        if self.worker_pool is not None:
            self.worker_pool.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _create_folder(adapter: Adapter) -> Path:
    """Create the folder of all workspaces, in the adapter's home if it has one."""
    if adapter.home is not None and not adapter.home.is_dir():
        raise Unreachable(f"there is no folder {adapter.home}")
    try:
        return Path(tempfile.mkdtemp(prefix="memory-contract-check-", dir=adapter.home))
    except OSError as error:
        raise Unreachable(f"cannot work in {adapter.home}: {error.strerror}") from error


def list_modes(case: Case, subject: StoreUnderTest) -> list[tuple[Mode, CaseResult | None]]:
    """The modes of a case on this store, each with its result if that is known without a run."""
    found = []
    for mode in case.modes:
        flavour = FLAVOUR.get(mode)
        if flavour is None or flavour in subject.flavours:
            found.append((mode, _find_known_result(case, mode, subject)))
    return found


def _find_known_result(case: Case, mode: Mode, subject: StoreUnderTest) -> CaseResult | None:
    adapter, reason = subject.adapter, ""
    verdict: CaseVerdict = "NOT CLAIMED"
    if missing := sorted(case.needs - set(adapter.capabilities)):
        reason = f"{UNCLAIMED}{', '.join(missing)}"
    elif not adapter.claims(case.needs):
        reason = "a store that keeps only the newest entries is not asked to pop"
    elif case.durable and adapter.durability == "none":
        reason = "the store claims no durability"
    elif _REACHES.index(adapter.reach) < _REACHES.index(case.reach):
        reason = f"what is written is seen by one {adapter.reach} alone"
    elif mode == "threads" and adapter.reach == "handle" and not adapter.thread_safe:
        reason = "threads may not share a handle, and nothing else is shared"
    elif mode == "processes" and adapter.reach != "machine":
        reason = subject.no_workers_reason
    elif (mode == "processes" or case.reach == "machine") and subject.worker_pool is None:
        verdict, reason = "NOT RUN", subject.no_workers_reason
    if not reason:
        return None
    return CaseResult(gate=case.gate, case=case.name, mode=mode, verdict=verdict, reason=reason)


def run_case(
    case: Case,
    mode: Mode,
    subject: StoreUnderTest,
    *,
    seed: int,
    share_s: float = 0.0,
    rounds: int = 1,
    within_s: float = math.inf,
) -> CaseResult:
    """Run a case at least once, and again with other seeds while `share_s` lasts, if that helps.

    A race runs `rounds` times, however long that takes. One round that takes longer than `within_s`
    is UNKNOWN.
    """
    began = time.monotonic()
    seeds = Random(seed)  # noqa: S311 -- runs must repeat
    ours, tries = seed, 0
    rounds = rounds if case.races else 1
    # The result so far: a pass, or unexpected errors, unless a later round shows more.
    stands: CaseResult | None = None
    while True:
        tries += 1
        try:
            run = partial(run_round, case, mode, subject, ours)
            result = run_with_timeout(min(within_s, CASE_S_MAX), run)
        except WorkTimedOut as error:
            result = build_timeout_result(error, case, mode, subject, ours)
        spent_s = time.monotonic() - began
        if result.verdict == "PASS" or result.is_refusal:
            if stands is None or not stands.is_refusal:
                stands = result
            enough = tries >= rounds and spent_s * (tries + 1) / tries > share_s
            done = enough or not case.repeats
        else:
            done = result.verdict in _FINAL or not case.overlaps
            done = done or (tries >= TRIES_MIN and spent_s > TRYING_S)
        if done:
            break
        ours = seeds.getrandbits(32)
    if stands is not None and _takes_nothing_back(result, stands):
        result = stands
    return replace(result, duration_s=spent_s)


def _takes_nothing_back(result: CaseResult, before: CaseResult) -> bool:
    """Whether the result of an earlier round stands after this one."""
    if before.is_refusal:
        return result.verdict != "FAIL" or result.is_refusal
    return result.verdict == "VACUOUS"


def build_timeout_result(
    error: WorkTimedOut, case: Case, mode: Mode, subject: StoreUnderTest, seed: int
) -> CaseResult:
    """The result of a round that did not end. A slow run proves nothing."""
    # All threads, of this process and of its workers.
    faulthandler.dump_traceback(STDERR)
    if subject.worker_pool is not None:
        subject.worker_pool.dump_stacks()
    return CaseResult(
        gate=case.gate,
        case=case.name,
        mode=mode,
        verdict="UNKNOWN",
        reason=f"it hangs, or is too slow to be judged: {error}",
        seed=seed,
        notes=("the stacks of all threads and worker processes are on stderr",),
    )


def run_round(
    case: Case, mode: Mode, subject: StoreUnderTest, seed: int, factory: LoopFactory | None = None
) -> CaseResult:
    """Run a case once, in a fresh workspace, and judge it."""
    sessions: set[str] = set()
    with subject.workspace(sessions) as workspace:
        context = CaseContext(
            subject.adapter,
            mode=mode,
            flavours=subject.flavours,
            workspace=workspace,
            seed=seed,
            worker_pool=subject.worker_pool,
            loop_factory=factory,
        )
        verdict: CaseVerdict
        failures: tuple[Anomaly, ...] = ()
        try:
            try:
                case.run(context)
            finally:
                sessions |= context.sessions | {op.session for op in context.history}
                context.close()
            verdict, reason, failures = _judge_round(case, context)
        except CaseFailed as broken:
            verdict, reason, failures = _add_proofs(context, broken.failure)
        except Inconclusive as error:
            verdict, reason = error.verdict, str(error)
        except BaseException as error:  # noqa: BLE001 -- the store's, or a defect of the kit
            # Also SystemExit: a store must not end the kit. Ctrl-C reaches the main thread only.
            call = context.raised_by.get(id(error))
            if isinstance(error, WorkerLost):
                where = f"{call}: " if call else ""
                is_open = call is not None and call != OPENING
                state = ", with the store open in it" if is_open else ""
                verdict, reason = "UNKNOWN", f"{where}{error}{state}"
            elif call:
                raised = build_case_failure(RAISED, f"{call} raised {format_error(error)}")
                verdict, reason, failures = _add_proofs(context, raised)
            else:
                verdict, reason = "UNKNOWN", f"the kit itself failed: {format_error(error)}"
    return CaseResult(
        gate=case.gate,
        case=case.name,
        mode=mode,
        verdict=verdict,
        reason=reason,
        failures=failures,
        seed=seed,
        history=tuple(context.history),
        faults=tuple(context.faults),
        notes=tuple(context.notes),
    )


# A verdict, its reason, and the failures.
_Judgement = tuple[CaseVerdict, str, tuple[Anomaly, ...]]


def _judge_history(context: CaseContext) -> Verdict:
    # A search asks for one order in which everything took effect; each rule for less.
    return judge(context.history, search_steps=STEPS_MAX if context.adapter.ordered else 0)


def _add_proofs(context: CaseContext, failure: Anomaly) -> _Judgement:
    # Proofs of the checker come first: they say more than what the case noticed.
    verdict = _judge_history(context)
    proved = verdict.anomalies if isinstance(verdict, Violated) else ()
    failures = (*select_failures(proved), failure)
    return "FAIL", failures[0].proof, failures


def _judge_round(case: Case, context: CaseContext) -> _Judgement:
    verdict = Ok() if context.is_compared else _judge_history(context)
    if isinstance(verdict, Violated):
        failures = select_failures(verdict.anomalies)
        return "FAIL", failures[0].proof, failures
    unfair = [(op, words) for op, words, fair in context.errors if not fair]
    if unfair and case.gate not in FAULT_GATES:
        op, words = unfair[0]
        proof = f"{op.op} on {quote_name(op.session)} raised {words}, although nothing was wrong"
        failure = build_case_failure(RAISED, proof, session=op.session, witness=(op,))
        return "FAIL", proof, (failure,)
    if isinstance(verdict, Undecided):
        return "UNKNOWN", verdict.reason, ()
    silent: CaseVerdict = "VACUOUS"
    why = check_race_coverage(context.history, context.racers) if case.overlaps else None
    if why and context.mode == "tasks" and not context.suspensions:
        silent, why = "NOT CLAIMED", "no call ever gave way to another task, so none could overlap"
    if case.gate in FAULT_GATES:
        why = why or check_fault_coverage(context.history, context.faults)
    return silent if why else "PASS", why or "", ()
