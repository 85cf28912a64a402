"""The exact reclaim rule against brute force over all subsets of servers, and every other rule against it."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys

import pytest

from aryl.errors import InputError
from aryl.policies import reclaim_exact
from aryl.policies.reclaim_exact import solve_exactly
from aryl.policies.reclaim_greedy import solve
from aryl.policies.reclaim_problem import (
    FlexibleShare,
    ReclaimAnswer,
    ReclaimInstance,
    ReclaimJob,
    ReclaimServer,
    Rule,
)

pytest.importorskip("highspy", reason="the extra aryl[exact] isn't installed")


def random_instance(seed: int, servers: int, jobs: int) -> ReclaimInstance:
    """Gangs of 1 to 3 servers, some partly outside the loan, some with flexible workers beside base ones."""
    draw = random.Random(seed)
    room = [8] * servers
    base: list[dict[int, int]] = [{} for _ in range(servers)]
    flexible: list[dict[int, FlexibleShare]] = [{} for _ in range(servers)]
    facts: list[ReclaimJob] = []
    for job in range(jobs):
        held, hosts = 0, 0
        for place in draw.sample(range(servers), min(servers, draw.choice([1, 1, 2, 2, 3]))):
            if room[place]:
                gpus = draw.randint(1, min(4, room[place]))
                room[place] -= gpus
                base[place][job] = gpus
                held, hosts = held + gpus, hosts + 1
        outside = draw.choice([0, 0, 1, 2]) if hosts else 1
        held += 4 * outside
        extra = 0
        for place in draw.sample(range(servers), min(servers, draw.choice([0, 0, 1, 2]))):
            workers = min(draw.randint(1, 2), room[place] // 2)
            if workers:
                flexible[place][job] = FlexibleShare(workers, 2 * workers)
                room[place] -= 2 * workers
                extra += 2 * workers
        lost = float(draw.choice([0, 100, draw.randint(0, 10_000)]))
        ends = draw.choice([10.0, 500.0, float("inf")])
        facts.append(ReclaimJob(f"j{job}", hosts + outside, held, held + extra, lost, ends))
    return ReclaimInstance(
        [ReclaimServer(f"I{n}", base[n], flexible[n]) for n in range(servers)],
        facts,
    )


def brute_force(instance: ReclaimInstance, wanted: int) -> tuple[int, float, int]:
    """The least objectives over all subsets that take what is free first."""
    places = range(len(instance.servers))
    free = [place for place in places if not instance.servers[place].base]
    if wanted <= len(free):
        return 0, 0.0, 0
    held = [place for place in places if instance.servers[place].base]
    return min(
        objectives(instance, (*free, *subset))
        for subset in itertools.combinations(held, min(wanted - len(free), len(held)))
    )


def objectives(instance: ReclaimInstance, taken: tuple[int, ...]) -> tuple[int, float, int]:
    servers = [instance.servers[place] for place in taken]
    lost = {job for server in servers for job in server.base}
    inside = sum(
        server.base.get(job, 0) + (server.flexible[job].gpus if job in server.flexible else 0)
        for server in servers
        for job in lost
    )
    return (
        len(lost),
        sum(instance.jobs[job].lost_work_gpu_s for job in lost),
        sum(instance.jobs[job].gpus for job in lost) - inside,
    )


def check(instance: ReclaimInstance, answer: ReclaimAnswer, wanted: int) -> None:
    """It frees what was wanted, its totals are right, and no untouched job is left on a returned server."""
    taken = answer.servers_to_return
    assert len(set(taken)) == len(taken) == min(wanted, len(instance.servers))
    assert answer.shortfall == wanted - len(taken)
    assert [step.chosen.server for step in answer.steps] == list(taken)
    assert tuple(job for step in answer.steps for job in step.preempts) == answer.jobs_to_preempt
    assert answer.objectives == objectives(instance, taken)
    gone = set(answer.jobs_to_preempt)
    scaled_in = {(one.job, one.server): one.workers for one in answer.scale_ins}
    assert scaled_in == {
        (job, place): share.workers
        for place in taken
        for job, share in instance.servers[place].flexible.items()
        if job not in gone
    }
    assert gone == {job for place in taken for job in instance.servers[place].base}


KNOT = ReclaimInstance(
    [
        ReclaimServer("I1", {0: 4, 1: 4}),
        ReclaimServer("I2", {0: 4, 1: 4}),
        ReclaimServer("I3", {2: 2, 3: 2, 4: 2, 5: 2}),
        ReclaimServer("I4", {6: 8}),
    ],
    [
        *(ReclaimJob(name, 2, 8, 8, 0.0) for name in "AB"),
        *(ReclaimJob(name, 1, 2, 2, 0.0) for name in "CDEF"),
        ReclaimJob("G", 1, 8, 8, 0.0),
    ],
)


@pytest.mark.parametrize(("wanted", "servers", "jobs"), [(1, {3}, 1), (2, {0, 1}, 2), (3, {0, 1, 3}, 3)])
def test_the_knot_is_undone(wanted: int, servers: set[int], jobs: int) -> None:
    answer = solve(KNOT, wanted, Rule.EXACT)
    assert (set(answer.servers_to_return), len(answer.jobs_to_preempt)) == (servers, jobs)
    assert answer.proven_optimal


@pytest.mark.parametrize("seed", range(60))
def test_exact_equals_brute_force_in_all_three_objectives_and_no_rule_beats_it(seed: int) -> None:
    draw = random.Random(seed)
    instance = random_instance(seed, draw.randint(1, 10), draw.randint(1, 12))
    for wanted in {1, draw.randint(1, 10), draw.randint(1, 12)}:
        exact = solve(instance, wanted, Rule.EXACT)
        check(instance, exact, wanted)
        assert exact.proven_optimal
        assert exact.objectives == brute_force(instance, wanted)
        for rule in Rule:
            answer = solve(instance, wanted, rule, seed)
            check(instance, answer, wanted)
            assert answer.objectives >= exact.objectives


@pytest.mark.parametrize("seed", range(40))
def test_with_a_deadline_leaving_jobs_are_as_good_as_gone(seed: int) -> None:
    instance = random_instance(seed, 8, 10)
    leaving = {job for job, facts in enumerate(instance.jobs) if facts.finishes_in_s <= 60}
    later = ReclaimInstance(
        [
            ReclaimServer(
                server.name,
                {job: gpus for job, gpus in server.base.items() if job not in leaving},
                {job: share for job, share in server.flexible.items() if job not in leaving},
            )
            for server in instance.servers
        ],
        instance.jobs,
    )
    for rule in (Rule.EXACT, Rule.SERVER_FRACTION, Rule.COUNT):
        now = solve(instance, 4, rule, deadline_s=60)
        then = solve(later, 4, rule)
        # Which of several free servers comes first may differ: those that must be waited for come last.
        assert len(now.jobs_to_preempt) == len(then.jobs_to_preempt)
        assert not leaving & set(now.jobs_to_preempt)
        assert not leaving & {one.job for one in now.scale_ins}
        for place in now.servers_to_return:
            assert not leaving & {*instance.servers[place].base, *instance.servers[place].flexible}
        for place in now.servers_to_wait_for:
            assert leaving & {*instance.servers[place].base, *instance.servers[place].flexible}


@pytest.mark.parametrize("seed", range(30))
def test_at_a_limit_the_answer_is_the_greedy_one_or_better_and_not_called_proven(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim_exact._Model, "solve", lambda *_: (set(), False))
    instance = random_instance(seed, 10, 12)
    for wanted in (3, 6):
        answer = solve(instance, wanted, Rule.EXACT)
        check(instance, answer, wanted)
        greedy = solve(instance, wanted, Rule.SERVER_FRACTION)
        assert brute_force(instance, wanted) <= answer.objectives <= greedy.objectives
        assert answer.proven_optimal == (not answer.jobs_to_preempt)


def test_exchanges_alone_undo_the_knot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim_exact._Model, "solve", lambda *_: (set(), False))
    answer = solve(KNOT, 2, Rule.EXACT)
    assert (set(answer.servers_to_return), answer.proven_optimal) == ({0, 1}, False)


def test_a_time_limit_of_nothing_still_gives_an_answer() -> None:
    instance = random_instance(4, 60, 90)
    answer = solve_exactly(instance, 30, time_limit_s=0.0)
    check(instance, answer, 30)
    assert not answer.proven_optimal


def test_a_programme_that_a_faulty_presolve_calls_infeasible_is_solved() -> None:
    draw = random.Random(2994)
    instance = random_instance(2994, draw.randint(1, 10), draw.randint(1, 12))
    answer = solve(instance, 6, Rule.EXACT)
    assert answer.proven_optimal
    assert answer.objectives == brute_force(instance, 6) == (3, 3089.0, 28)


def test_a_proof_that_a_rule_refutes_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim_exact._Model, "solve", lambda *_: ({2}, True))
    answer = solve(KNOT, 1, Rule.EXACT)
    assert (answer.servers_to_return, answer.proven_optimal) == ((3,), False)


def test_the_solver_keeps_quiet() -> None:
    # A process of its own: what C code prints shows only when its buffer is flushed at the end.
    program = (
        "from aryl.policies.reclaim_greedy import solve\n"
        "from aryl.policies.reclaim_problem import ReclaimInstance, ReclaimJob, ReclaimServer, Rule\n"
        "one = ReclaimInstance([ReclaimServer('I1', {0: 8})], [ReclaimJob('a', 1, 8, 8, 1.0)])\n"
        "assert solve(one, 1, Rule.EXACT).proven_optimal\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_same_instance_gets_the_same_answer() -> None:
    instance = random_instance(11, 40, 60)
    assert solve(instance, 20, Rule.EXACT) == solve(instance, 20, Rule.EXACT)


def test_without_the_solver_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(InputError, match=r"aryl\[exact\]"):
        solve(KNOT, 1, Rule.EXACT)
