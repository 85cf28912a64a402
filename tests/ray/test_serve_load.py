"""The load generator of `examples/ray`: its rate, and that no failure gets lost."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ray.serve_yard import EXAMPLES, example

LOAD = str(EXAMPLES / "load.py")


class _Every(http.server.BaseHTTPRequestHandler):
    """Each third request fails."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(500 if type(self).asked % 3 == 0 else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Every) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def run(*args: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, LOAD, *args], check=False, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_failed_answers_are_counted_by_kind_and_end_in_an_error(server: str) -> None:
    code, said, _ = run(server, "--points", "0:50", "--for", "0.6")
    told = json.loads(said)
    assert code == 1
    assert told["sent"] == 30
    assert told["failures"] == {"HTTP 500": 10}
    assert told["answered"] == 20
    assert told["latency_ms"]["p50"] <= told["latency_ms"]["most"]


def test_a_server_that_is_not_there_fails_each_request() -> None:
    code, said, _ = run("http://127.0.0.1:9/", "--points", "0:20", "--for", "0.5")
    told = json.loads(said)
    assert (code, told["sent"], told["failed"], told["answered"]) == (1, 10, 10, 0)


def test_a_rate_goes_in_steps_or_along_lines() -> None:
    load = example("load")
    steps, lines = load.points("0:10,10:20", False), load.points("0:10,10:20", True)
    assert [steps.at(now_s) for now_s in (0, 9.9, 10, 99)] == [10, 10, 20, 20]
    assert [lines.at(now_s) for now_s in (0, 5, 10, 99)] == [10, 15, 20, 20]


def test_a_curve_is_scaled_to_its_peak_and_hurried(tmp_path: Path) -> None:
    file = tmp_path / "curve.csv"
    file.write_text("time_s,busy\n100,2\n160,8\n220,4\n")
    rate = example("load").curve(str(file), 40.0, 6.0, False)
    assert rate.times_s == [0, 10, 20]
    assert rate.rates == [10, 40, 20]


@pytest.mark.parametrize("points", ["5:1", "0:1,0:2", "0:-1", "words"])
def test_points_that_make_no_rate_are_refused(points: str) -> None:
    code, said, errors = run("http://127.0.0.1:9/", "--points", points)
    assert (code, said) == (2, "")
    assert "usage" in errors
