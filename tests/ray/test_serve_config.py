"""The section `inference.ray_serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from aryl.errors import InputError
from aryl.live import world
from aryl.live.config import ServeConfig, load_serve_config
from aryl.live.sources.ray_serve import RayServeSource


def load(tmp_path: Path, inference: str) -> ServeConfig:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "backend: ray\n"
        "cluster:\n"
        "  training: {servers: 1, gpus_per_server: 4}\n"
        "  inference: {servers: 2, gpus_per_server: 4}\n"
        f"inference: {inference}\n"
    )
    return load_serve_config(file)


def test_an_empty_section_counts_all_applications_and_hands_servers_over(tmp_path: Path) -> None:
    config = load(tmp_path, "{ray_serve: {}}")
    assert config.inference.ray_serve is not None
    assert config.inference.ray_serve.application == "all"
    assert config.inference.confirms_returns
    hooks = world.loan_hooks(config)
    assert hooks.transfer is not None
    assert hooks.to_release("I1") is not None
    assert hooks.to_restore("I1") is not None


def test_a_check_of_the_configuration_asks_nobody(tmp_path: Path) -> None:
    config = load(tmp_path, "{ray_serve: {application: chat}}")
    world.check_machine(config)  # not connected to Ray
    poller = world.demand_poller(config, lambda _: None)
    assert poller is not None
    poller.poll()
    assert poller.failures == 1
    assert poller.last_error == "not connected to a Ray cluster"
    poller.close()


def test_the_source_has_a_name(tmp_path: Path) -> None:
    config = load(tmp_path, "{ray_serve: {}}")
    hooks = world.loan_hooks(config)
    assert RayServeSource(hooks.transfer).where == "Ray Serve"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inference", "field", "says"),
    [
        ("{ray_serve: {}, file: {path: need.json}}", "inference.ray_serve", "not both"),
        ("{ray_serve: {}, hooks: {release: /bin/true}}", "inference.hooks.release", "without hooks"),
        ("{ray_serve: {}, hooks: {restore: /bin/true}}", "inference.hooks.restore", "without hooks"),
        ("{ray_serve: {}, hooks: {on_limit: force}}", "inference.hooks.on_limit", "expected call-off"),
        ("{ray_serve: {resource: GPU}}", "inference.ray_serve.resource", "one's own"),
        ("{ray_serve: {resource: a b}}", "inference.ray_serve.resource", "aryl_inference"),
        ("{ray_serve: {ready_within: 1h}}", "inference.ray_serve.ready_within", "less than an hour"),
        ("{ray_serve: {every: 0}}", "inference.ray_serve.every", "found 0"),
        ("{ray_serve: {aplication: chat}}", "inference.ray_serve.aplication", "application"),
        ("{ray_serve: {every: 60s}, stale_after: 1m}", "inference.stale_after", "more than 70 s"),
    ],
)
def test_what_does_not_go_together_is_said_with_its_field(
    tmp_path: Path, inference: str, field: str, says: str
) -> None:
    with pytest.raises(InputError) as raised:
        load(tmp_path, inference)
    assert raised.value.field == field
    assert says in str(raised.value)
