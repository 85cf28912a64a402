"""The commands for a live cluster against the real API: what they print, and every exit code."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.live_commands import Commands
from tests.client.stand_in import PREEMPTION, Proxy, StandIn, serving, unused_address

from aryl.cli.job import STATES
from aryl.core.model import JobState
from aryl.live.control import Principal, Role
from aryl.wire.views import (
    DryRunView,
    HistoryEntry,
    JobHistory,
    JobList,
    JobView,
    LoanList,
    PlaceView,
    ServerList,
    WhyView,
)


def test_submit_prints_the_id_alone_on_stdout(aryl: Commands, room: StandIn) -> None:
    assert aryl("submit", aryl.file) == 0
    assert (aryl.out, aryl.err) == ("resnet-1\n", "submitted resnet-1\n")
    assert room.files["resnet-1"].workdir == str(aryl.file.parent)


def test_submit_lays_its_flags_on_top_of_the_file(aryl: Commands, room: StandIn) -> None:
    flags = "--name 7up --workers 2..8 --project speech --priority 5 --env LR=1e-3 --env A=b=c"
    setting = "checkpoint={signal: USR1, grace: 60s}"
    assert aryl("submit", aryl.file, *flags.split(), "--set", setting, "--set", "max_failures=1") == 0
    job = room.files["7up-1"]
    assert (job.workers.min, job.workers.max, job.project, job.priority) == (2, 8, "speech", 5)
    assert job.env == {"LR": "1e-3", "A": "b=c"}
    assert job.checkpoint is not None
    assert (job.checkpoint.grace, job.max_failures) == (60, 1)


def test_submit_with_the_same_key_is_one_job(aryl: Commands, room: StandIn) -> None:
    for _ in range(2):
        assert aryl("submit", aryl.file, "--idempotency-key", "tonight") == 0
        assert aryl.out == "resnet-1\n"
    assert len(room.all_jobs) == 1


def test_submit_survives_a_lost_answer_with_one_job(aryl: Commands, room: StandIn, url: str) -> None:
    with Proxy(url) as proxy:
        proxy.answers_to_drop = 1
        assert aryl("submit", aryl.file, "--server", proxy.url) == 0
    assert list(room.all_jobs) == ["resnet-1"]


def test_submit_says_how_to_ask_again_after_no_answer(aryl: Commands, room: StandIn, url: str) -> None:
    with Proxy(url) as proxy:
        proxy.answers_to_drop = 100
        assert aryl("submit", aryl.file, "--server", proxy.url) == 6
    key = aryl.err.partition("--idempotency-key ")[2].split()[0]
    assert list(room.all_jobs) == ["resnet-1"]
    assert aryl("submit", aryl.file, "--idempotency-key", key) == 0
    assert list(room.all_jobs) == ["resnet-1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nrun: b\nwrokers: 3\n", "line 3, wrokers: unknown key"),
        ("name: a\nrun: b\nworkers: -1\n", "line 3, workers"),
        ("name: a\n  run: [", "line 2: not YAML"),
        ("", "is empty"),
    ],
)
def test_a_bad_job_file_is_an_error_with_its_line(
    aryl: Commands, room: StandIn, text: str, message: str
) -> None:
    aryl.file.write_text(text, encoding="utf-8")
    assert aryl("submit", aryl.file) == 2
    assert aryl.out == ""
    assert str(aryl.file) in aryl.err
    assert message in aryl.err
    assert room.all_jobs == {}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workers", "many"], "--workers: not a number of workers"),
        (["--workers", "8..2"], "error: --workers 8..2, workers"),
        (["--name", "a b"], "error: --name a b, name"),
        (["--env", "novalue"], "--env: not a variable"),
        (["--set", "max_failures"], "--set max_failures: not a setting"),
        (["--set", "max_failures=-1"], "error: --set max_failures=-1, max_failures"),
        (["--dry-run", "--wait"], "with --dry-run there is no job"),
        (["--follow", "-o", "json"], "--follow prints the log"),
        (["--workers", "17"], "at most 16 workers"),
    ],
)
def test_a_bad_flag_is_an_error_that_names_it(
    aryl: Commands, room: StandIn, flags: list[str], message: str
) -> None:
    assert aryl("submit", aryl.file, *flags) == 2
    assert message in aryl.err
    assert room.all_jobs == {}


def test_a_dry_run_says_whether_it_fits(aryl: Commands, room: StandIn) -> None:
    assert aryl("submit", aryl.file, "--dry-run") == 0
    assert aryl.out == "It would start at once on T1.\n"
    assert DryRunView.model_validate(aryl.json("submit", aryl.file, "--dry-run")) == room.verdict
    room.verdict = DryRunView(verdict="later", starts=time.time() + 3660, text="bert-1 has to end first.")
    assert aryl("submit", aryl.file, "--dry-run") == 0
    assert aryl.out.startswith("bert-1 has to end first. Expected start: ")
    assert aryl.out.endswith(" (in 61 min).\n")
    room.verdict = DryRunView(verdict="never", text="There is no H100.")
    assert aryl("submit", aryl.file, "--dry-run") == 2
    assert aryl.out == "There is no H100.\n"
    assert room.all_jobs == {}


def test_why_is_one_paragraph(aryl: Commands, room: StandIn) -> None:
    job_id = room.add("resnet")
    submitted = HistoryEntry(sequence=1, at=time.time() - 900, kind="submitted", text="submitted")
    room.happened[job_id] = [submitted, PREEMPTION]
    assert aryl("why", job_id) == 0
    assert aryl.out.count("\n") == 1
    assert aryl.out.startswith(
        "resnet-1 (PENDING): It needs 4 GPUs, but only 2 are free. Once bert-1 and a job of another project "
        "have ended, it is expected to start in about 12 min. Expected start: "
    )
    assert "(in 12 min). It was last preempted at " in aryl.out
    assert aryl.out.endswith(
        " for I1: stopped because the inference side needs its server back; "
        "weighed against bert-1 at a cost of 0.75, (other project) at a cost of 1.\n"
    )
    why = WhyView.model_validate(aryl.json("why", job_id))
    assert why.reason is not None
    assert why.behind == ["bert-1", None]


def test_an_unknown_name_is_exit_code_3_with_the_nearest_one(aryl: Commands, room: StandIn) -> None:
    room.add("resnet")
    room.add("bert")
    commands = [
        "why",
        "job get",
        "job logs",
        "job logs -f",
        "job wait",
        "job history",
        "job attempts",
        "job cancel",
    ]
    for command in [*commands, "job resize --max 2"]:
        assert aryl(*command.split(), "resnte-1") == 3, command
        assert aryl.out == ""
        assert aryl.err.endswith("error: there is no job resnte-1; did you mean 'resnet-1'?\n")
    for command in ("server drain", "server undrain", "loan give", "loan ready"):
        assert aryl(*command.split(), "T11") == 3, command
        assert aryl.err == "error: there is no server T11; did you mean 'T1'?\n"
    assert aryl("why", "zzzzzz") == 3
    assert aryl.err == "error: there is no job zzzzzz\n"


def test_a_conflict_is_exit_code_4(aryl: Commands, room: StandIn) -> None:
    job_id = room.add("resnet", state=JobState.SUCCEEDED)
    assert aryl("job", "resize", job_id, "--max", 4) == 4
    assert aryl.err == "error: resnet-1 is over\n"
    assert aryl("loan", "reclaim", "I1") == 4
    assert aryl("loan", "ready", "I1") == 4
    assert aryl.err == "error: I1 isn't being restored\n"


def test_no_permission_is_exit_code_5(
    room: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    room.tokens["aryl_alice"] = Principal("alice", Role.USER, "vision")
    with serving(room) as url:
        monkeypatch.setenv("ARYL_SERVER", url)
        aryl = Commands(url, tmp_path, capsys)
        assert aryl("server", "list") == 5
        assert "valid token" in aryl.err
        token = tmp_path / "token"
        token.write_text("aryl_alice\n", encoding="utf-8")
        assert aryl("server", "list", "--token-file", token) == 0
        assert aryl("server", "drain", "T1", "--token-file", token) == 5
        assert "operator" in aryl.err
        assert aryl("server", "list", "--token-file", tmp_path / "nothing") == 2
        token.write_text("\n", encoding="utf-8")
        assert aryl("server", "list", "--token-file", token) == 2


def test_nobody_there_is_exit_code_6(aryl: Commands) -> None:
    address = unused_address()
    assert aryl("job", "list", "--server", address) == 6
    assert aryl.err.startswith(f"error: {address} can't be reached: ")
    assert aryl.err.count("\n") == 1
    assert aryl("job", "list", "--server", "localhost") == 2


def test_wait_ends_with_what_became_of_the_jobs(aryl: Commands, room: StandIn) -> None:
    good = room.add("good", state=JobState.SUCCEEDED, started=1000.0, finished=1720.0)
    bad = room.add("bad", state=JobState.FAILED, message="exit code 1")
    waiting = room.add("waiting")
    assert aryl("job", "wait", good) == 0
    assert (aryl.out, aryl.err) == ("", "good-1: SUCCEEDED after 12 min\n")
    assert aryl("job", "wait", good, bad, "-o", "json") == 1
    assert [job.job_id for job in JobList.model_validate_json(aryl.out).jobs] == [good, bad]
    assert "bad-2: FAILED: exit code 1\n" in aryl.err
    assert aryl("job", "wait", good, waiting, "--timeout", "200ms") == 124
    assert "still waiting for waiting-3 (PENDING)" in aryl.err
    assert aryl("job", "wait", good, "--timeout", "soon") == 2


def test_submit_waits_for_the_end_or_follows_the_log(aryl: Commands, room: StandIn) -> None:
    room.add("other")
    with aryl.start("submit", str(aryl.file), "--follow") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "submitted resnet-2\n"
        assert process.stderr.readline() == "resnet-2: PENDING; nothing is printed yet\n"
        room.change("resnet-2", state=JobState.RUNNING)
        room.say("resnet-2", "epoch 1\n")
        assert process.stdout is not None
        assert process.stdout.readline() == "epoch 1\n"
        room.change("resnet-2", state=JobState.PENDING, attempt=1)
        room.say("resnet-2", "epoch 2\n", attempt=1)
        room.change("resnet-2", state=JobState.FAILED, message="exit code 1", attempt=1)
        assert process.stdout.read() == "epoch 2\n"
        assert process.stderr.read() == "resnet-2: attempt 1\nresnet-2: FAILED: exit code 1\n"
    assert process.returncode == 1

    with aryl.start("submit", str(aryl.file), "--wait") as process:
        _wait_for(room, "resnet-3")
        room.change("resnet-3", state=JobState.SUCCEEDED)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "resnet-3\n")


def _wait_for(room: StandIn, job_id: str) -> None:
    end_s = time.monotonic() + 60
    while job_id not in room.all_jobs:
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_json_has_the_shape_of_the_api(aryl: Commands, room: StandIn) -> None:
    job_id = room.add("resnet", state=JobState.RUNNING)
    room.happened[job_id] = [PREEMPTION]
    room.say(job_id, "hello\n", attempt=1, rank=3)
    assert JobList.model_validate(aryl.json("job", "list")) == JobList(jobs=[room.all_jobs[job_id]])
    assert JobView.model_validate(aryl.json("job", "get", job_id)) == room.all_jobs[job_id]
    history = JobHistory.model_validate(aryl.json("job", "history", job_id))
    assert history == JobHistory(job_id=job_id, entries=[PREEMPTION])
    assert aryl.json("job", "attempts", job_id) == [{"attempt": 1, "rank": 3}]
    assert JobView.model_validate(aryl.json("job", "resize", job_id, "--max", 9)).max_workers == 9
    assert ServerList.model_validate(aryl.json("server", "list")).servers == room.servers()
    assert ServerList.model_validate(aryl.json("server", "drain", "T1")).servers[0].draining
    assert not ServerList.model_validate(aryl.json("server", "undrain", "T1")).servers[0].draining
    assert LoanList.model_validate(aryl.json("loan", "list")).loans == []
    assert LoanList.model_validate(aryl.json("loan", "give", "I1")).on_loan == 1
    reclaimed = LoanList.model_validate(aryl.json("loan", "reclaim", "--deadline", "5m"))
    assert reclaimed.loans[0].deadline is not None
    room.all_servers["I1"] = room.all_servers["I1"].model_copy(update={"restoring": True})
    assert LoanList.model_validate(aryl.json("loan", "ready", "I1")).restoring_servers == 0
    assert JobView.model_validate(aryl.json("submit", aryl.file)).job_id == "resnet-2"
    assert JobList.model_validate(aryl.json("job", "cancel", "-y", job_id)).jobs == [room.all_jobs[job_id]]


def test_tables_and_csv_say_it_for_people_and_spreadsheets(aryl: Commands, room: StandIn) -> None:
    now = time.time()
    job_id = room.add(
        "resnet",
        state=JobState.RUNNING,
        workers=3,
        gpus=3,
        submitted=now - 7200,
        started=now - 3600,
        remaining_s=720.0,
        placement=[PlaceView(server="T1", base=2, flexible=1, gpus=3)],
    )
    room.happened[job_id] = [PREEMPTION]
    room.say(job_id, "hello\n")
    assert aryl("job", "list") == 0
    cells = "resnet-1  RUNNING  3 of 2..8  3  vision  alice  0  2 h ago  60 min  12 min"
    assert cells.split() in [line.split() for line in aryl.out.splitlines()]
    assert aryl("job", "get", job_id) == 0
    assert "T1 (2 base, 1 flexible, 3 GPUs)" in aryl.out
    assert aryl("job", "list", "-o", "csv") == 0
    (row,) = csv.DictReader(io.StringIO(aryl.out))
    assert (row["job_id"], row["placement"], row["remaining_s"]) == (job_id, "T1:3", "720.0")
    assert aryl("job", "history", job_id) == 0
    assert "bert-1=0.75, (other project)=1" in aryl.out
    assert aryl("job", "history", job_id, "-o", "csv") == 0
    assert aryl("job", "attempts", job_id) == 0
    assert aryl("server", "list") == 0
    assert "bert-1, one of another project" in aryl.out
    assert aryl("loan", "give", "I1") == 0
    assert aryl.err == "I1: on loan\n"
    assert "1 of 1 inference servers are on loan." in aryl.out
    assert aryl("loan", "list", "-o", "csv") == 0
    assert aryl.out.startswith("server,lent,")
    room.all_servers["I1"] = room.all_servers["I1"].model_copy(update={"restoring": True})
    assert aryl("server", "list") == 0
    assert "up, loading" in aryl.out
    assert aryl("loan", "list") == 0
    assert "0 serve, 1 still loads." in " ".join(aryl.out.split())
    assert aryl("loan", "ready", "I1") == 0
    assert aryl.err == "I1: in service\n"
    assert "still load" not in " ".join(aryl.out.split())


def test_jobs_are_filtered_and_the_rest_is_mentioned(aryl: Commands, room: StandIn) -> None:
    for number in range(5):
        state = JobState.RUNNING if number == 3 else JobState.PENDING
        room.add("sweep", state=state, user="local" if number else "alice", project=f"p{number}")
    listed = aryl.json("job", "list", "--limit", 2)
    assert [job["job_id"] for job in listed["jobs"]] == ["sweep-5", "sweep-4"]
    assert listed["next"] is not None
    assert aryl.err == "there are more than these 2; --limit 0 lists all\n"
    assert len(aryl.json("job", "list", "--limit", 0)["jobs"]) == 5
    assert len(aryl.json("job", "list", "--mine")["jobs"]) == 4
    assert [job["job_id"] for job in aryl.json("job", "list", "--state", "running")["jobs"]] == ["sweep-4"]
    assert [job["job_id"] for job in aryl.json("job", "list", "--project", "p2")["jobs"]] == ["sweep-3"]
    assert aryl("job", "list", "--state", "runing") == 2
    assert "did you mean 'running'?" in aryl.err


def test_logs_are_printed_as_they_are(aryl: Commands, room: StandIn) -> None:
    job_id = room.add("resnet", state=JobState.FAILED, attempt=1)
    room.say(job_id, "zero\n")
    room.say(job_id, "one\ntwo [bold]\n", attempt=1)
    assert aryl("job", "logs", job_id) == 0
    assert (aryl.out, aryl.err) == ("one\ntwo [bold]\n", "")
    assert aryl("job", "logs", job_id, "--tail", 1, "-f") == 0
    assert aryl.out == "two [bold]\n"
    assert aryl("job", "logs", job_id, "--attempt", 0, "-f") == 0
    assert aryl.out == "zero\n"
    assert aryl("job", "logs", job_id, "--rank", 5) == 3
    assert aryl.err == "error: attempt 1 of resnet-1 has no rank 5; there are 0\n"


def test_cancel_goes_on_after_a_wrong_id(aryl: Commands, room: StandIn) -> None:
    first, second = room.add("resnet"), room.add("bert")
    assert aryl("job", "cancel", "-y", first, "nobody", "nobody-2", second) == 3
    assert "did you mean" not in aryl.err
    assert [job.state for job in room.all_jobs.values()] == [JobState.CANCELLED] * 2
    assert aryl.err.count("error: there is no job") == 2


def test_a_resize_without_a_limit_is_refused(aryl: Commands, room: StandIn) -> None:
    assert aryl("job", "resize", room.add("resnet")) == 2
    assert "--min, --max" in aryl.err


def test_the_states_of_the_command_are_those_of_the_engine() -> None:
    assert [state.upper() for state in STATES] == [state.value for state in JobState]


def test_without_httpx_the_help_works_and_a_command_says_what_is_missing(aryl: Commands) -> None:
    entry = "import sys; sys.modules['httpx'] = None; from aryl.cli.main import main; main()"
    for arguments, code in ((["job", "--help"], 0), (["job", "list"], 2), (["submit", str(aryl.file)], 2)):
        done = subprocess.run(
            [sys.executable, "-c", entry, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert done.stderr.endswith("pip install 'aryl[client]' first\n") == (code == 2)
