"""Serve's controller, asked what it knows, and asked to let a server go.

Where replicas stand comes from the details that the controller gives to everybody. Two things are not to be
had from outside, so they are looked up inside the controller, by a function that is sent to it:

* the requests under way and waiting, as its autoscaler counts them;
* that replicas move away from a server. Serve does so for a node that Ray drains: it starts another replica
  elsewhere, sends requests there, lets the old one end what it has. But a node that Ray drains can't come
  back. So the controller is made to count a server that is to be lent among the draining ones, for as long
  as it takes, and it is Serve that does the rest.

Both lean on names inside Serve, which another version may not have. Then that is said once, the need is what
Serve's autoscaler has settled on, and a server is lent when its replicas happen to have left. It is never
lent with a replica on it: for that the gates answer, which need nothing of Serve.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from aryl.backends.ray.places import SERVER_LABEL
from aryl.errors import ArylError, UnreachableError

_log = logging.getLogger(__name__)

NAME = "SERVE_CONTROLLER_ACTOR"
NAMESPACE = "serve"
ANSWER_WITHIN_S = 10.0


class ServeController:
    """Speaks with the controller of the cluster that `ray` is connected to. For any number of threads."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._complained: set[str] = set()
        self._guard = threading.Lock()

    def running(self) -> bool:
        """Whether there is a controller."""
        return self._find() is not None

    def details(self) -> Mapping[str, Any]:
        """All about its applications. Raises ArylError."""
        found: Mapping[str, Any] = json.loads(self._inside(_details_inside()))
        return found

    def requests(self) -> dict[tuple[str, str], float]:
        """Requests under way and waiting of each deployment that is autoscaled, by application and name.
        Raises UnreachableError.
        """
        got = self._if_possible("the requests of deployments can't be seen", _requests_inside())
        return got if isinstance(got, dict) else {}

    def vacate(self, server_ids: Collection[str]) -> None:
        """Have replicas move away from these servers, and from no others. Raises UnreachableError."""
        self._if_possible(
            "no replica can be moved away from a server", _vacating_inside(), SERVER_LABEL, sorted(server_ids)
        )

    def _if_possible(self, otherwise: str, function: Callable[..., Any], *args: Any) -> Any:
        """What a function says in the controller; None if it doesn't find there what it needs."""
        try:
            return self._inside(function, *args)
        except UnreachableError:
            raise
        except ArylError as error:
            with self._guard:
                known = otherwise in self._complained
                self._complained.add(otherwise)
            if not known:
                _log.warning("this is another version of Ray Serve, %s: %s", otherwise, error)
            return None

    def _find(self) -> Any:
        try:
            return self._ray.get_actor(NAME, namespace=NAMESPACE)
        except ValueError:
            return None

    def _inside(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function says in the controller. Raises UnreachableError, and ArylError if it fails."""
        from ray.exceptions import GetTimeoutError, RayActorError, RayError

        try:
            controller = self._find()
            if controller is None:
                raise UnreachableError("Ray Serve doesn't run in this cluster")
            return self._ray.get(controller.__ray_call__.remote(function, *args), timeout=ANSWER_WITHIN_S)
        except (GetTimeoutError, RayActorError, ConnectionError) as error:
            raise UnreachableError(
                f"the controller of Ray Serve doesn't answer ({type(error).__name__})"
            ) from None
        except RayError as error:
            reason = (str(error).strip().splitlines() or [repr(error)])[-1]
            raise ArylError(f"the controller of Ray Serve: {reason}") from None


# Each is made anew inside a function, so that it is sent as it is: Serve's controller may not have this
# package. What comes back is plain, so that this process needn't load Serve.


def _details_inside() -> Callable[..., Any]:
    def details(controller: Any) -> str:
        import json

        return json.dumps(controller.get_serve_instance_details(), default=str)

    return details


def _requests_inside() -> Callable[..., Any]:
    def requests(controller: Any) -> dict[tuple[str, str], float]:
        manager = controller.autoscaling_state_manager
        return {
            (one.app_name, one.name): float(manager.get_total_num_requests_for_deployment(one))
            for one in controller.list_deployment_ids()
            if manager.should_autoscale_deployment(one)
        }

    return requests


def _vacating_inside() -> Callable[..., Any]:
    def vacate(controller: Any, label: str, server_ids: list[str]) -> None:
        nodes = controller.cluster_node_info_cache
        known = getattr(nodes, "aryl_vacating", None)
        if known is not None:
            known[:] = server_ids
            return
        vacating = list(server_ids)
        really_draining = nodes.get_draining_nodes
        never = 2**63 - 1  # when a drained node is said to end, in milliseconds

        def draining() -> dict[str, int]:
            found = dict(really_draining())
            for node in nodes.get_alive_node_ids():
                if nodes.get_node_labels(node).get(label) in vacating:
                    found.setdefault(node, never)
            return found

        draining()
        nodes.get_draining_nodes = draining
        nodes.aryl_vacating = vacating

    return vacate
