"""One example for each body, by the name of its model; a test holds each to its model."""

from __future__ import annotations

from typing import Any

_JOB: dict[str, Any] = {
    "job_id": "resnet-17",
    "name": "resnet",
    "project": "vision",
    "user": "ada",
    "state": "RUNNING",
    "attempt": 2,
    "workers": 4,
    "min_workers": 2,
    "max_workers": 8,
    "gpus_per_worker": 1,
    "priority": 0,
    "gpus": 4,
    "preemptions": 1,
    "failures": 0,
    "resizes": 3,
    "submitted": 1767225600.0,
    "started": 1767225660.0,
    "finished": None,
    "estimate_s": 7200.0,
    "remaining_s": 3100.0,
    "placement": [{"server": "T1", "base": 2, "flexible": 2, "gpus": 4}],
    "message": "",
}
_LOANS: dict[str, Any] = {
    "loans": [
        {
            "server": "I3",
            "lent": 1767225600.0,
            "reclaim_asked": 1767229200.0,
            "deadline": 1767229320.0,
            "returned": None,
        }
    ],
    "inference_servers": 8,
    "on_loan": 1,
    "need_servers": 5.5,
    "forecast_servers": 6.0,
    "reported": 1767229190.0,
    "degraded": False,
    "shortfall_servers": 0.0,
    "serving_servers": 7,
    "restoring_servers": 0,
    "headroom_servers": 1.0,
    "lending_cap": 2,
    "limit": "calendar",
}
_SERVER: dict[str, Any] = {
    "server": "I3",
    "pool": "inference",
    "tenure": "on-loan",
    "gpu_type": "T4",
    "gpus": 8,
    "free_gpus": 2,
    "used_gpus": 6,
    "leaving_gpus": 0,
    "up": True,
    "draining": False,
    "health": "healthy",
    "handing_over": False,
    "restoring": False,
    "reclaim_by": None,
    "jobs": ["resnet-17", None],
}

EXAMPLES: dict[str, Any] = {
    "JobFile": {
        "name": "resnet",
        "run": "python train.py --data /data",
        "workdir": "/srv/resnet",
        "env": {"EPOCHS": "3"},
        "workers": [2, 8],
        "gpu_types": {"V100": 1.0, "T4": 0.33},
        "estimate": "2h",
        "project": "vision",
        "checkpoint": {"dir": "ckpt/", "signal": "USR1", "grace": "90s"},
    },
    "JobView": _JOB,
    "JobList": {"jobs": [_JOB], "next": "am9iOjE3"},
    "WhyView": {
        "job_id": "resnet-18",
        "state": "PENDING",
        "reason": "NOT_ENOUGH_FREE",
        "text": "8 GPUs are needed and 3 are free; it waits for resnet-17 and a job of another project",
        "needed_gpus": 8,
        "free_gpus": 3,
        "best_server_free_gpus": 2,
        "behind": ["resnet-17", None],
        "starts": 1767232200.0,
    },
    "JobHistory": {
        "job_id": "resnet-17",
        "entries": [
            {
                "sequence": 341,
                "at": 1767227000.0,
                "kind": "preempted",
                "attempt": 1,
                "cause": "priority",
                "text": "8 GPUs on T1 are vacated; all progress is saved first",
                "beneficiary": None,
                "alternatives": [{"what": "resnet-17", "cost": 0.0}, {"what": None, "cost": 3600.0}],
            }
        ],
    },
    "DryRunView": {
        "verdict": "later",
        "starts": 1767232200.0,
        "text": "it would start when 8 GPUs are free",
        "servers": ["T1"],
    },
    "AttemptList": [{"attempt": 1, "rank": 0}, {"attempt": 2, "rank": 0}],
    "ResizeRequest": {"min_workers": 2, "max_workers": 6},
    "ServerView": _SERVER,
    "ServerList": {"servers": [_SERVER]},
    "DrainRequest": {"deadline_s": 600},
    "LoanList": _LOANS,
    "GiveRequest": {"server": "I3"},
    "ReclaimRequest": {"server": "I3", "deadline_s": 120},
    "DemandRequest": {
        "need_servers": 5.5,
        "forecast_servers": 6,
        "headroom_servers": 1,
        "measured_at": 1767229190.0,
        "hosting": {"I1": [2, 1], "I2": [4]},
    },
    "ReadyRequest": {"server": "I3"},
    "WhatIfRequest": {"policies": ["fifo", "aryl"]},
    "WhatIfView": {
        "outcomes": [
            {
                "policy": "fifo",
                "finished": 12,
                "unfinished": 0,
                "mean_jct_s": 5400.0,
                "mean_queuing_s": 1200.0,
                "preemptions": 0,
            }
        ]
    },
    "WhoAmI": {"name": "ada", "role": "user", "project": "vision"},
    "HealthView": {"status": "ok", "detail": ""},
    "Problem": {
        "type": "urn:aryl:problem:invalid-input",
        "title": "The request is invalid",
        "status": 422,
        "detail": "max_workers: Input should be greater than or equal to 1",
        "instance": "/v1/jobs/resnet-17",
        "faults": [{"field": "max_workers", "message": "Input should be greater than or equal to 1"}],
    },
}
