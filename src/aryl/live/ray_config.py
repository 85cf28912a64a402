"""The section `ray` of the configuration: the cluster of Ray on which servers are found. Times in seconds."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, PlainValidator

from aryl.files.fields import PositiveSeconds, Section, Text, fault

LOCAL = "auto"
_ADDRESS = re.compile(r"(ray://)?(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
LEAST_LEASE_S = 1.0


def _address(value: object) -> str:
    if value == LOCAL:
        return LOCAL
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise fault(
            "not the address of a Ray cluster", expected="auto, HOST:PORT or ray://HOST:PORT", found=value
        )
    return value


def _namespace(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise fault("not a name for a namespace", expected="letters, digits, '.', '_' and '-'", found=value)
    return value


def _lease(value: float) -> float:
    if value < LEAST_LEASE_S:
        raise fault("too short a lease", expected=f"at least {LEAST_LEASE_S:g} s", found=value)
    return value


class RayConfig(Section):
    """Where Ray is, and how it is used.

    `address`: `auto` is the cluster that this machine belongs to; `ray://` goes through Ray's client server.
    `lease`: a server that can't reach the head for so long ends its workers, and a little later they are
    started elsewhere; so long takes it until the loss of a server is noticed, and so long may the head be
    away without harm. `gpu_resource`: the resource that stands for GPUs, where Ray's own `GPU` isn't to be
    used.
    """

    address: Annotated[str, PlainValidator(_address)] = LOCAL
    namespace: Annotated[str, PlainValidator(_namespace)] = "aryl"
    lease: Annotated[PositiveSeconds, AfterValidator(_lease)] = 30.0
    gpu_resource: Text = "GPU"
