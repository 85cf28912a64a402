"""A job in plain Python that runs at any number of workers: pi, by throwing darts, one round after another.

    aryl submit plain.yaml        or, by itself, as a single worker:  python plain.py

In each round the workers share out CHUNKS chunks of darts and exchange what they counted; that exchange is
the collective that keeps them in lockstep. When Aryl wants the job at another size it gives notice: all
workers agree on a round, rank 0 saves, all leave, and the job goes on with the next round at its new size.

STEPS (rounds) and STEP_S (seconds that a round takes one worker) say how long it runs. Each round done is
written to steps.jsonl in the checkpoint folder.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from aryl import train

STEPS = int(os.environ.get("STEPS", "200"))
STEP_S = float(os.environ.get("STEP_S", "0.2"))
CHUNKS = 16
DARTS = 500


def count_hits(step: int, chunk: int) -> int:
    """Darts of this chunk that hit the quarter circle; the same whoever throws them."""
    dice = random.Random(step * CHUNKS + chunk)
    time.sleep(STEP_S / CHUNKS)  # stands for real work
    return sum(dice.random() ** 2 + dice.random() ** 2 < 1 for _ in range(DARTS))


def read_hits(path: Path) -> int:
    """Hits so far, from a checkpoint."""
    hits: int = json.loads(path.read_text(encoding="utf-8"))["hits"]
    return hits


def main() -> None:
    """All rounds from the last checkpoint on."""
    done, hits = train.load_latest(read_hits) or (0, 0)
    record = train.checkpoint_dir() / "steps.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    for step in range(done + 1, STEPS + 1):
        mine = sum(count_hits(step, chunk) for chunk in range(train.rank(), CHUNKS, train.size()))
        hits += sum(train.exchange(mine))
        if train.rank() == 0:
            with record.open("a", encoding="utf-8") as lines:
                said = {"step": step, "workers": train.size(), "hits": hits, "at": time.time()}
                print(json.dumps(said), file=lines)
        train.report(step, STEPS)
        if train.should_save(step, every_s=30) or step == STEPS:
            if train.rank() == 0:
                train.save(step, json.dumps({"hits": hits}).encode())
            if train.leaving() and step < STEPS:
                train.exit_saved()
    print(f"rank {train.rank()}: pi is about {4 * hits / (STEPS * CHUNKS * DARTS):.4f}", flush=True)


if __name__ == "__main__":
    main()
