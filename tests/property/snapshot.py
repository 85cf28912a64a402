"""A deep picture of a cluster, to compare: every attribute of everything in it, in order."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from aryl.core.cluster import Cluster

# `order` is the policy's, `_stands` a memo that looking fills.
_LEFT_OUT = {"order", "_stands"}


def snapshot(cluster: Cluster, *, without: frozenset[str] = frozenset()) -> Any:
    """Plain tuples that are equal if and only if two clusters are."""
    return _Picture(without).of(cluster)


class _Picture:
    def __init__(self, without: frozenset[str]) -> None:
        self._leave_out = _LEFT_OUT | without
        self._seen: dict[int, int] = {}

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, str | int | float | bool | Enum):
            return value
        if is_dataclass(value) and not isinstance(value, type):
            return tuple((field.name, self.of(getattr(value, field.name))) for field in fields(value))
        if isinstance(value, tuple | list):
            return type(value).__name__, tuple(self.of(item) for item in value)
        if isinstance(value, dict):
            return tuple((self.of(key), self.of(item)) for key, item in value.items())
        if id(value) in self._seen:
            return ("again", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        names = getattr(type(value), "__slots__", None) or vars(value)
        return type(value).__name__, tuple(
            (name, self.of(getattr(value, name))) for name in names if name not in self._leave_out
        )
