"""What the commands for a live cluster print. JSON is what the API answers, unchanged; tables are for people:
times are rounded and told from now, and what belongs to another project is called that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aryl.cli.output import OutputFormat, console, plain_table, print_csv, print_json

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.table import Table

    from aryl.wire.views import AttemptView, JobHistory, JobList, JobView, LoanList, ServerList, ServerView

NOBODYS = "(other project)"
# What keeps servers from being lent, by its name in `LoanList.limit`.
LIMITS = {
    "calendar": "The calendar lets at most {} be lent at this time.",
    "max_lent": "At most {} may be lent (max_lent).",
    "min_servers": "At most {} may be lent, since the others have to stay (min_servers).",
}
Row = dict[str, Any]


def names(some: Sequence[str | None]) -> str:
    """Names of jobs, those of other projects counted."""
    known = [name for name in some if name is not None]
    others = len(some) - len(known)
    if others:
        known.append(f"{others} of other projects" if others > 1 else "one of another project")
    return ", ".join(known)


def span(value_s: float | None) -> str:
    """A duration for people."""
    from aryl.files.units import human_seconds

    return "-" if value_s is None else human_seconds(value_s)


def clock(at: float | None, now: float | None = None) -> str:
    """A moment in local time, with its date unless that is today's."""
    if at is None:
        return "-"
    moment, today = datetime.fromtimestamp(at), datetime.fromtimestamp(time.time() if now is None else now)
    return moment.strftime("%H:%M:%S" if moment.date() == today.date() else "%Y-%m-%d %H:%M")


def from_now(at: float | None, now: float | None = None) -> str:
    """A moment as `in 12 min` or `12 min ago`."""
    if at is None:
        return "-"
    ahead_s = at - (time.time() if now is None else now)
    if abs(ahead_s) < 1:
        return "now"
    return f"in {span(ahead_s)}" if ahead_s > 0 else f"{span(-ahead_s)} ago"


def document(view: BaseModel) -> Any:
    """The JSON of a view."""
    return view.model_dump(mode="json")


def show_view(view: BaseModel, rows: Sequence[Row], table: Table, output: OutputFormat) -> None:
    """A view in the asked-for format."""
    if output is OutputFormat.json:
        print_json(document(view))
    elif output is OutputFormat.csv:
        print_csv(rows)
    else:
        console().print(table)


# Jobs


def workers_text(job: JobView) -> str:
    """The workers that a job has, and its limits: `3 of 2..8`."""
    limits = f"{job.min_workers}..{job.max_workers}" if job.max_workers > job.min_workers else job.min_workers
    return f"{job.workers} of {limits}"


def gpus_text(count: int) -> str:
    """`1 GPU`, `8 GPUs`."""
    return "1 GPU" if count == 1 else f"{count} GPUs"


def job_row(job: JobView) -> Row:
    """A row of CSV."""
    row: Row = document(job)
    return {**row, "placement": [f"{place.server}:{place.base + place.flexible}" for place in job.placement]}


def job_table(jobs: JobList) -> Table:
    """One row a job."""
    titles = ["job", "state", "workers", "GPUs", "project", "user", "priority", "submitted", "took", "to go"]
    return plain_table(
        titles,
        [
            [
                job.job_id,
                job.state.value,
                workers_text(job),
                str(job.gpus),
                job.project or "-",
                job.user or "-",
                str(job.priority),
                from_now(job.submitted),
                span(_took(job)),
                span(job.remaining_s) if job.finished is None else "-",
            ]
            for job in jobs.jobs
        ],
    )


def _took(job: JobView) -> float | None:
    if job.started is None:
        return None
    return (time.time() if job.finished is None else job.finished) - job.started


def show_jobs(jobs: JobList, output: OutputFormat) -> None:
    """Several jobs."""
    show_view(jobs, [job_row(job) for job in jobs.jobs], job_table(jobs), output)


def show_job(job: JobView, output: OutputFormat) -> None:
    """One job with all that is known of it."""
    show_view(job, [job_row(job)], one_job_table(job), output)


def one_job_table(job: JobView) -> Table:
    """One row for each thing that is known of a job."""
    places = ", ".join(
        f"{place.server} ({place.base} base, {place.flexible} flexible, {gpus_text(place.gpus)})"
        for place in job.placement
    )
    facts = {
        "job": job.job_id,
        "state": job.state.value,
        "message": job.message,
        "project, user": f"{job.project or '-'}, {job.user or '-'}",
        "workers": f"{workers_text(job)}, {gpus_text(job.gpus_per_worker)} each",
        "GPUs": str(job.gpus),
        "on": places,
        "priority": str(job.priority),
        "attempt": str(job.attempt),
        "preempted, failed, resized": f"{job.preemptions}, {job.failures}, {job.resizes} times",
        "submitted": f"{clock(job.submitted)}, {from_now(job.submitted)}",
        "started": f"{clock(job.started)}, {from_now(job.started)}" if job.started else "",
        "finished": f"{clock(job.finished)}, {from_now(job.finished)}" if job.finished else "",
        "estimate": span(job.estimate_s) if job.estimate_s is not None else "",
        "to go": span(job.remaining_s) if job.remaining_s is not None and job.finished is None else "",
    }
    table = plain_table(["", ""], [[name, text] for name, text in facts.items() if text])
    table.show_header = False
    return table


def jobs_key(jobs: JobList) -> object:
    """What makes two looks at jobs different; that time goes by doesn't."""
    return [job.model_dump(exclude={"remaining_s"}) for job in jobs.jobs]


def show_history(history: JobHistory, output: OutputFormat) -> None:
    """What happened to a job."""
    rows: list[Row] = []
    for entry in history.entries:
        weighed = [f"{other.what or NOBODYS}={other.cost:g}" for other in entry.alternatives]
        rows.append({**document(entry), "alternatives": weighed})
    table = plain_table(
        ["when", "what", "attempt", "text", "cause", "for", "weighed against"],
        [
            [
                clock(entry.at),
                entry.kind,
                str(entry.attempt),
                entry.text,
                entry.cause or "",
                entry.beneficiary or "",
                ", ".join(row["alternatives"]),
            ]
            for entry, row in zip(history.entries, rows, strict=True)
        ],
    )
    show_view(history, rows, table, output)


def show_attempts(places: Sequence[AttemptView], output: OutputFormat) -> None:
    """The workers that have left a log."""
    rows = [document(place) for place in places]
    if output is OutputFormat.json:
        print_json(rows)
    elif output is OutputFormat.csv:
        print_csv(rows)
    else:
        console().print(
            plain_table(["attempt", "rank"], [[str(cell) for cell in row.values()] for row in rows])
        )


# Servers and loans


def server_row(server: ServerView) -> Row:
    """A row of CSV."""
    return {**document(server), "jobs": [name or NOBODYS for name in server.jobs]}


def server_table(servers: ServerList) -> Table:
    """One row a server."""
    titles = ["server", "pool", "tenure", "GPU", "free", "used", "leaving", "state", "back by", "jobs"]
    return plain_table(
        titles,
        [
            [
                server.server,
                server.pool.value,
                server.tenure.value,
                f"{server.gpus} {server.gpu_type}",
                str(server.free_gpus),
                str(server.used_gpus),
                str(server.leaving_gpus),
                server_state(server),
                from_now(server.reclaim_by),
                names(server.jobs),
            ]
            for server in servers.servers
        ],
    )


def server_state(server: ServerView) -> str:
    """How a server is, in a few words."""
    words = ["up" if server.up else "down"]
    if server.health != "healthy":
        words.append(server.health)
    if server.draining:
        words.append("draining")
    if server.handing_over:
        words.append("handing over")
    if server.restoring:
        words.append("loading")
    return ", ".join(words)


def show_servers(servers: ServerList, output: OutputFormat) -> None:
    """Several servers."""
    show_view(servers, [server_row(server) for server in servers.servers], server_table(servers), output)


def loan_table(loans: LoanList) -> Table:
    """The inference side's account as the title, and one row a loan."""
    table = plain_table(
        ["server", "lent", "asked back", "deadline", "returned"],
        [
            [
                loan.server,
                clock(loan.lent),
                clock(loan.reclaim_asked),
                from_now(loan.deadline) if loan.returned is None else clock(loan.deadline),
                clock(loan.returned),
            ]
            for loan in loans.loans
        ],
    )
    table.caption, table.caption_justify = loan_account(loans), "left"
    return table


def loan_account(loans: LoanList) -> str:
    """The inference side's account in a sentence or two."""
    text = f"{loans.on_loan} of {loans.inference_servers} inference servers are on loan."
    if loans.restoring_servers:
        text += (
            f" {_several(loans.serving_servers, 'serve')}, {_several(loans.restoring_servers, 'still load')}."
        )
    if loans.need_servers is not None:
        text += f" Inference needs {loans.need_servers:g} now"
        ahead = loans.forecast_servers
        text += f" and at most {ahead:g} soon" if ahead is not None else ""
        text += f" (told {from_now(loans.reported)})." if loans.reported is not None else "."
        spare = loans.serving_servers - loans.need_servers
        if 0 <= spare < loans.headroom_servers:
            text += f" Of its headroom of {loans.headroom_servers:g} only {spare:g} is left."
    if loans.shortfall_servers > 0:
        text += f" It is short of {loans.shortfall_servers:g}."
    if loans.limit is not None and loans.on_loan >= loans.lending_cap:
        text += f" {LIMITS[loans.limit].format(loans.lending_cap)}"
    if loans.degraded:
        text += " Its reports have stopped, so nothing more is lent."
    return text


def _several(count: int, verb: str) -> str:
    return f"{count} {verb}" if count != 1 else f"1 {verb}s"


def show_loans(loans: LoanList, output: OutputFormat) -> None:
    """All loans."""
    show_view(loans, [document(loan) for loan in loans.loans], loan_table(loans), output)


def loans_key(loans: LoanList) -> object:
    """What makes two looks at the loans different; that the same need is reported again doesn't."""
    return loans.model_dump(exclude={"reported"})
