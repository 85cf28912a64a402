"""Every policy by name, and the spelling of its variants: `NAME:part,option=value` (see `SPELLINGS`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from aryl.errors import InputError, nearest_word
from aryl.policies.aryl import Aryl
from aryl.policies.loaning import Loaning
from aryl.policies.opportunistic import Opportunistic
from aryl.policies.order import ORDERS
from aryl.policies.placement import Scatter
from aryl.policies.policy import Policy
from aryl.policies.preempt import Preempting
from aryl.policies.queueing import Queueing
from aryl.policies.reclaim_exact import require_solver
from aryl.policies.reclaim_problem import Rule, parse_rule
from aryl.policies.reservation import Reserving
from aryl.policies.scaling import Scaling
from aryl.policies.timesharing import TimeSharing

T = TypeVar("T")
PARTS = ("loaning", "scaling", "preemption")

# Examples for people, each of which a test parses.
SPELLINGS = (
    ("aryl", "all parts: loaning, scaling and preemption"),
    ("aryl:loaning", "loaning alone; parts that are named switch the unnamed ones off (preemption stays)"),
    ("aryl:scaling", "scaling alone"),
    ("aryl:no-loaning,no-scaling", "neither; with order=fifo as well, exactly fifo"),
    ("aryl:loaning,reclaim=count", "a part and an option"),
    ("aryl:order=fifo,reclaim=exact", "options only: all parts stay on"),
)


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One option of a policy."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """One policy, for people. `source` names the paper; `preempts` says whether it stops running jobs, and
    when.
    """

    name: str
    summary: str
    source: str
    preempts: str
    options: tuple[OptionInfo, ...] = ()


_SCATTER = OptionInfo(
    "scatter", "allowed", "may a gang that can't have whole servers be scattered: allowed | never"
)
_ARYL_OPTIONS = (
    OptionInfo(
        "loaning | no-loaning",
        "on",
        "lend and reclaim inference servers",
    ),
    OptionInfo("scaling | no-scaling", "on", "flexible workers by the knapsack"),
    OptionInfo(
        "preemption | no-preemption",
        "on",
        "a job may displace lower priorities, a project take back its share",
    ),
    OptionInfo(
        "reclaim", "server-fraction", "server-fraction | gpu-fraction | count | random | in-order | exact"
    ),
    OptionInfo("order", "sjf", "phase 1: sjf | las | size pass over what doesn't fit, fifo is strict"),
    OptionInfo(
        "cooldown", "5m", "time between two growths of a job; twice that if the first was taken back before"
    ),
    OptionInfo("min_interval", "60s", "time between two moves of flexible demand"),
    OptionInfo("min_runtime", "0", "nobody is preempted for a job before it has run that long"),
    OptionInfo(
        "reserve_after",
        "never",
        "who has waited that long goes first, and gets a reservation if it doesn't fit",
    ),
    _SCATTER,
)

_TABLE = (
    PolicyInfo("fifo", "order of submission; the head blocks", "the paper's baseline", "no", (_SCATTER,)),
    PolicyInfo(
        "fifo-skip",
        "order of submission; what doesn't fit is passed over",
        "common practice",
        "no",
        (_SCATTER,),
    ),
    PolicyInfo(
        "sjf", "shortest estimated time first; what doesn't fit is passed over", "textbook", "no", (_SCATTER,)
    ),
    PolicyInfo(
        "srtf",
        "shortest remaining time first; jobs keep their progress",
        "textbook",
        "at any time, saving first",
    ),
    PolicyInfo(
        "las",
        "least attained service first; needs no estimates",
        "Tiresias, NSDI'19",
        "at any time, saving first",
    ),
    PolicyInfo(
        "opportunistic",
        "FIFO; fungible jobs also take idle inference servers, and lose them",
        "the paper's comparison",
        "when inference needs the server",
    ),
    PolicyInfo(
        "aryl",
        "lends idle inference servers, takes them back breaking few jobs, resizes elastic jobs",
        "arXiv 2202.07896",
        "for reclaims; for priority and guaranteed shares",
        _ARYL_OPTIONS,
    ),
    PolicyInfo(
        "aryl-las",
        "aryl without any estimates: least attained service first, gains guessed from what jobs have run",
        "arXiv 2202.07896, information-agnostic mode",
        "as aryl",
        tuple(option for option in _ARYL_OPTIONS if option.name != "order"),
    ),
)


def policy_table() -> list[PolicyInfo]:
    """Every policy with its options."""
    return list(_TABLE)


def parse_policy(spec: str, *, seed: int = 1) -> Policy:
    """The policy of that spelling; `seed` is for the reclaim rule `random`. Raises InputError with the
    nearest word.
    """
    name, _, tail = spec.partition(":")
    known = {info.name: info for info in _TABLE}
    if name not in known:
        raise InputError(
            "no such policy",
            field="policy",
            found=name,
            expected="one of " + ", ".join(known),
            nearest=nearest_word(name, known),
        )
    options = _Options(spec, known[name], [piece.strip() for piece in tail.split(",") if piece.strip()])
    if name in ("srtf", "las"):
        policy: Policy = TimeSharing(spec)
    elif name == "opportunistic":
        policy = Opportunistic(spec)
    elif name in ("aryl", "aryl-las"):
        policy = _aryl(spec, options, seed, informed=name == "aryl")
    else:
        ordering = "sjf" if name == "sjf" else "fifo"
        policy = Queueing(
            spec, ordering, name == "fifo", options.choice("scatter", Scatter.ALLOWED, _scatter)
        )
    options.all_used()
    return policy


def _aryl(spec: str, options: _Options, seed: int, *, informed: bool) -> Aryl:
    parts = options.parts()
    ordering = options.choice("order", "sjf", _ordering) if informed else "las"
    rule = options.choice("reclaim", Loaning().rule, parse_rule)
    if rule is Rule.EXACT:
        require_solver()
    cooldown_s = options.choice("cooldown", Scaling().cooldown_s, _seconds)
    min_interval_s = options.choice("min_interval", Scaling().min_interval_s, _seconds)
    min_runtime_s = options.choice("min_runtime", Preempting().min_runtime_s, _seconds)
    after_s = options.choice("reserve_after", None, _seconds)
    return Aryl(
        name=spec,
        ordering=ordering,
        strict=ordering == "fifo",
        scatter=options.choice("scatter", Scatter.ALLOWED, _scatter),
        loaning=Loaning(rule, seed) if "loaning" in parts else None,
        scaling=Scaling(cooldown_s, min_interval_s, informed) if "scaling" in parts else None,
        preempting=Preempting(min_runtime_s) if "preemption" in parts else None,
        reserving=None if after_s is None else Reserving(after_s),
    )


class _Options:
    """What stands behind the colon."""

    def __init__(self, spec: str, info: PolicyInfo, pieces: list[str]) -> None:
        self._spec = spec
        self._known = [word for option in info.options for word in option.name.split(" | ")]
        self._words = [piece for piece in pieces if "=" not in piece]
        self._values: dict[str, str] = {}
        for piece in pieces:
            key, separator, value = piece.partition("=")
            if separator:
                if key in self._values:
                    raise self._error(f"option '{key}' is given twice", piece)
                self._values[key] = value
        self._used: set[str] = set()

    def choice(self, key: str, default: T, read: Callable[[str], T]) -> T:
        """The value of an option."""
        if key not in self._values or key not in self._known:
            return default
        self._used.add(key)
        return read(self._values[key])

    def parts(self) -> set[str]:
        """The parts that are on: the named ones, or all of them less those with `no-`."""
        named = {word for word in self._words if word in PARTS}
        without = {word for word in self._words if word.removeprefix("no-") in PARTS and word not in PARTS}
        self._used |= named | without
        on = named | {"preemption"} if named else set(PARTS)
        return on - {word.removeprefix("no-") for word in without}

    def all_used(self) -> None:
        """Raise InputError for the first option that the policy doesn't have."""
        for word in (*self._words, *self._values):
            if word not in self._used:
                raise self._error("the policy has no such option", word)

    def _error(self, message: str, found: str) -> InputError:
        expected = "one of " + ", ".join(self._known) if self._known else "no options"
        return InputError(
            message,
            field=f"policy {self._spec}",
            found=found,
            expected=expected,
            nearest=nearest_word(found, self._known),
        )


def _scatter(word: str) -> Scatter:
    try:
        return Scatter(word)
    except ValueError:
        raise InputError("no such value", field="scatter", found=word, expected="allowed | never") from None


def _ordering(word: str) -> str:
    if word not in ORDERS:
        raise InputError(
            "no such order",
            field="order",
            found=word,
            expected=" | ".join(ORDERS),
            nearest=nearest_word(word, ORDERS),
        )
    return word


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(text: str) -> float:
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS_S else (text, "s")
    try:
        seconds = float(number) * _UNITS_S[unit]
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise InputError("not a time", field="policy", found=text, expected="such as 90, 90s, 10m, 2h or 1d")
    return seconds
