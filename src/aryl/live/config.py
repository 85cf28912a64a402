"""The configuration of `aryl serve`: the cluster, where state is kept, who may come in, how patient it is.

Cluster, demand and policy are written as in an experiment, so that what was simulated can be run. Relative
paths are relative to the configuration file; all are absolute once it is loaded. What depends on other
machines (whether the store can be opened, whether the address is one that needs tokens) is checked where it
is used.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, PlainValidator, model_validator

from aryl.errors import InputError, nearest_word
from aryl.files.cluster_config import ClusterConfig, InferencePoolConfig, PoolConfig
from aryl.files.faults import Place
from aryl.files.fields import (
    UNFIT,
    PositiveCount,
    PositiveNumber,
    PositiveSeconds,
    Seconds,
    Section,
    Text,
    choice,
    fault,
    whole_number,
)
from aryl.files.yaml_source import YamlSource, plain_values, read_yaml
from aryl.live.inference_config import LiveInference, with_inference_paths
from aryl.live.ray_config import RayConfig
from aryl.wire.job_file_fields import (
    EXPECTED_NAME,
    clean_path,
    is_name,
    path_text,
)

MOST_FILE_BYTES = 2**20
MOST_GPU_INDEX = 1023

_WHAT = "a configuration"
_KEYS = "cluster, listen and so on"
_LISTEN = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
# For `aryl serve` without a file: enough to try everything on a machine without GPUs.
_DEFAULT_CLUSTER = ClusterConfig(
    training=PoolConfig(servers=2, gpus_per_server=4),
    inference=InferencePoolConfig(servers=2, gpus_per_server=4),
)


def _listen(value: object) -> str:
    match = _LISTEN.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > 65535:
        raise fault("wrong value", expected="HOST:PORT, such as 127.0.0.1:8642 or [::1]:8642")
    return match[0]


def _store(value: object) -> str:
    # What was found isn't shown: it may hold a password.
    if not isinstance(value, str) or "://" not in value or UNFIT.search(value):
        raise fault(
            "not the URL of a store", expected="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    return value


def _policy(value: str) -> str:
    from aryl.policies.catalogue import parse_policy

    try:
        parse_policy(value)
    except InputError as error:
        found = value if error.found is None else error.found
        raise fault(error.message, expected=error.expected, nearest=error.nearest, found=found) from None
    return value


def _off_is_a_word(value: object) -> object:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


def _folder(value: object) -> str:
    return clean_path(path_text(value))


def _folders(value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not value:
        raise fault("wrong value", expected="a list of folders")
    return [_folder(folder) for folder in value]


def _devices(value: object) -> dict[str, tuple[int, ...]]:
    forms = "GPU numbers by server, such as {T1: [0, 1], T2: [2, 3]}"
    if not isinstance(value, Mapping) or not value:
        raise fault("wrong value", expected=forms)
    devices: dict[str, tuple[int, ...]] = {}
    server_of: dict[int, str] = {}
    for server, indices in value.items():
        name = str(server)
        if not isinstance(indices, list | tuple):
            raise fault("wrong value", name, expected=forms, found=indices)
        devices[name] = tuple(whole_number(index, 0, MOST_GPU_INDEX) for index in indices)
        for place, index in enumerate(devices[name]):
            if index in server_of:
                raise fault(f"GPU {index} is given twice, first to '{server_of[index]}'", name, place)
            server_of[index] = name
    return devices


Folder = Annotated[str, PlainValidator(_folder)]


class Quarantine(Section):
    """A server is set apart when `failures` launches of `jobs` different jobs failed there, each within
    `within` seconds.
    """

    within: PositiveSeconds = 2.0
    failures: PositiveCount = 3
    jobs: PositiveCount = 2

    @model_validator(mode="after")
    def _can_be_met(self) -> Quarantine:
        if self.jobs > self.failures:
            raise fault(
                f"{self.failures} failures can't be those of {self.jobs} jobs",
                "jobs",
                expected=f"at most {self.failures}",
            )
        return self


class Clock(Section):
    """`speed` is how many seconds pass on the engine's clock in one of ours. Only tests and demos hurry."""

    speed: PositiveNumber = 1.0


class ServeConfig(Section):
    """How `aryl serve` runs. Times in seconds, paths absolute.

    On Ray the servers of the cluster that aren't named here are found, and join by themselves.
    `devices` says which GPUs of this machine make up which server, by the numbers that the driver gives them;
    without it, and with `gpus: real`, servers take them in order. Emulated GPUs are only counted.
    """

    state: Folder
    store: Annotated[str, PlainValidator(_store)]
    listen: Annotated[str, PlainValidator(_listen)] = "127.0.0.1:8642"
    backend: Annotated[Literal["local", "ray"], choice("local", "ray")] = "local"
    ray: RayConfig = RayConfig()
    policy: Annotated[Text, AfterValidator(_policy)] = "aryl"
    cluster: ClusterConfig
    gpus: Annotated[Literal["emulated", "real"], choice("emulated", "real")] = "emulated"
    devices: Annotated[dict[str, tuple[int, ...]], BeforeValidator(_devices)] | None = None
    inference: LiveInference = LiveInference()
    workdirs: Annotated[list[str], PlainValidator(_folders)]
    kill_wait: Seconds = 10.0
    restart_s: Seconds = 63.0
    resize_s: Seconds = 10.0
    vacate_s: Seconds = 0.0
    lease: PositiveSeconds = 15.0
    watchdog: PositiveSeconds = 60.0
    stuck_after: PositiveSeconds = 60.0
    quarantine: Quarantine = Quarantine()
    clock: Clock = Clock()
    tokens: Annotated[
        Literal["required", "off"], choice("required", "off"), BeforeValidator(_off_is_a_word)
    ] = "off"

    @model_validator(mode="after")
    def _names_can_be_used(self) -> ServeConfig:
        for pool, prefix in ((self.cluster.training, "T"), (self.cluster.inference, "I")):
            key = "training" if prefix == "T" else "inference"
            for index, name in enumerate(pool.server_names(prefix)):
                if not is_name(name):
                    raise fault(
                        "not a name for a server",
                        *("cluster", key, "names", index),
                        expected=EXPECTED_NAME,
                        found=name,
                    )
        for project in self.cluster.projects:
            if not is_name(project):
                raise fault(
                    "not a name for a project", "cluster", "projects", project, expected=EXPECTED_NAME
                )
        return self

    @model_validator(mode="after")
    def _ray_serve_is_on_ray(self) -> ServeConfig:
        if self.inference.ray_serve is not None and self.backend != "ray":
            raise fault(
                "Ray Serve lends its servers on Ray alone",
                "inference",
                "ray_serve",
                expected="'backend: ray', or another source of the demand",
            )
        return self

    @model_validator(mode="after")
    def _devices_are_of_this_machine(self) -> ServeConfig:
        if self.devices is not None and self.backend != "local":
            raise fault(
                f"with 'backend: {self.backend}' servers say themselves which GPUs they have", "devices"
            )
        return self

    @model_validator(mode="after")
    def _devices_fit(self) -> ServeConfig:
        if self.devices is None:
            return self
        if self.gpus != "real":
            raise fault("emulated servers have no devices", "devices", expected="'gpus: real' beside it")
        sizes = self._gpus_by_server()
        for server, indices in self.devices.items():
            if server not in sizes:
                near = nearest_word(server[:200], sizes)
                raise fault("no such server", "devices", server, nearest=near, found=server)
            if len(indices) != sizes[server]:
                raise fault(
                    f"{len(indices)} devices for {sizes[server]} GPUs",
                    "devices",
                    server,
                    expected="as many as the server has",
                )
        for server in sizes:
            if server not in self.devices:
                raise fault(f"nothing is said of server '{server}'", "devices", expected="all servers")
        return self

    def device_indices(self) -> dict[str, tuple[int, ...]] | None:
        """The numbers of the GPUs of each server; None where they are emulated."""
        if self.gpus == "emulated":
            return None
        if self.devices is not None:
            return {server: self.devices[server] for server in self.cluster.server_names()}
        numbers: dict[str, tuple[int, ...]] = {}
        first = 0
        for server, gpus in self._gpus_by_server().items():
            numbers[server] = tuple(range(first, first + gpus))
            first += gpus
        return numbers

    @property
    def address(self) -> tuple[str, int]:
        """Host, without brackets, and port to listen on; port 0 is any that is free."""
        host, _, port = self.listen.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    def _gpus_by_server(self) -> dict[str, int]:
        cluster = self.cluster
        pools = ((cluster.training, "T"), (cluster.inference, "I"))
        return {name: pool.gpus_per_server for pool, prefix in pools for name in pool.server_names(prefix)}


def load_serve_config(path: Path | str | None = None, overrides: Sequence[str] = ()) -> ServeConfig:
    """Read and check a configuration, with settings such as `listen=127.0.0.1:9000` on top.

    Without a file everything has its default, and paths are relative to the current folder.

    Raises `InputError` with file and line, or the setting, that is to blame.
    """
    if path is None:
        source = _with_settings(YamlSource({"cluster": plain_values(_DEFAULT_CLUSTER)}), overrides)
        if source.data.get("backend") == "ray":  # which finds its servers
            source = _with_settings(YamlSource({}), overrides)
    else:
        source = YamlSource(*read_yaml(path, what=_WHAT, keys=_KEYS, most_bytes=MOST_FILE_BYTES))
        source = _with_settings(source, overrides)
    folder = os.path.abspath("." if path is None else os.path.dirname(path))
    full = _with_paths(source.data, folder)
    if full.get("backend") == "ray":
        full["cluster"] = _with_found_servers(full.get("cluster", {}))
    try:
        return YamlSource(full, source.places).validate(ServeConfig)
    except RecursionError:
        raise InputError("nested too deeply", file=source.places.get((), Place()).file) from None


def _with_settings(source: YamlSource, settings: Sequence[str]) -> YamlSource:
    for setting in settings:
        source = source.apply(setting, "listen=127.0.0.1:9000")
    return source


def _with_found_servers(cluster: Any) -> Any:
    """The section with no training servers where it names none."""
    if not isinstance(cluster, Mapping):
        return cluster
    training = cluster.get("training", {})
    if isinstance(training, Mapping) and not training.keys() & {"servers", "names", "gpu_types"}:
        training = {"servers": 0, **training}
    return {**cluster, "training": training}


def to_mapping(config: ServeConfig) -> dict[str, Any]:
    """The configuration as plain values, which validate to an equal one."""
    return plain_values(config)


def _with_paths(data: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The data with the paths made absolute, and those filled in that are left out."""
    full = dict(data)
    full["state"] = _absolute(full.get("state"), folder, "aryl-state")
    if full.get("workdirs") is None:
        full["workdirs"] = [folder]
    elif isinstance(full["workdirs"], list):
        full["workdirs"] = [_absolute(root, folder, None) for root in full["workdirs"]]
    full["inference"] = with_inference_paths(full.get("inference"), folder)
    store, relative = full.get("store"), "sqlite:///"
    if store is None:
        # A state that is no path is an error by itself, and one is enough.
        usable = isinstance(full["state"], str) and not UNFIT.search(full["state"])
        full["store"] = f"{relative}{full['state'] if usable else folder}/aryl.db"
    elif isinstance(store, str) and store.startswith(relative) and store != relative:
        full["store"] = relative + _absolute(store.removeprefix(relative), folder, None)
    return full


def _absolute(path: Any, folder: str, default: str | None) -> Any:
    if path is None:
        path = default
    return os.path.join(folder, path) if isinstance(path, str) and path.strip() else path
