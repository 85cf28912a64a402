"""A server at run time. Written by `evolve` alone, like all state."""

from __future__ import annotations

from aryl.core.free_index import OFF_SHELF, Content
from aryl.core.model import Health, Pool, ServerSpec, Slot, Tenure

# A server whose loan was called off is left in peace for so long.
LOAN_RETRY_S = 300.0


class Server:
    """A server at run time. GPUs are used by live workers, leaving with workers that were told to go, held
    for claims, or free.
    """

    __slots__ = (
        "called_off_s",
        "deadline_s",
        "drain_by_s",
        "draining",
        "flexible_gpus",
        "given",
        "handing_over",
        "health",
        "held",
        "jobs",
        "kept_home",
        "leaving",
        "place",
        "recall_by_s",
        "restoring",
        "shelf",
        "spec",
        "tenure",
        "up",
        "used",
    )

    def __init__(self, spec: ServerSpec, place: int) -> None:
        self.spec = spec
        self.place = place
        self.shelf = OFF_SHELF
        self.tenure = Tenure.OWNED
        self.up = True
        self.draining = False
        self.drain_by_s = float("inf")  # when a draining server has to be empty
        self.health = Health.HEALTHY
        self.handing_over = False  # lent, but the inference side hasn't let go of it yet
        self.called_off_s = float("-inf")  # when a loan of it was last called off
        self.given = False  # an operator wants it lent
        self.kept_home = False  # an operator wants it at home
        self.recall_by_s = float("inf")  # an operator wants it back by then
        self.jobs: dict[str, Slot] = {}
        self.used = 0
        self.flexible_gpus = 0
        self.leaving = 0
        self.held = 0
        self.restoring = False  # at home again, but the inference side doesn't serve from it yet
        self.deadline_s = 0.0  # when a RECLAIMING server has to be empty

    @property
    def free(self) -> int:
        """GPUs that can be given out now. Claims are served from leaving GPUs first."""
        return self.spec.gpus - self.used - max(self.held, self.leaving)

    @property
    def placeable(self) -> bool:
        """Whether new workers may be placed on it at all."""
        if not self.up or self.draining or self.health is not Health.HEALTHY:
            return False
        if self.spec.pool is Pool.TRAINING:
            return True
        return self.tenure is Tenure.ON_LOAN and not self.handing_over

    def lendable(self, now_s: float) -> bool:
        """Whether an inference server that is at home, or on its way there, may be lent."""
        return (
            self.up
            and not self.draining
            and not self.kept_home
            and self.health is Health.HEALTHY
            and now_s >= self.called_off_s + LOAN_RETRY_S
        )

    @property
    def content(self) -> Content:
        """What kind of workers it carries; claims are for base workers."""
        if self.used > self.flexible_gpus or self.held:
            return Content.BASE
        return Content.FLEXIBLE if self.flexible_gpus else Content.EMPTY
