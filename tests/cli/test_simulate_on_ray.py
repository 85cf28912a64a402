"""`aryl simulate --on ray`: the results of processes, from servers that have nothing but Aryl.

The cluster runs in another folder, so that a file which is named as it is here can only be read there if it
was sent along.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import LONG, left_in, simulated, started, without_wall_times
from tests.cli.ray_calls import bad_input, defect, halfway, killed, stay
from tests.ray.raylets import RayServer, RayServers, wait_for

from aryl.backends.ray import sweep
from aryl.backends.ray.sweep import Call, run_on_ray
from aryl.errors import ArylError, InputError

pytestmark = pytest.mark.xdist_group("ray")

SWEEP = """\
cluster:
  training: {servers: 4}
  inference: {servers: 3}
jobs: {trace: mine/jobs.csv, scenario: basic}
inference: {curve: ./demand.csv}
policies: [fifo, aryl]
sweep: {"jobs.seed": [1, 2]}
"""
CURVE = "time_s,servers\n0,3\n3600,1\n7200,3\n86400,2\n90000,2\n"
PATIENCE_S = 60.0
# A killed server is found lost after 2 s; one that is only slow, on a busy machine, isn't.
PATIENT = {
    "health_check_initial_delay_ms": "1000",
    "health_check_period_ms": "500",
    "health_check_timeout_ms": "5000",
    "health_check_failure_threshold": "4",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayServers]:
    servers = [RayServer("S1", cpus=1, gpus=0), RayServer("S2", cpus=1, gpus=0)]
    with RayServers(servers, client=True, settings=PATIENT) as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands run: an experiment with files of its own."""
    rows = [
        f"J{number},{number * 600},{8 * (1 + number % 3)},{3000 + 700 * (number % 7)}" for number in range(40)
    ]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "jobs.csv").write_text("job_id,submit_s,gpus,duration_s\n" + "\n".join(rows) + "\n")
    (tmp_path / "demand.csv").write_text(CURVE)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return tmp_path


def on_ray(address: str, *arguments: object) -> int:
    return simulated("sweep.yaml", *arguments, "--on", "ray", "--ray-address", address)


def written(folder: Path) -> dict[str, bytes]:
    """Every file below, with the wall times taken out of the summaries."""
    files: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "summary.json":
            runs = without_wall_times(json.loads(path.read_bytes())["runs"])
            files[str(path.relative_to(folder))] = json.dumps(runs).encode()
        elif path.is_file():
            files[str(path.relative_to(folder))] = path.read_bytes()
    return files


def results(capfd: pytest.CaptureFixture[str], where: Path, *arguments: object) -> tuple[Any, ...]:
    """All that a sweep prints and writes."""
    places = ("--out", where / "out", "--journal", where / "journal.jsonl", "--report", where / "page.html")
    assert simulated("sweep.yaml", "-o", "json", *places, *arguments) == 0
    printed = capfd.readouterr()
    runs = without_wall_times(json.loads(printed.out)["runs"])
    return runs, printed.err.replace(str(where), ""), written(where)


@pytest.mark.parametrize("client", [False, True], ids=["head", "client"])
def test_a_sweep_on_a_cluster_prints_and_writes_byte_for_byte_what_processes_do(
    folder: Path, cluster: RayServers, capfd: pytest.CaptureFixture[str], client: bool
) -> None:
    address = cluster.client_address if client else cluster.address
    here = results(capfd, folder / "here")
    there = results(capfd, folder / "there", "--on", "ray", "--ray-address", address)
    assert there == here
    files = here[2]
    assert sum(name.endswith(".jsonl") for name in files) == 4
    assert sum(name.endswith("jobs.csv") for name in files) == 4
    assert all(files.values())
    assert [run["trace"] for run in there[0]] == ["mine/jobs.csv"] * 4
    assert multiprocessing.active_children() == []


def test_without_an_address_a_ray_of_its_own_is_started_and_ended(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = results(capfd, folder / "here")
    # Not in the folder of the test: Ray's sockets take short paths only.
    with tempfile.TemporaryDirectory(prefix="sl", dir="/tmp") as temporary:
        monkeypatch.setattr(sweep, "_short_folder", lambda: temporary)
        assert results(capfd, folder / "there", "--on", "ray") == here
        assert left_in(Path(temporary)) == []
        processes = [command_of(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()]
    assert not any(temporary in command for command in processes)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def test_wrong_input_is_told_as_it_is_with_processes(
    folder: Path, cluster: RayServers, capfd: pytest.CaptureFixture[str]
) -> None:
    with (folder / "mine" / "jobs.csv").open("a") as file:
        file.write("J99,99999,8,-3\n")
    assert simulated("sweep.yaml") == 2
    here = capfd.readouterr()
    assert on_ray(cluster.address) == 2
    assert capfd.readouterr() == here
    assert here.err.startswith("error: mine/jobs.csv, line 42, duration_s: ")


def test_another_version_of_aryl_on_a_server_is_refused(
    folder: Path,
    cluster: RayServers,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aryl.__version__", "9.9")
    assert on_ray(cluster.address, "--out", "out") == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: the Ray server ")
    assert err.endswith("; every server needs aryl 9.9, which is installed here\n")
    assert not (folder / "out").exists()


def test_nobody_at_the_address_is_exit_code_6(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        assert on_ray(f"ray://{address}") == 6
    assert capfd.readouterr() == (
        "",
        f"error: no Ray cluster can be reached at ray://{address}: [Errno 111] Connection refused\n",
    )


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_somebody_who_never_answers_is_exit_code_6_after_a_while(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(sweep, "CONNECT_WITHIN_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        assert on_ray(address) == 6
    assert capfd.readouterr() == ("", f"error: the Ray cluster at {address} doesn't answer within 3 s\n")
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("address", ["https://x:1", "head", "head:0", "head:99999", "ray://head", "a b:1"])
def test_what_is_no_address_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    assert on_ray(address) == 2
    assert f"--ray-address: not the address of a Ray cluster (found '{address}')" in capfd.readouterr().err
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert simulated("sweep.yaml", "--on", "ray") == 2
    assert "RAY_ADDRESS: not the address of a Ray cluster" in capfd.readouterr().err


def test_an_address_without_ray_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert simulated("sweep.yaml", "--ray-address", "head:6379") == 2
    assert capfd.readouterr().err == ("error: --ray-address: is for runs on Ray; expected --on ray as well\n")


def test_without_ray_the_way_to_get_it_is_told(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aryl.cli.simulate.find_spec", lambda name: None if name == "ray" else object())
    assert simulated("sweep.yaml", "--on", "ray") == 2
    assert capfd.readouterr().err == (
        "error: --on: needs Ray (found 'ray'); expected pip install 'aryl[ray]' first\n"
    )


def test_ctrl_c_ends_what_runs_on_the_cluster(folder: Path, cluster: RayServers) -> None:
    (folder / "long.yaml").write_text(LONG, encoding="utf-8")
    before = left_in(folder)

    def running() -> list[int]:
        return [
            pid
            for name in ("S1", "S2")
            for pid in cluster.processes(name)
            if command_of(pid).startswith("ray::aryl_run")
        ]

    where = ["--on", "ray", "--ray-address", cluster.address]
    with started(folder, "long.yaml", "--out", "new/out", "--journal", "j.jsonl", *where) as process:
        wait_for(running, "a run", lambda: "" if process.poll() is None else str(process.communicate()))
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=PATIENCE_S) == ("", "interrupted\n")
        assert process.returncode == 130
    assert left_in(folder) == before
    wait_for(lambda: not running(), "the end of all runs")


# Calls, without a simulation.


def called(
    cluster: RayServers, function: Callable[..., Any], *arguments: Any, **options: Any
) -> dict[int, Any]:
    """The results of calls, in the order in which they came."""
    came: dict[int, Any] = {}
    callbacks = {"report": lambda *_: None, "tell": lambda _: None} | options
    calls = [Call(f"call {number}", function, argument) for number, argument in enumerate(arguments)]
    run_on_ray(calls, cluster.address, receive=came.__setitem__, **callbacks)
    return came


def test_results_and_progress_come_while_other_calls_go_on(cluster: RayServers) -> None:
    reports: list[tuple[int, float, str]] = []
    came = called(cluster, halfway, 0, 1, 2, report=lambda *report: reports.append(report))
    assert came == {0: 0, 1: 1, 2: 4}
    assert list(came)[-1] == 0
    assert (0, 0.5, "half") in reports


def test_no_more_calls_than_asked_for_are_made_at_once(cluster: RayServers) -> None:
    assert list(called(cluster, halfway, 0, 1, 2, at_once=1)) == [0, 1, 2]


def test_an_error_of_one_call_ends_the_others_and_is_told_as_it_was(cluster: RayServers) -> None:
    with pytest.raises(InputError, match=r"^jobs\.csv, line 7: wrong value \(found -3\)$"):
        called(cluster, bad_input, 0, 1)
    assert multiprocessing.active_children() == []


def test_a_defect_says_where_it_was_found(cluster: RayServers) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        called(cluster, defect, 0)
    assert "on the Ray server" in caught.value.__notes__[0]
    assert "in defect" in caught.value.__notes__[0]


def test_a_call_that_ends_its_process_is_an_error_with_a_name_and_is_not_made_again(
    cluster: RayServers, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    with pytest.raises(ArylError, match=r"^the process of call 0 ended before its run did; perhaps memory"):
        called(cluster, killed, count)
    assert count.read_text() == "x"


@contextmanager
def losing(cluster: RayServers, begun: Path, times: int) -> Iterator[list[str]]:
    """Lose, so many times, the server on which a call has begun; afterwards all are there again."""
    lost: list[str] = []
    over = threading.Event()

    def lose() -> None:
        while len(lost) < times and not over.wait(0.05):
            places = begun.read_text().split("\n")[:-1] if begun.exists() else []
            if len(places) > len(lost):
                lost.append(next(name for name in ("S1", "S2") if cluster.node_id(name) == places[-1]))
                cluster.lose(lost[-1])

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join()
        cluster.start(*lost)


def test_a_call_whose_server_is_lost_is_made_once_more_elsewhere(cluster: RayServers, tmp_path: Path) -> None:
    begun = tmp_path / "once"
    with losing(cluster, begun, 1) as lost:
        came = called(cluster, stay, begun)
        assert len(lost) == 1
    first, second = begun.read_text().split()
    assert came == {0: second}
    assert first != second


def test_a_call_whose_server_is_lost_twice_is_an_error_with_a_name(
    cluster: RayServers, tmp_path: Path
) -> None:
    begun = tmp_path / "always"
    with (
        losing(cluster, begun, 2) as lost,
        pytest.raises(ArylError, match=r"^the Ray server of call 0 was lost before its run ended, twice$"),
    ):
        called(cluster, stay, begun)
    assert sorted(lost) == ["S1", "S2"]
    assert len(begun.read_text().split()) == 2
