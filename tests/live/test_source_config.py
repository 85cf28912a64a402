"""The sections that say where the inference demand is read, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.live.fake_prometheus import AT_S, Server, success

from aryl.errors import InputError
from aryl.files.fields import Section
from aryl.files.yaml_source import YamlSource, plain_values
from aryl.live.source_config import FileConfig, PrometheusConfig, source_of, with_absolute_paths
from aryl.live.sources.demand_file import FileSource
from aryl.live.sources.observation import Observation, Unit
from aryl.live.sources.prometheus import PrometheusSource

URL = "http://prom:9090"


class Whole(Section):
    """Stands for the section that they are parts of."""

    prometheus: PrometheusConfig | None = None
    file: FileConfig | None = None


def prometheus(**settings: Any) -> PrometheusConfig:
    config = YamlSource({"prometheus": {"url": URL, "query": "up"} | settings}).validate(Whole).prometheus
    assert config is not None
    return config


def complaint(section: Any, name: str = "prometheus") -> str:
    with pytest.raises(InputError) as caught:
        YamlSource({name: section}).validate(Whole)
    return str(caught.value)


def test_a_query_and_an_address_are_enough() -> None:
    config = prometheus()
    assert (config.url, config.query, config.time_query, config.unit) == (URL, "up", None, "servers")
    assert (config.every, config.timeout, config.token_file, config.ca_file) == (30.0, 10.0, None, None)


def test_everything_can_be_said_and_written_again() -> None:
    config = prometheus(
        url="https://[::1]:9090/prometheus/",
        query="sum(\n\tbusy\n)\n",
        time_query="min(timestamp(busy))",
        unit="gpus",
        every="1m",
        timeout="2s",
        token_file="/run/../run/token",
        ca_file="/etc/ca.pem",
    )
    assert (config.url, config.query) == ("https://[::1]:9090/prometheus", "sum(\n\tbusy\n)")
    assert (config.time_query, config.unit) == ("min(timestamp(busy))", "gpus")
    assert (config.every, config.timeout) == (60.0, 2.0)
    assert (config.token_file, config.ca_file) == ("/run/token", "/etc/ca.pem")
    assert YamlSource(plain_values(config)).validate(PrometheusConfig) == config


def test_a_file_needs_only_its_path() -> None:
    whole = YamlSource({"file": {"path": "/a/./demand.json"}}).validate(Whole)
    assert whole.file == FileConfig(path="/a/demand.json", unit="servers", every=5.0)


@pytest.mark.parametrize(
    "url",
    [
        "prom:9090",
        "ftp://prom:9090",
        "http://",
        "http://:9090",
        "http://u:hunter2@prom:port",
        "http://u:hunter2@prom:0",
        "http://u:hunter2@prom:70000",
        "http://u:hunter2@pr om",
        "http://u:hunter2@pr\nom",
        "http://u:hunter2@[::1",
        "",
        5,
    ],
)
def test_an_address_is_one_of_http_with_a_host_and_is_never_shown(url: object) -> None:
    assert complaint({"url": url, "query": "up"}) == (
        "prometheus.url: not the address of a Prometheus server; expected an address such as"
        " http://prometheus:9090"
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "http://u:hunter2@prom/?a=1",
            "the address goes on after its path; expected an address such as http://prometheus:9090",
        ),
        (
            "http://u:hunter2@prom/#a",
            "the address goes on after its path; expected an address such as http://prometheus:9090",
        ),
        ("http://u:hunter2@prom/api/v1/", "the address goes too far; expected it without '/api/v1/'"),
        (
            "http://u:hunter2@prom/x/api/v1/query",
            "the address goes too far; expected it without '/api/v1/query'",
        ),
    ],
)
def test_an_address_ends_where_the_api_begins(url: str, said: str) -> None:
    assert complaint({"url": url, "query": "up"}) == f"prometheus.url: {said}"


def test_a_path_that_only_begins_like_the_api_is_fine() -> None:
    assert prometheus(url="http://h/api/v1/prom").url == "http://h/api/v1/prom"


def test_a_password_is_shown_neither_for_a_section_that_is_none_nor_by_the_model() -> None:
    url = "http://u:hunter2@prom"
    assert complaint(url) == "prometheus: not a section; expected url, query and so on"
    assert "hunter2" not in repr(prometheus(url=url))
    assert prometheus(url=url).url == url


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"query": " \n"}, "query: wrong value (found ' \\n'); expected a query in PromQL, such as"),
        ({"query": 5}, "query: wrong value (found 5); expected a query in PromQL, such as"),
        ({"query": "a\x00"}, "query: wrong value (found 'a\\x00'); expected a query without control"),
        ({"query": "a" * 4097}, "query: the query is too long; expected at most 4096 bytes; a rule can"),
        ({"time_query": "\t "}, "time_query: wrong value (found '\\t '); expected a query in PromQL"),
        ({"unit": "gpu"}, "unit: wrong value (found 'gpu'); expected one of servers, gpus, share; did you"),
        ({"every": 0}, "every: wrong value (found 0); expected more than 0"),
        ({"every": "25h"}, "every: wrong value (found '25h'); expected at most a day"),
        ({"timeout": "2d"}, "timeout: wrong value (found '2d'); expected at most a day"),
        ({"token_file": ""}, "token_file: wrong value (found ''); expected a path"),
        ({"ca_file": 5}, "ca_file: wrong value (found 5); expected a path"),
        ({"ca_file": "/ca"}, "ca_file: without https there are no certificates; expected an https address"),
        (
            {"url": "http://u@prom", "token_file": "/t"},
            "token_file: the address names a user; give either that or a token",
        ),
        (
            {"querry": "up"},
            "querry: unknown key; expected one of url, query, time_query, unit, every, timeou",
        ),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], said: str) -> None:
    text = complaint({"url": URL, "query": "up"} | settings)
    assert text.startswith(f"prometheus.{said}")


def test_what_has_to_be_there_is_missed_by_name() -> None:
    assert complaint({"url": URL}) == "prometheus: 'query' is missing"
    assert complaint({"query": "up"}) == "prometheus: 'url' is missing"
    assert complaint({"unit": "gpus"}, "file") == "file: 'path' is missing"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path": "a\nb"}, "path: wrong value (found 'a\\nb'); expected a path without control characters"),
        ({"pth": "a"}, "pth: unknown key; expected one of path, unit, every; did you mean 'path'?"),
        ({"path": "a", "unit": "percent"}, "unit: wrong value (found 'percent'); expected one of servers,"),
        ({"path": "a", "every": "-1"}, "every: wrong value (found '-1'); expected a time such as 90"),
    ],
)
def test_a_wrong_setting_of_a_file_is_named(settings: dict[str, Any], said: str) -> None:
    assert complaint(settings, "file").startswith(f"file.{said}")


def test_a_configuration_becomes_a_source() -> None:
    source = source_of(prometheus(url="http://u:hunter2@prom/x/"))
    assert isinstance(source, PrometheusSource)
    assert source.where == "http://prom/x"
    source.close()
    file = source_of(FileConfig(path="/a/b"))
    assert isinstance(file, FileSource)
    assert file.where == "/a/b"


def test_a_source_does_what_is_configured(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "demand").write_text('{"need": 5, "at": 7}')
    server = Server()
    server.by_query["when"] = success("scalar", [AT_S, "1234"])
    source = source_of(
        prometheus(
            url=f"http://{server.address}",
            time_query="when",
            unit="share",
            timeout="2500ms",
            token_file=str(tmp_path / "token"),
        )
    )
    try:
        assert source.read() == Observation(1234.0, 5.5, Unit.SHARE)
    finally:
        source.close()
        server.close()
    assert [(asked["timeout"], token) for _, asked, token in server.asked] == [
        (["2500ms"], "Bearer t0ken")
    ] * 2
    file = source_of(FileConfig(path=str(tmp_path / "demand"), unit="gpus"))
    assert file.read() == Observation(7.0, 5.0, Unit.GPUS)
    with pytest.raises(InputError) as caught:
        source_of(prometheus(url="https://prom", ca_file=str(tmp_path / "ca")))
    assert caught.value.file == str(tmp_path / "ca")


def test_paths_are_relative_to_the_folder_of_the_configuration() -> None:
    written = {
        "interval": 5,
        "prometheus": {"url": URL, "token_file": "token", "ca_file": "/ca"},
        "file": {"path": "../demand.json"},
    }
    assert with_absolute_paths(written, "/etc/aryl") == {
        "interval": 5,
        "prometheus": {"url": URL, "token_file": "/etc/aryl/token", "ca_file": "/ca"},
        "file": {"path": "/etc/aryl/../demand.json"},
    }
    assert written["file"] == {"path": "../demand.json"}
    for odd in (None, 5, {"file": "x", "prometheus": None}, {"file": {"path": " "}}, {"file": {"path": 5}}):
        assert with_absolute_paths(odd, "/etc") == odd
