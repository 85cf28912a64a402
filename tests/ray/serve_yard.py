"""Ray Serve on real inference servers, with the application and the load of `examples/ray`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.ray.raylets import MILD, RayServer, RayServers, free_ports

from aryl.backends.ray.connection import RayAddress, connect, disconnect
from aryl.backends.ray.serve.gates import see_gates
from aryl.backends.ray.serve.pool import RESOURCE, Needed, ServePool
from aryl.errors import ArylError
from aryl.policies.emptying import Host, choose

EXAMPLES = Path(__file__).parents[2] / "examples" / "ray"
GPUS = 4
PATIENCE_S = 90.0
# How often Serve's routers tell its controller what is under way; ten times as often as by default.
_SETTINGS = {**MILD, "SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1"}


class ServingServers(RayServers):
    """Servers of which those of the inference pool declare what replicas ask for."""

    def __init__(self, servers: Sequence[RayServer]) -> None:
        super().__init__(servers, settings=_SETTINGS)

    def _ask(self, whom: str, **request: Any) -> dict[str, Any]:
        if request["what"] == "start" and request["params"]["labels"].get("aryl.io/pool") == "inference":
            params = request["params"]
            params["resources"] = {RESOURCE: params["num_gpus"]}
        return super()._ask(whom, **request)


class ServeYard:
    """A cluster with Serve on it, and this process connected to it."""

    def __init__(self, cluster: RayServers) -> None:
        self.cluster = cluster
        self.servers = sorted(cluster.servers)
        self.ray = connect(RayAddress(cluster.address))
        self.port = free_ports(1)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray, while it is loaded
            from ray import serve

        # Several servers on one machine can't all have the port.
        serve.start(proxy_location="HeadOnly", http_options={"port": self.port})
        self._serve: Any = serve
        self._app = example("app")
        ray_pickle: Any = importlib.import_module("ray.cloudpickle")
        ray_pickle.register_pickle_by_value(self._app)

    def deploy(self, **args: object) -> None:
        """Have the example application with these arguments; without waiting for what may have no place."""
        app = self._app.build({name: str(value) for name, value in args.items()})
        self._serve._run(app, name="app", _blocking=False)
        until(lambda: any(stage == "RUNNING" for _, stage in self.replicas()), "a replica")

    def rest(self, replicas: int, **args: object) -> None:
        """All servers open, and so many replicas of 2 GPUs that serve, and no others."""
        ServePool().take_over(())
        self.deploy(gpus=2, least=replicas, most=replicas, **args)
        until(lambda: self.stages() == ["RUNNING"] * replicas, f"{replicas} replicas at rest")

    def replicas(self) -> list[tuple[str, str]]:
        """The server and the state of each replica of all applications, as Serve's controller says."""
        names = {node["NodeID"]: node["Labels"].get("aryl.io/server", "") for node in self.ray.nodes()}
        controller = self.ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
        details = self.ray.get(controller.get_serve_instance_details.remote(), timeout=PATIENCE_S)
        return [
            (names.get(one.get("node_id"), ""), one["state"].value)
            for app in details["applications"].values()
            for deployment in app["deployments"].values()
            for one in deployment["replicas"]
        ]

    def stages(self) -> list[str]:
        """The states alone."""
        return [stage for _, stage in self.replicas()]

    def on(self, server_id: str) -> list[str]:
        """The states of the replicas on a server."""
        return [stage for server, stage in self.replicas() if server == server_id]

    def free_gpus(self, server_id: str) -> float:
        """GPUs of a server that Ray would give to somebody."""
        state: Any = importlib.import_module("ray._private.state")
        resources = state.available_resources_per_node()[self.cluster.node_id(server_id)]
        return float(resources.get("GPU", 0.0))

    def gated(self) -> set[str]:
        """The servers with gates."""
        return {gate.server_id for gate in see_gates(self.ray, RESOURCE).gates}

    def to_lend(self, needed: Needed) -> str:
        """The server that Aryl would lend."""
        hosts = [Host(name, GPUS, needed.hosting.get(name, ())) for name in self.servers]
        return choose(hosts, 1).lend[0]

    @contextlib.contextmanager
    def load(self, points: str) -> Iterator[Load]:
        """Requests at this rate, until the end; none of them may fail."""
        load = Load(self.port, points)
        try:
            yield load
        finally:
            load.end()

    def close(self) -> None:
        """Let go of the cluster."""
        with contextlib.suppress(Exception):
            self._serve.shutdown()
        disconnect()


class Load:
    """The example's load generator, in a process of its own."""

    def __init__(self, port: int, points: str) -> None:
        command = [sys.executable, str(EXAMPLES / "load.py"), f"http://127.0.0.1:{port}/", "--points", points]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        assert self._process.stderr.readline().startswith("asking")
        self.told: Mapping[str, Any] = {}

    def end(self) -> None:
        """Stop it, and keep what it tells."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        self.told = json.loads(said)


@contextlib.contextmanager
def serve_yard() -> Iterator[ServeYard]:
    """Three inference servers of 4 declared GPUs, and Serve."""
    servers = [RayServer(f"I{number}", "inference", "T4", GPUS) for number in (1, 2, 3)]
    with ServingServers(servers) as cluster:
        yard = ServeYard(cluster)
        try:
            yield yard
        finally:
            yard.close()


def until(done: Callable[[], object], what: str) -> None:
    """Wait until something is so. It asks Serve's controller, so not too often. Raises TimeoutError."""
    end_s = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not after {PATIENCE_S:g} s")
        time.sleep(0.25)


def need(pool: ServePool) -> float:
    """What is needed now; below 0 as long as it can't be told."""
    try:
        return pool.read().servers
    except ArylError:
        return -1.0


def within(seconds: float) -> threading.Event:
    """Set once the time is over."""
    over = threading.Event()
    timer = threading.Timer(seconds, over.set)
    timer.daemon = True
    timer.start()
    return over


def example(name: str) -> ModuleType:
    """A program of `examples/ray`, loaded."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
