"""What is wrong in an experiment file is said in one line, with the place and the nearest right word."""

from __future__ import annotations

from pathlib import Path

import pytest

from aryl.errors import InputError
from aryl.sim.experiment_file import load_experiment, read_source, with_overrides

GOOD = """\
cluster:
  training:  {servers: 4}
  inference: {servers: 2}
jobs:
  - {id: A, workers: 4, duration: 10m}
  - {id: E, submit: 5, workers: [4, 16], work: 120 gpu-min}
simulation:
  interval: 300
"""


def error_of(folder: Path, old: str, new: str) -> InputError:
    assert old in GOOD
    file = folder / "e.yaml"
    file.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_experiment(file)
    assert caught.value.file == str(file)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "nearest"),
    [
        ("interval:", "intervall:", 8, "simulation.intervall", "interval"),
        ("simulation:", "simulatoin:", 7, "simulatoin", "simulation"),
        ("{servers: 4}", "{server: 4}", 2, "cluster.training.server", "servers"),
        ("submit: 5", "submitted: 5", 6, "jobs[1].submitted", "submit"),
        ("simulation:", "restart_s: 4\nsimulation:", 7, "restart_s", "simulation.restart_s"),
        ("[4, 16]", "{min: 4, maks: 16}", 6, "jobs[1].workers.maks", "max"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(
    tmp_path: Path, *, old: str, new: str, line: int, field: str, nearest: str
) -> None:
    error = error_of(tmp_path, old, new)
    assert (error.message, error.line, error.field, error.nearest) == ("unknown key", line, field, nearest)


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "expected"),
    [
        ("interval: 300", "interval: -3", 8, "simulation.interval", "a time such as"),
        ("interval: 300", "interval: 0", 8, "simulation.interval", "more than 0"),
        ("interval: 300", "interval: 300\n  check: maybe", 9, "simulation.check", "true or false"),
        ("interval: 300", "interval: 300\n  checkpoint: often", 9, "simulation.checkpoint", "'continuous'"),
        ("interval: 300", "interval:\n    - 3", 8, "simulation.interval", "a time such as"),
        ("servers: 4", "servers: four", 2, "cluster.training.servers", "a whole number, at least 0"),
        ("servers: 4", "servers: true", 2, "cluster.training.servers", "a whole number, at least 0"),
        ("servers: 4", "servers: 1.5", 2, "cluster.training.servers", "a whole number, at least 0"),
        ("{servers: 4}", "5", 2, "cluster.training", "a mapping of keys to values"),
        ("120 gpu-min", "120 gpu-mins", 6, "jobs[1].work", "work such as '120 gpu-min'"),
        ("[4, 16]", "[8, 16, 32]", 6, "jobs[1].workers", "{sizes: [8, 16, 32]}"),
        ("[4, 16]", "0", 6, "jobs[1].workers", "a whole number, at least 1"),
        ("id: E", "id: yes", 6, "jobs[1].id", "a text, in quotes"),
        ("simulation:", "events: {at: 3}\nsimulation:", 7, "events", "a list"),
        (
            "simulation:",
            "inference: {headroom: 2.5}\nsimulation:",
            7,
            "inference.headroom",
            "a share such as 2%",
        ),
        (
            "simulation:",
            "inference: {headroom: {quantile: 100%}}\nsimulation:",
            7,
            "inference.headroom.quantile",
            "above 0 and below 100%",
        ),
        (
            "simulation:",
            "inference: {headroom: {risk: 9%, servers: 1}}\nsimulation:",
            7,
            "inference.headroom",
            "{quantile: 99%} or {risk: 10%}",
        ),
        (
            "simulation:",
            "inference: {forecast: monthly}\nsimulation:",
            7,
            "inference.forecast",
            "one of last, day, week, regression, ets, mstl, lstm, oracle",
        ),
        (
            "simulation:",
            "inference: {forecast: lstm}\nsimulation:",
            7,
            "inference.forecast",
            "{predictor: lstm, model: FILE}",
        ),
        ("interval: 300", "interval: 300\n  start: 2026-03-28 18:00", 9, "simulation.start", "+01:00"),
        (
            "simulation:",
            "inference: {points: [[0, 1], [9]]}\nsimulation:",
            7,
            "inference.points[1]",
            "[time, servers]",
        ),
        ("simulation:", "policies: []\nsimulation:", 7, "policies", "a list of policies"),
    ],
)
def test_a_wrong_value_is_shown_with_its_line_and_what_was_expected(
    tmp_path: Path, *, old: str, new: str, line: int, field: str, expected: str
) -> None:
    error = error_of(tmp_path, old, new)
    assert (error.line, error.field) == (line, field)
    assert error.expected is not None
    assert expected in error.expected


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("id: E", "id: A", 6, "job id 'A' is given twice"),
        ("[4, 16]", "[16, 4]", 6, "the least number of workers, 16, exceeds the greatest, 4"),
        ("[4, 16]", "{sizes: [8, 16], max: 32}", 6, "sizes do not run from min to max"),
        ("[4, 16]", "{sizes: [8, 4]}", 6, "sizes do not ascend"),
        ("work: 120 gpu-min", "work: 1, duration: 3", 6, "job E needs exactly one of work and duration"),
        (", work: 120 gpu-min", "", 6, "job E needs exactly one of work and duration"),
        (
            ", work: 120 gpu-min",
            ", work: 9, speedup: {points: {4: 1, 8: 3}}",
            6,
            "a speed-up curve must be concave",
        ),
        ("{servers: 4}", "{}", 2, "'servers' is missing"),
        ("{servers: 4}", "{servers: 4, names: [a, b]}", 2, "2 names for 4 servers"),
        ("{servers: 4}", "{names: [a, a]}", 2, "server name 'a' is given twice"),
        ("{servers: 4}", "{names: [I1]}", 3, "both pools have a server 'I1'"),
        (
            "{servers: 4}",
            "{servers: 4, gpu_types: {H100: 3}}",
            2,
            "gpu_types lists 3 servers, servers says 4",
        ),
        ("{servers: 4}", "{servers: 4, speeds: {V10: 1}}", 2, "no server has the GPU type 'V10'"),
        ("simulation:", "simulation:\n  interval: 5", 9, "the key is given twice, first on line 8"),
        ("simulation:", "events:\n- {at: 1, server: T9, state: up}\nsimulation:", 8, "no server 'T9'"),
        ("simulation:", "events:\n- {at: 1, job: F, cancel: true}\nsimulation:", 8, "no job 'F'"),
        ("simulation:", "events:\n- {at: 1, server: T1}\nsimulation:", 8, "an event does one thing"),
        (
            "simulation:",
            "events:\n- {at: 1, job: E, cancel: true, max_workers: 3}\nsimulation:",
            8,
            "an event does one",
        ),
        (
            "simulation:",
            "events:\n- {at: 1, job: E, min_workers: 3, max_workers: 2}\nsimulation:",
            8,
            "min_workers 3",
        ),
        ("simulation:", "policies: [fifo, fifo]\nsimulation:", 7, "policy 'fifo' is given twice"),
        (
            "simulation:",
            "inference: {curve: elb, points: [[0, 1]]}\nsimulation:",
            7,
            "give a curve or points, not both",
        ),
        ("simulation:", "inference: {points: [[5, 1], [5, 2]]}\nsimulation:", 7, "the times do not ascend"),
        ("simulation:", "sweep: {simulation.interval: []}\nsimulation:", 7, "nothing to sweep over"),
        ("simulation:", "a: [1\nsimulation:", 8, "not YAML"),
        ("simulation:", "a: &a [*a]\nsimulation:", 7, "contains itself"),
    ],
)
def test_a_contradiction_is_shown_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    error = error_of(tmp_path, old, new)
    assert error.line == line
    assert error.message.startswith(message)


@pytest.mark.parametrize("value", ["[29d, 14d]", "[14d, 14d]"])
def test_a_window_that_ends_before_it_starts_is_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(f"cluster: {{training: {{servers: 1}}}}\njobs:\n  trace: itp\n  window: {value}\n")
    with pytest.raises(InputError, match=r"line 4, jobs\.window: the window ends before it starts"):
        load_experiment(file)


def test_of_several_errors_the_first_in_the_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(GOOD.replace("300", "x").replace("servers: 2", "servers: y"), encoding="utf-8")
    with pytest.raises(InputError, match="line 3"):
        load_experiment(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"- 1\n", "not an experiment"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"a: 1\n---\na: 2\n", "not YAML"),
        (b"a: \x00\n", "not YAML"),
        (b"a: !!python/object/apply:os.system [ls]\n? [b]\n: 1\n", "a key must be a word"),
        (b"a: !secret x\n", "not YAML"),
        (b"[" * 5000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_experiment_is_an_input_error(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_experiment(file)


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_experiment(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="can't be read"):
        load_experiment(tmp_path)


def test_settings_lie_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(GOOD, encoding="utf-8")
    settings = [
        "simulation.restart_s=0",
        "jobs.1.priority=3",
        "inference.headroom=2%",
        "simulation.interval=10m",
    ]
    experiment = with_overrides(read_source(file), settings)
    assert (experiment.simulation.restart_s, experiment.simulation.interval) == (0.0, 600.0)
    assert [job.priority for job in experiment.inline_jobs()] == [0, 3]
    assert experiment.inference.headroom.share == 0.02
    assert with_overrides(load_experiment(file), settings) == experiment


def test_a_setting_may_supply_what_the_file_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("jobs: {trace: itp}\n", encoding="utf-8")
    assert with_overrides(read_source(file), ["cluster.training.servers=3"]).cluster.training.servers == 3


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("simulation.restart=0", r"simulation\.restart: unknown key.*did you mean 'restart_s'"),
        ("restart_s=0", r"unknown key.*did you mean 'simulation\.restart_s'"),
        ("simulation.restart_s=x", "wrong value .found 'x'.; expected a time"),
        ("simulation.restart_s", "not a setting; expected KEY=VALUE"),
        ("simulation.restart_s=[3", "the value can't be read"),
        ("jobs.trace=itp", "jobs is a list here"),
        ("jobs.7.work=5", "jobs is a list here"),
        ("simulation.interval.x=5", r"simulation\.interval is a value, not a section"),
    ],
)
def test_a_wrong_setting_names_the_flag(tmp_path: Path, setting: str, message: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(GOOD, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        with_overrides(read_source(file), [setting])
    assert str(caught.value).startswith(f"--set {setting}")


def test_a_start_in_the_curve_goes_with_a_curve_only(tmp_path: Path) -> None:
    path = tmp_path / "points.yaml"
    path.write_text(
        "cluster: {training: {servers: 1}, inference: {servers: 2}}\n"
        "jobs: [{id: A, workers: 4, duration: 10m}]\n"
        "inference:\n  points: [[0, 1]]\n  from: 2h\n"
    )
    with pytest.raises(InputError, match="points start at 0") as caught:
        load_experiment(path)
    assert (caught.value.line, caught.value.field) == (5, "inference.from")


def test_a_calendar_without_a_beginning_on_the_clock_is_refused(tmp_path: Path) -> None:
    calendar = 'inference: {calendar: {zone: UTC, windows: [{from: "22:00", to: "06:30"}]}}\nsimulation:'
    error = error_of(tmp_path, "simulation:", calendar)
    assert (error.line, error.field) == (8, "simulation")
    assert error.message == "a calendar needs to know when the simulation begins"
    assert error.expected == "an instant with its offset, such as 2026-03-28T12:00+01:00"
