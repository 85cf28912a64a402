"""How many jobs each reclaim rule preempts, beside the optimum, and how long it takes.

    python -m benchmarks.reclaim [INSTANCES]

An instance has 14 servers of 8 GPUs. Jobs of 1, 2, 4, 8, 12, 16 or 24 one-GPU workers (the small ones more
often) arrive until one doesn't fit in a load drawn from 85 to 100 % of the GPUs. `packed` puts whole
servers' worth on empty servers and the rest on the fullest server that holds it; where that fails, and
always in `scattered`, each chunk of 2 workers goes to a server drawn among those with room. 1 to 7 servers
are wanted. Lost work is lognormal. The lower tables are one instance of 520 servers each, where
the rules take a few milliseconds and `exact` a tenth of a second if packed, many seconds if scattered.
"""

from __future__ import annotations

import sys
import time
from random import Random

from aryl.policies.reclaim_greedy import solve
from aryl.policies.reclaim_problem import ReclaimInstance, ReclaimJob, ReclaimServer, Rule

SERVERS, GPUS = 14, 8
SIZES, OFTEN = (1, 2, 4, 8, 12, 16, 24), (4, 4, 4, 5, 2, 4, 2)


def place_packed(room: list[int], gpus: int) -> dict[int, int] | None:
    """Whole empty servers, then the fullest that holds the rest; None if it would have to be scattered."""
    held: dict[int, int] = {}
    empty = [server for server, free in enumerate(room) if free == GPUS]
    if len(empty) < gpus // GPUS:
        return None
    held = dict.fromkeys(empty[: gpus // GPUS], GPUS)
    if rest := gpus % GPUS:
        fitting = [server for server, free in enumerate(room) if free >= rest and server not in held]
        if not fitting:
            return None
        held[min(fitting, key=lambda server: (room[server], server))] = rest
    return held


def place_scattered(room: list[int], gpus: int, draw: Random) -> dict[int, int]:
    held: dict[int, int] = {}
    while left := gpus - sum(held.values()):
        server = draw.choice([server for server, free in enumerate(room) if free > held.get(server, 0)])
        held[server] = held.get(server, 0) + min(2, left, room[server] - held.get(server, 0))
    return held


def draw_instance(draw: Random, packed: bool, servers: int = SERVERS) -> ReclaimInstance:
    room = [GPUS] * servers
    base: list[dict[int, int]] = [{} for _ in range(servers)]
    jobs: list[ReclaimJob] = []
    load = draw.uniform(0.85, 1.0) * GPUS * servers
    while True:
        gpus = draw.choices(SIZES, OFTEN)[0]
        if gpus + GPUS * servers - sum(room) > load:
            return ReclaimInstance([ReclaimServer(f"I{n}", base[n]) for n in range(servers)], jobs)
        held = (place_packed(room, gpus) if packed else None) or place_scattered(room, gpus, draw)
        for server, count in held.items():
            room[server] -= count
            base[server][len(jobs)] = count
        jobs.append(ReclaimJob(f"j{len(jobs)}", len(held), gpus, gpus, gpus * draw.lognormvariate(6, 2)))


def compare(packed: bool, instances: int) -> None:
    drawn = [(Random(seed), seed) for seed in range(instances)]
    problems = [(draw_instance(draw, packed), draw.randint(1, SERVERS // 2), seed) for draw, seed in drawn]
    best = [solve(problem, wanted, Rule.EXACT).objectives[0] for problem, wanted, _ in problems]
    print(f"\n{'packed' if packed else 'scattered'}: {instances} instances of {SERVERS} servers")
    print(f"{'rule':18}{'jobs preempted':>15}{'over optimum':>14}{'optimal in':>12}{'collateral GPUs':>17}")
    for rule in Rule:
        answers = [solve(problem, wanted, rule, seed) for problem, wanted, seed in problems]
        jobs = [len(answer.jobs_to_preempt) for answer in answers]
        optimal = sum(mine == least for mine, least in zip(jobs, best, strict=True)) / instances
        collateral = sum(answer.collateral_gpus for answer in answers) / instances
        over = sum(jobs) / sum(best) - 1
        print(f"{rule:18}{sum(jobs) / instances:>15.2f}{over:>14.1%}{optimal:>12.0%}{collateral:>17.1f}")


def clock(packed: bool, servers: int = 520, wanted: int = 100) -> None:
    problem = draw_instance(Random(1), packed, servers)
    placed = "packed" if packed else "scattered"
    print(f"\n{servers} servers, {len(problem.jobs)} jobs {placed}, {wanted} wanted")
    print(f"{'rule':18}{'ms':>9}{'jobs preempted':>16}{'proven':>8}")
    for rule in Rule:
        runs = []
        for _ in range(1 if rule is Rule.EXACT else 3):
            begin_s = time.perf_counter()
            answer = solve(problem, wanted, rule)
            runs.append(time.perf_counter() - begin_s)
        proven = "yes" if answer.proven_optimal else ""
        print(f"{rule:18}{min(runs) * 1e3:>9.1f}{len(answer.jobs_to_preempt):>16}{proven:>8}")


def main() -> int:
    instances = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for packed in (True, False):
        compare(packed, instances)
    for packed in (True, False):
        clock(packed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
