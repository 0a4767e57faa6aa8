"""Growth: the slope of a curve, its picture, and what a simulation says of many servers."""

import json
from xml.etree import ElementTree as ET

import pytest
from redis.crc import key_slot

from benchmarks.scale import growth_curves, page, simulate
from benchmarks.scale.chart import chart
from benchmarks.scale.growth_curves import Point
from benchmarks.scale.simulate import World, choose_server, find_bottleneck, run_simulation
from benchmarks.scale.slope import compute_exponent, has_exponent

COSTS = {
    "append": 40.0,
    "last 20": 150.0,
    "snapshot": 60.0,
    "rollback": 80.0,
    "bytes of a message": 200.0,
    "bytes of a session": 1000.0,
    "bytes of a snapshot": 100.0,
}


def world(**more):
    asked = {"servers": 3, "cores": 1, "sessions": 3000, "messages": 20, "turns_per_s": 500}
    return World(costs=COSTS, **{**asked, **more})


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_the_exponent_of_a_power_is_that_power(power):
    sizes = (1, 10, 100, 1000)
    assert compute_exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)


def test_a_curve_may_be_flatter_than_it_should_and_not_steeper():
    assert has_exponent("flat", 0.02)
    assert not has_exponent("flat", 0.4)
    assert has_exponent("linear", 0.4)
    assert not has_exponent("linear", 1.5)


def test_a_picture_is_well_formed_and_says_what_it_shows():
    drawn = chart(
        "a < b", (1, 10, 1000), {"append": (1e-5, 2e-5, 1e-5)}, counted="messages", shown=str
    )
    texts = [element.text for element in ET.fromstring(drawn).iter() if element.text]
    assert {"a < b", "append", "messages", "1k"} <= set(texts)
    assert "prefers-color-scheme: dark" in drawn


def committed():
    return json.loads(simulate.MEASURED.read_text("utf-8"))


def test_the_committed_page_is_that_of_the_committed_figures():
    found = committed()
    assert page.PAGE.read_text("utf-8") == page.text(found)
    drawn = page.pictures(found)
    assert drawn
    for name, picture in drawn.items():
        assert (page.PAGE.parent / page.PICTURES / name).read_text("utf-8") == picture


def test_every_picture_and_part_says_when_of_what_how_durable_and_by_which_command():
    found = committed()
    carried = page.format_measured(found)
    assert found["date"] in carried
    assert "make bench-scale" in carried
    assert page.text(found).count(carried) == 3
    for picture in page.pictures(found).values():
        words = " ".join(element.text or "" for element in ET.fromstring(picture).iter())
        assert carried.replace("`", "").strip() in words


def test_what_is_kept_is_what_was_measured():
    points = [Point(1, {"append": 2e-5, "file": 10.0}), Point(3, {"append": 1e-5, "file": 30.0})]
    grown = [(growth_curves.ALL[0], points)]
    assert page.parse_growth({"growth": page.plain(grown)}) == grown


@pytest.mark.parametrize("growth", growth_curves.ALL, ids=lambda growth: growth.name)
def test_each_way_to_grow_sees_every_size(growth, tmp_path, monkeypatch):
    monkeypatch.setattr(growth_curves, "CALLS", 1)
    points = list(growth.grow(tmp_path, (1, 3)))
    assert [point.size for point in points] == [1, 3]
    assert set(growth.shapes) <= set(points[0].seen)
    assert all(height > 0 for point in points for height in point.seen.values())


def test_a_session_lives_where_a_cluster_keeps_it():
    for number in range(100):
        slot = key_slot(b"{:user-%d}" % number)
        assert choose_server(f"user-{number}", 16384) == slot
        assert choose_server(f"user-{number}", 4) == slot // 4096


def test_a_simulation_comes_out_the_same_again_and_more_servers_are_less_busy():
    three, again, twelve = (
        run_simulation(world()),
        run_simulation(world()),
        run_simulation(world(servers=12)),
    )
    assert three == again
    assert twelve.load < three.load
    assert twelve.sessions_most < three.sessions_most


def test_one_hot_session_is_not_helped_by_more_servers():
    hot = [run_simulation(world(servers=n, turns_per_s=4000, hot=0.9)).load for n in (3, 24)]
    assert hot[0] == pytest.approx(hot[1], rel=0.2)


def test_what_breaks_first_is_named():
    seen = run_simulation(world(turns_per_s=50_000))
    assert find_bottleneck(seen, memory=1e12) == "processor of the busiest"
    idle = run_simulation(world(turns_per_s=10))
    assert find_bottleneck(idle, memory=1e3) == "memory of the fullest"
    assert find_bottleneck(idle, memory=1e12) == "nothing"


def test_a_simulation_refuses_what_makes_no_sense(capsys):
    for wrong in (["--sessions", "0"], ["--hot", "1"], ["--measured", "/nowhere.json"]):
        with pytest.raises(SystemExit) as ended:
            simulate.main(wrong)
        assert ended.value.code == 2
    assert "make bench-scale" in capsys.readouterr().err
