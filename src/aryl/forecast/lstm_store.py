"""A trained LSTM on disk: numpy's `.npz` of plain arrays, one of which is text, the facts in JSON.

Nothing in such a file is ever executed. One model always gives the same bytes.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aryl.errors import InputError
from aryl.forecast.lstm import Loss, LstmFacts, LstmModel, Weights, shapes_of
from aryl.whole_files import atomic_path

FORMAT = 1

_KIND = "aryl-lstm"
_FACTS = "facts"
_EXPECTED = "a model written by `aryl forecast train`"


def save(model: LstmModel, path: Path, *, force: bool = False) -> None:
    """Write a model; a reader sees all of it or nothing.

    Raises:
        InputError: the file exists and `force` isn't set, or its folder doesn't exist.
        ArylError: the file can't be written.
    """
    facts = json.dumps({"kind": _KIND, "format": FORMAT, **asdict(model.facts)})
    arrays: dict[str, Any] = {_FACTS: np.array(facts), **model.weights}
    with atomic_path(path, force=force) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load(path: Path) -> LstmModel:
    """Read a model.

    Raises:
        InputError: there is no such file, it isn't a model or it is damaged, or it was written in another
            format.
    """
    file = str(path)
    if not path.is_file():
        raise InputError("no such file", file=file, expected=_EXPECTED)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=file, expected=_EXPECTED) from None
    # What numpy and zipfile raise over bytes that are not theirs; TypeError: a lone array, no archive.
    except (
        ValueError,
        TypeError,
        EOFError,
        KeyError,
        RuntimeError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ):
        raise InputError("not a model, or damaged", file=file, expected=_EXPECTED) from None
    facts = _facts(arrays.pop(_FACTS, None), file)
    return LstmModel(facts, _weights(arrays, facts, file))


class _Form(BaseModel):
    """What the text has to say; the fields of `LstmFacts`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step_s: Annotated[float, Field(gt=0.0)]
    loss: Loss
    levels: tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...]
    horizons: Annotated[int, Field(ge=1)]
    hidden: Annotated[int, Field(ge=1)]
    seed: int
    scale_servers: Annotated[float, Field(gt=0.0)]
    unit: Annotated[float, Field(gt=0.0)]
    curve: str
    from_s: float
    until_s: float
    epochs: int
    tail_loss: float
    tail_error_servers: float
    last_error_servers: float
    torch_version: str


def _facts(text: Any, file: str) -> LstmFacts:
    try:
        said = json.loads(str(text))
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.pop("kind", None) != _KIND:
        raise InputError("not a model", file=file, expected=_EXPECTED)
    version = said.pop("format", None)
    if version != FORMAT:
        raise InputError(
            "written in another format", file=file, field="format", found=version, expected=f"{FORMAT}"
        )
    try:
        form = _Form.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(
            f"damaged: {first['msg'].lower()}", file=file, field=field, found=first["input"]
        ) from None
    levels = form.levels
    if bool(levels) != (form.loss is Loss.QUANTILE) or list(levels) != sorted(set(levels)):
        raise InputError(
            "damaged", file=file, field="levels", found=str(levels), expected=f"those of a {form.loss} loss"
        )
    return LstmFacts(**dict(form))


def _weights(arrays: dict[str, Any], facts: LstmFacts, file: str) -> dict[str, Weights]:
    shapes = shapes_of(facts.hidden, facts.horizons * facts.outputs)
    for name in sorted(shapes.keys() ^ arrays.keys()):
        wrong = "missing" if name in shapes else "of no use"
        raise InputError(f"damaged: weights that are {wrong}", file=file, field=name)
    for name, shape in shapes.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != np.float32:
            found = f"{array.dtype} of shape {array.shape}"
            raise InputError(
                "damaged", file=file, field=name, found=found, expected=f"float32 of shape {shape}"
            )
        if not np.isfinite(array).all():
            raise InputError("damaged: a weight is not a finite number", file=file, field=name)
        array.flags.writeable = False
    return {name: arrays[name] for name in shapes}
