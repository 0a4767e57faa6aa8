"""Recall on conversations with questions, in the form of LoCoMo.

The file is a list of conversations: `turns` (`id`, `session`, `speaker`, `text`, `caption`) and
`questions` (`question`, `category`, `evidence`: ids of turns). A conversation is stored as one
session of the store for each of its sessions, or as a collection of memories for each, which have
vectors if the store has an embedder; a question is asked of all of them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from indelible import ChatMessage, MemoryStore

# The fifth category has questions that nothing answers.
CATEGORIES = frozenset({1, 2, 3, 4})
# Sessions are ranked by their best turn; this many turns reach ten sessions.
HITS = 100

Progress = Callable[[int, int], None]


class Scores(NamedTuple):
    """Means over questions; latency in milliseconds."""

    recall_at_5: float
    recall_at_10: float
    hit_at_10: float
    mrr: float

    @staticmethod
    def compute(found: list[Any], wanted: set[Any]) -> Scores:
        """Score the answer to one question."""
        first = next((nth for nth, each in enumerate(found, 1) if each in wanted), None)
        return Scores(
            len(wanted & set(found[:5])) / len(wanted),
            len(wanted & set(found[:10])) / len(wanted),
            float(bool(wanted & set(found[:10]))),
            1 / first if first else 0.0,
        )

    @staticmethod
    def average(scores: Iterable[Scores]) -> Scores:
        """Average the scores of questions."""
        return Scores(*map(statistics.fmean, zip(*scores, strict=True)))


class Recall(NamedTuple):
    """What was found: by turn, by session, over so many questions, in so much time."""

    turns: Scores
    sessions: Scores
    questions: int
    milliseconds: float


def load(path: Path) -> list[dict[str, Any]]:
    """Load conversations."""
    conversations: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return conversations


# The ids of turns by where they are stored.
Places = dict[tuple[str, int], str]


def fill_messages(store: MemoryStore, conversations: list[dict[str, Any]]) -> Places:
    """Store each turn as a message; return where they are."""
    places: Places = {}
    for conversation in conversations:
        sessions: dict[Any, list[dict[str, Any]]] = {}
        for turn in conversation["turns"]:
            sessions.setdefault(turn["session"], []).append(turn)
        for number, turns in sessions.items():
            name = f"{conversation['sample_id']}/{number}"
            messages = [
                ChatMessage(role="user", name=turn["speaker"], content=_get_text(turn))
                for turn in turns
            ]
            receipt = store.add_messages(name, messages)
            for position, turn in zip(receipt.positions, turns, strict=True):
                places[name, position] = turn["id"]
    return places


def fill_memories(store: MemoryStore, conversations: list[dict[str, Any]]) -> Places:
    """Store each turn as a memory; return where they are."""
    places: Places = {}
    for conversation in conversations:
        for turn in conversation["turns"]:
            collection = (conversation["sample_id"], str(turn["session"]))
            text = f"{turn['speaker']}: {_get_text(turn)}"
            receipt = store.remember(collection, text, id=turn["id"])
            places[receipt.session_id, receipt.positions[0]] = turn["id"]
    return places


def _get_text(turn: dict[str, Any]) -> str:
    parts = (turn["text"], turn.get("caption") or turn.get("image_caption"))
    return " ".join(part for part in parts if part)


def list_questions(conversations: list[dict[str, Any]]) -> Iterator[tuple[str, str, set[str]]]:
    """List the questions that count, with the conversation and the turns that answer them."""
    for conversation in conversations:
        there = {turn["id"] for turn in conversation["turns"]}
        for question in conversation["questions"]:
            wanted = set(question["evidence"]) & there
            if question["category"] in CATEGORIES and wanted:
                yield conversation["sample_id"], question["question"], wanted


def measure(
    store: MemoryStore,
    conversations: list[dict[str, Any]],
    places: Places,
    progress: Progress = lambda _, __: None,
) -> Recall:
    """Ask every question."""
    by_turn: list[Scores] = []
    by_session: list[Scores] = []
    times: list[float] = []
    questions = list(list_questions(conversations))
    for number, (conversation, question, wanted) in enumerate(questions, 1):
        begun = time.perf_counter()
        hits = store.search(question, under=conversation, k=HITS)
        times.append(time.perf_counter() - begun)
        turns = [places[hit.session_id, hit.position] for hit in hits]
        by_turn.append(Scores.compute(turns, wanted))
        expected = {
            name
            for (name, _), turn in places.items()
            if turn in wanted and name.startswith(f"{conversation}/")
        }
        found = list(dict.fromkeys(hit.session_id for hit in hits))
        by_session.append(Scores.compute(found, expected))
        progress(number, len(questions))
    return Recall(
        Scores.average(by_turn),
        Scores.average(by_session),
        len(questions),
        statistics.median(times) * 1000,
    )
