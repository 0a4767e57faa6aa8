"""The figures beside other stores: their statistics, the page that is made of them, a small run."""

import ast
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from benchmarks.peers import comparing, page, places
from benchmarks.peers.__main__ import chosen
from benchmarks.peers.hands import ROOT
from benchmarks.peers.results import Cell, Results
from benchmarks.peers.roster import BARE, ENGINES, OURS, ROSTER, SQLITE
from benchmarks.peers.running import QUICK, Runner, replace
from benchmarks.peers.targets import judged
from benchmarks.peers.telling import cell_text, shown, standings
from benchmarks.peers.works import APPEND, MESSAGE_BYTES, TASKS_ONE, WORKS

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
        "append rounds": 10,
        "ended early": 0,
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


def test_a_figure_is_the_median_of_its_rounds_with_the_lowest_and_the_highest():
    cell = Cell(figures=[5.0, 1.0, 2.0, 9.0, 3.0])
    assert (cell.median, cell.spread) == (3.0, (1.0, 9.0))
    assert (Cell().median, Cell().spread) == (None, None)


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
    assert shown(figure, work) == text


def test_what_was_lost_or_refused_stands_in_the_same_cell():
    cell = Cell(figures=[100.0], acknowledged=128, lost=116, refused={"StaleSessionError": 2})
    text = cell_text(cell, TASKS_ONE)
    assert text == "100/s, **116 of 128 lost**, 2 refused (StaleSessionError)"
    assert cell_text(Cell(word="not offered"), APPEND) == "– not offered"


def test_the_best_peer_lost_nothing_and_synced_its_files(results):
    def best():
        return next(each for each in standings(results, SQLITE) if each.work == APPEND)

    assert (best().best_name, best().ahead) == ("fast", False)
    assert best().to_best == pytest.approx(4 / 3)
    results.peers[f"{SQLITE} · fast"]["synced"] = False
    assert (best().best_name, best().ahead) == ("slow", True)
    results.peers[f"{SQLITE} · fast"]["synced"] = True
    results.cell(f"{SQLITE} · fast", APPEND.key).lost = 1
    assert best().best_name == "slow"


def test_a_target_is_met_or_missed(results):
    ((target, figure),) = judged(results, SQLITE)
    assert (target.name, target.met(figure)) == ("append, against the bare driver", True)
    assert not target.met(1.31)


def test_the_page_is_made_from_the_results_alone(results, tmp_path):
    page.write(results, tmp_path)
    text = (tmp_path / page.PAGE).read_text("utf-8")
    assert "| **append one message, at 10** | 2 ms | 2.4 ms | 1.20 | fast: 1.8 ms |" in text
    assert "| slow |  | 6 ms (3 ms – 12 ms) |" in text
    assert "2026-01-02" in text
    assert "thing 1.2" in text
    for work in page.PLOTTED:
        assert work.title in text


def test_plots_are_valid_and_show_everybody(results):
    plot = page.plots(results)["sqlite-append.svg"]
    assert "prefers-color-scheme: dark" in plot
    texts = [each.text for each in ET.fromstring(plot).iter() if each.tag.endswith("text")]
    assert {"fast", "slow", "indelible", "bare driver", "2.4 ms"} <= set(texts)


def test_two_runs_agree_where_their_spreads_meet():
    one = results_of(bare_driver=[1.0, 1.0], near=[2.0, 3.0], far=[2.0, 3.0])
    other = results_of(bare_driver=[2.0, 2.0], near=[5.0, 8.0], far=[8.0, 9.0])
    both, apart = comparing.compared(one, other)
    assert both == 2
    assert [each.label for each in apart] == [f"{SQLITE} · far"]


def test_whoever_is_asked_for_stands_beside_indelible_and_the_bare_driver():
    names = [entry.name for entry in chosen("RedisSession")]
    assert names == [BARE, *OURS, "OpenAI Agents RedisSession"]
    assert {entry.engine for entry in chosen(None)} == set(ENGINES)


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


def test_a_small_run_measures_every_work(tmp_path):
    bounds = replace(QUICK, rounds=1, append_rounds=1, calls=2, weighed=5, sizes=(100,))
    entries = [entry for entry in ROSTER if entry.code in {"bare:BareSqlite", "ours:Blocking"}]
    entries = [entry for entry in entries if entry.engine == SQLITE]
    results, steps = results_of(), []
    Runner(
        places=places.opened(SQLITE, tmp_path / "places", appendfsync="no"),
        entries=entries,
        bounds=bounds,
        results=results,
        folder=Path(tmp_path),
        tell=steps.append,
    ).run()
    for entry in entries:
        cells = results.cells[entry.label]
        measured = {work for work, cell in cells.items() if cell.figures}
        # Sessions of 10,000 and more were not asked for.
        longer = {work for work in WORKS if "long" in work or "000" in work or work == "load"}
        assert measured == set(WORKS) - longer
        assert sum(cell.lost for cell in cells.values()) == 0
        assert cells["recovery"].acknowledged > 0
