"""`aryl serve`: one process that stands by or leads, and answers the API while it does.

    open the store -> serve the API -> wait for the lead -> bring the state back -> turn the loop

It ends when it is told to (SIGTERM, SIGINT), when the lead is lost, or when the loop fails; in each case the
workers go on, and the next daemon adopts them.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from aryl.backends.supervisor.places import make_private
from aryl.errors import ArylError, FencedError, InputError, UnreachableError
from aryl.live import world
from aryl.live.api.app import make_app
from aryl.live.api.auth import check_listen
from aryl.live.api.serving import ApiServer
from aryl.live.api.settings import Settings
from aryl.live.config import ServeConfig
from aryl.live.controlling import LiveControl
from aryl.live.foresight import Foresight
from aryl.live.lead import Lead
from aryl.live.store import Leadership, Store
from aryl.policies.catalogue import parse_policy

# How often idempotency keys that nobody will repeat are forgotten.
PRUNE_EVERY_S = 3600.0

_log = logging.getLogger(__name__)


class Daemon:
    """One control plane. `run` returns when it is over; `stop` may be called from any thread or a signal
    handler.
    """

    def __init__(self, config: ServeConfig, foresight: Foresight | None = None) -> None:
        self.config = config
        self.url = ""
        self._foresight = foresight
        self._stop = threading.Event()

    def stop(self) -> None:
        """End gracefully: what runs goes on."""
        self._stop.set()

    def run(self, on_listening: Callable[[str], None] | None = None) -> None:
        """Serve until stopped. `on_listening` gets the address once requests are answered.

        Raises InputError for a configuration that can't be used, FencedError when the lead was lost,
        ArylError when the loop failed.
        """
        config = self.config
        policy = parse_policy(config.policy)
        world.check_machine(config)
        if _is_new(config.store):
            _check_access(config, has_tokens=False)  # so that nothing is left of a start that can't be
        _make_state(Path(config.state))
        store = Store.open(config.store)
        try:
            host, port = config.address
            _check_access(config, has_tokens=store.has_tokens())
            control = LiveControl(config, store, policy, self._foresight)
            settings = Settings(open=config.tokens == "off" and not store.has_tokens(), host_names=(host,))
            api = ApiServer(make_app(control, store, settings), host, port)
            api.start()
            self.url = api.url
            try:
                if on_listening is not None:
                    on_listening(api.url)
                self._take_part(store, control)
            finally:
                api.stop()
        finally:
            store.close()

    def _take_part(self, store: Store, control: LiveControl) -> None:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        leadership = Leadership(store, holder, self.config.lease)
        try:
            token = leadership.wait_until_leading(self._stop)
            if token is None:
                return
            control.starting = True
            lead = Lead(self.config, store, parse_policy(self.config.policy), token)
            try:
                lead.start()
                control.lead = lead
                _log.info("leading with token %d", token)
                self._watch(lead, leadership, store)
            finally:
                control.starting = False
                lead.stop()
        finally:
            leadership.stop()

    def _watch(self, lead: Lead, leadership: Leadership, store: Store) -> None:
        """Until somebody wants it to end, or it can't go on."""
        prune_s = time.monotonic()
        while not self._stop.wait(0.1):
            if time.monotonic() >= prune_s:
                prune_s = time.monotonic() + PRUNE_EVERY_S
                _prune(store)
            if leadership.lost.is_set():
                raise FencedError("the lead was lost: another daemon has taken over, or the store is away")
            if lead.over.is_set():
                error = lead.error
                if isinstance(error, ArylError):
                    raise error
                raise ArylError(f"the loop has failed: {error!r}")


def _make_state(state: Path) -> None:
    """The state folder is nobody else's business. One that was there before is left as it is, but what jobs
    print is private in it too.
    """
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private(state / "jobs")
    except OSError as error:
        raise InputError(f"can't be used: {error.strerror}", field="state", found=str(state)) from None


def _prune(store: Store) -> None:
    """Forget old idempotency keys; a store that is away for a moment is no reason to stop."""
    try:
        store.prune_keys(time.time())
    except UnreachableError as error:
        _log.warning("idempotency keys were not pruned: %s", error)


def _is_new(store: str) -> bool:
    """Whether the store is a file that isn't there yet."""
    path = store.removeprefix("sqlite:///")
    return path != store and not Path(path).exists()


def _check_access(config: ServeConfig, *, has_tokens: bool) -> None:
    """Raise InputError where too many could come in, or nobody."""
    if config.tokens == "required" and not has_tokens:
        raise InputError(
            "tokens are required, and there are none",
            field="tokens",
            expected="one made with 'aryl token create'",
        )
    check_listen(config.address[0], has_tokens)
