from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.supervisor.bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A supervisor of the test's own."""
    yield from _bench()


@pytest.fixture(scope="module")
def shared() -> Iterator[Bench]:
    """A supervisor for tests that it is to come through unchanged."""
    yield from _bench()


def _bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="aryl-bench-") as folder:  # short, unlike tmp_path
        bench = Bench(Path(folder))
        yield bench
        bench.end()
