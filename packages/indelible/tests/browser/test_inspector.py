"""Every page of the inspector in a real browser: layout, contrast, keyboard, without JavaScript."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

import indelible
from tests.support.browser import CONTRAST, CONTRAST_MIN
from tests.support.inspector import FACTS, LONG, SESSION, every_page, running_inspector

LAYOUT = (Path(__file__).parent / "layout.js").read_text("utf-8")
PAGES = every_page(write=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_every_page_has_room_for_its_text(enter, filled, width, scheme):
    page = enter(filled, width=width, color_scheme=scheme)
    for name, path in PAGES.items():
        assert page.goto(filled.base + path).status == 200
        page.evaluate(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
        )
        layout = page.evaluate(LAYOUT)
        assert layout["texts"] > 5, name
        assert (layout["over"], layout["cut"], layout["wide"]) == ([], [], 0), name
        found = page.evaluate(CONTRAST)
        assert [each for each in found if each[1] < CONTRAST_MIN] == [], name
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").partition(",")[0])
    assert (red < 64) == (scheme == "dark")


def test_long_words_and_names_do_not_widen_a_page(enter, tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        name = "n" * 300
        store.add_message(
            name, "r" * 64, "w" * 3000, name="x" * 200, metadata={"m" * 200: "v" * 200}
        )
        store.add_tool_call(name, "c", "t" * 200, {"a" * 200: "b" * 200})
        store.save_snapshot(name, label="l" * 200)
        store.set_metadata(name, {"k" * 200: "v" * 200})
        store.remember(name, "w" * 300, id="i" * 200, source=(name, [0]))
    with running_inspector(str(tmp_path / "agent.db"), write=True) as inspector:
        for width in (360, 1440):
            page = enter(inspector, width=width)
            page.get_by_role("link", name=name).first.click()
            paths = [
                page.url,
                f"{inspector.base}/",
                f"{inspector.base}/memories?id={name}",
                f"{inspector.base}/memory?id={name}&memory={'i' * 200}",
                f"{inspector.base}/diff?id={name}&from=0",
                f"{inspector.base}/change?do=forget&id={name}",
            ]
            for path in paths:
                page.goto(path)
                layout = page.evaluate(LAYOUT)
                assert (layout["over"], layout["cut"], layout["wide"]) == ([], [], 0), path[:60]


def press_until(page, chosen, key="Tab"):
    """Press a key until an element has the focus that can be seen; nothing else is used."""
    for _ in range(200):
        page.keyboard.press(key)
        if page.locator(f"{chosen}:focus").count():
            outline = page.locator(f"{chosen}:focus").evaluate(
                "n => getComputedStyle(n).outlineStyle"
            )
            assert outline == "solid"
            return
    raise AssertionError(f"{chosen} cannot be reached by {key}")


def test_the_keyboard_alone_is_enough(enter, own, own_store):
    page = enter(own)
    page.keyboard.press("Tab")
    expect(page.locator(".skip:focus")).to_be_visible()
    page.keyboard.press("Enter")
    press_until(page, "input[name=prefix]")
    page.keyboard.type("support/ana")
    page.keyboard.press("Enter")
    press_until(page, "tbody th > a[href$='ana']")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(SESSION)
    press_until(page, "input[type=range]")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".banner")).to_contain_text("after the undo")
    press_until(page, ".banner a")
    page.keyboard.press("Enter")
    press_until(page, ".entry .position")
    page.keyboard.press("j")
    expect(page.locator("#e1 .position")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("#e0 .position")).to_be_focused()
    press_until(page, ".actions a[href*='do=undo']", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Undo the newest change")
    press_until(page, ".confirm button")
    page.keyboard.press("Enter")
    expect(page.locator(".banner.good")).to_have_text("Undone.")
    assert len(own_store.timeline(SESSION).hidden) == 0
    # The keys work when the page's script has run.
    expect(page.locator("html.scripted")).to_be_attached()
    page.keyboard.press("/")
    expect(page.locator("input[type=search]")).to_be_focused()


def test_everything_works_without_javascript(enter, own, own_store):
    page = enter(own, java_script_enabled=False)
    page.get_by_label("Id begins with").fill("support/ana")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name=SESSION, exact=True).click()
    page.locator("input[type=range]").fill("0")
    page.get_by_role("button", name="Go").click()
    expect(page.locator(".banner")).to_contain_text("snapshot “before the refund”")
    page.get_by_role("link", name="Compare with now").click()
    expect(page.locator(".is-added")).to_have_count(5)
    page.get_by_label("To").select_option("2")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".is-added")).to_have_count(2)
    page.goto(f"{own.base}/session?id={LONG}")
    page.get_by_role("link", name="Older entries").click()
    expect(page.locator("#e89")).to_be_visible()
    expect(page.locator("#e139")).to_have_count(0)
    page.goto(f"{own.base}/memories?id={FACTS}")
    page.get_by_role("link", name="drink").click()
    page.get_by_role("link", name=f"{SESSION}, 1").click()
    expect(page.locator("#e1:target")).to_contain_text("Where is my order")
    page.get_by_role("link", name="Snapshot", exact=True).click()
    page.get_by_label("Label").fill("by hand")
    page.get_by_role("button", name="Save a snapshot").click()
    expect(page.locator(".banner.good")).to_have_text("The snapshot was saved.")
    assert own_store.list_snapshots(SESSION)[-1].label == "by hand"
    page.get_by_role("link", name="Health").click()
    page.get_by_role("button", name="Verify everything").click()
    while page.get_by_role("link", name="Look again").count():
        page.get_by_role("link", name="Look again").click()
        page.reload()
    expect(page.locator("#verification")).to_contain_text("no errors")
    page.get_by_role("link", name="Search").click()
    page.get_by_label("Words").fill("tea")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("mark").first).to_have_text("tea")


def test_new_entries_appear_while_a_page_is_open(enter, own, own_store):
    page = enter(own)
    page.goto(f"{own.base}/session?id={LONG}")
    expect(page.locator("#e139")).to_be_visible()
    own_store.add_message(LONG, "user", "is anybody there?")
    expect(page.locator("#e140")).to_contain_text("is anybody there?")
    own_store.add_message(LONG, "assistant", "yes")
    expect(page.locator("#e141")).to_contain_text("yes")
    own_store.hide(LONG, [141])
    page.get_by_role("link", name="The session changed: reload").click()
    expect(page.locator("#e141.is-hidden")).to_contain_text("hidden by the hide")


def test_older_entries_are_put_into_the_page(enter, own):
    page = enter(own)
    page.goto(f"{own.base}/session?id={LONG}")
    for first in (89, 39):
        page.get_by_role("link", name="Older entries").click()
        expect(page.locator(f"#e{first}")).to_be_visible()
    expect(page.locator(".entry")).to_have_count(140)
    expect(page.get_by_role("link", name="Older entries")).to_have_count(0)


def test_a_verification_says_how_far_it_is(enter, own):
    page = enter(own)
    page.goto(f"{own.base}/health")
    page.get_by_role("button", name="Verify everything").click()
    expect(page.locator("#verification")).to_contain_text("no errors")


def test_stored_markup_is_text(enter, tmp_path):
    evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)><a href=javascript:alert(1)>x"
    with indelible.open(tmp_path / "agent.db") as store:
        store.add_message(evil, "<svg onload=alert(1)>", evil, name=evil, metadata={evil: evil})
        store.add_tool_call(evil, evil, evil, {evil: evil})
        store.add_tool_result(evil, evil, evil)
        store.save_snapshot(evil, label=evil)
        store.remember(evil, evil, id=evil, source=(evil, [0]))
        store.set_metadata(evil, {evil: evil})
    with running_inspector(str(tmp_path / "agent.db"), write=True) as inspector:
        page = enter(inspector)
        page.get_by_role("link", name=evil).first.click()
        expect(page.locator("h1")).to_have_text(evil)
        expect(page.locator("main img, main script, main svg[onload]")).to_have_count(0)
        for tab in ("Compare", "Memories", "Timeline"):
            page.locator(".tabs").get_by_role("link", name=tab).click()
            expect(page.locator("h1")).to_have_text(evil)


def test_another_browser_gets_nothing(browser, own):
    with browser.new_context() as context:
        page = context.new_page()
        assert page.goto(f"{own.base}/session?id={LONG}").status == 403
