"""What is wrong in a job file is said in one line: file, line, field, what was found, what was expected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.wire.job_files import FULL

from aryl.errors import InputError
from aryl.wire.job_file import JobFile, job_file_from_mapping, load_job_file

SMALL: dict[str, Any] = {"name": "a", "run": "true", "workdir": "/srv"}
NAME = "1 to 63 letters, digits, '.', '_' and '-', with a letter or digit at both ends"
KEYS = (
    "name, run, workdir, env, workers, gpus_per_worker, gpu_types, heterogeneous, mixed_efficiency, speedup, "
    "estimate, priority, project, user, launcher, checkpoint, resources, max_failures"
)
ELASTIC = (
    "a resize starts the program anew, and without checkpoints its work would be lost; expected a section "
    "'checkpoint', 'launcher: torchft' or a fixed number of workers"
)


def error_of(**changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        job_file_from_mapping({**SMALL, **changes})
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (
            "workers:",
            "worker:",
            f", line 5, worker: unknown key; expected one of {KEYS}; did you mean 'workers'?",
        ),
        (
            "project: vision",
            "signal: USR1",
            f", line 11, signal: unknown key; expected one of {KEYS}; did you mean 'checkpoint.signal'?",
        ),
        (
            "signal: USR1",
            "signl: USR1",
            ", line 12, checkpoint.signl: unknown key; expected one of dir, signal, grace, term, every; "
            "did you mean 'signal'?",
        ),
        ("run: python train.py --data /data\n", "", ": 'run' is missing"),
        ("name: resnet", "name: res net", f", line 1, name: wrong value (found 'res net'); expected {NAME}"),
        (
            "[2, 8]",
            "[8, 2]",
            ", line 5, workers: the least number of workers, 8, exceeds the greatest, 2",
        ),
        (
            'EPOCHS: "3"',
            "EPOCHS: yes",
            ", line 4, env.EPOCHS: wrong value (found True); expected a text, in quotes",
        ),
        (
            "grace: 90s",
            "grace: soon",
            ", line 12, checkpoint.grace: wrong value (found 'soon'); "
            "expected a time such as 90, 90s, 10m, 2h, 1h30m or 15d",
        ),
        (
            "dir: ckpt/",
            "dir: ../ckpt",
            ", line 12, checkpoint.dir: outside workdir (found '../ckpt'); expected a folder inside workdir",
        ),
        (
            "memory: 4GiB",
            "memory: 4",
            ", line 13, resources.memory: wrong value (found 4); "
            "expected a size from 1MiB to 1024TiB, such as 4GiB",
        ),
        (
            "checkpoint: {dir: ckpt/, signal: USR1, grace: 90s, every: 10m}",
            "launcher: torchrun",
            f", line 5, workers: under 'launcher: torchrun' {ELASTIC}",
        ),
    ],
)
def test_an_error_in_a_file_names_the_line(tmp_path: Path, *, old: str, new: str, error: str) -> None:
    assert old in FULL
    file = tmp_path / "job.yaml"
    file.write_text(FULL.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_job_file(file)
    assert str(caught.value) == f"{file}{error}"


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("workers=0", "workers: wrong value (found 0); expected a whole number, at least 1"),
        (
            "checkpoint.grace=x",
            "checkpoint.grace: wrong value (found 'x'); "
            "expected a time such as 90, 90s, 10m, 2h, 1h30m or 15d",
        ),
        ("wrkers=3", f"wrkers: unknown key; expected one of {KEYS}; did you mean 'workers'?"),
        ("name.x=3", None),
        ("workers", None),
    ],
)
def test_an_error_in_a_setting_names_the_flag(tmp_path: Path, setting: str, error: str | None) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(FULL, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_job_file(file, [setting])
    whole = {
        "name.x=3": "--set name.x=3: name is a value, not a section (found 'resnet')",
        "workers": "--set workers: not a setting; expected KEY=VALUE, such as workers=4",
    }
    assert str(caught.value) == (whole[setting] if error is None else f"--set {setting}, {error}")


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("name", "", f"name: wrong value (found ''); expected {NAME}"),
        ("name", "-a", f"name: wrong value (found '-a'); expected {NAME}"),
        ("name", "a\n", f"name: wrong value (found 'a\\n'); expected {NAME}"),
        ("name", "a/b", f"name: wrong value (found 'a/b'); expected {NAME}"),
        ("name", "..", f"name: wrong value (found '..'); expected {NAME}"),
        ("name", "a;id", f"name: wrong value (found 'a;id'); expected {NAME}"),
        ("name", "$(id)", f"name: wrong value (found '$(id)'); expected {NAME}"),
        ("name", "é", f"name: wrong value (found 'é'); expected {NAME}"),
        ("name", "a" * 64, f"name: wrong value (found '{'a' * 64}'); expected {NAME}"),
        ("name", True, f"name: wrong value (found True); expected {NAME}, in quotes"),
        ("project", "a b", f"project: wrong value (found 'a b'); expected {NAME}"),
        ("user", "a\0", f"user: wrong value (found 'a\\x00'); expected {NAME}"),
        (
            "run",
            " \n",
            "run: wrong value (found ' \\n'); expected a command, such as python train.py, "
            "or a list of the program and its arguments",
        ),
        (
            "run",
            [],
            "run: wrong value (found '[]'); expected a command, such as python train.py, "
            "or a list of the program and its arguments",
        ),
        (
            "run",
            {"a": 1},
            "run: wrong value (found 'a mapping'); expected a command, such as python train.py, "
            "or a list of the program and its arguments",
        ),
        (
            "run",
            "a\0b",
            "run: wrong value (found 'a\\x00b'); expected a text without NUL and half characters",
        ),
        (
            "run",
            ["a", "\ud800"],
            "run[1]: wrong value (found '\\ud800'); expected a text without NUL and half characters",
        ),
        ("run", ["a", False], "run[1]: wrong value (found False); expected a text, in quotes"),
        ("run", ["a", ["b"]], "run[1]: wrong value (found \"['b']\"); expected a text"),
        ("run", ["a"] * 5000, "run: more than 4096 arguments"),
        ("run", "é" * 40_000, "run: the command is too long; expected at most 65536 bytes"),
        ("workdir", "srv", "workdir: wrong value (found 'srv'); expected an absolute path"),
        (
            "workdir",
            "/a\0",
            "workdir: wrong value (found '/a\\x00'); expected a path without control characters",
        ),
        (
            "workdir",
            "/\udcff",
            "workdir: wrong value (found '/\\udcff'); expected a path without control characters",
        ),
        ("workdir", "/" + "a" * 5000, "workdir: the path is too long; expected at most 4000 bytes"),
        ("workdir", 7, "workdir: wrong value (found 7); expected a path"),
        (
            "env",
            ["A"],
            'env: wrong value (found "[\'A\']"); expected variables and their values, such as {EPOCHS: "3"}',
        ),
        (
            "env",
            {"A B": "1"},
            "env.A B: not the name of a variable (found 'A B'); expected letters, digits "
            "and '_', with no digit at the start",
        ),
        (
            "env",
            {"1A": "1"},
            "env.1A: not the name of a variable (found '1A'); expected letters, digits and "
            "'_', with no digit at the start",
        ),
        (
            "env",
            {"A\n": "1"},
            "env.A\\n: not the name of a variable (found 'A\\n'); expected letters, digits "
            "and '_', with no digit at the start",
        ),
        (
            "env",
            {"A=B": "1"},
            "env.A=B: not the name of a variable (found 'A=B'); expected letters, digits "
            "and '_', with no digit at the start",
        ),
        (
            "env",
            {7: "1"},
            "env.7: not the name of a variable (found '7'); expected letters, digits and "
            "'_', with no digit at the start",
        ),
        ("env", {"RANK": "1"}, "env.RANK: Aryl sets this variable itself; expected another name"),
        (
            "env",
            {"CUDA_VISIBLE_DEVICES": "1"},
            "env.CUDA_VISIBLE_DEVICES: Aryl sets this variable itself; expected another name",
        ),
        ("env", {"ARYL_X": "1"}, "env.ARYL_X: Aryl sets this variable itself; expected another name"),
        ("env", {"PET_NNODES": "1"}, "env.PET_NNODES: Aryl sets this variable itself; expected another name"),
        (
            "env",
            {"TORCHFT_LIGHTHOUSE": "1"},
            "env.TORCHFT_LIGHTHOUSE: Aryl sets this variable itself; expected another name",
        ),
        ("env", {"A": None}, "env.A: wrong value (found 'nothing'); expected a text, in quotes"),
        (
            "env",
            {"A": "\0"},
            "env.A: wrong value (found '\\x00'); expected a text without NUL and half characters",
        ),
        ("env", {"A": 10**5000}, "env.A: wrong value (found 'a huge number'); expected a text, in quotes"),
        ("env", {"A": "x" * 140_000}, "env: the environment is too large; expected at most 131072 bytes"),
        ("env", {f"A{n}": 1 for n in range(1001)}, "env: more than 1000 variables"),
        ("workers", 100_001, "workers: wrong value (found 100001); expected at most 100000 workers"),
        (
            "workers",
            10**400,
            "workers: wrong value (found 'a huge number'); expected a whole number from 1 "
            "to 9007199254740992",
        ),
        (
            "workers",
            [1, 2, 3],
            "workers: wrong value (found '[1, 2, 3]'); expected [min, max]; allowed counts "
            "are written {sizes: [8, 16, 32]}",
        ),
        ("workers", [1, 2], f"workers: under 'launcher: process' {ELASTIC}"),
        ("gpus_per_worker", 0, "gpus_per_worker: wrong value (found 0); expected a whole number, at least 1"),
        (
            "gpus_per_worker",
            2000,
            "gpus_per_worker: wrong value (found 2000); expected a whole number from 1 to 1024",
        ),
        ("gpu_types", {"V100": 0}, "gpu_types.V100: wrong value (found 0); expected a speed above 0"),
        (
            "gpu_types",
            {"V100": 1e300},
            "gpu_types.V100: wrong value (found 1e+300); expected a speed above 0",
        ),
        (
            "gpu_types",
            {"V\ud800": 1},
            "gpu_types.V\\ud800: not the name of a GPU type; expected a name such as V100",
        ),
        ("gpu_types", {f"G{n}": 1 for n in range(101)}, "gpu_types: more than 100 GPU types"),
        ("heterogeneous", "perhaps", "heterogeneous: wrong value (found 'perhaps'); expected true or false"),
        ("mixed_efficiency", 0, "mixed_efficiency: wrong value (found 0); expected a share above 0"),
        (
            "mixed_efficiency",
            2,
            "mixed_efficiency: wrong value (found 2); expected a share such as 95% or 0.95, at most 100%",
        ),
        (
            "speedup",
            "fast",
            "speedup: wrong value (found 'fast'); expected linear, {amdahl: 0.05} or "
            '{points: {"4": 1.0, "8": 1.8}}',
        ),
        ("estimate", 0, "estimate: wrong value (found 0); expected more than 0"),
        ("estimate", 1e300, "estimate: wrong value (found 1e+300); expected at most a hundred years"),
        (
            "estimate",
            10**400,
            "estimate: wrong value (found 'a huge number'); expected a time such as 90, "
            "90s, 10m, 2h, 1h30m or 15d",
        ),
        ("priority", 1001, "priority: wrong value (found 1001); expected a whole number from -1000 to 1000"),
        ("priority", -1001, "priority: wrong value (found -1001); expected a whole number, at least -1000"),
        (
            "launcher",
            "torchrn",
            "launcher: wrong value (found 'torchrn'); expected one of process, torchrun, "
            "torchft; did you mean 'torchrun'?",
        ),
        ("checkpoint", True, "checkpoint: wrong value (found True); expected a mapping of keys to values"),
        (
            "checkpoint",
            {"signal": "KILL"},
            "checkpoint.signal: wrong value (found 'KILL'); expected one of USR1, USR2, HUP, INT, TERM",
        ),
        (
            "checkpoint",
            {"signal": "sigusr1"},
            "checkpoint.signal: wrong value (found 'sigusr1'); expected one of USR1, USR2, "
            "HUP, INT, TERM; did you mean 'USR1'?",
        ),
        (
            "checkpoint",
            {"grace": 5},
            "checkpoint.grace: there is no signal that the grace could follow; expected "
            "signal: USR1, or another that the program saves on",
        ),
        (
            "checkpoint",
            {"signal": "USR1", "grace": "2d"},
            "checkpoint.grace: wrong value (found 172800.0); expected at most 24h",
        ),
        (
            "checkpoint",
            {"signal": "USR1", "term": "2m"},
            "checkpoint.term: SIGTERM would come before the signal (found 120.0); expected at most the grace",
        ),
        ("checkpoint", {"term": "2d"}, "checkpoint.term: wrong value (found 172800.0); expected at most 24h"),
        (
            "checkpoint",
            {"dir": "/srvx/a"},
            "checkpoint.dir: outside workdir (found '/srvx/a'); expected a folder inside workdir",
        ),
        (
            "checkpoint",
            {"dir": "a/../../x"},
            "checkpoint.dir: outside workdir (found 'a/../../x'); expected a folder inside workdir",
        ),
        (
            "checkpoint",
            {"dir": "a\0"},
            "checkpoint.dir: wrong value (found 'a\\x00'); expected a path without control characters",
        ),
        (
            "resources",
            {"memory": "lots"},
            "resources.memory: wrong value (found 'lots'); expected a size such as 4GiB, "
            "512MiB or a number of bytes",
        ),
        ("resources", {"cpus": 0}, "resources.cpus: wrong value (found 0); expected more than 0"),
        ("resources", {"cpus": 5000}, "resources.cpus: wrong value (found 5000.0); expected at most 4096"),
        ("max_failures", 0, "max_failures: wrong value (found 0); expected a whole number, at least 1"),
        ("x\ud800\n", 1, f"x\\ud800\\n: unknown key; expected one of {KEYS}"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(field: str, value: object, error: str) -> None:
    assert error_of(**{field: value}) == error


@pytest.mark.parametrize("data", [None, [], "run: x", 7])
def test_what_is_no_mapping_is_no_job(data: object) -> None:
    with pytest.raises(InputError) as caught:
        job_file_from_mapping(data, "request body")
    assert str(caught.value) == "request body: not a job file; expected a mapping with name, run and workers"


def test_json_has_to_say_where_a_job_works() -> None:
    with pytest.raises(InputError, match=r"^'workdir' is missing$"):
        job_file_from_mapping({"name": "a", "run": "true"})


def test_a_file_whose_name_is_no_name_needs_one_inside(tmp_path: Path) -> None:
    file = tmp_path / "my job.yaml"
    file.write_text("run: 'true'\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_job_file(file)
    assert str(caught.value) == f"{file}: 'name' is missing"


def test_a_job_that_is_nested_beyond_reason_is_refused() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    for field in ("run", "workers", "env", "checkpoint", "estimate", "speedup"):
        assert re.match(f"{field}(:|\\[)|nested too deeply$", error_of(**{field: deep}))
    while isinstance(deep, list):  # let go level by level, for the interpreter doesn't
        deep = deep[0]


def test_the_keys_of_the_model_are_those_that_errors_name() -> None:
    assert ", ".join(JobFile.known_keys()) == KEYS
