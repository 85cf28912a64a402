"""`/v1/jobs`: submit, list, look at, resize, cancel, and why a job waits.

A job of another project is answered exactly like one that doesn't exist. Whoever belongs to a project submits
into it, named or not.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from aryl.core.model import JobState
from aryl.errors import NotFoundError
from aryl.live.api.bodies import Cursor, Filter, IdempotencyKey, JobId, StrictRoute, answer, check_id
from aryl.live.api.context import Context, Parts, User, Viewer
from aryl.live.api.documents import problems
from aryl.live.api.problems import INVALID, NOT_ALLOWED, ProblemError, no_such_job
from aryl.live.api.redact import Eyes, only
from aryl.live.control import Principal
from aryl.wire.job_file import JobFile
from aryl.wire.views import DryRunView, JobHistory, JobList, JobView, ResizeRequest, WhyView

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute)


@router.post(
    "",
    status_code=201,
    response_model=JobView,
    summary="Submit a job",
    responses={
        **problems(401, 403, 413, 415, 422, 503),
        200: {
            "model": JobView | DryRunView,
            "description": "The job that a request with this Idempotency-Key made before; or, with "
            "`dry_run`, what would become of the job.",
        },
        201: {
            "description": "The job was accepted and will be remembered.",
            "headers": {
                "Location": {
                    "description": "The path of the job.",
                    "required": True,
                    "schema": {"type": "string"},
                }
            },
        },
    },
)
def submit(
    job: JobFile,
    principal: User,
    parts: Parts,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="Only say whether and when it would start.")] = False,
) -> Response:
    """Accept a job, or with `dry_run` say whether and when it would start, changing nothing."""
    job = _into_project(job, principal)
    if dry_run:
        return answer(eyes_of(parts, principal).dry_run(parts.control.dry_run(job, principal)))
    view, new = parts.control.submit(job, principal, idempotency_key)
    if not only(view.project, principal):
        raise ProblemError(INVALID, "this Idempotency-Key is in use")
    return _job(view, principal, parts, 201 if new else 200, {"Location": f"/v1/jobs/{view.job_id}"})


@router.get(
    "", response_model=JobList, summary="List jobs, newest first", responses=problems(401, 403, 422, 503)
)
def list_jobs(
    principal: Viewer,
    parts: Parts,
    state: JobState | None = None,
    project: Filter = None,
    user: Filter = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Cursor = None,
) -> Response:
    """One page; ask again with `cursor` = `next` until that is null. A job that comes meanwhile is on no
    later page.
    """
    if principal.project is not None:
        if project not in (None, principal.project):
            return answer(JobList(jobs=[]))
        project = principal.project
    rows, following = parts.records.jobs(state=state, project=project, user=user, cursor=cursor, limit=limit)
    views = eyes_of(parts, principal).jobs([row.view() for row in rows])
    return answer(JobList(jobs=views, next=following))


@router.get("/{job_id}", response_model=JobView, summary="A job", responses=problems(401, 403, 404, 422, 503))
def get_job(job_id: JobId, principal: Viewer, parts: Parts) -> Response:
    """A job as it stands, or as it ended."""
    return _job(visible_job(job_id, principal, parts), principal, parts)


@router.patch(
    "/{job_id}",
    response_model=JobView,
    summary="Change a job's limits",
    responses=problems(401, 403, 404, 409, 413, 415, 422, 503),
)
def resize(job_id: JobId, limits: ResizeRequest, principal: User, parts: Parts) -> Response:
    """Change how few and how many workers a job may have. A limit that is left out stays."""
    visible_job(job_id, principal, parts)
    return _job(parts.control.resize(job_id, limits), principal, parts)


@router.post(
    "/{job_id}/cancel",
    response_model=JobView,
    summary="Cancel a job",
    responses=problems(401, 403, 404, 409, 413, 422, 503),
)
def cancel(job_id: JobId, principal: User, parts: Parts) -> Response:
    """Ask for the end of a job. One that is over already stays as it is, so asking twice does no harm."""
    visible_job(job_id, principal, parts)
    return _job(parts.control.cancel(job_id), principal, parts)


@router.get(
    "/{job_id}/why",
    response_model=WhyView,
    summary="Why a job waits",
    responses=problems(401, 403, 404, 422, 503),
)
def why(job_id: JobId, principal: Viewer, parts: Parts) -> Response:
    """The reason, with the numbers behind it. Other projects' jobs that are in the way are null."""
    visible_job(job_id, principal, parts)
    return answer(eyes_of(parts, principal).why(parts.control.why(job_id)))


@router.get(
    "/{job_id}/history",
    response_model=JobHistory,
    summary="What happened to a job",
    responses=problems(401, 403, 404, 422, 503),
)
def history(job_id: JobId, principal: Viewer, parts: Parts) -> Response:
    """Everything that happened to a job, oldest first: for a preemption the cause, for whom, and what else
    was weighed. Names of other projects' jobs are null.
    """
    visible_job(job_id, principal, parts)
    entries = [row.view() for row in parts.records.history(job_id)]
    return answer(JobHistory(job_id=job_id, entries=eyes_of(parts, principal).history(entries)))


def visible_job(job_id: str, principal: Principal, parts: Context) -> JobView:
    """A job that the principal may see. Otherwise a 404 problem, whether or not there is one."""
    check_id(job_id, "job")
    try:
        view = parts.control.job(job_id)
    except NotFoundError:
        raise no_such_job(job_id) from None
    if not only(view.project, principal):
        raise no_such_job(job_id)
    return view


def eyes_of(parts: Context, principal: Principal) -> Eyes:
    """What the principal may see, for one answer."""
    return Eyes(principal, parts.records, lambda: (server.server for server in parts.control.servers()))


def _into_project(job: JobFile, principal: Principal) -> JobFile:
    if principal.project is None or job.project == principal.project:
        return job
    if job.project:
        raise ProblemError(NOT_ALLOWED, f"your token is for the project {principal.project}")
    return job.model_copy(update={"project": principal.project})


def _job(
    view: JobView,
    principal: Principal,
    parts: Context,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    return answer(eyes_of(parts, principal).job(view), status, headers)
