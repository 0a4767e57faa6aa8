"""`indelible export --html`: one session as a page that needs nothing else."""

import base64
import hashlib
import re

import pytest
from typer.testing import CliRunner

from indelible.cli.main import app
from tests.support.inspector import LONG, SESSION, fill


@pytest.fixture
def export(store, url, tmp_path):
    fill(store)

    def export(session, *options):
        path = tmp_path / "page.html"
        done = CliRunner().invoke(
            app, ["export", str(path), session, "--html", "--yes", "--url", url, *options]
        )
        assert done.exit_code == 0, done.output
        return path.read_text("utf-8")

    return export


def test_a_page_has_everything_and_asks_for_nothing(export):
    page = export(SESSION)
    for text in ("Where is my order 1047?", "find_order", "in transit", "before the refund", "Ana"):
        assert text in page
    assert "hidden by the rollback" in page
    assert not re.search(r"<script|<link|href=|src=|url\(|@import", page)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page


def test_a_long_session_is_exported_whole(store, export):
    store.add_messages("longer", [{"role": "user", "content": f"m{n}"} for n in range(999)])
    # The result comes in the next page that is read.
    store.add_tool_call("longer", "c", "find", {})
    store.add_tool_result("longer", "c", "it was there")
    store.add_messages("longer", [{"role": "user", "content": f"n{n}"} for n in range(999)])
    store.add_messages("longer", [{"role": "user", "content": f"o{n}"} for n in range(200)])
    page = export("longer")
    found = [int(each) for each in re.findall(r'<li class="entry[^>]* id="e(\d+)"', page)]
    assert found == [number for number in range(2200) if number != 1000]
    assert re.search(r'id="e999".*?id="e1000".*?it was there.*?id="e1001"', page, re.DOTALL)
    assert len(re.findall(r'<li class="entry', export(LONG))) == 140


def test_a_redacted_page_has_the_shape_alone(store, export):
    secret = "Ana-4711"
    store.add_message(SESSION, secret, secret, name=secret, metadata={secret: secret})
    store.add_tool_call(SESSION, secret, secret, {secret: secret})
    store.add_tool_result(SESSION, secret, {secret: secret})
    store.add_summary(SESSION, secret)
    store.remember(SESSION, secret, id=secret, value=secret, source=(secret, [0]))
    store.save_snapshot(SESSION, label=secret)
    store.set_metadata(SESSION, {secret: secret})
    assert secret in export(SESSION)
    page = export(SESSION, "--redact")
    assert secret not in page
    for text in (SESSION, "Where is my order", "find_order", "1047", "before the refund", "Lisbon"):
        assert text not in page
    assert "redacted, 23 characters" in page
    assert ">assistant<" in page


@pytest.mark.parametrize("options", [["--html"], ["--redact"], [SESSION, "--redact"]], ids=str)
def test_options_that_do_not_go_together(store, url, tmp_path, options):
    store.add_message(SESSION, "user", "x")
    path = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["export", str(path), *options, "--url", url])
    assert done.exit_code != 0
    assert not path.exists()


def test_the_store_is_not_replaced_by_a_page(store, url):
    store.add_message("s", "user", "x")
    for name in (url, f"{url}-wal"):
        done = CliRunner().invoke(app, ["export", name, "s", "--html", "--yes", "--url", url])
        assert done.exit_code != 0
    assert store.get_history("s")[0].content == "x"
