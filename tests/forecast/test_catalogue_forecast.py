"""Predictors by name, and what is said where one of them can't be had."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aryl.errors import InputError
from aryl.files.inference_fields import ORACLE, PREDICTORS, ForecastConfig, Headroom
from aryl.forecast.catalogue import TABLE, PredictorInfo, build_predictor, headroom_rule
from aryl.forecast.control import FixedHeadroom, QuantileHeadroom, RiskHeadroom
from aryl.forecast.history import History

PLAIN = [info.name for info in TABLE if not info.needs]
WITHOUT_EXTRAS = """
import sys
for name in ("torch", "statsforecast"):
    sys.modules[name] = None  # importing it fails from now on
from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.run import run
for predictor in {plain}:
    experiment = experiment_from_mapping({{
        "cluster": {{
            "training": {{"servers": 1}},
            "inference": {{"servers": 2, "gpu_type": "V100", "speed": 1.0}},
        }},
        "jobs": [{{"id": "A", "workers": 16, "duration": "1h", "fungible": True}}],
        "inference": {{"points": [[0, 0]], "headroom": 0, "forecast": predictor}},
    }})
    print(predictor, run(experiment, "aryl").summary["finished"])
"""


def test_what_a_file_may_name_is_what_there_is() -> None:
    assert tuple(info.name for info in TABLE) == PREDICTORS
    assert ForecastConfig().predictor in PLAIN  # nobody needs an extra for the default


@pytest.mark.parametrize("name", PREDICTORS[:-1])
def test_each_predictor_answers_on_the_shortest_history(name: str) -> None:
    history = History(300.0)
    history.observe(0.0, 3.0)
    said = build_predictor(ForecastConfig(predictor=name)).predict(history, 2, (0.1, 0.5, 0.9))
    assert said.tolist() == [3.0, 3.0, 3.0]
    assert np.all(np.diff(said) >= 0.0)


def test_a_missing_engine_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(
        InputError, match=r"'mstl' needs statsforecast: pip install 'aryl\[forecast\]'"
    ) as raised:
        build_predictor(ForecastConfig(predictor="mstl"))
    assert "last, day, week, regression" in str(raised.value)
    assert not PredictorInfo("any", "", "", "statsforecast").installed
    build_predictor(ForecastConfig(predictor="regression"))


def test_nobody_gets_an_oracle_without_a_curve() -> None:
    with pytest.raises(InputError, match="an oracle knows a curve's future"):
        build_predictor(ForecastConfig(predictor=ORACLE))


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.lstm")
    with pytest.raises(InputError, match=r"none\.lstm"):
        build_predictor(ForecastConfig(predictor="lstm", model=missing, refresh=False))


def test_a_headroom_in_a_file_becomes_a_rule_for_its_pool() -> None:
    assert headroom_rule(Headroom(servers=3), 200) == FixedHeadroom(3.0)
    assert headroom_rule(Headroom(share=0.02), 120) == FixedHeadroom(3.0)
    assert headroom_rule(Headroom(quantile=0.99), 200) == QuantileHeadroom(0.99, 4.0)
    assert headroom_rule(Headroom(risk=0.09, at_least=0.1), 200) == RiskHeadroom(0.09, 20.0)


def test_without_the_extras_the_plain_predictors_work_all_the_same() -> None:
    code = WITHOUT_EXTRAS.format(plain=PLAIN)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stderr == ""
    assert done.stdout.split() == [word for name in PLAIN for word in (name, "1")]
