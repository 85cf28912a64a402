"""Decides which servers on loan go back at the proven least cost: the yardstick of the rules.

What is free (idle, emptied by scaling in, or by waiting) goes first, as for every rule. Of the other
servers exactly as many as are still wanted are chosen by a binary programme:

    x_s = 1: server s goes back.  y_j = 1: job j is preempted.  y_j >= x_s where j has base workers on s.
    sum x = R.

minimised for (1) jobs preempted, (2) lost work in GPU-seconds, (3) collateral GPUs, one solve each with the
results of the earlier ones held fixed. Collateral GPUs are those of the preempted jobs less what they hold
on returned servers; a product of x_s and y_j stands for flexible workers, which may be on a returned server
without a preemption.

HiGHS runs on one thread from a fixed seed and stops at a number of nodes, so the same instance always gets
the same answer. The limit in seconds is there for safety; where it strikes, the machine's speed shows.
Past a limit the answer is the better of two, each improved by exchanging one server for another: that of
`server-fraction`, and the best that the solver had found at its limit of nodes. It is not marked as proven.

Measured: hundreds of servers with packed jobs take a tenth of a second. Jobs scattered over hundreds of
servers make a hard problem, whose proof can take minutes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from aryl.errors import InputError
from aryl.policies.reclaim_greedy import cost_of, take_by_rule, take_free
from aryl.policies.reclaim_problem import Board, ReclaimAnswer, ReclaimInstance, Rule

NODE_LIMIT = 200
TIME_LIMIT_S = 60.0

# The solver gets lost work in whole units, at most about so many of them: sums of whole numbers can be held
# fixed without a margin that tolerances could eat.
_UNITS = 1e6


def solve_exactly(
    instance: ReclaimInstance,
    wanted: int,
    deadline_s: float | None = None,
    *,
    node_limit: int = NODE_LIMIT,
    time_limit_s: float = TIME_LIMIT_S,
) -> ReclaimAnswer:
    """The answer of fewest preemptions, then least lost work, then fewest collateral GPUs.

    `proven_optimal` tells whether it was proven within the limits, which hold for each of the three solves
    (lost work to a millionth of the total). Raises InputError without HiGHS.
    """
    highspy = require_solver()
    board = Board(instance, deadline_s)
    steps = take_free(board, wanted, Rule.EXACT)
    model = _Model(board)
    missing = min(wanted - len(board.taken), len(model.servers))
    if missing <= 0:
        return board.answer(wanted, steps, proven_optimal=True)
    chosen, proven = model.solve(highspy, missing, node_limit, time_limit_s)
    greedy = _greedy(instance, wanted, deadline_s)
    start = {place for place, server in enumerate(model.servers) if server in greedy}
    if not proven or model.loss(start)[0] < model.loss(chosen)[0]:
        proven = False
        chosen = min((improve(model, begin) for begin in (start, chosen) if begin), key=model.loss)
    among = {model.servers[place] for place in chosen}
    steps += take_by_rule(board, wanted, Rule.EXACT, cost_of(Rule.EXACT), among)
    return board.answer(wanted, steps, proven)


def require_solver() -> Any:
    """HiGHS's module, imported where it is used, since it is an optional engine. Raises InputError without
    it.
    """
    try:
        import highspy
    except ImportError:
        raise InputError(
            "the reclaim rule 'exact' needs the solver HiGHS",
            field="rule",
            found=str(Rule.EXACT),
            expected="an installation with the extra: pip install 'aryl[exact]'",
        ) from None
    return highspy


def _solver(highspy: Any, node_limit: int) -> Any:
    """A solver that prints nothing, not even the banner that its constructor prints on enabling callbacks."""

    class Silent(highspy.Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:  # noqa: N802
            self.silent()
            super().enableCallbacks()

    solver = Silent()
    solver.silent()
    # Presolve is off because HiGHS 1.16's calls some of these programmes infeasible; it saves no time here.
    settings = {"threads": 1, "random_seed": 0, "mip_rel_gap": 0.0, "presolve": "off"}
    for option, setting in {**settings, "mip_max_nodes": node_limit}.items():
        solver.setOptionValue(option, setting)
    return solver


def _greedy(instance: ReclaimInstance, wanted: int, deadline_s: float | None) -> set[int]:
    board = Board(instance, deadline_s)
    take_free(board, wanted, Rule.SERVER_FRACTION)
    take_by_rule(board, wanted, Rule.SERVER_FRACTION, cost_of(Rule.SERVER_FRACTION))
    return set(board.taken)


class _Model:
    """What is left once the free servers are taken: servers and jobs renumbered, and their programme."""

    def __init__(self, board: Board) -> None:
        facts = board.instance.jobs
        self.servers = [place for place, is_open in enumerate(board.open) if is_open and board.base[place]]
        self.base = [board.base[place] for place in self.servers]
        jobs = sorted({job for base in self.base for job in base})
        self.row_of = {job: row for row, job in enumerate(jobs)}
        self.gpus = [board.gpus[job] for job in jobs]
        self.lost_work_gpu_s = [facts[job].lost_work_gpu_s for job in jobs]
        # Flexible workers count only where their job can be preempted at all.
        self.flexible = [
            {job: share.gpus for job, share in board.flexible[place].items() if job in self.row_of}
            for place in self.servers
        ]

    def loss(self, chosen: Iterable[int]) -> tuple[int, float, int]:
        """Jobs preempted, GPU-seconds lost and collateral GPUs if these places (in `servers`) go back."""
        chosen = list(chosen)
        lost = sorted({self.row_of[job] for place in chosen for job in self.base[place]})
        gone = set(lost)
        returned = sum(sum(self.base[place].values()) for place in chosen) + sum(
            gpus for place in chosen for job, gpus in self.flexible[place].items() if self.row_of[job] in gone
        )
        collateral = sum(self.gpus[row] for row in lost) - returned
        return len(lost), math.fsum(self.lost_work_gpu_s[row] for row in lost), collateral

    def solve(self, highspy: Any, wanted: int, node_limit: int, time_limit_s: float) -> tuple[set[int], bool]:
        """The chosen places in `servers`, and whether they are proven to be those of the least loss.

        Without a proof they are the best that the solver ended with by itself or at its limit of nodes; none
        if there weren't any.
        """
        programme = self._programme(highspy, wanted)
        solver = _solver(highspy, node_limit)
        solver.passModel(programme)
        servers, jobs, columns = len(self.servers), len(self.gpus), programme.num_col_
        count, lost, collateral = np.zeros((3, columns))
        count[servers : servers + jobs] = 1.0
        lost[servers : servers + jobs] = self._lost_units()
        collateral[:servers] = [-sum(base.values()) for base in self.base]
        collateral[servers : servers + jobs] = self.gpus
        collateral[servers + jobs :] = [-gpus for flexible in self.flexible for gpus in flexible.values()]
        indices = np.arange(columns, dtype=np.int32)
        chosen: set[int] = set()
        for held_row, objective in ((1, count), (2, lost), (None, collateral)):
            solver.setOptionValue("time_limit", solver.getRunTime() + time_limit_s)
            solver.changeColsCost(columns, indices, objective)
            solver.run()
            proven = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
            if proven or solver.getModelStatus() == highspy.HighsModelStatus.kSolutionLimit:
                solution = solver.getSolution().col_value
                taken = {place for place in range(servers) if solution[place] > 0.5}
                # A limit of nodes can strike before anything was found.
                chosen = taken if len(taken) == wanted else chosen
            if not proven:
                return chosen, False
            if held_row is not None:
                solver.changeRowBounds(held_row, -highspy.kHighsInf, round(solver.getObjectiveValue()) + 0.5)
        return chosen, True

    def _lost_units(self) -> list[float]:
        unit = max(math.fsum(self.lost_work_gpu_s) / _UNITS, 1.0)
        return [float(round(work / unit)) for work in self.lost_work_gpu_s]

    def _programme(self, highspy: Any, wanted: int) -> Any:
        """Columns x, y and products; rows: how many servers, jobs held, lost work held, then the links."""
        servers, jobs = len(self.servers), len(self.gpus)
        y = range(servers, servers + jobs)
        infinite = highspy.kHighsInf
        rows: list[dict[int, float]] = [
            dict.fromkeys(range(servers), 1.0),
            dict.fromkeys(y, 1.0),
            dict(zip(y, self._lost_units(), strict=True)),
        ]
        lower, upper = [float(wanted), -infinite, -infinite], [float(wanted), infinite, infinite]
        product = servers + jobs
        for place, base in enumerate(self.base):
            links = [{servers + self.row_of[job]: 1.0, place: -1.0} for job in base]
            for job in self.flexible[place]:
                links += [{place: 1.0, product: -1.0}, {servers + self.row_of[job]: 1.0, product: -1.0}]
                product += 1
            rows += links
            lower += [0.0] * len(links)
            upper += [infinite] * len(links)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = product, len(rows)
        model.col_cost_ = np.zeros(product)
        model.col_lower_, model.col_upper_ = np.zeros(product), np.ones(product)
        model.row_lower_, model.row_upper_ = np.array(lower), np.array(upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(row) for row in rows)])
        model.a_matrix_.index_ = np.array([column for row in rows for column in row])
        model.a_matrix_.value_ = np.array([value for row in rows for value in row.values()])
        # Products are whole by themselves: they are pushed up against x and y.
        whole, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        model.integrality_ = [whole] * (servers + jobs) + [real] * (product - servers - jobs)
        return model


def improve(model: _Model, chosen: set[int]) -> set[int]:
    """The chosen places after exchanging one for another as long as that lowers the loss."""
    chosen, loss = set(chosen), model.loss(chosen)
    jobs = [frozenset(base) for base in model.base]
    work = {job: model.lost_work_gpu_s[row] for job, row in model.row_of.items()}
    improved = True
    while improved:
        improved = False
        for leaves in sorted(chosen):
            holders = Counter(job for place in chosen if place != leaves for job in jobs[place])
            spared = [job for job in jobs[leaves] if not holders[job]]
            for enters in range(len(jobs)):
                if enters in chosen:
                    continue
                added = [job for job in jobs[enters] if not holders[job]]
                if len(added) > len(spared):
                    continue
                if len(added) == len(spared) and sum(map(work.__getitem__, added)) > sum(
                    map(work.__getitem__, spared)
                ):
                    continue
                trial = chosen - {leaves} | {enters}
                trial_loss = model.loss(trial)
                if trial_loss < loss:
                    chosen, loss, improved = trial, trial_loss, True
                    break
    return chosen
