"""Access control of the inspector: every check of a request.

The server listens on the loopback interface, where every web page and every user of the machine
can send requests. Each request therefore needs the right `Host` (a rebound DNS name has another
one) and the token of this start, which is only in the address that the command prints; later, a
cookie. A request that changes something also needs our own `Origin` and a CSRF token.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from typing import Final
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The longest query: a session id of 512 bytes takes 1,536 when it is escaped, a cursor about 500.
QUERY_BYTES_MAX: Final = 8 * 1024
BODY_BYTES_MAX: Final = 16 * 1024
FIELDS_MAX: Final = 30
BODY_TIMEOUT_S: Final = 10.0

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    b" img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # With `no-referrer`, browsers send the `Origin` of a form as `null`, and it could not be
    # checked. This sends nothing to any other origin either.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    # One request for each connection: its time limit is that of the request.
    (b"connection", b"close"),
)


class RefusedError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Access:
    """The secrets of one start, and the addresses of the server."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self.csrf = secrets.token_urlsafe(32)
        self.cookie = secrets.token_urlsafe(32)
        # Browsers share cookies between the ports of a host.
        self.cookie_name = f"indelible-inspector-{port}"
        self.hosts = tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        self.url = f"http://127.0.0.1:{port}/?token={self.token}"


class Guard:
    """Checks every request before the application sees it, and adds headers to every response.

    The fields of the query and of a form are in `scope["fields"]`, decoded and bounded.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        try:
            response = await self._check(Request(scope, receive))
        except RefusedError as refused:
            response = PlainTextResponse(f"{refused.reason}\n", refused.status)
        await (response or self._app)(scope, receive, send_with_headers)

    async def _check(self, request: Request) -> Response | None:
        """Raise if the request is refused; return a response if it needs no page."""
        # Other names may be those of a foreign DNS that points at this machine.
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._access.hosts:
            raise RefusedError(421, "The inspector has another address.")
        if request.method not in ("GET", "HEAD", "POST"):
            raise RefusedError(405, "Only GET and POST are answered.")
        query = request.scope["query_string"]
        if len(query) > QUERY_BYTES_MAX:
            raise RefusedError(414, "The query is too long.")
        fields = _parse_fields(query)
        if request.method == "GET" and request.url.path == "/" and "token" in fields:
            return self._let_in(fields["token"])
        known = request.cookies.get(self._access.cookie_name, "")
        if not _is_equal(known, self._access.cookie):
            raise RefusedError(403, "Open the address that `indelible inspect` printed.")
        # Browsers that do not send it are covered by the cookie, which is SameSite=Strict.
        site = request.headers.get("sec-fetch-site", "same-origin")
        if site != "same-origin" and (site != "none" or request.method == "POST"):
            raise RefusedError(403, "The request comes from another site.")
        if request.method == "POST":
            fields = await self._check_form(request)
        request.scope["fields"] = fields
        return None

    def _let_in(self, token: str) -> Response:
        """Exchange the token for a cookie, and take it out of the address."""
        if not _is_equal(token, self._access.token):
            raise RefusedError(403, "This is not the token of this inspector: it was restarted.")
        response = RedirectResponse("/", 303)
        response.set_cookie(
            self._access.cookie_name, self._access.cookie, httponly=True, samesite="strict"
        )
        return response

    async def _check_form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form, if one of our own pages sent it."""
        if request.headers.getlist("origin") not in [[f"http://{h}"] for h in self._access.hosts]:
            raise RefusedError(403, "The form comes from another origin.")
        if request.headers.get("content-type") != "application/x-www-form-urlencoded":
            raise RefusedError(415, "Only forms are taken.")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > BODY_BYTES_MAX:
                        raise RefusedError(413, "The form is too long.")
        except TimeoutError:
            raise RefusedError(408, "The form did not arrive.") from None
        fields = _parse_fields(bytes(body))
        if not _is_equal(fields.pop("csrf", ""), self._access.csrf):
            raise RefusedError(403, "The form has no valid token: reload the page.")
        return fields


def _is_equal(given: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


def _parse_fields(text: bytes) -> dict[str, str]:
    """Parse a query or a form; the first of repeated fields counts.

    A field whose name ends with `_` is quoted twice: browsers change line breaks in forms, and
    ids may contain some.
    """
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=FIELDS_MAX,
            errors="strict",
        )
        pairs = [
            (name.removesuffix("_"), unquote(value, errors="strict") if name[-1:] == "_" else value)
            for name, value in pairs
        ]
    except ValueError:
        raise RefusedError(400, "The fields cannot be read.") from None
    return dict(reversed(pairs))
