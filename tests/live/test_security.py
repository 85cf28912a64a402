"""What users, and pages in their browsers, can't do to the daemon, to other projects and to this machine.

Jobs run as the user of the daemon, so a job can do what that user can; see the documentation. What is tested
is that nobody gets there by anything but a command that he was allowed to submit, and that nothing that a job
does or says stops the others.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.cluster import LiveCluster, eventually, is_zombie, live_cluster

from aryl.client import ArylClient
from aryl.core.model import JobState
from aryl.live.api.settings import Settings
from aryl.live.control import Role
from aryl.live.store import Store

SECRETS = {
    "PGPASSWORD": "password-of-the-database",
    "DATABASE_URL": "postgresql://aryl:other-password@localhost/aryl",
    "AWS_SECRET_ACCESS_KEY": "key-of-the-cloud",
}
NASTY = "$(touch pwned); `touch pwned` | touch pwned & \"'\\\n; touch pwned #"
ECHO = [sys.executable, "-c", "import sys; print(repr(sys.argv[1:]))"]
# Forks and forks, into sessions of their own, with nothing in their environments that says whose they are.
ESCAPING = """
import os, time
for number in range(5):
    if os.fork() == 0:
        os.setsid()
        for _ in range(4):
            if os.fork() == 0:
                os.setsid()
                with open(f"escaped-{os.getpid()}", "w"):
                    pass
                os.execve("/bin/sh", ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"], {})
        os._exit(0)
time.sleep(1000)
"""


class Guarded:
    """A cluster with tokens, whose daemon has secrets in its environment, and raw requests to it."""

    def __init__(self, cluster: LiveCluster, tokens: dict[str, str]) -> None:
        self.cluster, self.tokens = cluster, tokens

    def ask(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[who]}", **more.pop("headers", {})}
        return httpx.request(
            method, self.cluster.url + path, headers=headers, trust_env=False, timeout=60, **more
        )

    def job(self, name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "run": "true", "workdir": str(self.cluster.work), "workers": 1, **more}

    def submit(self, who: str, name: str, **more: Any) -> str:
        answer = self.ask(who, "POST", "/v1/jobs", json=self.job(name, **more))
        assert answer.status_code == 201, answer.text
        job_id: str = answer.json()["job_id"]
        return job_id

    def refused(self, **more: Any) -> str:
        """What is said of a job that isn't taken; nothing of it is kept."""
        answer = self.ask("alice", "POST", "/v1/jobs", json={**self.job("refused"), **more})
        assert answer.status_code == 422, answer.text
        assert not any((self.cluster.state / "jobs").glob("*refused*"))
        return answer.text

    def printed(self, job_id: str) -> str:
        """What a job printed that went well."""
        assert self.cluster.wait_state(job_id).state is JobState.SUCCEEDED, self.cluster.logs(job_id)
        return self.cluster.log_path(job_id).read_text()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    # A folder that was there before, and isn't private.
    state = folder / "state"
    state.mkdir()
    state.chmod(0o755)
    store = Store.open(f"sqlite:///{state / 'aryl.db'}")
    tokens = {
        "alice": store.add_token("alice", Role.USER, "vision"),
        "bob": store.add_token("bob", Role.USER, "speech"),
        "vera": store.add_token("vera", Role.VIEWER, "vision"),
        "olga": store.add_token("olga", Role.OPERATOR, None),
    }
    store.close()
    with pytest.MonkeyPatch.context() as environment:
        for name, secret in {**SECRETS, "ARYL_TOKEN": tokens["olga"]}.items():
            environment.setenv(name, secret)
        with live_cluster(folder, tokens="required", cluster={"inference": {"servers": 0}}) as cluster:
            yield Guarded(cluster, tokens)


def test_arguments_reach_a_program_as_they_are_and_only_a_text_is_for_the_shell(guarded: Guarded) -> None:
    vector = guarded.submit("alice", "vector", run=[*ECHO, NASTY, "$HOME", "*", ""], env={"NASTY": NASTY})
    text = guarded.submit("alice", "text", run='printf "%s" "$NASTY"; echo $((40 + 2))', env={"NASTY": NASTY})
    assert guarded.printed(vector) == repr([NASTY, "$HOME", "*", ""]) + "\n"
    assert guarded.printed(text) == NASTY + "42\n"
    assert not (guarded.cluster.work / "pwned").exists()


@pytest.mark.parametrize(
    "name",
    ["../up", "a/b", "/etc", ".hidden", "a;b", "$(id)", "a\nb", "a b", "-x", "a\0b", "x" * 64, "", "ä"],
)
def test_a_name_is_a_plain_word(guarded: Guarded, name: str) -> None:
    """Folders are named by it."""
    assert '"name"' in guarded.refused(name=name)
    assert '"project"' in guarded.refused(project=name) if name else True


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "CUDA_VISIBLE_DEVICES",
        "REPLICA_GROUP_ID",
        "ARYL_JOB_ID",
        "ARYL_TOKEN",
        "ARYL_WORKER",
        "PET_NNODES",
        "TORCHFT_LIGHTHOUSE",
        "A=B",
        "A;B",
        "A B",
        "A\nB",
        "A\0",
        "1A",
        "",
    ],
)
def test_a_variable_that_is_the_schedulers_or_none_is_refused(guarded: Guarded, name: str) -> None:
    assert "env" in guarded.refused(env={name: "x"})


def test_work_is_confined_to_its_folders(guarded: Guarded) -> None:
    work = guarded.cluster.work
    (work / "out").symlink_to("/etc")
    (work / "up").symlink_to("..")
    state = guarded.cluster.state
    for workdir in ("/", "/etc", f"{work}/..", f"{work}/../state", str(state), f"{work}/out", f"{work}/up"):
        said = guarded.refused(workdir=workdir)
        assert "not in a folder where jobs may work" in said
        # Whether it is there is nobody's business.
        assert "not in a folder where jobs may work" in guarded.refused(workdir=workdir + "/none")
    for folder in ("../state", "/etc/x", "out", "out/x", "up/state", "a/../../x"):
        assert '"checkpoint' in guarded.refused(checkpoint={"dir": folder})
    for field, wrong in (("workdir", "work\nx"), ("workdir", "a\0b"), ("workdir", "rel"), ("workdir", "~")):
        assert f'"{field}"' in guarded.refused(**{field: wrong})


def test_what_became_a_way_out_after_it_was_accepted_leads_nowhere(guarded: Guarded, tmp_path: Path) -> None:
    """And what stands in the way of a folder stops its own job only."""
    cluster = guarded.cluster
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("moved", "saving", "blocked", "good"):
        (cluster.work / name).mkdir()
    for server in ("T1", "T2"):
        cluster.client.drain(server)
    once = {"max_failures": 1, "run": "touch here"}
    moved = guarded.submit("alice", "moved", workdir=f"{cluster.work}/moved", **once)
    saving = guarded.submit(
        "alice", "saving", workdir=f"{cluster.work}/saving", checkpoint={"dir": "to/ckpt"}, **once
    )
    blocked = guarded.submit(
        "alice", "blocked", workdir=f"{cluster.work}/blocked", checkpoint={"dir": "ckpt"}, **once
    )
    logs = guarded.submit("alice", "logs", workdir=f"{cluster.work}/good", **once)
    good = guarded.submit("alice", "good", workdir=f"{cluster.work}/good", **once)
    (cluster.work / "moved").rmdir()
    (cluster.work / "moved").symlink_to(outside)
    (cluster.work / "saving" / "to").symlink_to(outside)
    (cluster.work / "blocked" / "ckpt").touch()
    (cluster.state / "jobs" / logs).write_text("in the way")
    for server in ("T1", "T2"):
        cluster.client.undrain(server)
    assert guarded.printed(good) == ""
    for job_id, why in (
        (moved, f"the folder {cluster.work}/moved leads out of the folders where jobs may work"),
        (saving, f"the folder {cluster.work}/saving/to/ckpt leads out of the folders where jobs may work"),
        (blocked, f"the folder {cluster.work}/blocked/ckpt can't be made: File exists"),
        (logs, "can't be made: Not a directory"),
    ):
        view = _over(guarded, job_id)
        assert view["state"] == "FAILED"
        assert why in view["message"]
    assert list(outside.iterdir()) == []
    eventually(lambda: all(server.free_gpus == 4 for server in cluster.client.servers()), "GPUs stay held")
    assert cluster.client.health().status == "ok"


def _over(guarded: Guarded, job_id: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        view: dict[str, Any] = guarded.ask("alice", "GET", f"/v1/jobs/{job_id}").json()
        return view if view["finished"] is not None else None

    return eventually(over, f"{job_id} is never over", guarded.cluster.said)


def test_nothing_secret_of_the_daemon_is_within_a_workers_environment_or_its_parents(
    guarded: Guarded,
) -> None:
    job_id = guarded.submit("alice", "looks", run="env; tr '\\0' '\\n' < /proc/$PPID/environ")
    said = guarded.printed(job_id)
    assert "ARYL_JOB_ID=" in said
    assert "PYTHONPATH=" in said  # of its parent
    for secret in (*SECRETS.values(), *guarded.tokens.values()):
        assert secret not in said
    assert not any(name in said for name in (*SECRETS, "ARYL_TOKEN"))


def test_a_file_of_another_cannot_be_read_as_a_log(guarded: Guarded) -> None:
    """A job has put a link in the place of its log."""
    secret = guarded.cluster.state / "aryl.db"
    job_id = guarded.submit(
        "alice", "links", run=f'ln -sf {secret} "$ARYL_RUN_DIR/../../attempt-1/rank-0.log"'
    )
    guarded.cluster.wait_state(job_id)
    assert guarded.cluster.log_path(job_id).is_symlink()
    assert guarded.ask("alice", "GET", f"/v1/jobs/{job_id}/logs").status_code == 404
    for wrong in ("rank=../0", "rank=-1", "attempt=..", "rank=0/../../x", "tail=-1"):
        assert guarded.ask("alice", "GET", f"/v1/jobs/{job_id}/logs?{wrong}").status_code == 422


@pytest.fixture(scope="module")
def bobs(guarded: Guarded) -> Iterator[str]:
    """A job of another project that runs."""
    job_id = guarded.submit("bob", "secretjob", run="echo secretword; sleep 1000")
    guarded.cluster.wait_said(job_id, "secretword")
    yield job_id
    guarded.ask("bob", "POST", f"/v1/jobs/{job_id}/cancel")


@pytest.mark.parametrize(
    ("method", "part", "body"),
    [
        ("GET", "", None),
        ("GET", "/why", None),
        ("GET", "/history", None),
        ("GET", "/logs", None),
        ("GET", "/logs?follow=true", None),
        ("GET", "/attempts", None),
        ("POST", "/cancel", None),
        ("PATCH", "", {"max_workers": 1}),
    ],
)
def test_a_job_of_another_project_is_as_one_that_there_is_none_of(
    guarded: Guarded, bobs: str, method: str, part: str, body: Any
) -> None:
    more = {} if body is None else {"json": body}
    answer = guarded.ask("alice", method, f"/v1/jobs/{bobs}{part}", **more)
    none = guarded.ask("alice", method, f"/v1/jobs/nosuchjob-{bobs.rpartition('-')[2]}{part}", **more)
    assert (answer.status_code, none.status_code) == (404, 404)
    assert answer.text.replace("secretjob", "nosuchjob") == none.text
    assert guarded.ask("bob", "GET", f"/v1/jobs/{bobs}").json()["state"] == "RUNNING"


def test_lists_servers_and_events_name_no_job_of_another_project(guarded: Guarded, bobs: str) -> None:
    mine = guarded.submit("alice", "mine")
    guarded.cluster.wait_state(mine)
    for path in ("/v1/jobs", "/v1/jobs?project=speech", "/v1/jobs?user=bob", "/v1/servers", "/v1/loans"):
        answer = guarded.ask("alice", "GET", path)
        assert answer.status_code == 200
        assert bobs not in answer.text
        assert "secretword" not in answer.text
    with ArylClient(guarded.cluster.url, guarded.tokens["alice"], timeout_s=60) as client:
        heard = []
        for event in client.events(after=0):
            heard.append(str(event))
            if mine in heard[-1] and event.kind.lower() == "finished":
                break
    assert any(mine in event for event in heard)
    assert not any(bobs in event or "secretjob" in event for event in heard)


def test_nobody_submits_for_another_user_or_into_another_project(guarded: Guarded) -> None:
    for who, more, status in (
        ("alice", {"user": "bob"}, 403),
        ("alice", {"project": "speech"}, 403),
        ("vera", {}, 403),
        ("olga", {"user": "bob", "project": "speech"}, 201),
    ):
        answer = guarded.ask(who, "POST", "/v1/jobs", json=guarded.job("forged", **more))
        assert answer.status_code == status, answer.text
    assert guarded.ask("vera", "POST", "/v1/jobs/none-1/cancel").status_code == 403
    for method, path, body in (
        ("POST", "/v1/servers/T1/drain", {}),
        ("POST", "/v1/loans", {"server": "T1"}),
        ("PUT", "/v1/inference/demand", {"need_servers": 1}),
    ):
        assert guarded.ask("alice", method, path, json=body).status_code == 403


def test_a_body_that_is_too_large_is_refused_before_it_is_read(guarded: Guarded) -> None:
    most = Settings().most_body_bytes
    large = json.dumps(guarded.job("large", env={"A": "x" * most})).encode()
    headers = {"Content-Type": "application/json"}
    assert guarded.ask("alice", "POST", "/v1/jobs", content=large, headers=headers).status_code == 413
    # In pieces, without saying how much it will be.
    pieces = (b" " * 65536 for _ in range(most // 65536 + 2))
    assert guarded.ask("alice", "POST", "/v1/jobs", content=pieces, headers=headers).status_code == 413
    assert guarded.ask("alice", "GET", "/v1/whoami").status_code == 200


def test_credentials_that_are_none_are_refused_and_pages_from_elsewhere_too(guarded: Guarded) -> None:
    token = guarded.tokens["olga"]
    for credentials in (
        "",
        "Bearer",
        "Bearer x",
        f"Basic {token}",
        f"Bearer {token}x",
        f"Bearer {token[:-1]}",
    ):
        answer = guarded.ask("olga", "GET", "/v1/jobs", headers={"Authorization": credentials})
        assert answer.status_code == 401
        assert token not in answer.text
    assert httpx.get(f"{guarded.cluster.url}/v1/jobs?token={token}", trust_env=False).status_code == 401
    elsewhere = {"Origin": "http://evil.example"}
    answer = guarded.ask("olga", "POST", "/v1/servers/T1/drain", json={}, headers=elsewhere)
    assert answer.status_code == 403
    assert not guarded.cluster.server("T1").draining


def test_a_job_that_forks_its_way_out_is_gone_when_it_is_cancelled(guarded: Guarded) -> None:
    cluster = guarded.cluster
    (cluster.work / "escape").mkdir()
    job_id = guarded.submit(
        "alice", "escapes", run=[sys.executable, "-c", ESCAPING], workdir=f"{cluster.work}/escape"
    )
    pids = eventually(
        lambda: found if len(found := list((cluster.work / "escape").iterdir())) == 20 else None, "no escape"
    )
    numbers = [int(path.name.removeprefix("escaped-")) for path in pids]
    try:
        assert not any(is_zombie(pid) for pid in numbers)
        assert guarded.ask("alice", "POST", f"/v1/jobs/{job_id}/cancel").status_code == 200
        assert _over(guarded, job_id)["state"] == "CANCELLED"
        # It is over when all of it is gone, not before.
        assert [pid for pid in numbers if not is_zombie(pid)] == []
    finally:
        for pid in numbers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_job_that_fills_its_log_costs_whoever_wants_its_end_no_more_than_that(guarded: Guarded) -> None:
    cluster = guarded.cluster
    line = "x" * 99
    job_id = guarded.submit("alice", "fills", run=f"yes {line} | head -c 50000000; echo the end")
    cluster.wait_state(job_id)
    assert cluster.log_path(job_id).stat().st_size == 50_000_008
    daemon = cluster.daemons[-1].pid
    before = _read_bytes(daemon)
    answer = guarded.ask("alice", "GET", f"/v1/jobs/{job_id}/logs?tail=3")
    assert answer.text == f"{line}\n{line}\nthe end\n"
    # Whatever else it does meanwhile, it doesn't read the whole.
    assert _read_bytes(daemon) - before < 25_000_000
    with httpx.stream(
        "GET",
        f"{cluster.url}/v1/jobs/{job_id}/logs",
        headers={"Authorization": f"Bearer {guarded.tokens['alice']}"},
        trust_env=False,
        timeout=60,
    ) as whole:
        next(whole.iter_bytes())
        assert cluster.client.health().status == "ok"
        assert guarded.ask("alice", "GET", "/v1/jobs").status_code == 200


def _read_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("rchar: "):
            return int(line.split()[1])
    raise AssertionError("no rchar")


def test_tokens_and_passwords_are_nowhere_in_what_is_kept_or_said(guarded: Guarded) -> None:
    """The last test of this file, when all the others have done their worst."""
    cluster = guarded.cluster
    guarded.ask("alice", "GET", f"/v1/jobs?limit={guarded.tokens['alice']}")
    looked_at = set()
    for path in cluster.folder.rglob("*"):
        if stat.S_ISREG(path.lstat().st_mode) and path.stat().st_size < 2**24:
            data = path.read_bytes()
            looked_at.add(path.name)
            for secret in (*guarded.tokens.values(), *SECRETS.values()):
                assert secret.encode() not in data, path
    assert {"aryl.db", "serve.log", "cluster.yaml"} <= looked_at


def test_what_is_kept_is_for_its_owner_only_even_in_a_folder_that_is_not(guarded: Guarded) -> None:
    state = guarded.cluster.state
    assert state.stat().st_mode & 0o077 != 0  # as it was
    kinds = set()
    for path in state.iterdir():
        assert path.lstat().st_mode & 0o077 == 0, path
        kinds.add(path.name)
    assert {"aryl.db", "jobs", "supervisor"} <= kinds
    address = json.loads((state / "supervisor" / "address.json").read_text())
    for socket in (address["requests"], address["reports"]):
        assert stat.S_ISSOCK(os.stat(socket).st_mode)
        assert os.stat(Path(socket).parent).st_mode & 0o077 == 0


def test_an_open_daemon_answers_to_its_own_names_and_pages_only(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        port = cluster.url.rpartition(":")[2]
        listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
        addresses = {line.split()[1] for line in listening if line.split()[1].endswith(f":{int(port):04X}")}
        assert addresses == {f"0100007F:{int(port):04X}"}

        def status(method: str, **headers: str) -> int:
            answer = httpx.request(
                method, f"{cluster.url}/v1/jobs", headers=headers, json={}, trust_env=False, timeout=60
            )
            return answer.status_code

        assert status("GET") == 200
        assert status("GET", Host=f"localhost:{port}") == 200
        assert status("GET", Host="evil.example") == 403
        assert status("GET", Host=f"127.0.0.1.evil.example:{port}") == 403
        assert status("POST") == 422
        assert status("POST", Origin="http://evil.example") == 403
        assert status("POST", Origin="null") == 403
        assert status("POST", Origin=cluster.url) == 422
