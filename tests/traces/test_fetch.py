"""Fetching from a server on this machine: what arrives whole and unchanged is kept, anything else is not."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from aryl.errors import ArylError, InputError
from aryl.traces.catalogue import cache_folder, locate, paths_of
from aryl.traces.fetch import entry_to_fetch, fetch_entry
from aryl.traces.published import ENTRIES, DataFile, Entry


class _Quiet(http.server.SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        _Quiet.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "site"
    folder.mkdir()
    _Quiet.asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def entry(url: str, *contents: bytes) -> Entry:
    files = tuple(
        DataFile(f"jobs/x/part{number}.csv", url, hashlib.sha256(content).hexdigest())
        for number, content in enumerate(contents)
    )
    return Entry("x", "trace", "a test", files, "MIT", "here")


def archive(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_is_fetched_to_the_cache_and_found_there(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ARYL_DATA", raising=False)
    folder, url = site
    (folder / "x.csv").write_bytes(b"hello")
    wanted = entry(f"{url}/x.csv", b"hello")
    steps: list[tuple[int, int | None]] = []
    (path,) = fetch_entry(wanted, progress=lambda received, size: steps.append((received, size)))
    assert path == tmp_path / "cache/aryl/jobs/x/part0.csv"
    assert path.read_bytes() == b"hello"
    assert paths_of(wanted) == [path]
    assert steps == [(5, 5)]
    assert files_in(cache_folder()) == ["jobs/x/part0.csv"]


def test_a_file_that_is_there_already_is_not_fetched_again(site: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = site
    (folder / "x.csv").write_bytes(b"hello")
    wanted = entry(f"{url}/x.csv", b"hello")
    fetch_entry(wanted, folder=tmp_path / "cache")
    fetch_entry(wanted, folder=tmp_path / "cache")
    assert _Quiet.asked == ["/x.csv"]


def test_a_damaged_copy_is_fetched_again(site: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = site
    (folder / "x.csv").write_bytes(b"hello")
    wanted = entry(f"{url}/x.csv", b"hello")
    (path,) = fetch_entry(wanted, folder=tmp_path / "cache")
    path.write_bytes(b"hell")
    fetch_entry(wanted, folder=tmp_path / "cache")
    assert path.read_bytes() == b"hello"


def test_a_gzipped_copy_counts_and_a_gzipped_original_is_unpacked(
    site: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = site
    (folder / "x.csv.gz").write_bytes(gzip.compress(b"hello"))
    (path,) = fetch_entry(entry(f"{url}/x.csv.gz", b"hello"), folder=tmp_path / "cache")
    assert path.read_bytes() == b"hello"
    gzipped = path.with_name("part0.csv.gz")
    gzipped.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert locate(entry("", b"hello").files[0], [tmp_path / "cache"]) == gzipped


def test_files_of_an_archive_are_found_by_checksum_whatever_they_are_called_there(
    site: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = site
    members = (("deep/b.txt", b"two"), ("README", b"noise"), ("../../a", b"one"))
    (folder / "x.tar.gz").write_bytes(archive(*members))
    paths = fetch_entry(entry(f"{url}/x.tar.gz", b"one", b"two"), folder=tmp_path / "cache")
    assert [path.read_bytes() for path in paths] == [b"one", b"two"]
    assert files_in(tmp_path / "cache") == ["jobs/x/part0.csv", "jobs/x/part1.csv"]
    assert _Quiet.asked == ["/x.tar.gz"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", lambda: b"hullo"),
        ("x.tar.gz", lambda: archive(("a", b"one"))),
        ("x.tar.gz", lambda: b"not an archive"),
        ("x.tar.gz", lambda: archive(("a", b"hello" * 999))[:-40]),
    ],
)
def test_what_is_not_the_published_file_is_refused_and_nothing_is_written(
    site: tuple[Path, str], tmp_path: Path, name: str, content: Callable[[], bytes]
) -> None:
    folder, url = site
    (folder / name).write_bytes(content())
    with pytest.raises(ArylError, match=f"{url}/{name}: ") as caught:
        fetch_entry(entry(f"{url}/{name}", b"hello", b"two"), folder=tmp_path / "cache")
    assert caught.value.exit_code == 1
    assert files_in(tmp_path) == [f"site/{name}"]


def test_an_address_without_the_file_says_so(site: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(ArylError, match="can't be fetched"):
        fetch_entry(entry(f"{site[1]}/none.csv", b"hello"), folder=tmp_path / "cache")


def test_a_server_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArylError, match=r"http://127\.0\.0\.1:1/x: can't be fetched: .*refused") as caught:
        fetch_entry(entry("http://127.0.0.1:1/x", b"hello"), folder=tmp_path / "cache")
    assert caught.value.exit_code == 1


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        entry_to_fetch("nyc-taxi")
    assert caught.value.nearest == "nyc_taxi"


def test_the_catalogue_is_complete() -> None:
    names = [each.name for each in ENTRIES]
    assert len(set(names)) == len(names)
    assert {"itp", "itp/cluster04", "philly", "nyc_taxi", "twitter_goog", "elb"} <= set(names)
    for each in ENTRIES:
        assert each.licence
        assert each.source
        assert bool(each.files) != (each.bundled is not None)
        assert all(file.url.startswith("https://") and len(file.sha256) == 64 for file in each.files)
