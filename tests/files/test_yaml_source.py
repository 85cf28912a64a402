"""YAML with places: nothing that a file may contain gets past as anything but an `InputError`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aryl.errors import InputError
from aryl.files import yaml_source
from aryl.files.faults import Place
from aryl.files.yaml_source import YamlSource, read_yaml


def read(folder: Path, content: str | bytes, most_bytes: int = 2**20) -> Any:
    file = folder / "x.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_yaml(file, what="a thing", keys="this and that", most_bytes=most_bytes)


def error_of(folder: Path, content: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, content)
    return str(caught.value).removeprefix(str(folder / "x.yaml"))


def test_values_come_with_their_places(tmp_path: Path) -> None:
    data, places = read(tmp_path, "a: 1\nb:\n  - x\n  - {c: 2.5}\n")
    assert data == {"a": 1, "b": ["x", {"c": 2.5}]}
    assert {path: place.line for path, place in places.items()} == {
        (): None,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "c"): 4,
    }


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", ": the file is empty; expected a thing in YAML"),
        ("- 1", ": not a thing; expected a mapping with this and that"),
        ("word", ": not a thing; expected a mapping with this and that"),
        ("a: 1\nb: 2001-13-45", ", line 2, b: not a timestamp that can be read"),
        ("a: " + "9" * 5000, ", line 1, a: not a int that can be read"),
        ("a: !!int x", ", line 1, a: not a int that can be read"),
        ("a: !!bool x", ", line 1, a: not a bool that can be read"),
        ("a: !!timestamp x", ", line 1, a: not a timestamp that can be read"),
        ("a: !!float x", ", line 1, a: not a float that can be read"),
        ("a: {!!map x: 1}", ", line 1, a: a key must be a word"),
        ("a:\n  ? [1]\n  : 2", ", line 2, a: a key must be a word"),
        ("a:\n  <<: {? [1] : 2}", ", line 2, a: a key must be a word"),
        ("a: {0x" + "f" * 900 + ": 1}", ", line 1, a: a key must be a word"),
        ("a: 1\na: 2", ", line 2, a: the key is given twice, first on line 1"),
        ("a: &b [*b]", ", line 1, a[0]: contains itself"),
        ("a: !secret x", ", line 1: not YAML: could not determine a constructor for the tag '!secret'"),
        ("*" + "x" * 500, f", line 1: not YAML: found undefined alias '{'x' * 97}…"),
        ("a: b: c", ", line 1: not YAML: mapping values are not allowed here"),
        ("a: [" + "[" * 3000, ": nested too deeply"),
        (b"\xff\xfe\x00", ": not a text file; expected a thing in YAML"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, content: str | bytes, error: str) -> None:
    assert error_of(tmp_path, content) == error


def test_a_key_that_would_break_the_line_is_shown_escaped(tmp_path: Path) -> None:
    assert error_of(tmp_path, '"a\\nb\\ud800": 1\n"a\\nb\\ud800": 2\n') == (
        ", line 2, a\\nb\\ud800: the key is given twice, first on line 1"
    )


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r": too large; expected at most 10 bytes$"):
        read(tmp_path, "a: " + "1" * 20, most_bytes=10)
    with pytest.raises(InputError, match="too large"):
        read_yaml("/dev/zero", what="a thing", keys="this", most_bytes=1000)


def test_a_few_aliases_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_source, "MOST_VALUES", 10_000)
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))
    assert error_of(tmp_path, "l0: &l0 [1, 1]\n" + levels).endswith(": too many values")


def test_a_name_that_no_file_can_have_is_an_input_error() -> None:
    with pytest.raises(InputError, match="not the name of a file"):
        read_yaml("a\0b", what="a thing", keys="this")


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
@settings(max_examples=300, deadline=None)
def test_any_setting_is_taken_or_refused_by_name(text: str) -> None:
    setting = f"a.b={text}"
    refusal = None
    source = YamlSource({"a": {}}, {(): Place("f")})
    try:
        source = source.apply(setting, "a.b=1")
    except InputError as error:
        refusal = error
    if refusal is None:
        assert set(source.data["a"]) == {"b"}
        assert source.places["a", "b"] == Place(f"--set {setting}")
    else:
        assert (refusal.file, refusal.message) == (f"--set {setting}", "the value can't be read")
