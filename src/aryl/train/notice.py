"""The notice: Aryl's signal that a worker is to save and leave.

The handler only remembers that the signal came; the script asks between two steps. Aryl starts workers with
the signal ignored, so one that comes before this module is loaded does no harm; a file in the run folder says
that it came.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType


class Notice:
    """Whether the notice has come. `given` never goes back to False."""

    def __init__(self) -> None:
        self.given = False

    def listen(self, name: str) -> bool:
        """Install the handler for the signal `name` (USR1 or SIGUSR1); False where that can't be done: no or
        an unknown name, or not in the main thread.
        """
        number = signal_number(name)
        if number is None:
            return False
        try:
            signal.signal(number, self._on_signal)
        except (ValueError, OSError):
            return False
        # System calls under way go on after the handler: libraries below Python don't all expect EINTR.
        signal.siginterrupt(number, False)
        return True

    def look_back(self, mark: Path) -> None:
        """Hear of a notice that came before anybody listened: Aryl leaves a file for each. To be called
        after `listen`, so that none falls between the two.
        """
        self.given = self.given or mark.exists()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.given = True


def signal_number(name: str) -> signal.Signals | None:
    """The signal that `name` stands for, with or without SIG; None if there is none."""
    full = name if name.startswith("SIG") else f"SIG{name}"
    return signal.Signals.__members__.get(full)
