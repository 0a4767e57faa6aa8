"""The page in a real browser: it loads alone, shows the witness and lights entries."""

import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from memory_contract import Report
from tests.support.browser import CONTRAST, CONTRAST_MIN
from tests.support.report_samples import (
    HALF,
    HOSTILE,
    every_verdict,
    explored,
    hostile,
    killed,
    long_run,
    lossy,
    lost,
    reordered,
    whole,
)

PHONE = {"width": 390, "height": 844}


def only(result):
    return Report(target="m:x", seed=1, gates=("concurrency",), results=(result,))


def shown_places(page):
    return page.locator(".bar").evaluate_all("bars => bars.map((bar) => Number(bar.dataset.place))")


def test_a_real_loss_is_shown_with_its_witness(show):
    page = show(lossy())
    expect(page.locator("h1")).to_contain_text("FAIL tests.support.report_samples:adapter")
    expect(page.locator("h2")).to_contain_text("append_storm")
    expect(page.locator(".anomaly")).to_have_text("LOST APPEND")
    expect(page.locator(".happened")).to_contain_text("was acknowledged to")
    witness = page.locator(".bar.is-witness")
    expect(witness).to_have_count(2)
    for bar in witness.all():
        expect(bar).to_be_visible()
    expect(page.locator(".bar.is-witness .entry.missing").first).to_be_visible()
    expect(page.locator(".proof code").last).to_contain_text("--case append_storm --seed")


def test_hovering_an_entry_lights_its_operations(show):
    page = show(only(lost()))
    page.locator(".fates [data-entry='e1']").hover()
    lit = page.locator(".lanes.lit")
    expect(lit.locator(".bar.wrote")).to_have_count(1)
    expect(lit.locator(".bar.wrote")).to_contain_text("e1")
    expect(lit.locator(".bar.missed")).to_have_count(1)
    expect(page.locator("#fate")).to_contain_text(
        "e1 written by w0 at 0.00 ms (ok) → never seen → gone: not in the read of c2 at 899.00 ms"
    )
    page.mouse.move(1, 1)
    expect(page.locator(".lanes.lit")).to_have_count(0)
    expect(page.locator("#fate")).to_be_hidden()
    page.locator(".bar [data-entry='e2']").first.hover()
    expect(page.locator(".bar.saw")).to_have_count(1)
    expect(page.locator("#fate")).to_contain_text("first seen by c2")


def test_an_entry_can_be_reached_and_pinned_with_the_keyboard(show):
    page = show(only(lost()))
    page.locator(".fates [data-entry='e1']").focus()
    expect(page.locator(".bar.wrote")).to_have_count(1)
    page.keyboard.press("Enter")
    page.locator(".copy").first.focus()
    expect(page.locator(".bar.wrote")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".bar.wrote")).to_have_count(0)


def test_the_toggles_show_the_session_and_the_run(show):
    page = show(only(lost()))
    smallest = len(shown_places(page))
    page.get_by_role("button", name="whole session").click()
    expect(page.locator(".bar")).to_have_count(6)
    page.get_by_role("button", name="whole run").click()
    expect(page.locator(".bar")).to_have_count(7)
    expect(page.get_by_role("button", name="whole run")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("session", exact=True).select_option(label="c-other")
    expect(page.locator(".bar")).to_have_count(1)
    page.get_by_role("button", name="smallest history").click()
    expect(page.locator(".bar")).to_have_count(smallest)


def test_what_nobody_knows_runs_to_the_end(show):
    page = show(only(lost()))
    page.get_by_role("button", name="whole session").click()
    ends = "node => node.getBoundingClientRect().bottom"
    floor = page.locator(".body").evaluate(ends)
    assert floor - page.locator(".bar.open").evaluate(ends) < 8
    assert floor - page.locator(".tail").evaluate(ends) < 8
    expect(page.locator(".bar.fail")).to_have_count(1)


def test_lanes_are_workers_and_time_runs_down(show):
    page = show(only(lost()), "#case-concurrency-append_storm-threads")
    page.get_by_role("button", name="whole run").click()
    heads = page.locator(".head").all_inner_texts()
    assert [head.split()[-1] for head in heads] == ["w0", "w1", "w2", "w3", "c2"]
    assert [head.split()[0] for head in heads if len(head.split()) > 1] == ["threads", "callers"]
    tops = page.locator(".bar").evaluate_all(
        "bars => bars.map((b) => b.getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)


def test_a_reorder_is_two_lists_with_the_pair_that_crosses(show):
    page = show(only(reordered()))
    expect(page.locator(".crossed ol")).to_have_count(2)
    expect(page.locator(".crossed .entry.one")).to_have_count(2)
    expect(page.locator(".crossed .entry.two")).to_have_count(2)
    one, two = page.locator(".crossed line").evaluate_all(
        "lines => lines.map((l) => [Number(l.getAttribute('y1')), Number(l.getAttribute('y2'))])"
    )
    assert (one[0] - two[0]) * (one[1] - two[1]) < 0, "the lines do not cross"


def test_an_operation_has_a_link_of_its_own(show):
    slug = "concurrency-append_storm-threads"
    page = show(every_verdict(), f"#op-{slug}-5")
    chosen = page.locator(".bar.chosen")
    expect(chosen).to_have_id(f"op-{slug}-5")
    expect(chosen).to_be_in_viewport()
    expect(page.locator("#chosen-op")).to_contain_text("w1 append on c-other")
    page.locator(".witness a").first.click()
    assert page.evaluate("location.hash") == f"#op-{slug}-0"
    expect(page.locator(".bar.chosen")).to_have_id(f"op-{slug}-0")


def test_any_case_can_be_looked_at(show):
    page = show(every_verdict())
    page.get_by_text("4 cases").click()
    page.locator("a.mode[data-slug='lifecycle-ttl_ends_everything-blocking']").click()
    expect(page.locator("h2")).to_contain_text("ttl_ends_everything")
    expect(page.locator(".bar")).to_have_count(2)
    expect(page.locator(".band")).to_contain_text("c-1 expires")
    page.locator("a.mode[data-slug='concurrency-pop_race-threads']").click()
    expect(page.locator("#case")).to_contain_text("no two operations overlapped")


def test_faults_lie_across_all_lanes_where_they_struck(show):
    page = show(killed())
    bands = page.locator(".band.fault")
    # The first one was over before any of these operations began.
    expect(bands).to_have_count(2)
    expect(bands.first).to_contain_text("kill -9")
    lanes, band = page.locator(".lanes .body").bounding_box(), bands.first.bounding_box()
    assert band["width"] == pytest.approx(lanes["width"], abs=2)
    assert bands.last.bounding_box()["height"] > band["height"]
    page.locator("button[data-view='run']").click()
    expect(page.locator(".band.fault")).to_have_count(3)


def test_every_case_of_a_report_draws(show):
    page = show(every_verdict())
    for each in every_verdict().results:
        page.evaluate(f"location.hash = '#case-{each.gate}-{each.case}-{each.mode}'")
        expect(page.locator("h2")).to_contain_text(each.case)
        expect(page.locator("h2 .pill")).to_have_text(each.verdict)


def test_an_explored_schedule_is_told_line_by_line(show):
    page = show(only(explored()))
    assert page.locator(".schedule p").all_inner_texts() == explored().schedule.split("\n")


def test_a_report_without_failures_is_calm(show):
    page = show(whole())
    expect(page.locator("h1 .pill")).to_have_text("PASS")
    expect(page.locator(".anomaly")).to_have_count(0)


def test_copy_as_test_gives_a_program_that_runs(show, tmp_path):
    page = show(only(lost()))
    page.get_by_role("button", name="copy as test").click()
    expect(page.get_by_role("button", name="copied")).to_be_visible()
    program = tmp_path / "copied.py"
    program.write_text(page.evaluate("navigator.clipboard.readText()"), "utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "LOST APPEND" in done.stdout


def test_hostile_names_are_inert(show):
    page = show(hostile())
    assert page.title() == page.evaluate("document.title")
    assert page.title().startswith("FAIL: mod:</script><img")
    expect(page.locator("img")).to_have_count(0)
    expect(page.locator(".note").first).to_contain_text("</script><img src=x")
    expect(page.locator(".head", has_text="</script>")).to_have_count(1)
    assert "\u202e" not in page.locator("body").inner_text()
    page.locator(".entry").first.hover()
    page.evaluate("location.hash = '#case-concurrency-first_append_race-threads'")
    expect(page.locator(".proof")).to_contain_text("\\ud800")
    page.evaluate("location.hash = '#op-</script><img>-1'")
    expect(page.locator("h2")).to_contain_text("first_append_race")
    assert HALF not in page.locator("body").inner_text()
    assert HOSTILE not in page.locator("body").inner_text()


def test_a_long_run_is_cut_and_says_so(show):
    page = show(long_run(12_000))
    expect(page.locator(".timeline")).to_contain_text("of 12 007 operations shown")
    expect(page.locator(".timeline")).to_contain_text("This page holds 10 000 of them")
    page.get_by_role("button", name="whole run").click()
    expect(page.locator(".bar")).to_have_count(10_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("make", [every_verdict, lossy, lambda: only(reordered())])
def test_everything_can_be_read(show, make, scheme):
    page = show(make(), color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = page.evaluate(CONTRAST)
    assert len(found) > 20
    assert [each for each in found if each[1] < CONTRAST_MIN] == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", background)[0])
    assert (red < 64) == (scheme == "dark")


def test_a_phone_shows_the_proof_first_and_scrolls_only_the_lanes(show):
    page = show(every_verdict(), viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    top = "node => node.getBoundingClientRect().top"
    assert page.locator(".proof").evaluate(top) < page.locator(".timeline").evaluate(top)
    expect(page.locator(".happened")).to_be_visible()
