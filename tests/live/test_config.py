"""The configuration of a live cluster: what it means, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aryl.errors import InputError
from aryl.files.inference_fields import ForecastConfig, Headroom
from aryl.files.yaml_source import YamlSource
from aryl.live.config import ServeConfig, load_serve_config, to_mapping

GOOD = """\
state: var
listen: 127.0.0.1:9000
policy: aryl:cooldown=30
cluster:
  training: {servers: 2, gpus_per_server: 4}
  inference: {servers: 1, gpus_per_server: 4}
  projects: {vision: {guaranteed: 4}}
gpus: real
devices: {T1: [0, 1, 2, 3], T2: [4, 5, 6, 7], I1: [8, 9, 10, 11]}
inference:
  points: [[0, 1], [10m, 0]]
  interval: 1m
  headroom: 0
  deadline: 30s
  stale_after: 2m
  hooks: {release: ./release.sh, restore: [/bin/restore, now], drain_limit: 20s, on_limit: force}
workdirs: [jobs, /srv/jobs]
kill_wait: 5s
lease: 10s
quarantine: {within: 3s, failures: 4, jobs: 2}
clock: {speed: 60}
tokens: required
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "serve.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_configuration_is_read_in_seconds_and_absolute_paths(tmp_path: Path) -> None:
    config = load_serve_config(written(tmp_path, GOOD))
    assert config.state == f"{tmp_path}/var"
    assert config.store == f"sqlite:///{tmp_path}/var/aryl.db"
    assert config.address == ("127.0.0.1", 9000)
    assert config.workdirs == [f"{tmp_path}/jobs", "/srv/jobs"]
    assert config.cluster.server_names() == ["T1", "T2", "I1"]
    assert config.device_indices() == {"T1": (0, 1, 2, 3), "T2": (4, 5, 6, 7), "I1": (8, 9, 10, 11)}
    demand = config.inference
    assert demand.points == [(0.0, 1.0), (600.0, 0.0)]
    assert (demand.interval, demand.deadline, demand.stale_after, demand.lead) == (60.0, 30.0, 120.0, None)
    assert demand.headroom.in_servers(100) == 0
    assert demand.hooks.release_command == ("/bin/sh", "-c", "./release.sh")
    assert demand.hooks.restore_command == ("/bin/restore", "now")
    assert (demand.hooks.drain_limit, demand.hooks.on_limit) == (20.0, "force")
    assert (config.quarantine.within, config.quarantine.failures, config.quarantine.jobs) == (3.0, 4, 2)
    assert (config.kill_wait, config.lease, config.clock.speed, config.tokens) == (
        5.0,
        10.0,
        60.0,
        "required",
    )
    assert YamlSource(to_mapping(config)).validate(ServeConfig) == config


def test_without_a_file_everything_has_its_documented_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_serve_config()
    assert (config.state, config.workdirs) == (f"{tmp_path}/aryl-state", [str(tmp_path)])
    assert config.store == f"sqlite:///{tmp_path}/aryl-state/aryl.db"
    assert (config.listen, config.backend, config.policy) == ("127.0.0.1:8642", "local", "aryl")
    assert (config.gpus, config.device_indices(), config.tokens) == ("emulated", None, "off")
    assert config.cluster.server_names() == ["T1", "T2", "I1", "I2"]
    assert (config.kill_wait, config.restart_s, config.resize_s, config.vacate_s) == (10.0, 63.0, 10.0, 0.0)
    assert (config.lease, config.watchdog, config.stuck_after, config.clock.speed) == (15.0, 60.0, 60.0, 1.0)
    demand = config.inference
    assert (demand.curve, demand.points, demand.interpolate, demand.peak) == (None, None, "step", 0.95)
    assert (demand.interval, demand.stale_after, demand.settle, demand.ready) == (300.0, 180.0, 900.0, "hook")
    assert demand.headroom == Headroom(risk=0.09)
    assert demand.forecast == ForecastConfig(predictor="regression")
    assert (demand.min_servers, demand.max_lent, demand.calendar, demand.source) == (0, None, None, None)
    hooks = demand.hooks
    assert (hooks.release_command, hooks.restore_command, hooks.drain_limit) == (None, None, 30.0)
    assert hooks.on_limit == "call-off"
    assert (config.quarantine.within, config.quarantine.failures, config.quarantine.jobs) == (2.0, 3, 2)
    assert YamlSource(to_mapping(config)).validate(ServeConfig) == config


def test_a_key_without_a_value_is_a_key_left_out(tmp_path: Path) -> None:
    cluster = "cluster: {training: {servers: 1}}\n"
    empty = cluster + "".join(f"{key}:\n" for key in ServeConfig.known_keys() if key != "cluster")
    assert load_serve_config(written(tmp_path, empty)) == load_serve_config(written(tmp_path, cluster))


def test_settings_lie_over_the_file_and_over_the_defaults(tmp_path: Path) -> None:
    changes = ["listen=127.0.0.1:0", "cluster.training.gpus_per_server=2", "devices=null", "gpus=emulated"]
    config = load_serve_config(written(tmp_path, GOOD), changes)
    assert (config.address, config.cluster.training.gpus_per_server) == (("127.0.0.1", 0), 2)
    assert load_serve_config(None, ["cluster.training.servers=5"]).cluster.training.servers == 5


def test_real_gpus_are_numbered_in_the_order_of_the_servers_unless_said_otherwise(tmp_path: Path) -> None:
    text = (
        "cluster: {training: {servers: 2, gpus_per_server: 2}, inference: {servers: 1, gpus_per_server: 1}}\n"
    )
    assert load_serve_config(written(tmp_path, text + "gpus: real\n")).device_indices() == {
        "T1": (0, 1),
        "T2": (2, 3),
        "I1": (4,),
    }


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:8642", ("127.0.0.1", 8642)),
        ("[::1]:1", ("::1", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("gpu-1.example:80", ("gpu-1.example", 80)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(listen: str, address: tuple[str, int]) -> None:
    assert load_serve_config(None, [f"listen='{listen}'"]).address == address


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("sqlite:///a/b.db", "sqlite:///{folder}/a/b.db"),
        ("sqlite:////var/b.db", "sqlite:////var/b.db"),
        ("postgresql://me:secret@db/aryl", "postgresql://me:secret@db/aryl"),
    ],
)
def test_a_store_in_a_file_is_relative_to_the_configuration(
    tmp_path: Path, store: str, expected: str
) -> None:
    file = written(tmp_path, f"cluster: {{training: {{servers: 1}}}}\nstore: {store}\n")
    assert load_serve_config(file).store == expected.format(folder=tmp_path)


def test_a_curve_is_a_name_or_a_file_beside_the_configuration(tmp_path: Path) -> None:
    text = "cluster: {training: {servers: 1}}\ninference: {curve: elb}\n"
    assert load_serve_config(written(tmp_path, text)).inference.curve == "elb"
    (tmp_path / "elb").touch()
    assert load_serve_config(written(tmp_path, text)).inference.curve == f"{tmp_path}/elb"


@pytest.mark.parametrize(("word", "tokens"), [("off", "off"), ("'off'", "off"), ("required", "required")])
def test_off_is_off_though_yaml_makes_it_false(tmp_path: Path, word: str, tokens: str) -> None:
    file = written(tmp_path, f"cluster: {{training: {{servers: 1}}}}\ntokens: {word}\n")
    assert load_serve_config(file).tokens == tokens


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (
            "kill_wait: 5s",
            "kil_wait: 5s",
            ", line 18, kil_wait: unknown key; expected one of state, store, listen, backend, ray, policy, "
            "cluster, gpus, devices, inference, workdirs, kill_wait, restart_s, resize_s, vacate_s, lease, "
            "watchdog, stuck_after, quarantine, clock, tokens; did you mean 'kill_wait'?",
        ),
        (
            "cooldown=30",
            "cooldwn=30",
            ", line 3, policy: the policy has no such option (found 'cooldwn'); expected one of loaning, "
            "no-loaning, scaling, no-scaling, preemption, no-preemption, reclaim, order, cooldown, "
            "min_interval, min_runtime, reserve_after, scatter; did you mean 'cooldown'?",
        ),
        (
            "policy: aryl:cooldown=30",
            "policy: arly",
            ", line 3, policy: no such policy (found 'arly'); expected one of fifo, fifo-skip, sjf, srtf, "
            "las, opportunistic, aryl, aryl-las; did you mean 'aryl'?",
        ),
        (
            "listen: 127.0.0.1:9000",
            "listen: 8642",
            ", line 2, listen: wrong value (found 8642); "
            "expected HOST:PORT, such as 127.0.0.1:8642 or [::1]:8642",
        ),
        (
            "listen: 127.0.0.1:9000",
            "listen: 127.0.0.1:65536",
            ", line 2, listen: wrong value (found '127.0.0.1:65536'); "
            "expected HOST:PORT, such as 127.0.0.1:8642 or [::1]:8642",
        ),
        (
            "listen: 127.0.0.1:9000",
            "backend: rai",
            ", line 2, backend: wrong value (found 'rai'); expected one of local, ray; did you mean 'ray'?",
        ),
        (
            "state: var",
            "store: me:secret@db",
            ", line 1, store: not the URL of a store; "
            "expected sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE",
        ),
        ("state: var", "state: [a]", ", line 1, state: wrong value (found \"['a']\"); expected a path"),
        (
            "workdirs: [jobs, /srv/jobs]",
            "workdirs: []",
            ", line 17, workdirs: wrong value (found '[]'); expected a list of folders",
        ),
        (
            "on_limit: force",
            "on_limit: forced",
            ", line 16, inference.hooks.on_limit: wrong value (found 'forced'); "
            "expected one of call-off, force; did you mean 'force'?",
        ),
        (
            "release: ./release.sh",
            "release: []",
            ", line 16, inference.hooks.release: wrong value (found '[]'); expected a command, "
            "such as python train.py, or a list of the program and its arguments",
        ),
        (
            "points: [[0, 1], [10m, 0]]",
            "points: [[0, 1]]\n  curve: elb",
            ", line 11, inference.points: give one of curve and points, not both",
        ),
        (
            "failures: 4, jobs: 2",
            "failures: 1, jobs: 2",
            ", line 20, quarantine.jobs: 1 failures can't be those of 2 jobs; expected at most 1",
        ),
        ("speed: 60", "speed: 0", ", line 21, clock.speed: wrong value (found 0); expected more than 0"),
        (
            "tokens: required",
            "tokens: on",
            ", line 22, tokens: wrong value (found True); expected one of required, off",
        ),
        (
            "gpus: real\n",
            "",
            ", line 8, devices: emulated servers have no devices; expected 'gpus: real' beside it",
        ),
        (
            "T2: [4,",
            "T3: [4,",
            ", line 9, devices.T3: no such server (found 'T3'); did you mean 'T2'?",
        ),
        (
            "T2: [4, 5, 6, 7], ",
            "",
            ", line 9, devices: nothing is said of server 'T2'; expected all servers",
        ),
        (
            "T2: [4, 5, 6, 7]",
            "T2: [4, 5, 6]",
            ", line 9, devices.T2: 3 devices for 4 GPUs; expected as many as the server has",
        ),
        ("T2: [4,", "T2: [3,", ", line 9, devices.T2[0]: GPU 3 is given twice, first to 'T1'"),
        (
            "T2: [4, 5, 6, 7]",
            "T2: 4",
            ", line 9, devices.T2: wrong value (found 4); "
            "expected GPU numbers by server, such as {T1: [0, 1], T2: [2, 3]}",
        ),
        (
            "{servers: 2, gpus_per_server: 4}",
            "{names: [a b, c]}",
            ", line 5, cluster.training.names[0]: not a name for a server (found 'a b'); expected 1 to 63 "
            "letters, digits, '.', '_' and '-', with a letter or digit at both ends",
        ),
        (
            "vision:",
            "a b:",
            ", line 7, cluster.projects.a b: not a name for a project; expected 1 to 63 letters, digits, "
            "'.', '_' and '-', with a letter or digit at both ends",
        ),
        (GOOD[GOOD.index("cluster:") : GOOD.index("gpus: real")], "", ": 'cluster' is missing"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, *, old: str, new: str, error: str) -> None:
    assert old in GOOD
    file = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_serve_config(file)
    assert str(caught.value) == f"{file}{error}"


def test_a_wrong_setting_names_the_flag() -> None:
    with pytest.raises(InputError) as caught:
        load_serve_config(None, ["clock.sped=2"])
    assert str(caught.value) == (
        "--set clock.sped=2, clock.sped: unknown key; expected one of speed; did you mean 'speed'?"
    )
    with pytest.raises(InputError) as caught:
        load_serve_config(None, ["listen"])
    assert str(caught.value) == (
        "--set listen: not a setting; expected KEY=VALUE, such as listen=127.0.0.1:9000"
    )


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "the file is empty; expected a configuration in YAML"),
        ("- 1", "not a configuration; expected a mapping with cluster, listen and so on"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str, error: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(InputError) as caught:
        load_serve_config(file)
    assert str(caught.value) == f"{file}: {error}"
    with pytest.raises(InputError, match=r"none\.yaml: no such file$"):
        load_serve_config(tmp_path / "none.yaml")


LINES = GOOD.splitlines()
SCRAPS = st.sampled_from(
    ["~", "[]", "{}", "-1", "1e999", "9" * 5000, "0x" + "f" * 5000, "'\\0'", '"\\ud800"', "*a", "x"]
)


@given(st.sampled_from(range(len(LINES))), SCRAPS | st.text(max_size=8))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_configuration_with_any_value_replaced_is_one_or_an_input_error(
    tmp_path: Path, line: int, scrap: str
) -> None:
    key, colon, _ = LINES[line].partition(":")
    file = tmp_path / "serve.yaml"
    changed = [*LINES[:line], f"{key}{colon} {scrap}", *LINES[line + 1 :]]
    file.write_bytes("\n".join(changed).encode("utf-8", "surrogatepass"))
    refusal = None
    config: Any = None
    try:
        config = load_serve_config(file)
    except InputError as error:
        refusal = error
    if refusal is None:
        assert YamlSource(to_mapping(config)).validate(ServeConfig) == config
    else:
        assert refusal.file == str(file)
        assert "\n" not in str(refusal)


ON_RAY = """\
backend: ray
ray: {address: "ray://head:10001", namespace: gpus, lease: 1m, gpu_resource: NPU}
cluster: {training: {speeds: {A100: 2.0}}}
inference: {ray_serve: {}}
"""


def test_on_ray_no_server_need_be_named(tmp_path: Path) -> None:
    config = load_serve_config(written(tmp_path, ON_RAY))
    assert (config.cluster.training.servers, config.cluster.inference.servers) == (0, 0)
    assert config.cluster.training.speed_of("A100") == 2.0
    assert config.ray.lease == 60.0
    assert load_serve_config(None, ["backend=ray"]).cluster.server_names() == []


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("1m", "0.5", "line 2, ray.lease: too short a lease (found 0.5); expected at least 1 s"),
        (
            '"ray://head:10001"',
            "head",
            "line 2, ray.address: not the address of a Ray cluster (found 'head'); "
            "expected auto, HOST:PORT or ray://HOST:PORT",
        ),
        (
            "namespace: gpus",
            "namespace: a b",
            "line 2, ray.namespace: not a name for a namespace (found 'a b'); "
            "expected letters, digits, '.', '_' and '-'",
        ),
        (
            "backend: ray",
            "backend: local",
            "line 4, inference.ray_serve: Ray Serve lends its servers on Ray alone; "
            "expected 'backend: ray', or another source of the demand",
        ),
        (
            "inference: {ray_serve: {}}",
            "gpus: real\ndevices: {T1: [0]}",
            "line 5, devices: with 'backend: ray' servers say themselves which GPUs they have",
        ),
    ],
)
def test_what_is_wrong_about_ray_is_said_in_one_line(
    tmp_path: Path, *, old: str, new: str, error: str
) -> None:
    assert old in ON_RAY
    text = ON_RAY.replace(old, new)
    if new == "backend: local":
        text = text.replace("{training: {", "{training: {servers: 1, gpu_types: {A100: 1}, ")
    file = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_serve_config(file)
    assert str(caught.value) == f"{file}, {error}"
