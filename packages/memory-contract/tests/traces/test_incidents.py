"""From a failure to a test: the incidents of `examples/incidents`, and a sample of the goldfish.

A soak (`make soak`) asks for all goldfish.
"""

import json
import os
from pathlib import Path

import pytest

from memory_contract import explain_trace, recorded, replay_trace, shrink_trace, write_test
from memory_contract.contract_run import list_items, select
from memory_contract.goldfish import GOLDFISH
from memory_contract.runner import StoreUnderTest, run_case
from memory_contract.targets import resolve
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.format import TraceHeader, TraceOperation, list_parts, write_trace
from memory_contract.traces.recorder import Policy
from memory_contract.traces.replay import load_trace, replay_lines
from tests.support.kit import plugin_projects
from tests.support.kit.plugin_projects import outcomes, run
from tests.support.stores import ENGINES, empty_url

pytest_plugins = ["pytester"]

EXAMPLES = Path(__file__).parents[4] / "examples" / "incidents"
# The goldfish that produced each, what it is called, and how sure a replay can be of it.
INCIDENTS = {
    "rollback_wiped_the_snapshots": ("rollback_wipes_snapshots", "lost snapshot"),
    "key_overwritten": ("read_modify_write_in_a_file", "lost append"),
    "write_that_was_not": ("swallowed_error", "lost append"),
    "fields_lost": ("dropped_fields", "corrupted entry"),
    "ttl_changed_in_a_release": ("expires_early", "early expiry"),
    "eviction": ("evicted_sessions", "lost append"),
    "shared_instance": ("shared_instance", "cross-session leak"),
    "compression_raced": ("trim_of_an_old_list", "lost append"),
    "window_of_one": ("window_of_one", "lost append"),
}
# What a trace cannot show, and why: what is not an entry, a read or a change is not in it.
UNSEEN = {
    "undo_forgets_the_first": "what an undo must bring back is not judged",
    "claims_too_much": "what an undo must bring back is not judged",
    "trim_splits_pairs": "what belongs together is not in a trace",
    "trim_drops_the_system_message": "what must stay is not in a trace",
    "never_expires": "its case looks at the list of sessions",
    "half_expires": "its case looks at a snapshot after the end",
    "version_ignored": "versions are not in a trace",
    "expected_looked_at_first": "versions are not in a trace",
    "one_world_for_all": "two stores are two traces",
    "first_page_only": "lists of sessions are not in a trace",
    "tables_made_twice": "it fails before the first call",
    "unbounded_lock": "how long a call takes breaks no rule of the checker",
}
UNSEEN |= {
    name: "searches are not in a trace"
    for name, fish in GOLDFISH.items()
    if fish.adapter.claims(["search"])
}
# What a trace shows and a replay does not do again: it is not in the calls.
NOT_IN_THE_CALLS = {
    "empty_list_on_bad_payload": "the file was damaged",
    "aliased_input": "the caller changed a message in place",
    "aliased_output": "the caller changed a message in place",
    "half_a_refused_batch": "an object that is no message cannot be written down",
    "stringified_objects": "an object that is no message cannot be written down",
    "empty_batch_clears": "an append of nothing is no append",
    "polite_when_closed": "the handle had been closed",
}
SOAKING = "INDELIBLE_SEEDS" in os.environ
TIMES = 100
# One of each kind; the race is one of tasks, which does not depend on how busy the machine is.
EVERYDAY = ["dropped_fields", "normalised_text", "pop_spares_snapshots", "shared_instance"]


# The incidents that ship


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_is_explained_by_its_trace(name):
    _, anomaly = INCIDENTS[name]
    found = explain_trace(EXAMPLES / name / "trace.jsonl")
    assert anomaly in found.names, render_explanation(found)
    small = explain_trace(EXAMPLES / name / f"test_{name}.jsonl")
    assert anomaly in small.names
    assert small.verdict.scope.operations < found.verdict.scope.operations or name == "fields_lost"


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_test_of_an_incident_is_red_on_the_goldfish_that_produced_it(name):
    fish, anomaly = INCIDENTS[name]
    found = replay_trace(
        EXAMPLES / name / f"test_{name}.jsonl", GOLDFISH[fish].adapter, times=TIMES
    )
    assert found.verdict == "FAILED", found.told
    assert anomaly in found.found


@pytest.mark.parametrize("engine", ENGINES)
def test_the_tests_of_all_incidents_are_green_on_every_backend(engine, tmp_path):
    subject = StoreUnderTest(resolve(empty_url(engine, tmp_path)))
    try:
        for name in INCIDENTS:
            found = replay_lines(load_trace(EXAMPLES / name / f"test_{name}.jsonl"), subject)
            assert found.verdict == "FIXED", f"{name}: {found.told}"
    finally:
        subject.close()


def test_every_incident_has_its_story_and_its_test():
    assert {each.name for each in EXAMPLES.iterdir() if each.is_dir()} - {"__pycache__"} == set(
        INCIDENTS
    )
    told_of = (EXAMPLES / "README.md").read_text("utf-8")
    for name, (fish, anomaly) in INCIDENTS.items():
        story = (EXAMPLES / name / "story.md").read_text("utf-8")
        assert f"`{fish}`" in story
        assert anomaly in story.lower()
        assert name in told_of
        test = (EXAMPLES / name / f"test_{name}.py").read_text("utf-8")
        assert f"def test_{name}():" in test


# Every goldfish


def chosen():
    names = [name for name in GOLDFISH if name not in UNSEEN | NOT_IN_THE_CALLS]
    if SOAKING:
        return names
    return EVERYDAY


def record_failure(name, folder):
    """Run the case that catches a goldfish with a recorder before it: the trace, and the proofs."""
    fish = GOLDFISH[name]
    subject = StoreUnderTest(fish.adapter)
    items = list_items(select(cases=[fish.caught_by]), subject)
    subject.close()
    for item in items:
        if item.known is not None:
            continue
        path = folder / item.mode
        workers = item.mode if item.case.overlaps else None
        policy = Policy(contents="kept")
        subject = StoreUnderTest(recorded(fish.adapter, path, policy=policy, workers=workers))
        try:
            result = run_case(item.case, item.mode, subject, seed=7)
        finally:
            subject.close()
        if result.verdict == "FAIL":
            proved = {each.name for each in result.failures if each.proved}
            return path, proved, item.case
    raise AssertionError(f"{name} was not caught")


@pytest.mark.parametrize("place", range(len(chosen())))
def test_the_failure_of_a_goldfish_becomes_a_test(place, tmp_path):
    name = chosen()[place]
    adapter = GOLDFISH[name].adapter
    trace, proved, case = record_failure(name, tmp_path)
    explained = explain_trace(trace)
    assert explained.names, name
    assert not proved or explained.names & proved, render_explanation(explained)
    small = shrink_trace(trace, adapter, seed=1, times=20, budget_s=120)
    assert small.replay.verdict in ("FAILED", "CHANGED"), (name, small.replay.told)
    if case.overlaps:
        assert small.operations <= 8, (name, small.replay.told)
    written = write_test(tmp_path / f"test_{name}.py", small.trace, store="memory:")
    again = replay_trace(written.trace, adapter, times=TIMES)
    assert again.verdict in ("FAILED", "CHANGED"), (name, again.told)
    right = replay_trace(written.trace, "memory:")
    assert right.verdict == "FIXED" or right.lacking == {"pop"}, (name, right.told)


def test_what_a_trace_cannot_show_is_written_down():
    assert set(UNSEEN) | set(NOT_IN_THE_CALLS) <= set(GOLDFISH)
    assert not set(UNSEEN) & set(NOT_IN_THE_CALLS)


# pytest


@pytest.fixture
def project(pytester, monkeypatch):
    plugin_projects.make(pytester, monkeypatch)
    folder = pytester.mkdir("incidents")
    example = EXAMPLES / "window_of_one"
    for suffix in (".py", ".jsonl"):
        text = (example / f"test_window_of_one{suffix}").read_text("utf-8")
        text = text.replace("agent.db", "memory:")
        (folder / f"test_window_of_one{suffix}").write_text(text, "utf-8")
    return pytester


def test_a_test_file_runs_and_its_trace_runs_with_it_once(project):
    ran = run(project, "-v", "incidents")
    assert outcomes(ran) == {"passed": 1}
    ran.stdout.fnmatch_lines(["*test_window_of_one.py::test_window_of_one PASSED*"])


def test_a_trace_alone_is_an_item_against_the_store_that_is_named(project):
    (project.path / "incidents" / "test_window_of_one.py").unlink()
    project.makepyfile(
        fish="from memory_contract.goldfish import GOLDFISH\n"
        "adapter = GOLDFISH['window_of_one'].adapter\n"
    )
    assert outcomes(run(project, "incidents", "-o", "contract_store=memory:")) == {"passed": 1}
    red = run(project, "incidents", "-o", "contract_store=fish:adapter")
    assert outcomes(red) == {"failed": 1}
    red.stdout.fnmatch_lines(["*FAILED   the store does the same again*", "*lost append*"])


@pytest.mark.parametrize("named", ["", "spy:make", "redis://127.0.0.1:1/0"])
def test_a_trace_does_not_decide_which_store_is_used(project, named):
    (project.path / "incidents" / "test_window_of_one.py").unlink()
    trace = project.path / "incidents" / "test_window_of_one.jsonl"
    # Headers of an earlier format named a store.
    header, _, lines = trace.read_text("utf-8").partition("\n")
    trace.write_text(json.dumps({**json.loads(header), "store": named}) + "\n" + lines)
    project.makepyfile(spy="from pathlib import Path\nPath('imported').touch()")
    ran = run(project, "incidents")
    assert outcomes(ran) == {"errors": 1}
    ran.stdout.fnmatch_lines(["*name the store that this trace is replayed against*"])
    assert not (project.path / "imported").exists()


def test_other_files_called_so_are_left_alone(project):
    for each in list_parts(project.path / "incidents"):
        each.unlink()
    (project.path / "incidents" / "test_window_of_one.py").unlink()
    (project.path / "incidents" / "list.jsonl").write_text('{"severity": 1}\n')
    assert run(project, "incidents").parseoutcomes() == {}


def test_a_replay_names_no_session_that_leads_out_of_a_folder(tmp_path):
    lines = []
    for number, session in enumerate(["/a", "../b", "c/../../d", "..", "~/e", "C:\\f", "plain/g"]):
        lines.append(
            TraceOperation(
                session=session,
                worker="1.1-t1",
                op="append",
                invoke_ns=2 * number,
                complete_ns=2 * number + 1,
                outcome="ok",
                ids=(f"e{number}",),
            )
        )
    write_trace(tmp_path / "t.jsonl", TraceHeader(fresh=True), lines)
    found = replay_trace(tmp_path / "t.jsonl", "memory:")
    assert found.verdict == "FIXED"
    used = {line.session for line in found.lines}
    assert "plain/g" in used
    assert not any(".." in each or each.startswith(("/", "~")) or ":" in each for each in used)
    assert len(used) == 7
