"""No password gets through, wherever it stands in a URL or a connection string."""

from pathlib import Path

import pytest

import indelible
from indelible import UsageError
from indelible.connect import refuse_ambiguous
from indelible.core.redaction import is_keyword_dsn, redact, redact_url
from tests.support.canary import AWKWARD, CANARY, ENCODED


@pytest.mark.parametrize("password", AWKWARD + ENCODED)
@pytest.mark.parametrize(
    "form",
    [
        "postgresql://ann:{}@db:5432/agents",
        "postgresql://ann:{}@a,b:5433/agents?sslmode=require",
        "redis://:{}@example.org:6379/0",
        "rediss://ann:{}@example.org",
        "redis+cluster://ann:{}@a:1,b:2",
        "unix://:{}@/run/redis.sock?db=1",
        "mysql://ann:{}@db/agents",
        "mysql://ann@example.org:{}@db/agents",
    ],
)
def test_a_password_before_the_at_is_hidden_and_the_rest_stays(form, password):
    assert redact_url(form.format(password)) == form.format("***")
    if " " not in password:
        text = "cannot open '{}': no such server"
        assert redact(text.format(form.format(password))) == text.format(form.format("***"))


@pytest.mark.parametrize("password", [each for each in AWKWARD + ENCODED if "&" not in each])
@pytest.mark.parametrize(
    "form",
    [
        "postgresql://db/agents?password={}",
        "postgresql://db/agents?user=ann&password={}&sslmode=require",
        "postgresql://db/agents?p%61ssword={}&x=1",
        "postgresql://db/agents?sslpassword={}",
        "redis://example.org?PASSWORD={}",
    ],
)
def test_a_password_among_the_parameters_is_hidden_and_the_rest_stays(form, password):
    hidden = redact_url(form.format(password))
    assert CANARY not in hidden
    if "@" not in password:
        assert hidden == form.format("***")
    if " " not in password:
        assert CANARY not in redact(f"see {form.format(password)} for more")


@pytest.mark.parametrize(
    "value", [CANARY, f"'{CANARY}'", f"'x \\' {CANARY}'", f"x\\ {CANARY}", f"x&{CANARY}"]
)
def test_a_keyword_dsn_shows_all_but_its_password(value):
    for form in ("host=db password={} user=ann", "password = {} host=db", "host=db\npassword={}"):
        assert redact(form.format(value)) == form.format("***")
        assert redact_url(form.format(value)) == form.format("***")


@pytest.mark.parametrize(
    "text",
    ["agent.db", "memory:", "redis://localhost:6379", "max_tokens=20", "https://example.org/a:b"],
)
def test_what_holds_no_password_stays_as_it_is(text):
    assert redact(text) == redact_url(text) == text


@pytest.mark.parametrize(
    "target", [f"host=db password={CANARY}", f"dbname=agents user=ann password='{CANARY}'"]
)
def test_a_keyword_dsn_is_refused_and_makes_no_file(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="postgresql://") as caught:
        indelible.open(target)
    assert CANARY not in repr(caught.value) + str(caught.value) + str(caught.value.details)
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_have_an_equals_sign_in_its_name(tmp_path):
    assert not is_keyword_dsn("user=ann.db")
    indelible.open(tmp_path / "host=a.db").close()
    assert (tmp_path / "host=a.db").exists()


@pytest.mark.parametrize("mark", "/#?")
@pytest.mark.parametrize("scheme", ["postgresql", "redis", "mysql"])
def test_no_error_shows_a_part_of_a_password_that_ended_early(scheme, mark):
    url = f"{scheme}://ann:{CANARY}{mark}{CANARY}@localhost:1/0"
    with pytest.raises(indelible.MemoryStoreError) as caught:
        indelible.open(url, timeout_s=1)
    seen = [str(each) + repr(each) for each in chain(caught.value)]
    assert CANARY not in "".join(seen) + str(caught.value.details)


@pytest.mark.parametrize(
    "target",
    [
        "postgresql://db/a@b",
        "postgresql://db:5432/a?options=x@y",
        "redis://[::1]/0?client_name=a@b",
        "unix:///run/a@b",
        "postgresql://ann:pw@db/a@b",
        "agent@home.db",
        "sqlite:///a@b.db",
    ],
)
def test_an_at_elsewhere_is_taken(target):
    refuse_ambiguous(target)


def chain(error):
    """An error and all that stands behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "form",
    [
        "postgresql:/ann:{}@db/agents",
        "postgresql:ann:{}@db/agents",
        "there is no file redis:/ann:{}@db",
    ],
)
def test_a_url_that_was_taken_for_a_path_is_hidden_too(form):
    assert redact_url(form.format(CANARY)) == form.format("***")
    assert redact(form.format(CANARY)) == form.format("***")


@pytest.mark.parametrize(
    "target",
    [
        f"postgresql:/u:{CANARY}@h/db",
        f"postgresql:u:{CANARY}@h/db",
        f"Host=db;Password={CANARY}",
        f"user=u passwd={CANARY}",
        "sqlite:x.db",
        "memory:x",
        "Memory:",
        "redis:localhost",
        "a\0b.db",
    ],
)
def test_what_is_nearly_a_url_is_no_file(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [target] if "=" in target else [target, Path(target)]
    for each in given:
        with pytest.raises(UsageError) as refused:
            indelible.open(each)
        assert CANARY not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
