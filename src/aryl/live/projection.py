"""What people ask of jobs and loans, kept beside the journal: rows that say how a job stands, and entries
that say what happened to it and why.

A watcher of the loop: it looks at the jobs that an event names, and at no others. It remembers how each job
stood after the event before, so that a report that came too late, and changed nothing, leaves no entry. The
rows themselves are read off the jobs when a batch is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.model import FINAL_STATES, LIVE_STATES, JobState, Slot, Tenure
from aryl.core.plan import (
    Cause,
    Claim,
    Launch,
    Loan,
    Plan,
    Reclaim,
    Release,
    Reserve,
    Resize,
    Return,
    Step,
    Stop,
    Weighed,
)
from aryl.live import projection_texts as texts
from aryl.live.facts import WITHOUT_NOTICE
from aryl.live.projection_known import Known, OfOneJob, look, row
from aryl.live.store.rows import Changes, HistoryRow, JobChange, LoanChange, LoanMove

# An estimate that moves by less than this share of itself isn't worth an entry.
NOTEWORTHY_CHANGE = 0.25


class Projection:
    """Collects the changes; `take` hands them over. `epoch_s` is the cluster's zero in Unix time.

    `cluster` is the state that it starts from, after a replay or before the first event.
    """

    def __init__(self, epoch_s: float, cluster: Cluster) -> None:
        self._epoch_s = epoch_s
        self._known = {job_id: look(job) for job_id, job in cluster.jobs.items()}
        self._claims = {job_id: claim.claim_id for job_id, claim in cluster.claims.items()}
        self._dropped = cluster.claims_dropped
        self._sequence = -1
        self._at = epoch_s
        self._parts = 0
        self._touched: dict[str, Known] = {}
        self._changes: dict[str, JobChange] = {}
        self._history: list[HistoryRow] = []
        self._loans: list[LoanChange] = []

    def journaled(self, sequence: int) -> None:
        """The event that comes next has this number in the journal."""
        self._sequence = sequence

    def take(self) -> Changes:
        """The changes since the last time."""
        for job_id, known in self._touched.items():
            self._change(job_id).values.update(row(known.job))
        changes = Changes(self._changes, tuple(self._history), tuple(self._loans))
        self._touched, self._changes, self._history, self._loans = {}, {}, [], []
        return changes

    def saw(self, event: ev.Event, cluster: Cluster) -> None:
        """Note what an event has changed."""
        self._at = self._epoch_s + event.at
        self._parts = 0
        match event:
            case ev.PlanCommitted():
                for step in event.plan.steps:
                    self._step(step)
                self._claims_dropped(cluster, _cause_of_drops(event))
            case ev.Submitted():
                job = cluster.jobs[event.job.job_id]
                self._known[event.job.job_id] = look(job)
                self._note(event.job.job_id, "submitted", 0, texts.wanted(job))
                self._touch(event.job.job_id)
            case ev.Refused():
                self._refused(event)
            case ev.ServerLost():
                self._claims_dropped(cluster, Cause.SERVER_LOST)
                self._server_lost(event, cluster)
            case (
                ev.Launched()
                | ev.Resized()
                | ev.Vacated()
                | ev.Stopped()
                | ev.Finished()
                | ev.Failed()
                | ev.Crashed()
                | ev.WorkersDone()
                | ev.WorkerReplaced()
                | ev.Stalled()
                | ev.Learned()
                | ev.CancelRequested()
                | ev.LimitsChanged()
            ):
                self._claims_dropped(cluster, _cause_of_drops(event))
                known = self._known.get(event.job_id)
                if known is not None:
                    self._of_one_job(event, known)
                    self._touch(event.job_id)
            case ev.LoanCalledOff():
                if cluster.server_by_id[event.server_id].tenure is Tenure.OWNED:
                    self._loan(LoanMove.RETURNED, event.server_id)
                self._claims_dropped(cluster, None)
            case (
                ev.ServerReturned()
                | ev.ServerDrained()
                | ev.HealthChanged()
                | ev.HandedOver()
                | ev.GiveRequested()
                | ev.ReclaimRequested()
            ):
                self._claims_dropped(cluster, Cause.DRAIN)
            case (
                ev.ClusterDeclared()
                | ev.ServersJoined()
                | ev.DemandReported()
                | ev.NeedChanged()
                | ev.LendingLimited()
                | ev.TelemetryLost()
                | ev.BackInService()
                | ev.Tick()
            ):
                pass
            case _:
                assert_never(event)
        self._sequence += 1

    # -- events -------------------------------------------------------------------------------------------

    def _of_one_job(self, event: OfOneJob, known: Known) -> None:
        job, job_id = known.job, event.job_id
        moved = job.state is not known.state or job.attempt != known.attempt
        attempt = known.attempt
        match event:
            case ev.Launched():
                if moved:
                    self._note(job_id, "started", attempt, f"all {job.workers} workers are up")
            case ev.Stopped():
                if moved:
                    self._left(job_id, known, f"all workers are gone; {texts.kept(event.kept_s)}")
            case ev.Finished():
                if moved:
                    self._note(job_id, "finished", attempt, "the job ended well")
                    self._say(job_id, "")
            case ev.Failed():
                if moved:
                    self._note(job_id, "failed", attempt, texts.reason(event.reason, "the job ended badly"))
                    self._say(job_id, texts.reason(event.reason, "the job ended badly"))
            case ev.Crashed():
                if moved:
                    self._crashed(event, known)
            case ev.WorkersDone():
                if job.workers != known.workers:
                    gone = known.workers - job.workers
                    self._note(
                        job_id, "workers-done", attempt, f"{gone} of {known.workers} workers ended well"
                    )
            case ev.WorkerReplaced():
                if event.attempt == attempt and job.state in LIVE_STATES:
                    text = f"a worker on {event.server_id} was started again"
                    self._note(job_id, "worker-replaced", attempt, texts.because(text, event.reason))
            case ev.Stalled():
                if job.trouble is Cause.STALLED and not known.stalled:
                    text = "it has fallen silent and has to start again"
                    self._note(job_id, "stalled", attempt, text, Cause.STALLED)
                    self._say(job_id, text)
            case ev.Learned():
                self._learned(job_id, known)
            case ev.CancelRequested():
                if job.state is JobState.CANCELLED and moved:
                    self._note(job_id, "cancelled", attempt, "cancelled while it waited", Cause.CANCELLED)
                elif moved:
                    self._note(job_id, "cancel-requested", attempt, "somebody wants it gone", Cause.CANCELLED)
            case ev.LimitsChanged():
                if job.limits != known.limits:
                    text = f"{texts.size(*known.limits)} before, {texts.size(*job.limits)} now"
                    self._note(job_id, "limits-changed", attempt, text, Cause.LIMITS)
            case ev.Resized() | ev.Vacated():
                pass
            case _:
                assert_never(event)

    def _refused(self, event: ev.Refused) -> None:
        text = texts.reason(event.reason, "it could never run here")
        self._note(event.job_id, "refused", 0, text)
        self._change(event.job_id).values.update(state=JobState.FAILED.value, finished=self._at, message=text)

    def _crashed(self, event: ev.Crashed, known: Known) -> None:
        job, attempt = known.job, known.attempt
        text = texts.reason(event.reason, "a worker ended badly")
        if job.failures == known.failures:
            # It was on its way out, and how it left is no fault of its own.
            self._left(event.job_id, known, f"all workers are gone ({text}); {texts.kept(event.kept_s)}")
            return
        self._note(event.job_id, "crashed", attempt, f"{text}; {texts.kept(event.kept_s)}")
        if job.state is JobState.FAILED:
            last = f"it has crashed {texts.times(job.failures)}"
            self._note(event.job_id, "failed", attempt, last)
            text = f"{last}: {text}"
        self._say(event.job_id, text)

    def _left(self, job_id: str, known: Known, text: str) -> None:
        """The workers of a job that was told to stop are gone."""
        if known.job.state is JobState.CANCELLED:
            self._note(job_id, "cancelled", known.attempt, text, Cause.CANCELLED)
        else:
            self._note(job_id, "stopped", known.attempt, text)

    def _learned(self, job_id: str, known: Known) -> None:
        new_s, old_s = known.job.spec.estimate_s, known.estimate_s
        if new_s is None or new_s == old_s:
            return
        if old_s is None or abs(new_s - old_s) > NOTEWORTHY_CHANGE * old_s:
            before = "" if old_s is None else f", not {old_s:.0f} s"
            self._note(job_id, "learned", known.attempt, f"it will take {new_s:.0f} s{before}")
            known.estimate_s = new_s

    def _server_lost(self, event: ev.ServerLost, cluster: Cluster) -> None:
        for job_id in cluster.troubled:
            known = self._known[job_id]
            lost = known.workers - known.job.workers
            if lost:
                text = f"{event.server_id} is gone with {lost} of {known.workers} workers"
                self._note(job_id, "server-lost", known.attempt, text, Cause.SERVER_LOST)
                self._touch(job_id)

    # -- steps of a plan ----------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        match step:
            case Launch():
                self._claims.pop(step.job_id, None)
                self._note(step.job_id, "launched", step.attempt, texts.on(step.slots))
                values = self._change(step.job_id).values
                values["message"] = ""
                if step.attempt == 1:
                    values["started"] = self._at
                self._touch(step.job_id)
            case Resize():
                self._resized(step)
            case Stop():
                self._stopping(step)
            case Reserve():
                claim = step.claim
                self._claims[claim.job_id] = claim.claim_id
                self._note_claim(claim)
            case Release():
                for job_id, claim_id in tuple(self._claims.items()):
                    if claim_id == step.claim_id:
                        self._released(job_id, step.cause)
            case Loan():
                self._loan(LoanMove.LENT, step.server_id)
            case Reclaim():
                deadline = None if step.deadline_s == float("inf") else self._epoch_s + step.deadline_s
                self._loan(LoanMove.RECLAIMED, step.server_id, deadline)
            case Return():
                self._loan(LoanMove.RETURNED, step.server_id)
            case _:
                assert_never(step)

    def _resized(self, step: Resize) -> None:
        known = self._known[step.job_id]
        added, removed = _workers(step.add), _workers(step.remove)
        after = known.workers + added - removed
        parts = [f"from {known.workers} to {after} workers"]
        if step.add:
            parts.append(f"more on {texts.places(step.add)}")
        if step.remove:
            parts.append(f"fewer on {texts.places(step.remove)}")
        self._note(step.job_id, "resized", step.attempt, "; ".join(parts), step.cause)
        change = self._change(step.job_id)
        change.rises["resizes"] = change.rises.get("resizes", 0) + 1
        self._touch(step.job_id)

    def _stopping(self, step: Stop) -> None:
        known = self._known[step.job_id]
        counts = known.job.preemptions > known.preemptions
        known.preemptions = known.job.preemptions
        saves = "without saving" if step.cause in WITHOUT_NOTICE else "it may save first"
        self._note(
            step.job_id,
            "preempted" if counts else "told-to-stop",
            step.attempt,
            f"{texts.WHY_STOPPED[step.cause]}; {saves}",
            step.cause,
            # One that is stopped for its own sake makes room for nobody.
            step.beneficiary if step.beneficiary != step.job_id else None,
            step.weighed,
        )
        self._touch(step.job_id)

    # -- claims -------------------------------------------------------------------------------------------

    def _note_claim(self, claim: Claim) -> None:
        attempt = self._known[claim.job_id].attempt
        text = f"a place is being vacated for it: {texts.on(claim.slots)}"
        self._note(claim.job_id, "reserved", attempt, text, claim.cause)

    def _claims_dropped(self, cluster: Cluster, cause: Cause | None) -> None:
        """Claims are also dropped without a step of their own, when what they are for can't be."""
        if cluster.claims_dropped == self._dropped:
            return
        self._dropped = cluster.claims_dropped
        for job_id, claim_id in tuple(self._claims.items()):
            claim = cluster.claims.get(job_id)
            if claim is None or claim.claim_id != claim_id:
                self._released(job_id, cause)

    def _released(self, job_id: str, cause: Cause | None) -> None:
        del self._claims[job_id]
        known = self._known[job_id]
        self._note(job_id, "claim-released", known.attempt, "the place isn't held for it any more", cause)

    # -- what is collected --------------------------------------------------------------------------------

    def _touch(self, job_id: str) -> None:
        """The job's row has to be written; remember how the job stands now."""
        known = self._known[job_id]
        estimate_s = known.estimate_s
        self._touched[job_id] = self._known[job_id] = now = look(known.job)
        now.estimate_s = estimate_s
        if now.state in FINAL_STATES:
            del self._known[job_id]
            if known.state not in FINAL_STATES:
                self._change(job_id).values["finished"] = self._at

    def _change(self, job_id: str) -> JobChange:
        return self._changes.setdefault(job_id, JobChange())

    def _say(self, job_id: str, message: str) -> None:
        self._change(job_id).values["message"] = message

    def _loan(self, move: LoanMove, server_id: str, deadline: float | None = None) -> None:
        self._loans.append(LoanChange(move, server_id, self._sequence, self._at, deadline))

    def _note(
        self,
        job_id: str,
        kind: str,
        attempt: int,
        text: str,
        cause: Cause | None = None,
        beneficiary: str | None = None,
        alternatives: tuple[Weighed, ...] = (),
    ) -> None:
        self._history.append(
            HistoryRow(
                job_id,
                self._sequence,
                self._parts,
                self._at,
                kind,
                attempt,
                text,
                None if cause is None else cause.value,
                beneficiary,
                alternatives,
            )
        )
        self._parts += 1


def _workers(slots: Iterable[Slot]) -> int:
    return sum(slot.workers for slot in slots)


def _cause_of_drops(event: ev.Event) -> Cause | None:
    match event:
        case ev.CancelRequested():
            return Cause.CANCELLED
        case ev.LimitsChanged():
            return Cause.LIMITS
        case ev.PlanCommitted(plan=Plan(steps=steps)) if any(isinstance(step, Reclaim) for step in steps):
            return Cause.RECLAIM
        case _:
            return None
