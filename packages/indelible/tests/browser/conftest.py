import pytest

import indelible
from tests.support.browser import WAIT_MS_MAX, browser
from tests.support.inspector import build_report, build_trace, fill, running_inspector
from tests.support.stores import empty_url

__all__ = ["browser"]


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def filled(request, tmp_path_factory):
    """An inspector of a store that has something for every page, and that nobody changes."""
    url = empty_url(request.param, tmp_path_factory.mktemp("walked"))
    with indelible.open(url) as store:
        fill(store)
    given = {"reports": [build_report()], "traces": [build_trace()]}
    with running_inspector(url, write=True, **given) as inspector:
        yield inspector


@pytest.fixture
def own_store(tmp_path):
    """A store that the test changes."""
    with indelible.open(tmp_path / "agent.db") as store:
        fill(store)
        yield store


@pytest.fixture
def own(own_store, tmp_path):
    """Its inspector."""
    with running_inspector(str(tmp_path / "agent.db"), write=True) as inspector:
        yield inspector


@pytest.fixture
def enter(browser):
    """Opens the address of an inspector; at the end, nothing may have gone wrong on its pages."""
    contexts, mishaps = [], []

    def enter(inspector, *, width=1440, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS_MAX)
        page.on("console", lambda message: note(message.text))
        page.on("pageerror", lambda error: mishaps.append(str(error)))
        page.on("dialog", lambda dialog: (mishaps.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: check_origin(request.url, inspector))
        page.goto(inspector.access.url)
        return page

    def note(text):
        # Said if a test types before the page has set its focus, and if a page asks for news of an
        # inspector that the test has ended.
        ignored = "Autofocus processing was blocked", "net::ERR_CONNECTION_REFUSED"
        if not any(each in text for each in ignored):
            mishaps.append(text)

    def check_origin(url, inspector):
        if not url.startswith(f"{inspector.base}/"):
            mishaps.append(f"asked for {url}")

    yield enter
    for context in contexts:
        context.close()
    assert mishaps == []
