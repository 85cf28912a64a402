"""A daemon for a page: started as the page says, on a free port, and gone with all that it started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from aryl.backends.supervisor.client import SupervisorClient
from aryl.client import ArylClient
from aryl.errors import ArylError

PATIENCE_S = 120.0
LISTENING = re.compile(r"listening on (?P<url>http://\S+); state in (?P<state>[^\n]+)")
# By this variable everything that a page starts is known.
PAGE = "ARYL_PAGE"
# Above every daemon's: the supervisor's last client.
LAST_FENCE = 2**40


class PageServer:
    """The daemons of one page, one after the other. `url` is the present one's, empty if there is none."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self._folder = folder
        self._log = folder / ".serve.log"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._states: set[Path] = set()

    def start(self, command: str, environment: Mapping[str, str]) -> str:
        """Run a line such as `aryl serve --config cluster.yaml` until the end, or until the next one starts;
        what it says until it leads.
        """
        self.stop()
        with self._log.open("wb") as log:
            self._daemon = subprocess.Popen(
                ["bash", "-c", f"exec {command} --set listen=127.0.0.1:0"],
                cwd=self._folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s and self._daemon.poll() is None:
            said = self._log.read_text(encoding="utf-8")
            found = LISTENING.search(said)
            if found is not None:
                self._states.add(Path(found["state"]))
                self.url = found["url"]
                if _leads(self.url):
                    return said
            time.sleep(0.1)
        raise AssertionError(f"$ {command}\ndoesn't lead:\n{self._log.read_text(encoding='utf-8')}")

    def stop(self) -> None:
        """End the daemon as one should; what runs goes on."""
        daemon, self._daemon, self.url = self._daemon, None, ""
        if daemon is None:
            return
        daemon.send_signal(signal.SIGTERM)
        try:
            code = daemon.wait(PATIENCE_S)
        finally:
            if daemon.poll() is None:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        assert code == 0, self._log.read_text(encoding="utf-8")

    def close(self) -> None:
        """End everything."""
        try:
            self.stop()
        finally:
            self._end_what_the_page_started()
            for state in self._states:
                if not (state / "supervisor").exists():
                    continue
                client = SupervisorClient.connect(state / "supervisor", LAST_FENCE, lambda _event: None)
                client.shutdown(force=True)
                client.close()

    def _end_what_the_page_started(self) -> None:
        """What goes on behind a command that has returned, such as a Ray cluster."""
        mark = f"{PAGE}={self._folder}".encode()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


def _leads(url: str) -> bool:
    # Under the page's tokens nobody is asked for one here: /readyz takes none.
    try:
        with ArylClient(url, retries=0) as client:
            return client.health().status == "ok"
    except ArylError:
        return False
