"""A worker that only waits: its share of DURATION_S, the seconds that BASE_WORKERS workers would take.

It is started with `python -I -S` and has nothing of Aryl's: dozens of these have to fit on two processors,
and starting one may cost no more than it must. On notice (USR1) rank 0 writes down what is done, in seconds
at base demand, and all end with 75; the next start, at whatever size, goes on from there. A job without a
section `checkpoint` is never noticed, and begins anew.
"""

import os
import signal
import sys
import time

SAVED = 75

# Blocked first: a signal that is blocked waits for `sigtimedwait`, even while Aryl's "ignore" still holds.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.signal(signal.SIGUSR1, lambda *_: None)
began_s = time.monotonic()
duration_s, base = float(os.environ["DURATION_S"]), int(os.environ["BASE_WORKERS"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = os.environ["ARYL_CHECKPOINT_DIR"]
progress = os.path.join(folder, "progress")
done_s = 0.0
if os.path.exists(progress):
    with open(progress, encoding="ascii") as file:
        done_s = float(file.read())
# A worker on slower GPUs holds as many more of them: all are as fast.
rate = size / base
left_s = max(duration_s - done_s, 0.0) / rate
# One that came before the first line was run has left a file.
noticed = os.path.exists(os.path.join(os.environ["ARYL_RUN_DIR"], "notice-" + os.environ["ARYL_RANK"]))
if not noticed:
    noticed = signal.sigtimedwait([signal.SIGUSR1], left_s) is not None
if not noticed:
    sys.exit(0)
if rank == 0:
    done_s += min((time.monotonic() - began_s), left_s) * rate
    os.makedirs(folder, exist_ok=True)
    with open(progress + ".part", "w", encoding="ascii") as file:
        file.write(repr(done_s))
    os.replace(progress + ".part", progress)
sys.exit(SAVED)
