"""A trained LSTM on disk: what comes back, and what is refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.forecast.lstm import Loss, LstmFacts, LstmModel, shapes_of
from aryl.forecast.lstm_store import load, save

FACTS = LstmFacts(
    step_s=300.0,
    loss=Loss.QUANTILE,
    levels=(0.1, 0.5),
    horizons=3,
    hidden=4,
    seed=7,
    scale_servers=123.4,
    unit=0.05,
    curve="nyc_taxi",
    from_s=0.0,
    until_s=86_400.0,
    epochs=12,
    tail_loss=0.25,
    tail_error_servers=3.5,
    last_error_servers=7.25,
    torch_version="2.13.0+cpu",
)
SQUARED = {"loss": Loss.SQUARED, "levels": ()}


def model(**changes: Any) -> LstmModel:
    facts = LstmFacts(**{**asdict(FACTS), **changes})
    draws = np.random.default_rng(1)
    shapes = shapes_of(facts.hidden, facts.horizons * facts.outputs)
    return LstmModel(
        facts, {name: draws.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    )


def same(one: LstmModel, other: LstmModel) -> bool:
    return (
        one.facts == other.facts
        and one.weights.keys() == other.weights.keys()
        and all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)
    )


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as refused:
        load(path)
    return str(refused.value).removeprefix(f"{path}")


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Write the model with other facts and arrays."""
    facts: dict[str, Any] = {"kind": "aryl-lstm", "format": 1, **asdict(FACTS)}
    arrays: dict[str, Any] = dict(model().weights)
    change(facts, arrays)
    with path.open("wb") as file:
        np.savez(file, facts=np.array(json.dumps(facts)), **arrays)


@pytest.mark.parametrize("changes", [{}, SQUARED])
def test_a_model_comes_back_as_it_went(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "pool.lstm"
    save(model(**changes), path)
    back = load(path)
    assert same(back, model(**changes))
    assert isinstance(back.facts.loss, Loss)
    assert not any(weight.flags.writeable for weight in back.weights.values())
    assert [file.name for file in tmp_path.iterdir()] == ["pool.lstm"]


def test_one_model_always_gives_the_same_bytes(tmp_path: Path) -> None:
    save(model(), tmp_path / "a")
    save(model(), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_older_file_is_replaced_only_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "pool.lstm"
    save(model(), path)
    with pytest.raises(InputError, match="already exists"):
        save(model(seed=8), path)
    assert load(path).facts.seed == 7
    save(model(seed=8), path, force=True)
    assert load(path).facts.seed == 8


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    expected = ": no such file; expected a model written by `aryl forecast train`"
    assert refusal(tmp_path / "none.lstm") == expected
    assert refusal(tmp_path) == expected


def array_alone() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(3.0))
    return out.getvalue()


def objects() -> bytes:
    out = io.BytesIO()
    np.savez(out, allow_pickle=True, facts=np.array([{"a": 1}], dtype=object))
    return out.getvalue()


def other_archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("readme.txt", "hello")
    return out.getvalue()


def other_arrays() -> bytes:
    out = io.BytesIO()
    np.savez(out, weights=np.arange(3.0))
    return out.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"time_s,servers\n0,1\n", b"\x80\x04]\x94.", array_alone(), objects(), other_archive()],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(content)
    assert refusal(path) in {
        ": not a model, or damaged; expected a model written by `aryl forecast train`",
        ": not a model; expected a model written by `aryl forecast train`",
    }


def test_arrays_without_facts_are_no_model(tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    path.write_bytes(other_arrays())
    assert refusal(path) == ": not a model; expected a model written by `aryl forecast train`"


def test_whatever_byte_is_wrong_the_model_is_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.lstm"
    save(model(), path)
    whole = path.read_bytes()
    messages = set()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        try:
            back = load(path)
        except InputError as error:
            messages.add(str(error))
        else:
            assert same(back, model())
    assert messages
    assert [message for message in messages if not message.startswith(f"{path}")] == []


def test_a_file_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.lstm"
    save(model(), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 41):
        path.write_bytes(whole[:length])
        assert refusal(path) == ": not a model, or damaged; expected a model written by `aryl forecast train`"


def set_fact(field: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda facts, arrays: facts.update({field: value})


def set_array(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda facts, arrays: arrays.update({name: value})


def drop_array(facts: dict[str, Any], arrays: dict[str, Any]) -> None:
    del arrays["head.bias"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_fact("kind", "other"), ": not a model; expected a model written by `aryl forecast train`"),
        (set_fact("format", 2), ", format: written in another format (found 2); expected 1"),
        (set_fact("step_s", 0.0), ", step_s: damaged: input should be greater than 0 (found 0.0)"),
        (set_fact("unit", float("nan")), ", unit: damaged: input should be a finite number (found nan)"),
        (
            set_fact("loss", "cubic"),
            ", loss: damaged: input should be 'squared' or 'quantile' (found 'cubic')",
        ),
        (set_fact("more", 1), ", more: damaged: extra inputs are not permitted (found 1)"),
        (set_fact("hidden", 0), ", hidden: damaged: input should be greater than or equal to 1 (found 0)"),
        (
            set_fact("levels", [0.1, 1.0]),
            ", levels.1: damaged: input should be less than 1 (found 1.0)",
        ),
        (
            set_fact("levels", [0.5, 0.1]),
            ", levels: damaged (found '(0.5, 0.1)'); expected those of a quantile loss",
        ),
        (
            set_fact("levels", [0.5, 0.5]),
            ", levels: damaged (found '(0.5, 0.5)'); expected those of a quantile loss",
        ),
        (set_fact("levels", []), ", levels: damaged (found '()'); expected those of a quantile loss"),
        (
            set_fact("loss", "squared"),
            ", levels: damaged (found '(0.1, 0.5)'); expected those of a squared loss",
        ),
        (
            set_array("head.bias", np.zeros(5, dtype=np.float32)),
            ", head.bias: damaged (found 'float32 of shape (5,)'); expected float32 of shape (6,)",
        ),
        (
            set_array("head.bias", np.zeros(6)),
            ", head.bias: damaged (found 'float64 of shape (6,)'); expected float32 of shape (6,)",
        ),
        (
            set_array("head.bias", np.full(6, np.inf, dtype=np.float32)),
            ", head.bias: damaged: a weight is not a finite number",
        ),
        (
            set_array("tail.bias", np.zeros(6, dtype=np.float32)),
            ", tail.bias: damaged: weights that are of no use",
        ),
        (drop_array, ", head.bias: damaged: weights that are missing"),
    ],
)
def test_facts_and_weights_that_make_no_model_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], message: str
) -> None:
    path = tmp_path / "pool.lstm"
    rewrite(path, change)
    assert refusal(path) == message


def test_what_the_test_above_changes_is_a_model_when_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "pool.lstm"
    rewrite(path, lambda facts, arrays: None)
    assert same(load(path), model())
