"""Phase 2 against brute force: over idle GPUs at once, and by transfers in the end."""

from __future__ import annotations

import random
from itertools import product

from tests.policies.scaling_scenes import EAGER, resized, resizes

from aryl.core.speedup import LINEAR, Amdahl
from aryl.testing import Scene, servers

# Against brute force.


def _random_scene(rng: random.Random, *, policy: str = "aryl", flexible: bool = False) -> Scene:
    """Two training servers with one to four elastic jobs of one-GPU workers, and an inelastic one."""
    scene = Scene(*servers(2, gpus=6), policy=policy)
    free = {"T1": 6, "T2": 6}
    for number in range(rng.randint(1, 4)):
        if not any(free.values()):
            break
        base = rng.randint(1, 2)
        server = max(free, key=lambda name: free[name])
        base = min(base, free[server])
        more = rng.randint(0, min(3, free[server] - base)) if flexible else 0
        free[server] -= base + more
        scene.run(
            f"E{number}",
            {server: (base, more)},
            most=base + more + rng.randint(0 if more else 1, 4),
            estimate_s=rng.uniform(50.0, 5000.0),
            speedup=rng.choice((LINEAR, LINEAR, Amdahl(0.1))),
        )
    for server, left in free.items():
        taken = rng.randint(0, left)
        if taken:
            scene.run(f"X{server}", {server: taken})
    return scene


def _sum_of_ends_s(scene: Scene, workers: dict[str, int]) -> float:
    total_s = 0.0
    for job_id, count in workers.items():
        found = scene.cluster.jobs[job_id]
        left_s = found.remaining_s(scene.cluster.now)
        assert left_s is not None
        spec = found.spec
        total_s += left_s * spec.speedup(spec.min_workers) / spec.speedup(count)
    return total_s


def _least_sum_of_ends_s(scene: Scene) -> float:
    """The least over all ways to share out the GPUs that aren't base workers'."""
    elastic = {name: found for name, found in scene.cluster.jobs.items() if found.elastic}
    spare = sum(server.spec.gpus for server in scene.cluster.servers)
    spare -= sum(found.base for found in scene.cluster.jobs.values())
    choices = [range(found.max_workers - found.base + 1) for found in elastic.values()]
    return min(
        _sum_of_ends_s(
            scene, {name: elastic[name].base + count for name, count in zip(elastic, more, strict=True)}
        )
        for more in product(*choices)
        if sum(more) <= spare
    )


def _present_sum_of_ends_s(scene: Scene) -> float:
    return _sum_of_ends_s(
        scene, {name: found.workers for name, found in scene.cluster.jobs.items() if found.elastic}
    )


def test_one_pass_over_idle_gpus_is_as_good_as_the_best_of_all_ways_to_share_them() -> None:
    rng = random.Random(11)
    grown = 0
    for _ in range(250):
        scene = _random_scene(rng)
        least_s = _least_sum_of_ends_s(scene)
        grown += bool(resizes(scene.carry_out()))
        # A gain of a millisecond a job is no reason to move.
        assert least_s - 1e-6 <= _present_sum_of_ends_s(scene) <= least_s + 0.004
    assert grown > 150


def test_transfers_end_at_the_best_of_all_ways_to_share_the_gpus() -> None:
    rng = random.Random(12)
    moved = 0
    for _ in range(120):
        scene = _random_scene(rng, policy=EAGER, flexible=True)
        for step in range(1, 12):
            taken = [one for one in resizes(scene.carry_out()) if one.remove]
            moved += len(taken)
            resized(scene.vacated()).at(step * 1e-4)
            if scene.decide().empty:
                break
        assert scene.decide().empty
        assert _present_sum_of_ends_s(scene) <= _least_sum_of_ends_s(scene) + 0.05
    assert moved > 20
