"""A network for machines that can be cut off: each in a network namespace, all on a switch in one more.

The switch is where the process that makes all this lives. No namespace has a name: the kernel removes them,
and with them every cable, as soon as the last process in them ends, however that comes. Only root may do it.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from pyroute2 import IPRoute

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_libc = ctypes.CDLL(None, use_errno=True)


class Switch:
    """Moves this process into a namespace that holds a bridge, with a cable to the one where it was."""

    def __init__(self) -> None:
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        pid = os.getpid()
        # Different for each process that lives: two runs of the tests don't meet.
        self._subnet = f"10.{128 + pid // 256 % 127}.{pid % 256}"
        leave_network()
        inside = os.open("/proc/self/ns/net", os.O_RDONLY)
        with IPRoute() as here:
            here.link("add", ifname="switch", kind="bridge")
            here.link("set", index=_index(here, "switch"), state="up")
            far = {"ifname": f"aryl{pid}", "net_ns_fd": self._outside}
            here.link("add", ifname="outside", kind="veth", peer=far)
            self._plug(here, "outside")
        self.enter_outside()
        try:
            with IPRoute() as there:
                _bring_up(there, f"aryl{pid}", f"{self._subnet}.1")
        finally:
            _enter(inside)
            os.close(inside)

    def enter_outside(self) -> None:
        """Move the process, one that was forked off, to where the first one came from."""
        _enter(self._outside)

    def address(self, number: int) -> str:
        """Of the machine with that number, from 2."""
        return f"{self._subnet}.{number}"

    def connect(self, number: int, pid: int) -> None:
        """Lay the cable to the namespace of a process."""
        with IPRoute() as here:
            here.link("add", ifname=f"m{number}", kind="veth", peer={"ifname": "eth0", "net_ns_pid": pid})
            self._plug(here, f"m{number}")

    def answer(self, number: int) -> None:
        """The other end of `connect`, in that process."""
        with IPRoute() as here:
            here.link("set", index=_index(here, "lo"), state="up")
            _bring_up(here, "eth0", self.address(number))
            here.route("add", dst="default", gateway=f"{self._subnet}.1")

    def turn(self, number: int, on: bool) -> None:
        """Pull the cable, or plug it in."""
        with IPRoute() as here:
            here.link("set", index=_index(here, f"m{number}"), state="up" if on else "down")

    def _plug(self, here: IPRoute, name: str) -> None:
        here.link("set", index=_index(here, name), master=_index(here, "switch"), state="up")


def leave_network() -> None:
    """Give this process an empty namespace of its own. Raises PermissionError."""
    _checked(_libc.unshare(_NEW_NETWORK))


def _enter(namespace: int) -> None:
    _checked(_libc.setns(namespace, _NEW_NETWORK))


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _index(link: IPRoute, name: str) -> int:
    return int(link.link_lookup(ifname=name)[0])


def _bring_up(link: IPRoute, name: str, address: str) -> None:
    index = _index(link, name)
    link.addr("add", index=index, address=address, prefixlen=24)
    link.link("set", index=index, state="up")


def cable_of(yard: int) -> Path:
    """What this machine has of the network that a process made, while there is anything of it."""
    return Path("/sys/class/net") / f"aryl{yard}"
