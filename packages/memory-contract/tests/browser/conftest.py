import pytest

from tests.support.browser import WAIT_MS_MAX, browser

__all__ = ["browser"]


class Opened:
    """A page of a report, and what it did that it must not do."""

    def __init__(self, browser, path, **options):
        options.setdefault("viewport", {"width": 1440, "height": 900})
        self.context = browser.new_context(**options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS_MAX)
        self.mishaps = []
        self.page.on("console", lambda message: self.mishaps.append(message.text))
        self.page.on("pageerror", lambda error: self.mishaps.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.mishaps.append("dialog"), dialog.dismiss()))
        self.page.on("request", self._request)
        self.url = path.as_uri()

    def _request(self, request):
        if request.url.partition("#")[0] not in (self.url, "data:,"):
            self.mishaps.append(f"asked for {request.url}")

    def goto(self, fragment=""):
        self.page.goto(self.url + fragment)
        return self.page


@pytest.fixture
def show(browser, tmp_path):
    """Writes a report and opens its page; at the end, nothing may have gone wrong on it."""
    from memory_contract.report import to_page

    opened = []

    def show(report, fragment="", **options):
        path = tmp_path / "report.html"
        path.write_text(to_page(report), "utf-8")
        opened.append(Opened(browser, path, **options))
        return opened[-1].goto(fragment)

    yield show
    for each in opened:
        assert each.mishaps == []
        each.context.close()
