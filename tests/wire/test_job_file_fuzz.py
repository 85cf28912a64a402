"""Whatever a job file contains, it is a job or an `InputError`; no other error, and no job that does harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.wire.job_files import FULL, good_jobs

from aryl.errors import InputError
from aryl.wire.job_file import JobFile, job_file_from_mapping, load_job_file, to_mapping
from aryl.wire.job_file_fields import RESERVED_ENV, RESERVED_PREFIXES, is_inside, is_name

# What YAML and JSON can say, and what people try: surrogates, NULs, numbers beyond all measure, traversals.
nasty_texts = (
    st.text(st.characters(), max_size=12)
    | st.text(st.characters(categories=["Cs", "Cc", "Cf", "Zl"]), max_size=4)
    | st.sampled_from(
        [
            "../..", "/", "~", "a/../../..", "/etc", "\0", "\ud800", "$(id)", "`id`", ";", "-rf", "NaN",
            "1e999", "9" * 5000, "0x10", "1:30", "4GiB", "USR1", "linear", "2h", "5%", "yes", "A" * 100_000,
        ]
    )
)  # fmt: skip
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 2**53, 2**64, 10**400, 10**4000, -(10**4000), 1e308, 1e-320])
)
scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | numbers | nasty_texts | st.dates() | st.just(b"x") | st.just(frozenset())
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(nasty_texts | st.integers() | st.none(), inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["dir", "signal", "grace", "term", "min", "max", "sizes", "amdahl", "points", "memory"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
fuzz = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_job(job: JobFile) -> None:
    """What everybody who gets a job relies on."""
    assert is_name(job.name)
    assert all(is_name(name) for name in (job.project, job.user) if name is not None)
    assert job.workdir.startswith("/")
    assert ".." not in job.workdir.split("/")
    assert job.checkpoint_dir is None or is_inside(job.checkpoint_dir, job.workdir)
    assert 1 <= job.workers.min <= job.workers.max <= 100_000
    assert not any(name in RESERVED_ENV or name.startswith(RESERVED_PREFIXES) for name in job.env)
    for text in (*job.command, job.workdir, *job.env, *job.env.values()):
        assert "\0" not in text
    sent = json.dumps(to_mapping(job), ensure_ascii=False).encode("utf-8")
    assert job_file_from_mapping(json.loads(sent)) == job


def check_error(error: InputError) -> None:
    """One line that any terminal can show, and no novel."""
    text = str(error)
    assert error.exit_code == 2
    assert "\n" not in text
    assert len(text) < 2000


def outcome(read: Callable[[], JobFile]) -> JobFile | InputError:
    try:
        return read()
    except InputError as error:
        return error


def check(result: JobFile | InputError) -> None:
    if isinstance(result, InputError):
        check_error(result)
    else:
        check_job(result)


def check_mapping(data: object) -> None:
    check(outcome(lambda: job_file_from_mapping(data)))


@given(good_jobs(), st.sampled_from(JobFile.known_keys()), values)
@fuzz
@example({"name": "a", "run": "x", "workdir": "/"}, "env", {"A": date(2024, 1, 1)})
@example({"name": "a", "run": "x", "workdir": "/"}, "speedup", {"points": {10**400: 1}})
@example({"name": "a", "run": "x", "workdir": "/"}, "checkpoint", {None: 1})
@example({"name": "a", "run": "x", "workdir": "/"}, "workers", {"sizes": [1, 10**400]})
def test_a_good_job_with_one_value_replaced(job: dict[str, Any], key: str, value: object) -> None:
    check_mapping({**job, key: value})


@given(good_jobs(), st.data())
@fuzz
def test_a_good_job_with_a_value_inside_replaced(job: dict[str, Any], data: st.DataObject) -> None:
    changed = json.loads(json.dumps(job))
    sections = [key for key, value in changed.items() if isinstance(value, dict) and value]
    section = changed[data.draw(st.sampled_from(sections))] if sections else changed
    section[data.draw(st.sampled_from(sorted(section)) | nasty_texts)] = data.draw(values)
    check_mapping(changed)


@given(values | st.dictionaries(st.sampled_from(JobFile.known_keys()) | nasty_texts, values))
@fuzz
def test_any_value_at_all(data: object) -> None:
    check_mapping(data)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "job.yaml"


def check_file(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    result = outcome(lambda: load_job_file(file))
    check(result)
    if isinstance(result, InputError):
        assert result.file == str(file)


@given(st.binary(max_size=200))
@fuzz
def test_a_file_of_any_bytes(file: Path, content: bytes) -> None:
    check_file(file, content)


MARKS = ["\n", "  ", "\t", ": ", "- ", "? ", "[", "]", "{", "}", ",", "&a ", "*a", "<<: ", "'", '"', "#", "="]
MORE_MARKS = ["%", "@", "`", "|\n", ">\n", "---\n", "...\n", "\0", "é", "\u2028", "\ufeff", "!x "]
TAGS = ["!!int ", "!!binary ", "!!python/object:os.system ", "!!set ", "!!map ", "!!timestamp "]
WORDS = ['"\\ud800"', '"\\0"', "2001-13-45", "0x" + "f" * 5000, "9" * 5000, "1e999", ".nan", "~", "190:20:30"]
TOKENS = st.sampled_from([*MARKS, *MORE_MARKS, *TAGS, *WORDS])


@given(st.data())
@fuzz
def test_a_good_file_with_a_few_changes(file: Path, data: st.DataObject) -> None:
    text = FULL
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.sampled_from([0, 0, 1, 3, 20])))
        text = text[:start] + data.draw(TOKENS | st.text(max_size=3)) + text[end:]
    check_file(file, text.encode("utf-8", "surrogatepass"))


@given(st.lists(TOKENS | st.sampled_from(FULL.replace("\n", " \n ").split(" ")), max_size=25).map("".join))
@fuzz
def test_a_file_of_scraps(file: Path, text: str) -> None:
    check_file(file, text.encode())


@given(nasty_texts, values)
@fuzz
def test_any_setting_on_top_of_a_good_file(file: Path, key: str, value: object) -> None:
    file.write_text(FULL, encoding="utf-8")
    setting = f"{key}={value if isinstance(value, str) else ascii(value)}"[:5000]
    result = outcome(lambda: load_job_file(file, [setting]))
    if isinstance(result, InputError):
        assert result.file is not None
    else:
        check_job(result)
