"""What the demo says around its numbers. Every sentence about a result depends on that result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from examples.demo.acts import (
    PROCESSES,
    TURNS_TRIED,
    Crowd,
    Kills,
    Rollback,
    State,
)

OPENING: Final = (
    "An agent remembers a conversation because some code stores it. Most such code loads the "
    "list of messages, appends, and writes the list back. Here it runs next to indelible in "
    "three situations that agents meet in production, with real processes, in a temporary "
    "folder. Every number below was counted just now."
)

CROWD: Final = (
    f"{PROCESSES} processes add to the same conversation at the same moment, as the workers "
    "behind a web server do. Each counts the turns that its store acknowledged."
)

ROLLBACK: Final = (
    "Process A talks, takes snapshots and exits. In process B the agent makes a bad tool call, "
    "and B rolls back to the last snapshot. Process C comes later and uses the snapshots. "
    "The naive store's rollback was refactored: it now rebuilds the session in one transaction."
)

KILLS: Final = (
    "A process saves turn after turn and reports each one that was acknowledged; then it is "
    "killed with SIGKILL at a random moment, and the file is opened again. SQLite would save "
    "the naive store of act 1 here, so the naive side is the other common kind: a JSON file, "
    "rewritten for each turn."
)


def about_crowd(naive: Crowd, ours: Crowd) -> str:
    """What act 1 showed."""
    if naive.lost:
        errors = "no error" if naive.refused == 0 else f"{naive.refused} errors, none for these"
        seen = (
            f"The naive store lost {naive.lost} turns that it had acknowledged, with {errors}: "
            "two processes load the same list, and the later write erases the earlier turn."
        )
    else:
        seen = (
            f"The naive store lost nothing in {len(TURNS_TRIED)} attempts with up to "
            f"{naive.turns_each} turns for each process: there is a gap between its load and its "
            "write, and this run did not hit it."
        )
    if not ours.held:
        return f"{seen} indelible did not hold: {ours.lost} lost, {ours.torn} lines out of place."
    return f"{seen} indelible never writes a list back: a turn is appended, after what is there."


def about_rollback(naive: Rollback, ours: Rollback) -> str:
    """What act 2 showed."""
    if naive.left < naive.taken:
        green = "The history is exact, so a test of the rollback stays green. "
        seen = (
            f"{green if naive.after_mistake is State.EXACT else ''}But rebuilding the session "
            f"deleted its snapshots: {naive.taken - naive.left} of {naive.taken} are gone, and "
            "only the next process notices."
        )
    else:
        seen = "The naive store kept its snapshots in this run."
    if not ours.held:
        return f"{seen} indelible did not hold: {ours.left} of {ours.taken} snapshots left."
    return (
        f"{seen} In indelible a rollback only changes which entries are visible. It rebuilds "
        "nothing and deletes nothing."
    )


def about_kills(naive: Kills, ours: Kills) -> str:
    """What act 3 showed."""
    count = len(naive.each)
    if naive.unreadable:
        seen = (
            f"{_times(naive.unreadable)} of {count} the kill fell between emptying the JSON file "
            f"and filling it again, and the whole history went with it: {naive.lost} turns."
        )
    elif naive.lost:
        seen = f"The JSON file could be read after each kill, but {naive.lost} turns were missing."
    else:
        seen = (
            f"The JSON file came through all {count} kills of this run: none fell between "
            "emptying the file and filling it again. That gap is still there."
        )
    if not ours.held:
        return f"{seen} indelible did not hold: {ours.lost} lost, {ours.torn} torn."
    unsaid = ours.found - ours.acknowledged
    more = (
        f" It found {unsaid} more than were acknowledged: saved, and killed before saying so."
        if unsaid
        else ""
    )
    return f"{seen} indelible had every acknowledged turn, question and answer together.{more}"


def about_next_lines(remembered: list[dict[str, Any]]) -> str:
    """What the last lines left behind."""
    if not remembered:
        return "These lines ran just now, and left nothing that could be read back."
    return f"These lines ran just now, and another process reads back: {remembered}"


def verdict(held: Sequence[bool], *, elapsed_s: float) -> str:
    """The sentence under the summary."""
    failed = [str(act) for act, one in enumerate(held, start=1) if not one]
    if failed:
        return f"indelible did NOT hold in act {' and '.join(failed)}. It took {elapsed_s:.1f} s."
    return f"indelible held in all {len(held)} acts. They took {elapsed_s:.1f} s."


def _times(number: int) -> str:
    return "Once out" if number == 1 else f"{number} times out"
