"""The commands for a live cluster as a terminal and a shell see them: watching, Ctrl-C, completion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.live_commands import ENTRY, Commands
from tests.client.stand_in import StandIn, eventually, serving, unused_address

from aryl.cli.main import run_command
from aryl.core.model import JobState


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    """What a command prints from Ctrl-C on, and its exit code. What it prints is little."""
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.read(), process.stderr.read(), process.wait(60)


class Terminal:
    """A command whose three streams are a terminal."""

    def __init__(self, url: str, *arguments: str, **other: str) -> None:
        self._ours, theirs = os.openpty()
        os.set_blocking(self._ours, False)
        environment = {**os.environ, "ARYL_SERVER": url, "TERM": "xterm", "COLUMNS": "120", **other}
        self.process = subprocess.Popen(
            [sys.executable, "-c", ENTRY, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = b""

    @property
    def seen(self) -> str:
        """All that was written so far."""
        try:
            while part := os.read(self._ours, 65536):
                self._seen += part
        except OSError:  # nothing there now, or nobody who could write
            pass
        return self._seen.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        """Somebody types."""
        os.write(self._ours, text.encode())

    def close(self) -> int:
        """The exit code."""
        code = self.process.wait(60)
        self.seen  # noqa: B018 - reads the rest
        os.close(self._ours)
        return code


def test_watching_a_pipe_prints_a_block_for_each_change(aryl: Commands, room: StandIn) -> None:
    job_id = room.add("resnet")
    with aryl.start("job", "list", "--watch", "-o", "csv") as process:
        assert process.stdout is not None
        header = process.stdout.readline()
        assert header.startswith("job_id,")
        assert ",PENDING," in process.stdout.readline()
        room.change(job_id, state=JobState.RUNNING, remaining_s=90.0)
        assert process.stdout.readline() == "\n"
        assert process.stdout.readline() == header
        assert ",RUNNING," in process.stdout.readline()
        # That time goes by is no change.
        room.change(job_id, remaining_s=80.0)
        time.sleep(1.5)
        assert interrupted(process) == ("", "", 130)


@pytest.mark.parametrize("noun", ["server", "loan"])
def test_servers_and_loans_are_watched_too(aryl: Commands, room: StandIn, noun: str) -> None:
    with aryl.start(noun, "list", "--watch", "-o", "json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        room.drain("T1", None)
        room.give("I1")
        second = json.loads(process.stdout.readline())
        assert interrupted(process) == ("", "", 130)
    assert first[f"{noun}s"] != second[f"{noun}s"]


def test_watching_on_a_terminal_draws_the_table_again_in_its_place(url: str, room: StandIn) -> None:
    job_id = room.add("resnet")
    terminal = Terminal(url, "job", "list", "--watch")
    eventually(lambda: "PENDING" in terminal.seen)
    room.change(job_id, state=JobState.SUCCEEDED)
    eventually(lambda: "SUCCEEDED" in terminal.seen)
    assert "\x1b[2K" in terminal.seen
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.close() == 130
    assert "Traceback" not in terminal.seen
    assert "interrupted" not in terminal.seen


def test_no_color_is_respected(url: str, room: StandIn) -> None:
    room.add("resnet")
    terminal = Terminal(url, "job", "list", NO_COLOR="1")
    assert terminal.close() == 0
    assert "resnet-1" in terminal.seen
    assert "\x1b[3" not in terminal.seen


def test_following_ends_quietly_with_ctrl_c(aryl: Commands, room: StandIn) -> None:
    job_id = room.add("resnet", state=JobState.RUNNING)
    room.say(job_id, "epoch 1\n")
    for arguments in (("job", "logs", job_id, "-f"), ("job", "wait", job_id)):
        with aryl.start(*arguments) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            told = process.stdout if "logs" in arguments else process.stderr
            assert told.readline() in ("epoch 1\n", "resnet-1: RUNNING, 0 of 2..8 workers\n")
            assert interrupted(process) == ("", "", 130)


def test_watching_bears_a_restart(room: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = room.add("resnet")
    with serving(room) as url:
        process = Commands(url, tmp_path, capsys).start("job", "list", "--watch", "-o", "csv")
        assert process.stdout is not None
        process.stdout.readline()
        assert ",PENDING," in process.stdout.readline()
    assert process.stderr is not None
    assert process.stderr.readline().endswith("; trying again\n")
    room.change(job_id, state=JobState.FAILED)
    with serving(room, port=int(url.rpartition(":")[2])), process:
        assert process.stdout.readline() == "\n"
        process.stdout.readline()
        assert ",FAILED," in process.stdout.readline()
        assert interrupted(process) == ("", "", 130)


@pytest.mark.parametrize(("answer", "state"), [("n\n", JobState.PENDING), ("y\n", JobState.CANCELLED)])
def test_cancelling_asks_on_a_terminal(url: str, room: StandIn, answer: str, state: JobState) -> None:
    job_id = room.add("resnet")
    terminal = Terminal(url, "job", "cancel", job_id)
    eventually(lambda: "Cancel resnet-1?" in terminal.seen)
    terminal.type(answer)
    assert terminal.close() == (1 if answer == "n\n" else 0)
    assert room.all_jobs[job_id].state is state


class Shell:
    """Asks as bash does when somebody presses Tab."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, words: str, server: str | None = None) -> list[str]:
        """What is offered behind these words."""
        environment = {
            "_ARYL_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
            **({"ARYL_SERVER": server} if server else {}),
        }
        with self._monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            assert run_command([]) == 0
        printed = self._capsys.readouterr()
        assert printed.err == ""
        return printed.out.split()


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def test_ids_names_and_states_are_completed(tab: Shell, url: str, room: StandIn) -> None:
    room.add("resnet")
    room.add("bert")
    room.add("retired", state=JobState.SUCCEEDED)
    assert tab("aryl why re") == ["retired-3", "resnet-1"]
    assert tab("aryl job cancel re") == ["resnet-1"]
    assert tab("aryl job wait bert-2 re") == ["resnet-1"]
    assert tab("aryl server drain ") == ["T1", "I1"]
    assert tab("aryl job list --state ca") == ["cancelling", "cancelled"]
    assert tab(f"aryl why --server {url} be", server=unused_address()) == ["bert-2"]
    assert tab("aryl sub") == ["submit"]


def test_completion_fails_silently(tab: Shell) -> None:
    assert tab("aryl why re", server=unused_address()) == []
    assert tab("aryl why re", server="nonsense") == []
    assert tab("aryl loan reclaim --token-file /nothing/there ", server=unused_address()) == []


@pytest.mark.parametrize(
    "command",
    [
        "submit",
        "why",
        "job list",
        "job get",
        "job logs",
        "job wait",
        "job resize",
        "job cancel",
        "job history",
        "job attempts",
        "server list",
        "server drain",
        "server undrain",
        "loan list",
        "loan give",
        "loan reclaim",
        "loan ready",
        "token create",
        "token list",
        "token revoke",
    ],
)
def test_every_command_has_examples(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aryl = Commands("", tmp_path, capsys)
    assert aryl(*command.split(), "--help") == 0
    assert f"aryl {command}" in aryl.out.partition("Examples:")[2]
