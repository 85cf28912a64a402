"""The sections of the configuration that say where the inference demand is read. Times in real seconds."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, assert_never
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from aryl.backends.ray.serve.controller import ANSWER_WITHIN_S
from aryl.backends.ray.serve.pool import RESOURCE, ServePool
from aryl.files.fields import UNFIT, PositiveSeconds, Section, Text, choice, fault
from aryl.live.hooks import RESTORE_WITHIN_S
from aryl.live.sources.demand_file import FileSource
from aryl.live.sources.observation import Source, Unit
from aryl.live.sources.prometheus import PrometheusSource
from aryl.live.sources.ray_serve import RayServeSource
from aryl.wire.job_file_fields import clean_path, path_text

MOST_S = 86400.0
ALL_APPLICATIONS = "all"
MOST_QUERY_BYTES = 4096  # it becomes part of an address, and proxies take 8 KiB of one

_EXPECTED_URL = "an address such as http://prometheus:9090"
_RESOURCE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_API = re.compile(r"/api/v1(/query)?/*$")
_PATHS = (("prometheus", "token_file"), ("prometheus", "ca_file"), ("file", "path"))


def _url(value: object) -> str:
    # What was found isn't shown: it may hold a password.
    if not isinstance(value, str) or UNFIT.search(value) or " " in value:
        raise fault("not the address of a Prometheus server", expected=_EXPECTED_URL)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise fault("not the address of a Prometheus server", expected=_EXPECTED_URL) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise fault("not the address of a Prometheus server", expected=_EXPECTED_URL)
    if parts.query or parts.fragment:
        raise fault("the address goes on after its path", expected=_EXPECTED_URL)
    if api := _API.search(parts.path):
        raise fault("the address goes too far", expected=f"it without '{api[0]}'")
    return value.rstrip("/")


def _query(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise fault("wrong value", expected="a query in PromQL, such as sum(busy_servers)")
    # A long query has several lines.
    if UNFIT.search(re.sub(r"[\n\r\t]", " ", value)):
        raise fault("wrong value", expected="a query without control characters")
    if len(value.encode()) > MOST_QUERY_BYTES:
        raise fault(
            "the query is too long", expected=f"at most {MOST_QUERY_BYTES} bytes; a rule can record it"
        )
    return value.strip()


def _path(value: object) -> str:
    return clean_path(path_text(value))


def _at_most_a_day(value: float) -> float:
    if value > MOST_S:
        raise fault("wrong value", expected="at most a day")
    return value


def _within_the_hour(value: float) -> float:
    if value >= RESTORE_WITHIN_S:
        raise fault("wrong value", expected="less than an hour")
    return value


def _resource(value: object) -> str:
    if not isinstance(value, str) or not _RESOURCE.fullmatch(value) or value in ("CPU", "GPU", "memory"):
        raise fault("not the name of a resource of one's own", expected=f"a name such as {RESOURCE}")
    return value


_Path = Annotated[str, PlainValidator(_path)]
_Query = Annotated[str, PlainValidator(_query)]
_Pause = Annotated[PositiveSeconds, AfterValidator(_at_most_a_day)]
_Unit = Annotated[Literal["servers", "gpus", "share"], choice("servers", "gpus", "share")]


class PrometheusConfig(Section):
    """A query that Prometheus is asked every so often; it gives the need in `unit`.

    `time_query` gives the time of the samples behind it, in seconds since 1970, such as
    `min(timestamp(busy_servers))`; without it a need counts as measured when the query is evaluated, even if
    its samples are as old as the server's lookback allows.
    """

    url: Annotated[str, PlainValidator(_url), Field(repr=False)]
    query: _Query
    time_query: _Query | None = None
    unit: _Unit = "servers"
    every: _Pause = 30.0
    timeout: _Pause = 10.0
    token_file: _Path | None = None
    ca_file: _Path | None = None

    @property
    def longest_s(self) -> float:
        """Between two of its words, if all goes well."""
        return self.every + self.timeout

    @model_validator(mode="before")
    @classmethod
    def _is_a_section(cls, value: Any) -> Any:
        # A bare address may hold a password, which isn't to be shown.
        if not isinstance(value, Mapping | PrometheusConfig):
            raise fault("not a section", expected="url, query and so on")
        return value

    @model_validator(mode="after")
    def _agrees(self) -> PrometheusConfig:
        parts = urlsplit(self.url)
        if self.token_file is not None and parts.username is not None:
            raise fault("the address names a user; give either that or a token", "token_file")
        if self.ca_file is not None and parts.scheme != "https":
            raise fault("without https there are no certificates", "ca_file", expected="an https address")
        return self


class FileConfig(Section):
    """A file that another program writes, looked at every so often; it gives the need in `unit`."""

    path: _Path
    unit: _Unit = "servers"
    every: _Pause = 5.0

    @property
    def longest_s(self) -> float:
        """Between two of its words, if all goes well."""
        return self.every


class RayServeConfig(Section):
    """Ray Serve, in the Ray cluster of the backend: it is asked what it needs, and emptied server by server.

    `application`: the one that counts for the need; `all` of them. `resource`: what its replicas ask for, one
    unit for each GPU, and what only inference servers have. `ready_within`: how long replicas may take to
    serve on a server that came home, until that counts as a failure, and is tried again.
    """

    application: Text = ALL_APPLICATIONS
    every: _Pause = 2.0
    resource: Annotated[str, PlainValidator(_resource)] = RESOURCE
    ready_within: Annotated[PositiveSeconds, AfterValidator(_within_the_hour)] = 600.0

    @property
    def longest_s(self) -> float:
        """Between two of its words, if all goes well."""
        return self.every + ANSWER_WITHIN_S


SourceConfig = PrometheusConfig | FileConfig | RayServeConfig


def serve_pool_of(config: RayServeConfig, gpu_resource: str = "GPU") -> ServePool:
    """The pool that Ray Serve is. It isn't asked for anything yet."""
    return ServePool(
        None if config.application == ALL_APPLICATIONS else config.application,
        resource=config.resource,
        gpu_resource=gpu_resource,
        ready_within_s=config.ready_within,
    )


def source_of(config: SourceConfig, gpu_resource: str = "GPU") -> Source:
    """What is configured. Raises InputError for certificates that can't be read, and without httpx."""
    match config:
        case PrometheusConfig():
            return PrometheusSource(
                config.url,
                config.query,
                Unit(config.unit),
                timeout_s=config.timeout,
                time_query=config.time_query,
                token_file=config.token_file,
                ca_file=config.ca_file,
            )
        case FileConfig():
            return FileSource(config.path, Unit(config.unit))
        case RayServeConfig():
            return RayServeSource(serve_pool_of(config, gpu_resource))
        case _:
            assert_never(config)


def with_absolute_paths(inference: Any, folder: str) -> Any:
    """The section `inference`, as it was written, with the paths of its sources relative to `folder`."""
    if not isinstance(inference, Mapping):
        return inference
    full = dict(inference)
    for section, key in _PATHS:
        inner = full.get(section)
        if not isinstance(inner, Mapping):
            continue
        path = inner.get(key)
        if isinstance(path, str) and path.strip():
            full[section] = {**inner, key: os.path.join(folder, path)}
    return full
