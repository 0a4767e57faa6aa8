"""python -m soak --minutes 10 --seed 7: write under faults, judge the history, print the result."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Final

import indelible
from soak import page
from soak.engines import ENGINES, Engine, freeze, restart
from soak.verdict import count_results, parse_records, read_sessions
from soak.writer import Orders, write

# The time for which a chunk is written before it is judged.
WRITING_S: Final = 25.0
# Between two faults.
PEACE_S: Final = (0.3, 2.0)
# Writers that still wait for an answer so long after the end of a chunk are killed; the outcomes of
# their calls are unknown.
ENDING_S_MAX: Final = 60.0
# Forked from a process that has imported everything and opened nothing.
FORK: Final = multiprocessing.get_context("fork")


class Chunk:
    """Some seconds of writing on every engine, and their verdict."""

    def __init__(self, number: int, seed: int, engines: list[Engine], folder: Path) -> None:
        self._random = Random(f"{seed}/{number}")
        self._number = number
        self._engines = engines
        self._folder = folder / f"records-{number}"
        self._folder.mkdir()
        self._urls = {engine.name: engine.open(number) for engine in engines}
        self._writers: dict[tuple[str, int], BaseProcess] = {}
        self._lives: Counter[tuple[str, int]] = Counter()

    def run(self, writing_s: float) -> Counter[str]:
        """Write and judge; return the counts."""
        self._began = time.monotonic()
        self._until = self._began + writing_s
        for engine in self._engines:
            for place in range(engine.writers):
                self._start(engine, place)
        faults = self._inject_faults()
        deadline = time.monotonic() + ENDING_S_MAX
        for writer in self._writers.values():
            writer.join(max(0.0, deadline - time.monotonic()))
            if writer.is_alive():
                writer.kill()
                writer.join()
        count = sum(self._judge_engines(), Counter[str]())
        return count + faults

    def _start(self, engine: Engine, place: int) -> None:
        life = self._lives[engine.name, place]
        self._lives[engine.name, place] += 1
        name = f"{engine.name[0]}{place}l{life}"
        orders = Orders(
            name=name,
            url=self._urls[engine.name],
            record=self._folder / f"{engine.name}-{name}.log",
            began=self._began,
            until=self._until,
            seed=f"{self._number}/{name}",
            reads=not engine.shared,
            rest_s=engine.rest_s,
        )
        process = FORK.Process(target=write, args=(orders,), daemon=True)
        process.start()
        self._writers[engine.name, place] = process

    def _inject_faults(self) -> Counter[str]:
        faults: Counter[str] = Counter()
        while True:
            time.sleep(self._random.uniform(*PEACE_S))
            if time.monotonic() > self._until:
                return faults
            engine = self._random.choice([each for each in self._engines if each.shared])
            servers = engine.servers()
            kind = self._random.choice(("kill -9", "kill -9", "restart", "freeze"))
            if kind == "kill -9" or not servers:
                place = self._random.randrange(engine.writers)
                victim = self._writers[engine.name, place]
                victim.kill()
                victim.join()
                self._start(engine, place)
                faults["fault: kill -9 of a writer"] += 1
            else:
                strike = restart if kind == "restart" else freeze
                strike(self._random.choice(servers), self._random)
                faults[f"fault: {kind} of a server"] += 1

    def _judge_engines(self) -> list[Counter[str]]:
        """Return the counts of each engine, from processes that wrote nothing."""
        found: list[Counter[str]] = []
        for engine in self._engines:
            answer = self._folder / f"{engine.name}.json"
            process = FORK.Process(target=self._judge, args=(engine, answer))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"the judge of {engine.name} failed; see {self._folder}")
            found.append(Counter(json.loads(answer.read_text("utf-8"))))
        return found

    def _judge(self, engine: Engine, answer: Path) -> None:
        operations = parse_records(sorted(self._folder.glob(f"{engine.name}-*.log")))
        if engine.shared:
            sessions = sorted({op.session for op in operations})
            operations += read_sessions(self._urls[engine.name], sessions)
        count = count_results(operations, self._folder / f"evidence-{engine.name}")
        count[f"on {engine.name}"] = count["acknowledged"]
        answer.write_text(json.dumps(count), "utf-8")

    def discard(self) -> None:
        """Delete the files of a chunk in which nothing was wrong."""
        for engine in self._engines:
            engine.discard()
        shutil.rmtree(self._folder)


def main() -> int:
    """Run chunks until the time is up."""
    asked = _parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="indelible-soak-"))
    # Servers that are not root must be able to enter.
    folder.chmod(0o755)
    engines: list[Engine] = []
    total: Counter[str] = Counter()
    began, number, wrong = time.monotonic(), asked.chunk, False
    try:
        # One by one: those that did start are ended if the next one does not.
        engines.extend(ENGINES[name](folder / name) for name in asked.engines.split(","))
        while not wrong and time.monotonic() < began + asked.minutes * 60:
            chunk = Chunk(number, asked.seed, engines, folder)
            found = chunk.run(asked.writing_s)
            total += found
            wrong = any(found[kind] for kind in page.WRONG)
            _report_chunk(number, found, total, time.monotonic() - began)
            if not wrong:
                chunk.discard()
                number += 1
    except KeyboardInterrupt:
        _print("Stopped; the chunk that was being written does not count.")
    finally:
        for engine in engines:
            engine.end()
    minutes = (time.monotonic() - began) / 60
    last = number if wrong else number - 1
    row = page.Row.build(total, seed=asked.seed, chunks=(asked.chunk, last), minutes=minutes)
    _print(page.format_summary(row, total))
    if asked.record and total:
        page.add_row(asked.record, row)
        _print(f"Written to {asked.record}.")
    if wrong:
        _print(f"The histories and proofs are in {folder}.")
        return 1
    _print(f"Go on with: make soak SEED={asked.seed} CHUNK={number}")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m soak",
        description=__doc__,
        epilog=f"indelible {indelible.__version__}, process {os.getpid()}",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(31), help="draws everything")
    parser.add_argument("--chunk", type=int, default=0, help="the chunk to begin with")
    parser.add_argument("--engines", default=",".join(ENGINES), help="which, by commas")
    parser.add_argument("--writing-s", type=float, default=WRITING_S, help="seconds in a chunk")
    parser.add_argument("--record", type=Path, help="a page to write the result to")
    return parser.parse_args()


def _report_chunk(number: int, found: Counter[str], total: Counter[str], spent_s: float) -> None:
    faults = sum(count for kind, count in found.items() if kind.startswith("fault: "))
    wrong = ", ".join(f"{found[kind]} {kind}" for kind in page.WRONG if found[kind])
    _print(
        f"{spent_s:5.0f} s  chunk {number}: {found['acknowledged']:,} appends acknowledged,"
        f" {faults} faults, {wrong or 'nothing lost or doubled'};"
        f" {total['acknowledged']:,} in all"
    )


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
