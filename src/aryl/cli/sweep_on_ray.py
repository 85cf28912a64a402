"""The runs of a sweep on a Ray cluster: what they need goes with them, and what they write comes back.

The servers of a cluster needn't have anything but Aryl. The files of the input (jobs, inference demand, a
trained forecast) are sent along and lie in the working directory of each run, under names of ours; results
and errors call them as the experiment does. A journal is written where the run is, comes back compressed and
is written out here. On a Ray of our own, on this machine, all of that is superfluous.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aryl.backends.ray.sweep import LOCAL, Call, run_on_ray
from aryl.cli.parallel import Progress, Task, simulate
from aryl.errors import InputError

if TYPE_CHECKING:
    from aryl.sim.experiment import Experiment
    from aryl.sim.run import RunResult

_CHUNK = 1 << 16
_DATA = "data"


@dataclass(frozen=True)
class Errand:
    """A task that has left this machine. `asked`: what the experiment calls the files that came along."""

    task: Task
    asked: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """What comes back of it. `journal`: compressed."""

    result: RunResult
    journal: bytes | None


def run_all_on_ray(
    tasks: Sequence[Task],
    address: str,
    *,
    at_once: int | None,
    report: Callable[[int, float, str], None],
    tell: Callable[[str], None],
) -> list[RunResult]:
    """The results of `tasks`, in order; `address` may be `local`, see `run_on_ray` for it and for errors."""
    results: dict[int, RunResult] = {}

    def receive(index: int, answer: Any) -> None:
        if isinstance(answer, Answer):
            journal = tasks[index].journal
            if journal is not None and answer.journal is not None:
                _unpack(answer.journal, journal)
            answer = answer.result
        results[index] = answer
        report(index, 1.0, "done")

    with tempfile.TemporaryDirectory(prefix="aryl-input-") as folder:
        if address == LOCAL:
            calls = [Call(task.label, simulate, task) for task in tasks]
        else:
            luggage = _Luggage(Path(folder))
            calls = [Call(task.label, simulate_away, luggage.errand(task)) for task in tasks]
        run_on_ray(
            calls,
            address,
            at_once=at_once,
            luggage=Path(folder) if any(Path(folder).iterdir()) else None,
            environment={"ARYL_DATA": _DATA},
            report=report,
            receive=receive,
            tell=tell,
        )
    return [results[index] for index in range(len(tasks))]


def simulate_away(errand: Errand, report: Progress) -> Answer:
    """Run one task on a server of the cluster, in the folder with the files that came along."""
    task = errand.task
    with tempfile.TemporaryDirectory(prefix="aryl-run-") as folder:
        journal = None if task.journal is None else Path(folder) / "journal.jsonl"
        try:
            result = simulate(replace(task, journal=journal), report)
        except InputError as error:
            raise _as_asked(error, errand.asked) from None
        trace = result.outcome.trace
        outcome = replace(result.outcome, trace=errand.asked.get(trace, trace))
        return Answer(replace(result, outcome=outcome), None if journal is None else _packed(journal))


@dataclass
class _Luggage:
    """The files that the runs read, gathered in `folder`; `asked` says by which names the experiments know
    them. A public file lies below `data`, and keeps the name that the catalogue has for it.
    """

    folder: Path
    asked: dict[str, str] = field(default_factory=dict)
    _places: dict[tuple[str, str], str] = field(default_factory=dict)

    def errand(self, task: Task) -> Errand:
        """The task as it is where its files are in the working directory.

        Raises InputError for one that isn't there.
        """
        experiment = self._moved(task.experiment)
        return Errand(replace(task, experiment=experiment), self.asked)

    def _moved(self, experiment: Experiment) -> Experiment:
        from aryl.sim.experiment import JobsConfig

        changes: dict[str, Any] = {}
        jobs, inference = experiment.jobs, experiment.inference
        if isinstance(jobs, JobsConfig):
            changes["jobs"] = jobs.model_copy(update={"trace": self._place(jobs.trace, "trace")})
        # A demand without servers is never read.
        if experiment.cluster.inference.servers:
            forecast = inference.forecast
            if forecast.model is not None:
                forecast = forecast.model_copy(update={"model": self._place(forecast.model, "model")})
            curve = None if inference.curve is None else self._place(inference.curve, "curve")
            changes["inference"] = inference.model_copy(update={"curve": curve, "forecast": forecast})
        return experiment.model_copy(update=changes)

    def _place(self, name: str, kind: str) -> str:
        if (kind, name) not in self._places:
            self._places[kind, name] = self._pack(name, kind)
        return self._places[kind, name]

    def _pack(self, name: str, kind: str) -> str:
        from aryl.traces.catalogue import resolve

        if kind == "model":
            entry, files = None, [Path(name)]
            if not files[0].is_file():
                return name  # the run says so
        else:
            entry, files = resolve(name, kind)
        if entry is not None:
            if entry.bundled is None:
                for file, known in zip(files, entry.files, strict=True):
                    self._copy(file, Path(_DATA, known.path).parent / file.name)
            return name
        place = Path("input", str(len(self._places)), Path(name).name or "input")
        if Path(name).is_dir():
            for file in files:
                self._copy(file, place / file.name)
        else:
            self._copy(files[0], place)
        self.asked[str(place)] = name
        return str(place)

    def _copy(self, file: Path, place: Path) -> None:
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def _as_asked(error: InputError, asked: Mapping[str, str]) -> InputError:
    """The same error about the file as the experiment calls it."""

    def back(value: Any) -> Any:
        if isinstance(value, str):
            for place, name in asked.items():
                value = value.replace(place, str(Path(name)))
        return value

    return InputError(
        back(error.message),
        file=back(error.file),
        line=error.line,
        field=error.field,
        found=back(error.found),
        expected=back(error.expected),
        nearest=error.nearest,
    )


def _packed(journal: Path) -> bytes:
    packer, parts = zlib.compressobj(1), []
    with journal.open("rb") as file:
        while chunk := file.read(_CHUNK):
            parts.append(packer.compress(chunk))
    return b"".join([*parts, packer.flush()])


def _unpack(packed: bytes, journal: Path) -> None:
    unpacker = zlib.decompressobj()
    with journal.open("wb") as file:
        for start in range(0, len(packed), _CHUNK):
            file.write(unpacker.decompress(packed[start : start + _CHUNK]))
        file.write(unpacker.flush())
