"""What the demo's jobs run: steps of nothing but waiting, shared out among however many workers there are.

Each step stands for `STEP_S` seconds of one worker's work. After every step the workers meet, as training
does. Each step that is done goes into `steps.jsonl` in the checkpoint folder, so that anybody can see that
none was lost and none done twice.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from aryl import train


def main(steps: int, step_s: float) -> None:
    """All steps from the last checkpoint on."""
    latest = train.load_latest(Path.read_text)
    done = 0 if latest is None else latest[0]
    record = train.checkpoint_dir() / "steps.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    for step in range(done + 1, steps + 1):
        time.sleep(step_s / train.size())
        train.exchange(step)
        if train.rank() == 0:
            with record.open("a", encoding="utf-8") as lines:
                print(json.dumps({"step": step, "workers": train.size()}), file=lines)
        train.report(step, steps)
        if train.should_save(step):
            if train.rank() == 0:
                train.save(step, b"")
            if train.leaving() and step < steps:
                train.exit_saved()


if __name__ == "__main__":
    main(int(os.environ.get("STEPS", "100")), float(os.environ.get("STEP_S", "0.2")))
