"""The live side's reference pages agree with the code: keys and defaults, endpoints, metrics, variables."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from tests.docs.test_pages import DOCS, rows
from tests.live.cluster import LiveCluster, live_cluster

from aryl.backends import environment
from aryl.backends.environment import INHERITED, Post, Start, worker_environment
from aryl.backends.port import Gang, Launcher, Program
from aryl.core.model import Slot
from aryl.files.calendar_fields import CalendarSection, WindowSection
from aryl.files.fields import Strict
from aryl.files.inference_fields import ForecastConfig, Headroom
from aryl.live.config import Clock, Quarantine, ServeConfig, load_serve_config
from aryl.live.inference_config import Hooks, LiveInference
from aryl.live.source_config import FileConfig, PrometheusConfig, RayServeConfig
from aryl.wire.job_file import CheckpointSettings, JobFile, Resources, load_job_file

REFERENCE = DOCS / "reference"
JOB_FILE, SERVE_CONFIG = REFERENCE / "job-file.md", REFERENCE / "serve-config.md"
TABLES = [
    (JOB_FILE, "# The job file", JobFile),
    (JOB_FILE, "## `checkpoint`", CheckpointSettings),
    (JOB_FILE, "## `resources`", Resources),
    (SERVE_CONFIG, "# The configuration of aryl serve", ServeConfig),
    (SERVE_CONFIG, "## `inference`", LiveInference),
    (SERVE_CONFIG, "## `inference.forecast`", ForecastConfig),
    (SERVE_CONFIG, "## `inference.headroom`", Headroom),
    (SERVE_CONFIG, "## `inference.calendar`", CalendarSection),
    (SERVE_CONFIG, "## `inference.calendar.windows`", WindowSection),
    (SERVE_CONFIG, "## `inference.prometheus`", PrometheusConfig),
    (SERVE_CONFIG, "## `inference.file`", FileConfig),
    (SERVE_CONFIG, "## `inference.ray_serve`", RayServeConfig),
    (SERVE_CONFIG, "## `inference.hooks`", Hooks),
    (SERVE_CONFIG, "## `quarantine`", Quarantine),
    (SERVE_CONFIG, "## `clock`", Clock),
]
# Defaults that the loaders fill in, since they depend on where the file is.
FILLED_IN = {"name", "workdir", "state", "store", "workdirs"}


def written(default: object) -> object:
    """A default as the tables have it; None where they say it in words."""
    match default:
        case Headroom():
            return f"`{{risk: {default.risk:.0%}}}`"
        case ForecastConfig():
            return default.predictor
        case None | BaseModel() | tuple():
            return None
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
        case _:
            return str(default)


@pytest.mark.parametrize(
    ("page", "heading", "model"), TABLES, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_tables_have_the_keys_and_the_defaults_of_the_models(
    page: Path, heading: str, model: type[Strict]
) -> None:
    table = {key.strip("`"): default for key, default, _ in rows(page, heading)}
    assert list(table) == model.known_keys()
    for name, field in model.model_fields.items():
        key = field.alias or name
        if field.is_required():
            assert table[key] == "needed" or key in FILLED_IN, key
        elif field.default_factory is None and (text := written(field.default)) is not None:
            assert table[key] == text, key
        else:
            assert table[key] not in ("", "needed"), key


def yaml_blocks(page: Path) -> list[Any]:
    return [
        yaml.safe_load(block)
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    ]


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """The blocks of all pages that are configurations, or parts of one."""
    for page in (*sorted((DOCS / "how-to").glob("*.md")), SERVE_CONFIG):
        for index, block in enumerate(yaml_blocks(page)):
            if block.keys() <= set(ServeConfig.known_keys()):
                yield f"{page.stem}-{index}", block


@pytest.mark.parametrize(("name", "block"), list(configurations()))
def test_the_configurations_in_the_pages_are_valid(name: str, block: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    whole = {"cluster": {"training": {"servers": 1}, "inference": {"servers": 1}}, **block}
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    config = load_serve_config(file)
    # On Ray servers are found.
    assert config.cluster.training.servers >= (0 if config.backend == "ray" else 1)


def test_some_configurations_were_found() -> None:
    assert len(list(configurations())) >= 5


def test_the_job_file_of_the_reference_is_valid(tmp_path: Path) -> None:
    (block,) = yaml_blocks(JOB_FILE)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(block), encoding="utf-8")
    assert load_job_file(file).name == "resnet"


def variables_of(launcher: Launcher) -> set[str]:
    """What Aryl sets for a worker."""
    program = Program(("true",), "/", launcher=launcher, notice_signal="USR1")
    gang = Gang("a-1", 1, 0, (Slot("T1", 1, 0, 1),), program)
    start = Start(gang, 0, 1, 1, "127.0.0.1", 1, Path("/run"), Path("/checkpoint"), "/report")
    return set(worker_environment(start, Post(0, "T1", 0, 0, 1, (0,), (0,)), {})) - {"PATH"}


@pytest.mark.parametrize("launcher", Launcher, ids=lambda launcher: launcher.value)
def test_a_worker_finds_the_variables_of_the_reference(launcher: Launcher) -> None:
    table = rows(REFERENCE / "workers.md", "## Environment")
    documented = {
        name.strip("`") for name, launchers, _ in table if launchers == "all" or launcher.value in launchers
    }
    assert documented == variables_of(launcher)


def test_the_inherited_variables_are_in_the_reference() -> None:
    page = (REFERENCE / "workers.md").read_text("utf-8")
    listed = page.split("and no others:")[1].split(". ")[0]
    assert tuple(re.findall(r"\w+", listed)) == INHERITED
    assert environment.DEFAULTS.keys() | {"GLOO_SOCKET_IFNAME"} <= set(re.findall(r"`(\w+)`", page))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("reference")) as cluster:
        yield cluster


def test_every_metric_is_in_the_reference_and_the_other_way_round(cluster: LiveCluster) -> None:
    cluster.client.servers()
    shown: dict[str, set[str]] = {}
    for line in cluster.metrics():
        name, _, labels = line.partition("{")
        name = re.sub(r"_(bucket|count|sum)$", "", name)
        if not name.startswith("aryl_process_") and not name.endswith("_created"):
            shown.setdefault(name, set()).update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    table = rows(REFERENCE / "metrics.md", "# Metrics")
    documented = {name.strip("`"): set(re.findall(r"\w+", labels)) for name, labels, _ in table}
    assert documented == shown


def test_the_endpoints_of_the_reference_are_those_of_the_openapi_document(cluster: LiveCluster) -> None:
    with urllib.request.urlopen(f"{cluster.url}/openapi.json", timeout=60) as answer:
        document = json.load(answer)
    served = {
        (method.upper(), f"`{path}`", operation["summary"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert {tuple(row) for row in rows(REFERENCE / "rest-api.md", "# REST API")} == served
