"""Job files for tests: a complete one, and a strategy for good ones of every kind."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

FULL = """\
name: resnet
run: python train.py --data /data
workdir: .
env: {EPOCHS: "3", LR: 0.1}
workers: [2, 8]
gpus_per_worker: 1
gpu_types: {V100: 1.0, T4: 0.33}
heterogeneous: false
estimate: 2h
priority: 0
project: vision
checkpoint: {dir: ckpt/, signal: USR1, grace: 90s, every: 10m}
resources: {memory: 4GiB, cpus: 2}
max_failures: 3
"""

names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", fullmatch=True)
# What a process can take; YAML and JSON write more of it than people do.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
words = texts.filter(lambda text: bool(text.strip()))
times = st.floats(0.001, 1e6) | st.sampled_from(["90s", "1h30m", "2d", "250ms"])
counts = st.integers(1, 20)
shares = st.floats(0.01, 1) | st.sampled_from(["5%", "100%"])


def _env_names() -> st.SearchStrategy[str]:
    return st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True).map(lambda name: "MY" + name)


def _workers() -> st.SearchStrategy[Any]:
    ends = st.tuples(counts, counts).map(sorted)
    sizes = st.lists(counts, min_size=1, unique=True).map(sorted)
    return (
        counts
        | ends
        | ends.map(lambda ends: {"min": ends[0], "max": ends[1]})
        | sizes.map(lambda sizes: {"sizes": sizes})
    )


def _checkpoints() -> st.SearchStrategy[dict[str, Any]]:
    plain = st.fixed_dictionaries(
        {},
        optional={
            "dir": st.sampled_from(["ckpt", "a/../b/", "."]),
            "every": times,
            "term": st.floats(0, 80_000),
        },
    )
    signalled = st.fixed_dictionaries(
        {"signal": st.sampled_from(["USR1", "SIGUSR2", "HUP", "SIGINT", "TERM"])},
        optional={"grace": st.floats(10, 80_000), "term": st.floats(0, 10), "every": times},
    )
    return plain | signalled


def good_jobs() -> st.SearchStrategy[dict[str, Any]]:
    """Jobs as JSON would have them, all of them valid."""
    return st.fixed_dictionaries(
        {
            "name": names,
            "run": words | st.lists(words | counts, min_size=1, max_size=4),
            "workdir": st.sampled_from(["/", "/srv/jobs", "/srv/../a b//c"]),
            "checkpoint": _checkpoints(),
        },
        optional={
            "env": st.dictionaries(_env_names(), texts | st.integers() | st.floats(), max_size=3),
            "workers": _workers(),
            "gpus_per_worker": counts,
            "gpu_types": st.dictionaries(
                st.sampled_from(["V100", "T4", "A 100"]), st.floats(0.01, 9), min_size=1
            ),
            "heterogeneous": st.booleans(),
            "mixed_efficiency": shares,
            "speedup": st.sampled_from(
                ["linear", {"amdahl": 0.1}, {"amdahl": "5%"}, {"points": {"1": 1, "4": 2.5}}]
            ),
            "estimate": times,
            "priority": st.integers(-1000, 1000),
            "project": names,
            "user": names,
            "launcher": st.sampled_from(["process", "torchrun", "torchft"]),
            "resources": st.fixed_dictionaries(
                {}, optional={"memory": st.sampled_from(["4GiB", "500MB", 2**20]), "cpus": st.floats(0.1, 64)}
            ),
            "max_failures": counts,
        },
    )
