"""What the API asks of the store: reads only, since whatever changes goes through `Control`. `Store` in
`aryl.live.store` has all of it; tests may put anything in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from aryl.core.model import JobState
from aryl.live.control import Principal
from aryl.wire.views import HistoryEntry, JobView


class Row(Protocol):
    """A job in the store."""

    def view(self) -> JobView:
        """The job as it stands, or as it ended."""


class Happening(Protocol):
    """An entry of a job's history in the store."""

    def view(self) -> HistoryEntry:
        """With every name in it."""


class Line(Protocol):
    """One event of the journal. `body` is a JSON object that has its `type`; `job_id` is the job that it is
    about, None for a plan and for what is about no job.
    """

    @property
    def sequence(self) -> int:
        """Its number; they count up from 0 without a gap."""

    @property
    def body(self) -> str:
        """The JSON object, without a line end."""

    @property
    def job_id(self) -> str | None:
        """The one job that it names."""


class Records(Protocol):
    """The store, as the API sees it. Every method may be called from any thread."""

    def jobs(
        self, *, state: JobState | None, project: str | None, user: str | None, cursor: str | None, limit: int
    ) -> tuple[Sequence[Row], str | None]:
        """A page of jobs, newest first, and the cursor of the next one. Raises InputError for a cursor that
        isn't one.
        """

    def history(self, job_id: str) -> Sequence[Happening]:
        """All that happened to a job, oldest first."""

    def projects_of(self, job_ids: Iterable[str]) -> Mapping[str, str]:
        """The projects of those that are jobs."""

    def lines(self, after: int, limit: int) -> Sequence[Line]:
        """The next lines of the journal behind number `after`."""

    def last_sequence(self) -> int:
        """The number of the last line; -1 if there is none."""

    def find_token(self, secret: str) -> Principal | None:
        """Whose token this is, or None."""

    def has_tokens(self) -> bool:
        """Whether there is any token."""
