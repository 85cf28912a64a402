"""What a principal may see of other projects' jobs: that they are there, never what they are called.

Names are looked up once for a whole answer. What can't be shown to be the principal's own is left out, so a
job that the store doesn't know is hidden as well. In running text, anything that reads like another
project's job id is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from aryl.live.api.ports import Records
from aryl.live.control import Principal
from aryl.wire.views import AlternativeView, DryRunView, HistoryEntry, JobView, ServerView, WhyView

ANOTHER = "a job of another project"
_LIKE_AN_ID = re.compile(r"[^\W_][\w.-]*-\d+")
_APART = re.compile(r"[,\s]+")


class Eyes:
    """One principal's view, for one answer."""

    def __init__(self, principal: Principal, records: Records, servers: Callable[[], Iterable[str]]) -> None:
        self._project = principal.project
        self._records = records
        self._ask_servers = servers
        self._servers: frozenset[str] | None = None
        self._projects: dict[str, str] = {}

    @property
    def sees_all(self) -> bool:
        """Whether nothing has to be hidden."""
        return self._project is None

    def sees(self, project: str | None) -> bool:
        """Whether jobs of this project may be seen."""
        return self._project is None or project == self._project

    def learn(self, job_ids: Iterable[str], texts: Iterable[str] = ()) -> None:
        """Look up all jobs that an answer may name."""
        if self._project is None:
            return
        wanted = {*job_ids, *(name for text in texts for name in _LIKE_AN_ID.findall(text))}
        wanted -= self._projects.keys()
        if wanted:
            self._projects.update(self._records.projects_of(sorted(wanted)))

    def owns(self, job_id: str) -> bool:
        """Whether a job that has been looked up is one of those that may be seen."""
        return self._project is None or self._projects.get(job_id) == self._project

    def name(self, job_id: str) -> str | None:
        """A job's name, or None."""
        return job_id if self.owns(job_id) else None

    def thing(self, what: str) -> str | None:
        """The name of what a place was made for: a job that may be seen, or servers. Otherwise None."""
        parts = _parts(what)
        if self.owns(what) or all(map(self.owns, parts)):
            return what
        if any(part in self._projects for part in parts):
            return None
        if self._servers is None:
            self._servers = frozenset(self._ask_servers())
        return what if all(part in self._servers for part in parts) else None

    def text(self, text: str) -> str:
        """Running text without the names of other projects' jobs."""
        if self._project is None:
            return text
        return _LIKE_AN_ID.sub(lambda match: ANOTHER if self._foreign(match[0]) else match[0], text)

    def why(self, view: WhyView) -> WhyView:
        """Without the names of what is in the way."""
        if self.sees_all:
            return view
        behind = [job_id for job_id in view.behind if job_id is not None]
        self.learn(behind, (view.text,))
        text = self.text(_without(view.text, (name for name in behind if not self.owns(name))))
        return view.model_copy(update={"behind": [self.name(job_id) for job_id in behind], "text": text})

    def dry_run(self, view: DryRunView) -> DryRunView:
        """Without the names of what is in the way."""
        self.learn((), (view.text,))
        return view.model_copy(update={"text": self.text(view.text)})

    def job(self, view: JobView) -> JobView:
        """Without other names in its message."""
        return self.jobs([view])[0]

    def jobs(self, views: list[JobView]) -> list[JobView]:
        """Without other names in their messages."""
        if self.sees_all:
            return views
        self.learn((), (view.message for view in views))
        return [
            view.model_copy(update={"message": self.text(view.message)}) if view.message else view
            for view in views
        ]

    def servers(self, views: list[ServerView]) -> list[ServerView]:
        """Without the names of other projects' jobs on them."""
        if self.sees_all:
            return views
        self.learn(job_id for view in views for job_id in view.jobs if job_id is not None)
        return [
            view.model_copy(update={"jobs": [job and self.name(job) for job in view.jobs]}) for view in views
        ]

    def history(self, entries: list[HistoryEntry]) -> list[HistoryEntry]:
        """Without the names of those for whom a job had to go, and of those that might have gone instead."""
        if self.sees_all:
            return entries
        things = [name for entry in entries for name in _names(entry)]
        self.learn((part for name in things for part in (name, *_parts(name))), (e.text for e in entries))
        return [self._entry(entry) for entry in entries]

    def _entry(self, entry: HistoryEntry) -> HistoryEntry:
        hidden = {name for name in _names(entry) if self.thing(name) is None}
        return entry.model_copy(
            update={
                "text": self.text(_without(entry.text, hidden)),
                "beneficiary": entry.beneficiary and self.thing(entry.beneficiary),
                "alternatives": [
                    AlternativeView(what=one.what and self.thing(one.what), cost=one.cost)
                    for one in entry.alternatives
                ],
            }
        )

    def _foreign(self, job_id: str) -> bool:
        project = self._projects.get(job_id)
        return project is not None and project != self._project


def only(view_project: str, principal: Principal) -> bool:
    """Whether a principal may see a job of this project at all."""
    return principal.project is None or view_project == principal.project


def plan_for(body: Mapping[str, object], eyes: Eyes, with_servers: bool) -> dict[str, object] | None:
    """A journaled plan with the steps that may be seen, their foreign names left out; None if there are
    none. `with_servers`: steps that are about servers alone may be seen.
    """
    plan = body.get("plan")
    steps = plan.get("steps") if isinstance(plan, dict) else None
    seen = [step for step in map(dict, steps or ()) if _may_see(step, eyes, with_servers)]
    if not seen:
        return None
    eyes.learn(part for step in seen for name in _step_names(step) for part in (name, *_parts(name)))
    return {**body, "plan": {"steps": [_redacted(step, eyes) for step in seen]}}


def jobs_of_plan(body: Mapping[str, object]) -> set[str]:
    """The jobs that a plan's steps are about."""
    plan = body.get("plan")
    steps = plan.get("steps") if isinstance(plan, dict) else None
    return {job_id for step in steps or () if (job_id := _job_of(step)) is not None}


def _may_see(step: dict[str, object], eyes: Eyes, with_servers: bool) -> bool:
    job_id = _job_of(step)
    return with_servers if job_id is None else eyes.owns(job_id)


def _job_of(step: Mapping[str, object]) -> str | None:
    claim = step.get("claim")
    job_id = claim.get("job_id") if isinstance(claim, dict) else step.get("job_id")
    return job_id if isinstance(job_id, str) else None


def _step_names(step: Mapping[str, object]) -> list[str]:
    weighed = step.get("weighed")
    names = [one[0] for one in weighed] if isinstance(weighed, list) else []
    return [name for name in (*names, step.get("beneficiary")) if isinstance(name, str)]


def _redacted(step: dict[str, object], eyes: Eyes) -> dict[str, object]:
    beneficiary, weighed = step.get("beneficiary"), step.get("weighed")
    if isinstance(beneficiary, str):
        step = {**step, "beneficiary": eyes.thing(beneficiary)}
    if isinstance(weighed, list):
        step = {**step, "weighed": [[eyes.thing(what), cost] for what, cost in weighed]}
    return step


def _names(entry: HistoryEntry) -> list[str]:
    names = (entry.beneficiary, *(one.what for one in entry.alternatives))
    return [name for name in names if name]


def _parts(text: str) -> list[str]:
    return [part for part in _APART.split(text) if part]


def _without(text: str, names: Iterable[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", ANOTHER, text)
    return text
