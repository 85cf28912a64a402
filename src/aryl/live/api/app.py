"""Puts the API together: the routes, the gate around them, the problems they answer with, their document."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import FastAPI

from aryl.live.api import documents, events, jobs, loans, logs, problems, servers, system
from aryl.live.api.auth import Doorman
from aryl.live.api.context import Context, Places
from aryl.live.api.feed import Feed
from aryl.live.api.gate import Gate
from aryl.live.api.metrics import Metrics
from aryl.live.api.ports import Records
from aryl.live.api.settings import Settings
from aryl.live.control import Control


def make_app(control: Control, store: Records, settings: Settings) -> FastAPI:
    """The API of a control plane. `close_streams` ends its streams."""
    context = Context(
        control=control,
        records=store,
        settings=settings,
        doorman=Doorman(store, settings),
        metrics=Metrics(control),
        feed=Feed(store, settings.poll_s),
        streams=Places(settings.most_streams, "streams"),
        whatifs=Places(settings.most_whatifs, "what-if questions"),
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        to_thread.current_default_thread_limiter().total_tokens = settings.threads
        yield
        context.closing.set()

    app = documents.DocumentedApp(
        title="Aryl",
        version=settings.version,
        description=documents.DESCRIPTION,
        openapi_url="/openapi.json",
        docs_url=None,  # those pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.aryl = context
    for part in (jobs, logs, servers, loans, events, system):
        app.include_router(part.router)
    app.include_router(system.mine)
    problems.install(app)
    app.add_middleware(Gate, context=context)
    return app


def close_streams(app: FastAPI) -> None:
    """Let all streams end soon, for good; requests are still answered."""
    context = app.state.aryl
    assert isinstance(context, Context)
    context.closing.set()
