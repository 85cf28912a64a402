"""The entries of the catalogue: where the public originals are, their checksums, licences and sources.

A checksum is the SHA-256 of the uncompressed text. A file that is published inside an archive is recognised
there by its checksum, whatever the archive calls it.
"""

from __future__ import annotations

from dataclasses import dataclass

_GITHUB = "https://raw.githubusercontent.com"
_ITP_URL = f"{_GITHUB}/microsoft/elasticflow-traces/main/data/raw-traces.tar.gz"
_ITP_SOURCE = "Gu et al., ElasticFlow, ASPLOS 2023; github.com/microsoft/elasticflow-traces"
_PHILLY_URL = f"{_GITHUB}/siasosp23/artifacts/main/sia-simulator/traces/philly.csv"
_PHILLY_SOURCE = "Jeon et al., USENIX ATC 2019; extract of github.com/siasosp23/artifacts"
_NAB_SOURCE = "Numenta Anomaly Benchmark; github.com/numenta/NAB"
_OURS = "drawn by Aryl; see the README beside it"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file: where it lies below a data folder, where it is published, and the checksum of its plain text.

    Beside `path`, a copy with `.gz` at its end is accepted. `url` may lead to a `.tar.gz` that holds the
    file.
    """

    path: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A name of the catalogue; `kind` is `trace` or `curve`, `bundled` a file that comes with the package."""

    name: str
    kind: str
    summary: str
    files: tuple[DataFile, ...]
    licence: str
    source: str
    bundled: str | None = None


_ITP_SHA256 = (
    "27d707f576fce5637f9efec43f610da3d335f36e3c6fd4ded2f5bccfce05974a",
    "7a5849e73aff9f9bc33f87c9bacadf8aab2f3a9e7bc5d70956f5cbf40126526c",
    "282d765c5289ab0ba870f494dd2c67893f9d16d726fdc8a51f13b7412515dbf8",
    "247850e4265f35749e98d15e82a67765301e81272334265f1fe60d65787892a9",
    "1553359ddd673a0ffc531ca10e73ba729dbacbce905ce878dbb8499d2dbed0fb",
    "52c0d9247d1de9b19a8bdafc25137daf6fa04f274ad3a2eb6dac51226ac2362e",
    "d4f46f32e2965c2265b2675c070565a86e40bff45733c828c5767bc0b8c1b318",
    "d60c20d0cd05ddf49fddffabbc784ba6177bbc1a762fc5cf8a0bc9056b084db8",
    "da4047d6f09cc41709ff85937c82e31f6a6791c896d22e241ae9e1dc7f82bcfd",
    "139abea485b52090f5950d0f28d82878169df408e36052ec5c7cd04a3f3fcfa7",
)
_PHILLY_SHA256 = "ebffb3dd1589bdf4e7bcd74496201c5ded1d557d498ee14f560463f37ec353da"


def _itp() -> tuple[Entry, ...]:
    files = tuple(
        DataFile(f"jobs/itp/cluster{number:02d}.csv", _ITP_URL, sha256)
        for number, sha256 in enumerate(_ITP_SHA256, start=1)
    )
    summary = "69,351 jobs of ten Microsoft clusters over 60 days in 2021, 1 to 64 GPUs"
    clusters = (
        Entry(
            f"itp/cluster{number:02d}", "trace", "one of the ten clusters of itp", (file,), "MIT", _ITP_SOURCE
        )
        for number, file in enumerate(files, start=1)
    )
    return (Entry("itp", "trace", summary, files, "MIT", _ITP_SOURCE), *clusters)


def _philly() -> Entry:
    summary = "82,247 jobs of Microsoft's Philly cluster over 109 days in 2017"
    file = DataFile("jobs/philly/philly.csv", _PHILLY_URL, _PHILLY_SHA256)
    return Entry("philly", "trace", summary, (file,), "CC BY 4.0", _PHILLY_SOURCE)


def _nab(name: str, original: str, sha256: str, summary: str) -> Entry:
    file = DataFile(
        f"demand/{original.rpartition('/')[2]}", f"{_GITHUB}/numenta/NAB/master/data/{original}", sha256
    )
    return Entry(name, "curve", summary, (file,), "MIT", _NAB_SOURCE)


def _ours(name: str, kind: str, summary: str) -> Entry:
    return Entry(name, kind, summary, (), "Apache-2.0", _OURS, bundled=f"{name}.csv")


ENTRIES: tuple[Entry, ...] = (
    *_itp(),
    _philly(),
    _ours(
        "synthetic-small",
        "trace",
        "synthetic: jobs for some 22 servers, drawn from distributions fitted to itp",
    ),
    _nab(
        "nyc_taxi",
        "realKnownCause/nyc_taxi.csv",
        "d8fa6f7f0734bf5c8be12c52a94e20a82664c397d9dec4449156bd453d32856d",
        "taxi passengers in New York, 215 days at 30 min; a proxy with a smooth daily cycle",
    ),
    _nab(
        "twitter_goog",
        "realTweets/Twitter_volume_GOOG.csv",
        "3a39cc23d1ff6a0f234b55298d0c46c21d2e94ddb81a0dad9e1e46e3aaa9ec90",
        "tweets about a company, 55 days at 5 min; a proxy with a daily cycle and bursts",
    ),
    _nab(
        "elb",
        "realAWSCloudwatch/elb_request_count_8c0756.csv",
        "74c26574a01ca9fb89dddb5021e2e13c3a93eb25dc640438a9acb1ceb00f1021",
        "requests to a load balancer, 14 days at 5 min; a proxy",
    ),
    _ours("synthetic-day", "curve", "synthetic: a daily cycle with noise, as a share of the inference pool"),
)
