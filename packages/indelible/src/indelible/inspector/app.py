"""The routes of the inspector: each turns the fields of a request into a page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from indelible.core.redaction import redact
from indelible.errors import (
    ConflictError,
    MemoryStoreBackendError,
    MemoryStoreError,
    SessionNotFoundError,
    SnapshotNotFoundError,
)
from indelible.inspector.actions import ACTIONS, Actions
from indelible.inspector.artifacts import Report, Trace
from indelible.inspector.pages import Fields, Pages, Shown
from indelible.inspector.security import Access, Guard
from indelible.inspector.templating import build_environment
from indelible.store_async import AsyncMemoryStore

# The only files that are served, by name.
STATIC_FILES: Final = {
    "style.css": "text/css",
    "inspector.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

# Shorter than the limit of a connection, so that the reader sees an error page.
PAGE_S_MAX: Final = 30.0

Answer = Callable[[Request], Awaitable[Response]]
ReadPage = Callable[[Fields], Awaitable[Shown | None]]


def build_app(
    store: AsyncMemoryStore,
    access: Access,
    *,
    target: str,
    write: bool,
    reports: Sequence[tuple[str, Report]] = (),
    traces: Sequence[tuple[str, Trace]] = (),
) -> ASGIApp:
    """Build the application. Without `write`, no route changes the store."""
    pages = Pages(store=store, reports=reports, traces=traces)
    views = Views(access, target=target, write=write)
    routes = [
        Route("/", views.show("sessions.html", pages.sessions)),
        Route("/session", views.show("session.html", pages.session)),
        Route("/session/rows", views.show("rows.html", pages.session)),
        Route("/session/news", views.show("news.html", pages.session_news)),
        Route("/entry", views.show("entry.html", pages.entry)),
        Route("/diff", views.show("diff.html", pages.diff)),
        Route("/memories", views.show("memories.html", pages.memories)),
        Route("/memory", views.show("memory.html", pages.memory)),
        Route("/search", views.show("search.html", pages.search)),
        Route("/health", views.show("health.html", pages.health)),
        Route("/health/progress", views.show("verification.html", pages.health_progress)),
        Route("/health/verify", views.change(pages.start_verification), methods=["POST"]),
        *(Route(f"/static/{name}", _serve(name, media)) for name, media in STATIC_FILES.items()),
    ]
    if write:
        actions = Actions(store=store)
        routes += [
            Route("/change", views.show("change.html", actions.preview), methods=["GET"]),
            Route("/change", views.change(actions.perform), methods=["POST"]),
        ]
    return Guard(Starlette(routes=routes, exception_handlers={404: views.not_found}), access)


_NO_PAGE: Final = {"title": "There is no such page", "message": ""}
_TOO_LONG: Final = {
    "title": "This takes too long",
    "message": "The engine has no index for this, and there is too much data to read. Search in one"
    " session, filter by the beginning of the id, or list sessions in any order.",
}


class Views:
    """Renders pages, and errors of the store as pages."""

    def __init__(self, access: Access, *, target: str, write: bool) -> None:
        self._templates = build_environment()
        self._templates.globals.update(csrf=access.csrf, target=target, can_write=write)

    def show(self, template: str, read: ReadPage) -> Answer:
        """Answer with a template that is filled with what was read."""

        async def answer(request: Request) -> Response:
            try:
                async with asyncio.timeout(PAGE_S_MAX):
                    shown = await read(request.scope["fields"])
            except TimeoutError:
                return self._render("error.html", _TOO_LONG, request, 503)
            except MemoryStoreError as error:
                return self._render_error(error, request)
            if shown is None:
                return Response(status_code=204)
            return self._render(template, shown, request)

        return answer

    def change(self, perform: Callable[[Fields], Awaitable[str]]) -> Answer:
        """Perform a change, and go to the page that it returns."""

        async def answer(request: Request) -> Response:
            try:
                return RedirectResponse(await perform(request.scope["fields"]), 303)
            except MemoryStoreError as error:
                return self._render_error(error, request)

        return answer

    async def not_found(self, request: Request, _: Exception) -> Response:
        """Answer a request for an unknown page."""
        return self._render("error.html", _NO_PAGE, request, 404)

    def _render(
        self, template: str, shown: Shown, request: Request, status: int = 200
    ) -> HTMLResponse:
        page = self._templates.get_template(template)
        action = ACTIONS.get(request.scope["fields"].get("done", ""))
        done = action.done if action else ""
        return HTMLResponse(page.render(path=request.url.path, done=done, **shown), status)

    def _render_error(self, error: MemoryStoreError, request: Request) -> HTMLResponse:
        """Render the error as a page that says what happened to the data."""
        status, title = 400, "That is not possible"
        if isinstance(error, (SessionNotFoundError, SnapshotNotFoundError)):
            status, title = 404, "It is not there"
        elif isinstance(error, ConflictError):
            status, title = 409, "Nothing was changed"
        elif isinstance(error, MemoryStoreBackendError):
            status, title = 503, "The store did not answer"
        shown = {"title": title, "message": redact(error.message)}
        return self._render("error.html", shown, request, status)


def _serve(name: str, media_type: str) -> Answer:
    content = (files("indelible.inspector") / "static" / name).read_bytes()

    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return answer
