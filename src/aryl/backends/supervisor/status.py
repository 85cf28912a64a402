"""Statuses and events as JSON, both ways."""

from __future__ import annotations

from typing import assert_never

from aryl.backends.supervisor.protocol import (
    Json,
    ProtocolError,
    WorkerEvent,
    WorkerExited,
    WorkerReported,
    WorkerStarted,
    WorkerState,
    WorkerStatus,
    WorkerStuck,
    as_bool,
    as_int,
    as_list,
    as_number,
    as_numbers,
    as_object,
    as_text,
    as_texts,
    key_from_json,
    key_to_json,
)


def status_to_json(status: WorkerStatus) -> Json:
    """A status as an object."""
    return {
        "key": key_to_json(status.key),
        "server_id": status.server_id,
        "gpus": list(status.gpus),
        "meta": dict(status.meta),
        "log_path": status.log_path,
        "state": status.state.value,
        "pid": status.pid,
        "started": status.started_unix_s,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "ended": status.ended_unix_s,
        "told_to_stop": status.told_to_stop,
        "stuck": status.stuck,
        "reason": status.reason,
        "report": dict(status.last_report),
        "orphan": status.orphan,
    }


def status_from_json(value: object) -> WorkerStatus:
    """The inverse of `status_to_json`. Raises ProtocolError."""
    got = as_object(value, "status")
    try:
        state = WorkerState(got.get("state"))
    except ValueError:
        raise ProtocolError(f"state: unknown: {got.get('state')}") from None
    return WorkerStatus(
        key=key_from_json(got.get("key")),
        server_id=as_text(got.get("server_id"), "server_id"),
        gpus=tuple(as_int(gpu, "gpus") for gpu in as_list(got.get("gpus"), "gpus")),
        meta=as_texts(got.get("meta"), "meta"),
        log_path=as_text(got.get("log_path"), "log_path"),
        state=state,
        pid=_int_or_none(got, "pid"),
        started_unix_s=_number_or_none(got, "started"),
        exit_code=_int_or_none(got, "exit_code"),
        signal=_int_or_none(got, "signal"),
        ended_unix_s=_number_or_none(got, "ended"),
        told_to_stop=as_bool(got.get("told_to_stop"), "told_to_stop"),
        stuck=as_bool(got.get("stuck"), "stuck"),
        reason=as_text(got.get("reason"), "reason"),
        last_report=as_numbers(got.get("report"), "report"),
        orphan=as_bool(got.get("orphan", False), "orphan"),
    )


def event_to_json(event: WorkerEvent) -> Json:
    """An event as an object."""
    match event:
        case WorkerStarted():
            return {"event": "started", "at": event.at_unix_s, "status": status_to_json(event.status)}
        case WorkerExited():
            return {"event": "exited", "at": event.at_unix_s, "status": status_to_json(event.status)}
        case WorkerStuck():
            return {
                "event": "stuck",
                "at": event.at_unix_s,
                "key": key_to_json(event.key),
                "server_id": event.server_id,
                "stuck": event.stuck,
            }
        case WorkerReported():
            return {
                "event": "report",
                "at": event.at_unix_s,
                "key": key_to_json(event.key),
                "report": dict(event.report),
            }
        case _:
            assert_never(event)


def event_from_json(got: Json) -> WorkerEvent:
    """The inverse of `event_to_json`. Raises ProtocolError."""
    at_unix_s = as_number(got.get("at"), "at")
    match got.get("event"):
        case "started":
            return WorkerStarted(at_unix_s, status_from_json(got.get("status")))
        case "exited":
            return WorkerExited(at_unix_s, status_from_json(got.get("status")))
        case "stuck":
            server_id = as_text(got.get("server_id"), "server_id")
            return WorkerStuck(
                at_unix_s, key_from_json(got.get("key")), server_id, as_bool(got.get("stuck"), "stuck")
            )
        case "report":
            return WorkerReported(
                at_unix_s, key_from_json(got.get("key")), as_numbers(got.get("report"), "report")
            )
        case other:
            raise ProtocolError(f"event: unknown: {other}")


def _int_or_none(got: Json, name: str) -> int | None:
    value = got.get(name)
    return None if value is None else as_int(value, name)


def _number_or_none(got: Json, name: str) -> float | None:
    value = got.get(name)
    return None if value is None else as_number(value, name)
