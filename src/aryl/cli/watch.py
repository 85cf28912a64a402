"""`--watch` and everything else that goes on until Ctrl-C.

On a terminal a table is drawn again in its place. Elsewhere each change prints a new block, or with JSON
a new line, so that a file or a pipe gets the story and not the strokes of a pen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from aryl.cli.output import OutputFormat, console, note
from aryl.errors import ArylError, UnreachableError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.table import Table

    from aryl.client.patience import Patience

INTERVAL_S = 1.0
INTERRUPTED = 130

Data = TypeVar("Data", bound="BaseModel")


class QuietEndError(ArylError):
    """The command ends with this exit code and has said all there is to say."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__("")


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ctrl-C is how the block is meant to end, so nothing is said about it."""
    try:
        yield
    except KeyboardInterrupt:
        raise QuietEndError(INTERRUPTED) from None


def watch(
    look: Callable[[], Data],
    show: Callable[[Data, OutputFormat], None],
    table: Callable[[Data], Table],
    key: Callable[[Data], object],
    output: OutputFormat,
) -> None:
    """Show what `look` finds, again and again. Two findings with the same `key` are no change."""
    from aryl.client.patience import Patience

    patience = Patience()
    with until_interrupted():
        if output is OutputFormat.table and sys.stdout.isatty():
            _redraw(look, table, patience)
        else:
            _print_changes(look, show, key, output, patience)


def _redraw(look: Callable[[], Data], table: Callable[[Data], Table], patience: Patience) -> None:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, transient=False) as live:
        for data in _findings(look, patience):
            live.update(table(data), refresh=True)


def _print_changes(
    look: Callable[[], Data],
    show: Callable[[Data, OutputFormat], None],
    key: Callable[[Data], object],
    output: OutputFormat,
    patience: Patience,
) -> None:
    before: object = None
    for data in _findings(look, patience):
        now = key(data)
        if now == before:
            continue
        if output is OutputFormat.json:
            print(data.model_dump_json())
        else:
            if before is not None:
                print()
            show(data, output)
        sys.stdout.flush()
        before = now


def _findings(look: Callable[[], Data], patience: Patience) -> Iterator[Data]:
    while True:
        try:
            data = look()
        except UnreachableError as error:
            first = not patience.waiting
            patience.lost(error)
            if first:
                note(f"{error}; trying again")
            continue
        patience.answered()
        yield data
        time.sleep(INTERVAL_S)
