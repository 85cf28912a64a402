"""Who asks, how they ask, and what a refusal has to look like."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI

from aryl.live.api import Settings
from aryl.live.control import Role

PEOPLE = {
    "vic": (Role.VIEWER, "vision"),
    "ada": (Role.USER, "vision"),
    "bob": (Role.USER, "speech"),
    "olga": (Role.OPERATOR, "vision"),
    "ola": (Role.OPERATOR, None),
    "root": (Role.ADMIN, None),
}
JOB: dict[str, Any] = {"name": "resnet", "run": "python train.py", "workdir": "/srv"}
QUICK = Settings(poll_s=0.02, keep_alive_s=0.1)


class Api:
    """Asks on behalf of people, in this process."""

    def __init__(self, app: FastAPI, tokens: dict[str, str]) -> None:
        self.app, self.tokens = app, tokens

    def ask(self, who: str | None, method: str, path: str, **more: Any) -> httpx.Response:
        """One request; `who` None: without a token."""
        headers = {**self.authorization(who), **more.pop("headers", {})}

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 50_000))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8642") as client:
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(send())

    def get(self, who: str | None, path: str, **more: Any) -> httpx.Response:
        """One GET."""
        return self.ask(who, "GET", path, **more)

    def submit(self, who: str, **changes: Any) -> str:
        """Submit a small job; returns its id."""
        answer = self.ask(who, "POST", "/v1/jobs", json={**JOB, **changes})
        assert answer.status_code == 201, answer.text
        job_id: str = answer.json()["job_id"]
        return job_id

    def authorization(self, who: str | None) -> dict[str, str]:
        """The header with a person's token."""
        return {} if who is None else {"Authorization": f"Bearer {self.tokens[who]}"}


def problem_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of an answer that has to be one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["type"].startswith("urn:aryl:problem:")
    assert body["title"]
    return body
