"""The command line: it parses, calls and prints, and decides nothing."""

from __future__ import annotations

import os

# Before numpy is loaded: many small products are faster on one thread, where several runs share the cores,
# and the last digits don't depend on how many there are.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
