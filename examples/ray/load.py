"""Requests at a rate that falls and rises, whatever becomes of them: nobody waits for an answer to ask again.

    python load.py http://127.0.0.1:8000/ --points 0:40,60:5,180:5,240:40 --line --for 300

The rate is given by points, SECONDS:REQUESTS a second, in steps or (`--line`) by lines between them; or by a
curve, a CSV file with two columns, seconds and any measure of load, whose peak is `--peak` requests a second
and whose time passes `--speed` times as fast. It ends after `--for` seconds, or when it is interrupted, waits
for the answers that are due, and prints one line of JSON. The exit code is 1 if a request has failed.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import math
import signal
import sys
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

import aiohttp


@dataclass(frozen=True)
class Rate:
    """Requests a second by time: `times_s` rise, the first is 0."""

    times_s: list[float]
    rates: list[float]
    line: bool = False

    def at(self, now_s: float) -> float:
        """The rate at a time; after the last point, the last one."""
        after = bisect_right(self.times_s, now_s)
        before = max(after - 1, 0)
        if not self.line or after == len(self.times_s):
            return self.rates[before]
        part = (now_s - self.times_s[before]) / (self.times_s[after] - self.times_s[before])
        return self.rates[before] + part * (self.rates[after] - self.rates[before])


@dataclass
class Tally:
    """What became of the requests."""

    sent: int = 0
    latencies_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, object]:
        """As it is printed; latencies in milliseconds."""
        ordered = sorted(self.latencies_s)

        def at(share: float) -> float | None:
            index = max(math.ceil(share * len(ordered)) - 1, 0)
            return round(ordered[index] * 1000, 1) if ordered else None

        return {
            "sent": self.sent,
            "answered": len(ordered),
            "failed": sum(self.failures.values()),
            "failures": dict(self.failures),
            "latency_ms": {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "most": at(1.0)},
        }


async def ask(session: aiohttp.ClientSession, url: str, tally: Tally) -> None:
    """One request."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        async with session.get(url) as answer:
            await answer.read()
            if answer.status != 200:
                tally.failures[f"HTTP {answer.status}"] += 1
                return
    except (aiohttp.ClientError, TimeoutError) as error:
        tally.failures[type(error).__name__] += 1
        return
    tally.latencies_s.append(loop.time() - began_s)


async def run(url: str, rate: Rate, for_s: float, patience_s: float) -> Tally:
    """Ask for so long. A request without an answer after `patience_s` has failed."""
    loop, tally, over = asyncio.get_running_loop(), Tally(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    print(f"asking {url}", file=sys.stderr, flush=True)
    began_s = loop.time()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=patience_s)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        asked = set()
        due_s = 0.0  # when the next request is to be sent
        while not over.is_set() and due_s < for_s - 1e-9:  # however the pauses have added up
            now_rate = rate.at(due_s)
            wait_s = began_s + due_s - loop.time()
            if wait_s > 0:
                try:
                    await asyncio.wait_for(over.wait(), wait_s)
                    break
                except TimeoutError:
                    pass
            if now_rate > 0:
                tally.sent += 1
                request = asyncio.create_task(ask(session, url, tally))
                asked.add(request)
                request.add_done_callback(asked.discard)
            due_s += min(1 / now_rate, 1.0) if now_rate > 0 else 0.1
        await asyncio.gather(*asked)
    return tally


def points(text: str, line: bool) -> Rate:
    """0:40,60:5 as a rate. Raises ValueError."""
    pairs = [tuple(map(float, pair.split(":"))) for pair in text.split(",")]
    times_s, rates = [time_s for time_s, _ in pairs], [rate for _, rate in pairs]
    if times_s[0] != 0 or times_s != sorted(set(times_s)) or min(rates) < 0:
        raise ValueError("points begin at 0, rise in time, and have no rate below 0")
    return Rate(times_s, rates, line)


def curve(path: str, peak: float, speed: float, line: bool) -> Rate:
    """A CSV file as a rate; lines that hold no two numbers are passed over. Raises ValueError, OSError."""
    rows = []
    with open(path, newline="") as file:
        for row in csv.reader(file):
            try:
                rows.append((float(row[0]), float(row[1])))
            except (ValueError, IndexError):
                continue
    highest = max((load for _, load in rows), default=0.0)
    if highest <= 0:
        raise ValueError(f"{path} holds no load")
    first_s = rows[0][0]
    times_s = [(time_s - first_s) / speed for time_s, _ in rows]
    if times_s != sorted(set(times_s)):
        raise ValueError(f"the times in {path} don't rise")
    return Rate(times_s, [load / highest * peak for _, load in rows], line)


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--points", help="SECONDS:RATE,SECONDS:RATE,...")
    what.add_argument("--curve", help="a CSV file: seconds, load")
    parser.add_argument("--peak", type=float, default=40.0, help="of a curve, in requests a second")
    parser.add_argument("--speed", type=float, default=1.0, help="of the time of a curve")
    parser.add_argument("--line", action="store_true", help="lines between the points, no steps")
    parser.add_argument("--for", dest="for_s", type=float, default=math.inf, help="seconds")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds until a request has failed")
    args = parser.parse_args(argv)
    try:
        rate = (
            points(args.points, args.line)
            if args.points
            else curve(args.curve, args.peak, args.speed, args.line)
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    tally = asyncio.run(run(args.url, rate, args.for_s, args.patience))
    print(json.dumps(tally.summary()), flush=True)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
