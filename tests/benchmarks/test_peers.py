"""The figures beside other stores: their statistics, the page that is made of them, a small run."""

import ast
import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.peers import comparison, databases, page
from benchmarks.peers.__main__ import choose_peers
from benchmarks.peers.bounds import QUICK, Bounds
from benchmarks.peers.figure_text import format_cell, format_figure, list_standings
from benchmarks.peers.questions import Group, Question
from benchmarks.peers.results import Cell, Results
from benchmarks.peers.roster import BARE, ENGINES, OURS, ROSTER, SQLITE
from benchmarks.peers.runner import Runner
from benchmarks.peers.spread import LEAST, compute_spread
from benchmarks.peers.targets import judge_targets
from benchmarks.peers.worker_process import ROOT
from benchmarks.peers.workloads import APPEND, APPEND_LONGEST, LOAD, MESSAGE_BYTES, TASKS_ONE, WORKS

PEERS = ROOT / "benchmarks" / "peers"


def told(name, *, synced=True):
    return {
        "engine": SQLITE,
        "name": name,
        "environment": "",
        "used": "as it comes",
        "prepared": "",
        "snapshot_is": "",
        "keeps": None,
        "synced": synced,
        "awaited": False,
        "snapshots": True,
        "versions": {"thing": "1.2"},
    }


def results_of(**appends):
    """Figures of appends by name; the first is the bare driver's."""
    results = Results()
    results.engines[SQLITE] = {
        "version": "SQLite 3",
        "durability": "FULL",
        "date": "2026-01-02",
        "command": "python -m benchmarks.peers",
        "machine": "a machine",
        "python": "3.11",
        "rounds": 5,
    }
    for name, figures in appends.items():
        label = f"{SQLITE} · {name.replace('_', ' ')}"
        results.peers[label] = told(name.replace("_", " "))
        results.cell(label, APPEND.key).figures = figures
    return results


@pytest.fixture
def results():
    return results_of(
        bare_driver=[0.001, 0.002, 0.004],
        indelible=[0.0012, 0.0024, 0.0048],
        slow=[0.003, 0.006, 0.012],
        fast=[0.0009, 0.0018, 0.0036],
    )


def test_a_figure_is_the_median_of_its_rounds_and_its_spread_reaches_beyond_them():
    spread = Cell(figures=[1.0, 2.0, 4.0, 2.0, 2.0]).spread
    # Half of the distance of the lowest and the highest, where the half is as far as the double.
    assert (spread.low, spread.middle, spread.high) == pytest.approx((0.5, 2.0, 8.0))
    assert (Cell().median, Cell().spread) == (None, None)


def test_a_spread_is_narrower_with_more_rounds_and_never_less_than_runs_differ():
    five, ten = compute_spread([1.0, 2.0] * 2 + [1.5]), compute_spread([1.0, 2.0] * 5)
    assert five.low < ten.low < 1.0
    assert five.high > ten.high > 2.0
    steady = compute_spread([2.0] * 10)
    assert (steady.low, steady.high) == pytest.approx((2 - 2 * LEAST, 2 + 2 * LEAST))


def test_bytes_may_be_none_or_fewer():
    spread = compute_spread([0.0, 0.0, 20.0, 0.0, -10.0])
    assert (spread.low, spread.middle, spread.high) == pytest.approx((-25.0, 0.0, 35.0))


def test_ratios_are_taken_within_rounds(results):
    ratios = results.ratios(f"{SQLITE} · indelible", APPEND.key, to=f"{SQLITE} · {BARE}")
    assert ratios == pytest.approx([1.2, 1.2, 1.2])


def test_results_read_back_as_they_were_written(results, tmp_path):
    results.cell(f"{SQLITE} · slow", TASKS_ONE.key).refused = {"BusyError": 3}
    results.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results


@pytest.mark.parametrize(
    ("figure", "work", "text"),
    [
        (0.000_012, APPEND, "12 µs"),
        (0.0123, APPEND, "12.3 ms"),
        (1.5, APPEND, "1.5 s"),
        (12_345.6, TASKS_ONE, "12,346/s"),
        (103.2, MESSAGE_BYTES, "103 B"),
        (2_600_000.0, MESSAGE_BYTES, "2,600 kB"),
    ],
)
def test_figures_are_for_people(figure, work, text):
    assert format_figure(figure, work) == text


def test_what_was_lost_or_refused_stands_in_the_same_cell(results):
    label = f"{SQLITE} · slow"
    cell = Cell(figures=[100.0], acknowledged=128, lost=116, refused={"StaleSessionError": 2})
    results.cells[label][TASKS_ONE.key] = cell
    text = format_cell(results, label, TASKS_ONE)
    assert text == "100/s (92/s – 108/s), **116 of 128 lost**, 2 refused (StaleSessionError)"
    cell.figures = [0.0]
    assert format_cell(results, label, TASKS_ONE) == "– all refused (StaleSessionError)"
    results.cells[label][APPEND.key] = Cell(word="not offered")
    assert format_cell(results, label, APPEND) == "– not offered"


def test_a_cell_has_the_ratio_to_the_bare_driver_and_that_has_its_times(results):
    assert format_cell(results, f"{SQLITE} · slow", APPEND) == "6 ms · 3.00× (2.76 – 3.24)"
    bare = format_cell(results, f"{SQLITE} · {BARE}", APPEND)
    assert bare.startswith("2 ms (315 µs – 12.7 ms)")


def test_the_best_peer_lost_nothing_and_synced_its_files(results):
    def best():
        return next(each for each in list_standings(results, SQLITE) if each.work == APPEND)

    assert (best().best_name, best().ahead) == ("fast", False)
    assert best().to_best.middle == pytest.approx(4 / 3)
    results.peers[f"{SQLITE} · fast"]["synced"] = False
    assert (best().best_name, best().ahead) == ("slow", True)
    results.peers[f"{SQLITE} · fast"]["synced"] = True
    results.cell(f"{SQLITE} · fast", APPEND.key).lost = 1
    assert best().best_name == "slow"


def test_a_target_is_met_or_missed_or_missed_within_the_spread(results):
    ((target, spread),) = judge_targets(results, SQLITE)
    assert target.name == "append, against the bare driver"
    assert target.verdict(spread) == "met"
    assert target.verdict(compute_spread([1.33] * 5)) == "missed, within the spread"
    assert target.verdict(compute_spread([1.5] * 5)) == "**missed**"


def test_an_append_to_a_long_session_is_judged_within_rounds():
    results = results_of(indelible=[1.0, 2.0, 4.0])
    results.cell(f"{SQLITE} · indelible", APPEND_LONGEST.key).figures = [1.05, 2.1, 4.2]
    ((target, spread),) = judge_targets(results, SQLITE)
    assert target.name == "append at 100,000, against 10"
    assert spread.middle == compute_spread([1.05]).middle == 1.05
    assert spread.high < 1.14


def test_the_page_is_made_from_the_results_alone(results, tmp_path):
    page.write(results, tmp_path)
    text = (tmp_path / page.PAGE).read_text("utf-8")
    ratio = "1.20 (1.10 – 1.30)"
    assert f"| **append one message, at 10** | 2 ms | 2.4 ms | {ratio} | fast: 1.8 ms |" in text
    assert "| slow |  | 6 ms · 3.00× (2.76 – 3.24) |" in text
    assert "2026-01-02" in text
    assert "thing 1.2" in text
    for work in page.PLOTTED:
        assert work.title in text


def test_every_table_and_plot_says_when_of_what_how_durable_and_by_which_command(results):
    carried = "thing 1.2, SQLite 3, Python 3.11; FULL; 2026-01-02, `python -m benchmarks.peers`."
    sections = page.text(results).split("\n## ")
    figures = [part for part in sections if "|---" in part and not part.startswith("# ")]
    assert figures
    assert all(carried in part for part in figures)
    for plot in page.plots(results).values():
        assert carried.replace("`", "").rstrip(".") in plot


def test_plots_are_valid_and_show_everybody(results):
    plot = page.plots(results)["sqlite-append.svg"]
    assert "prefers-color-scheme: dark" in plot
    texts = [each.text for each in ET.fromstring(plot).iter() if each.tag.endswith("text")]
    assert {"fast", "slow", "indelible", "bare driver", "2.4 ms · 1.20×"} <= set(texts)


def test_two_runs_agree_where_their_spreads_meet():
    one = results_of(bare_driver=[1.0, 1.1], near=[2.0, 3.0], far=[2.0, 2.2])
    other = results_of(bare_driver=[1.1, 1.0], near=[2.4, 3.1], far=[8.0, 9.0])
    both, apart, alone = comparison.compare_runs(one, other)
    assert (both, alone) == (3, [])
    assert [each.name for each in apart] == [
        f"{SQLITE} · far, append one message, at 10, × bare driver"
    ]


def test_one_figure_that_lies_apart_is_listed_and_is_enough_to_fail():
    names = {f"peer{number}": [2.0, 2.1] for number in range(30)}
    one = results_of(bare_driver=[1.0, 1.0], **names)
    console = Console(record=True, width=200, file=io.StringIO())
    assert comparison.print_comparison(one, one, console) == 0
    other = results_of(bare_driver=[1.0, 1.0], **names | {"peer7": [20.0, 21.0]})
    assert comparison.print_comparison(one, other, console) == 1
    assert "apart: SQLite · peer7, append one message, at 10" in console.export_text()


def test_a_figure_of_one_run_alone_is_told_and_not_judged():
    one = results_of(bare_driver=[1.0, 1.0], new=[1.0, 1.0])
    both, apart, alone = comparison.compare_runs(one, results_of(bare_driver=[1.0, 1.0]))
    assert (both, apart) == (1, [])
    assert any(name.startswith(f"{SQLITE} · new") for name in alone)


def test_runs_without_a_figure_in_common_do_not_agree():
    console = Console(file=io.StringIO())
    assert comparison.print_comparison(results_of(bare_driver=[1.0]), results_of(), console) == 1


def test_the_figures_of_the_page_have_five_rounds_at_least():
    assert Bounds().rounds >= 5
    assert Bounds().rounds_max >= Bounds().rounds


def test_whoever_is_asked_for_stands_beside_indelible_and_the_bare_driver():
    names = [entry.name for entry in choose_peers("RedisSession")]
    assert names == [BARE, *OURS, "OpenAI Agents RedisSession"]
    assert {entry.engine for entry in choose_peers(None)} == set(ENGINES)


@pytest.mark.parametrize("entry", ROSTER, ids=lambda entry: entry.label)
def test_every_peer_of_the_roster_has_its_class_and_its_environment(entry):
    module, name = entry.code.split(":")
    tree = ast.parse((PEERS / f"{module}.py").read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if entry.environment:
        assert (ROOT / "requirements" / "frameworks" / f"{entry.environment}.txt").is_file()


def test_the_committed_page_is_that_of_the_committed_figures():
    results = page.committed()
    docs = ROOT / "docs"
    assert (docs / page.PAGE).read_text("utf-8") == page.text(results)
    plots = page.plots(results)
    assert {path.name for path in (docs / page.PLOTS).iterdir()} == set(plots)
    for name, plot in plots.items():
        assert (docs / page.PLOTS / name).read_text("utf-8") == plot
        ET.fromstring(plot)


def runner_of(tmp_path, steps):
    """The bare driver and indelible on SQLite, in two small rounds."""
    entries = [entry for entry in ROSTER if entry.code in {"bare:BareSqlite", "ours:Blocking"}]
    return Runner(
        places=databases.choose_databases(SQLITE, tmp_path / "places", appendfsync="no"),
        entries=[entry for entry in entries if entry.engine == SQLITE],
        bounds=replace(QUICK, calls=2, weighed=5, sizes=(100,)),
        results=results_of(),
        folder=Path(tmp_path),
        tell=steps.append,
    )


def test_a_small_run_measures_every_work_in_every_round(tmp_path):
    steps = []
    runner = runner_of(tmp_path, steps)
    runner.run()
    assert len(steps) == runner.steps
    assert runner.results.engines[SQLITE]["rounds"] == 2
    for entry in runner.entries:
        cells = runner.results.cells[entry.label]
        measured = {work for work, cell in cells.items() if cell.figures}
        # Sessions of 10,000 and more were not asked for.
        longer = {work for work in WORKS if "long" in work or "000" in work or work == "load"}
        assert measured == set(WORKS) - longer
        assert {len(cells[work].figures) for work in measured} == {2}
        assert sum(cell.lost for cell in cells.values()) == 0
        assert cells["recovery"].acknowledged > 0


def test_a_call_that_is_slow_is_asked_once_and_told(tmp_path):
    runner = runner_of(tmp_path, [])
    asked = []

    def slow(entry):
        asked.append(entry)
        return 3.0

    questions = (
        Question(work=LOAD, ask=slow),
        Question(work=APPEND, ask=lambda _: 0.5),
        Question(work=TASKS_ONE, ask=lambda _: 3.0),
    )
    for runner.rounds in (1, 2):
        runner.one_round(Group(name="some", passes=2, questions=questions))
    assert len(asked) == len(runner.entries)
    for entry in runner.entries:
        cells = runner.results.cells[entry.label]
        assert (cells[LOAD.key].word, cells[LOAD.key].figures) == ("3 s, asked once", [])
        assert cells[APPEND.key].figures == [0.5, 0.5]
        assert cells[TASKS_ONE.key].figures == [3.0, 3.0]
