"""The sections of the configuration that say where the inference demand is read. Times in real seconds."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, assert_never
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from aryl.files.fields import UNFIT, PositiveSeconds, Section, choice, fault
from aryl.live.sources.demand_file import FileSource
from aryl.live.sources.observation import Source, Unit
from aryl.live.sources.prometheus import PrometheusSource
from aryl.wire.job_file_fields import clean_path, path_text

MOST_S = 86400.0
MOST_QUERY_BYTES = 4096  # it becomes part of an address, and proxies take 8 KiB of one

_EXPECTED_URL = "an address such as http://prometheus:9090"
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


SourceConfig = PrometheusConfig | FileConfig


def source_of(config: SourceConfig) -> Source:
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
