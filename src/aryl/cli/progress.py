"""Progress on stderr: a bar for each run that is under way, and only where somebody is watching."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bars:
    """A context in which `report` moves the bar of a run. Silent without a terminal."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._progress: Progress | None = None
        self._bars: list[TaskID] = []

    def __enter__(self) -> Self:
        if not sys.stderr.isatty():
            return self
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bars = [
            self._progress.add_task(escape(label), total=1.0, start=False, visible=False, text="")
            for label in self._labels
        ]
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def report(self, index: int, share: float, text: str) -> None:
        """Run `index` is `share` (0..1) done."""
        if self._progress is None:
            return
        from rich.markup import escape

        bar = self._bars[index]
        if not self._progress.tasks[index].started:
            self._progress.start_task(bar)
        self._progress.update(bar, completed=share, visible=share < 1.0, text=escape(text))
