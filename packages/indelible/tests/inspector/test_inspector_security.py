"""The inspector under attack, over real sockets: each request here must get nothing."""

from contextlib import suppress
from urllib.parse import quote, urlencode

import pytest

import indelible
from indelible.inspector import security, server
from tests.support.inspector import every_page, running_inspector

OTHER = "http://evil.example"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory):
    url = str(tmp_path_factory.mktemp("attacked") / "agent.db")
    with indelible.open(url) as store:
        store.add_message("s", "user", "the secret")
        store.save_snapshot("s")
    with running_inspector(url, write=True) as running:
        yield running


def forget(inspector, **changed):
    """The form that erases the session, as our own page sends it, with something changed."""
    fields = {"do": "forget", "id": "s", "sure": "yes", "expected": version(inspector)}
    return inspector.post("/change", **changed, **fields)


def version(inspector):
    page = inspector.get("/change", do="forget", id="s").text
    return page.partition('name="expected" value="')[2].partition('"')[0]


def is_there(inspector):
    return "the secret" in inspector.get("/session", id="s").text


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost",
        "0.0.0.0:{port}",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1:{port}.evil.example",
        "127.0.0.1:{port}@evil.example",
        "[::1]:{port}",
        "",
        None,
    ],
)
def test_a_rebound_name_gets_nothing(inspector, host):
    host = host and host.format(port=inspector.port)
    for path in ("/", "/session?id=s", f"/?token={inspector.access.token}", "/static/style.css"):
        answer = inspector.request("GET", path, headers={**inspector.cookie, "Host": host})
        assert answer.status in (400, 421)
        assert "secret" not in answer.text
        assert answer.getheader("Set-Cookie") is None


def test_two_hosts_get_nothing(inspector):
    with inspector.connect() as connection:
        own = f"Host: 127.0.0.1:{inspector.port}\r\nHost: evil.example\r\n"
        cookie = f"Cookie: {inspector.cookie['Cookie']}\r\n"
        connection.sendall(f"GET /session?id=s HTTP/1.1\r\n{own}{cookie}\r\n".encode())
        answer = read_all(connection)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 421"))
    assert b"secret" not in answer


def read_all(connection):
    """Everything until the server ends the connection, in either way."""
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def test_localhost_is_a_name_of_the_loopback(inspector):
    headers = {**inspector.cookie, "Host": f"localhost:{inspector.port}"}
    assert inspector.request("GET", "/", headers=headers).status == 200


@pytest.mark.parametrize("path", [*every_page(write=True).values(), "/static/style.css", "/nope"])
def test_nothing_is_shown_without_the_cookie(inspector, path):
    wrong = f"{inspector.access.cookie_name}={inspector.access.cookie[:-1]}x"
    for headers in ({}, {"Cookie": wrong}, {"Cookie": f"{inspector.access.cookie_name}="}):
        answer = inspector.request("GET", path, headers=headers)
        assert answer.status == 403
        assert "secret" not in answer.text


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(inspector):
    answer = inspector.request("GET", f"/?token={inspector.access.token}")
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    cookie = answer.getheader("Set-Cookie")
    assert inspector.access.cookie in cookie
    assert inspector.access.token not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    for wrong in ("", "x", inspector.access.token[:-1], inspector.access.cookie, "%00", "%C3%A9"):
        answer = inspector.request("GET", f"/?token={wrong}")
        assert (answer.status, answer.getheader("Set-Cookie")) == (403, None)
    assert inspector.request("GET", f"/session?id=s&token={inspector.access.token}").status == 403


def test_every_start_has_its_own_secrets():
    one, two = security.Access(1), security.Access(1)
    secrets = {one.token, one.csrf, one.cookie, two.token, two.csrf, two.cookie}
    assert len(secrets) == 6
    assert all(len(each) >= 43 for each in secrets)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "none, same-origin"])
def test_pages_of_other_sites_cannot_ask(inspector, site):
    headers = {**inspector.cookie, "Sec-Fetch-Site": site}
    assert inspector.request("GET", "/session?id=s", headers=headers).status == 403
    assert forget(inspector, headers={"Sec-Fetch-Site": site}).status == 403
    assert is_there(inspector)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": OTHER},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "none"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data"},
        {"Content-Type": None},
        {"Cookie": None},
    ],
    ids=str,
)
def test_a_forged_form_changes_nothing(inspector, headers):
    assert forget(inspector, headers=headers).status in (403, 415)
    assert is_there(inspector)


def test_a_form_needs_its_token(inspector):
    for wrong in ("", "x", inspector.access.csrf[:-1], inspector.access.token, "é"):
        assert forget(inspector, csrf=wrong).status == 403
    fields = {"do": "forget", "id": "s", "sure": "yes", "expected": version(inspector)}
    # Neither does a query count as a form, nor a GET as a change.
    query = urlencode({**fields, "csrf": inspector.access.csrf})
    assert inspector.post(f"/change?{query}", csrf="").status == 403
    assert inspector.get(f"/change?{query}").status == 200
    assert is_there(inspector)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_get_nothing(inspector, method):
    assert inspector.request(method, "/session?id=s", headers=inspector.cookie).status == 405
    assert is_there(inspector)


def test_no_answer_allows_another_origin_or_a_frame(inspector):
    for path in ("/", "/nope", "/static/htmx.min.js", "/session?id=nobody"):
        headers = {**inspector.cookie, "Origin": OTHER}
        answer = inspector.request("GET", path, headers=headers)
        policy = answer.getheader("Content-Security-Policy")
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Referrer-Policy") == "same-origin"
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Access-Control-Allow-Origin") is None
    refused = inspector.request("GET", "/")
    assert refused.status == 403
    assert "default-src 'none'" in refused.getheader("Content-Security-Policy")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static//etc/passwd",
        "/static/",
        "/static/htmx.LICENSE",
        "/templates/base.html",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/%00",
        "http://evil.example/session?id=s",
    ],
)
def test_no_path_leads_to_a_file(inspector, path):
    answer = inspector.request("GET", path, headers=inspector.cookie)
    assert answer.status in (400, 404)
    assert "root:" not in answer.text
    assert "import" not in answer.text


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/session?id=" + "x" * 7000, {400}),
        ("/session?id=" + "x" * 9000, {414}),
        ("/search?q=" + "x" * 20_000, {400, 414, 431}),
        ("/search?q=" + "x" * 600, {400}),
        ("/?" + "&".join(f"a{n}=1" for n in range(200)), {400}),
        ("/session?id=%ff%fe", {400}),
        ("/session?id=%00", {400, 404}),
        ("/session?id_=%25ff", {400}),
        ("/session", {400}),
        ("/session?id=", {400}),
        ("/session?id=s&before=-1", {400}),
        ("/session?id=s&before=" + "9" * 5000, {400}),
        ("/session?id=s&before=%D9%A3", {400}),
        ("/session?id=s&at=nothing", {400}),
        ("/session?id=s&at=" + "9" * 5000, {200}),
        ("/entry?id=s&position=999999999999", {404}),
        ("/entry?id=s&position=x", {400}),
        ("/search?q=a&offset=99999999", {400}),
        ("/search?q=a&kind=nothing", {400}),
        ("/?where=" + quote("a" * 3000), {400}),
        ("/?cursor=xyz", {400}),
        ("/?order=drop", {400}),
        ("/?status=nothing", {200, 400}),
        ("/memories?id=s&cursor=" + "A" * 4000, {400}),
        ("/change?do=nothing&id=s", {400}),
        ("/change?do=rollback&id=s&snapshot=nothing", {404}),
    ],
)
def test_oversized_and_wrong_queries_are_refused_in_a_sentence(inspector, path, statuses):
    answer = inspector.request("GET", path, headers=inspector.cookie)
    assert answer.status in statuses, answer.text
    assert "Traceback" not in answer.text
    assert len(answer.text) < 50_000


def test_a_form_that_is_too_long_is_not_read(inspector):
    assert inspector.post("/change", filler="x" * 20_000).status == 413


def test_a_head_that_is_too_long_is_not_read(inspector):
    head = f"Host: 127.0.0.1:{inspector.port}\r\nCookie: {inspector.cookie['Cookie']}\r\n"
    with inspector.connect() as connection:
        # The server may end the connection while this is sent.
        with suppress(ConnectionError):
            filler = "x" * 1_000_000
            request = f"GET /session?id=s HTTP/1.1\r\n{head}Filler: {filler}\r\n\r\n"
            connection.sendall(request.encode())
        assert b"the secret" not in read_all(connection)


def test_slow_clients_keep_nobody_waiting(inspector):
    head = f"Host: 127.0.0.1:{inspector.port}\r\nCookie: {inspector.cookie['Cookie']}\r\n"
    slow = [inspector.connect() for _ in range(100)]
    for number, connection in enumerate(slow):
        # Half a head, and half a form.
        line = "GET / HTTP/1.1\r\n" if number % 2 else "POST /change HTTP/1.1\r\n"
        form = f"Origin: {inspector.base}\r\nContent-Type: {FORM}\r\nContent-Length: 99\r\n\r\nid="
        connection.sendall(f"{line}{head}{'' if number % 2 else form}".encode())
    assert is_there(inspector)
    for connection in slow:
        connection.close()
    assert is_there(inspector)


class ShortConnection(server.LimitedConnection):
    seconds_max = 0.3


@pytest.mark.parametrize("sent", ["", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nContent-Length: 9"])
def test_a_connection_that_says_nothing_is_ended(url, sent):
    with running_inspector(url, protocol=ShortConnection) as inspector, inspector.connect() as slow:
        slow.sendall(sent.encode())
        assert read_all(slow) == b""


def test_a_form_that_does_not_arrive_is_refused(url, monkeypatch):
    monkeypatch.setattr(security, "BODY_TIMEOUT_S", 0.2)
    with running_inspector(url, write=True) as inspector, inspector.connect() as slow:
        head = f"Host: 127.0.0.1:{inspector.port}\r\nCookie: {inspector.cookie['Cookie']}\r\n"
        form = f"Origin: {inspector.base}\r\nContent-Type: {FORM}\r\nContent-Length: 99\r\n\r\nid="
        slow.sendall(f"POST /change HTTP/1.1\r\n{head}{form}".encode())
        assert read_all(slow).startswith(b"HTTP/1.1 408")


def test_it_listens_on_the_loopback_alone():
    with server.bind(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_without_write_no_route_changes_anything(store, url):
    store.add_message("s", "user", "the secret")
    with running_inspector(url) as inspector:
        assert inspector.get("/change", do="forget", id="s").status == 404
        answer = inspector.post("/change", do="forget", id="s", sure="yes", expected="x")
        assert answer.status == 404
        assert "/change" not in inspector.get("/session", id="s").text
    assert store.get_history("s")[0].content == "the secret"
