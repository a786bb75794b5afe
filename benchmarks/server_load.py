"""Many clients at one server: every job ends in its right state, and asking for a job stays quick.

The clients come and ask when they like, as those of different people do: they start within the first few seconds and
wait half a second to one and a half before they ask again.

::

    python -m benchmarks.server_load --clients 200 --jobs 1000
    python -m benchmarks.server_load --clients 20 --minutes 30    # is its memory flat?
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp
import psutil

from benchmarks._server import DEMO, arguments, publish
from mineru_cli.bench.sampling import quantile
from mineru_engine.processes import Tree
from tests.server.serving import Process

_POLL_S = (0.5, 1.5)
_START_S = 5.0
_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class Report:
    """What the clients saw.

    :ivar outcomes: what was sent and the state it ended in → jobs.
    :ivar wrong: jobs that did not end as they should.
    :ivar twice: jobs that were begun more than once.
    :ivar get_ms: of ``GET /v1/jobs/{id}`` while the jobs ran.
    :ivar server_mib: resident memory of the server's process, the median of each minute.
    :ivar all_mib: of all its processes.
    """

    clients: int
    jobs: int
    seconds: float
    outcomes: dict[str, int]
    wrong: int
    lost: int
    twice: int
    refused: int
    resets: int
    gets: int
    get_ms: dict[str, float]
    server_mib: list[float]
    all_mib: list[float]


class _Load:
    def __init__(self, numbers: Iterator[int]) -> None:
        self.documents = [(DEMO / "contract.pdf").read_bytes(), (DEMO / "paper.pdf").read_bytes(), b"%PDF-1.7 nothing"]
        self.left = numbers
        self.outcomes: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.ids: set[str] = set()
        self.wrong = self.twice = self.refused = self.resets = 0

    async def client(self, client: aiohttp.ClientSession) -> None:
        await asyncio.sleep(random.uniform(0, _START_S))
        for number in self.left:
            kind = 2 if number % 20 == 0 else number % 2
            job = await self.create(client, kind, number)
            self.ids.add(job["id"])
            while job["state"] in ("queued", "running"):
                await asyncio.sleep(random.uniform(*_POLL_S))
                job = await self.look(client, job["id"])
            sent = "damaged" if kind == 2 else "good"
            self.outcomes[f"{sent}: {job['state']}"] += 1
            self.wrong += job["state"] != ("failed" if kind == 2 else "completed")
            self.twice += job["attempts"] != 1

    async def look(self, client: aiohttp.ClientSession, job_id: object) -> dict[str, object]:
        while True:
            began = time.perf_counter()
            try:
                async with client.get(f"/v1/jobs/{job_id}", raise_for_status=True) as answer:
                    job: dict[str, object] = await answer.json()
            except aiohttp.ClientConnectionError:  # the server closed an idle connection as we took it
                self.resets += 1
                continue
            self.latencies.append((time.perf_counter() - began) * 1000)
            return job

    async def create(self, client: aiohttp.ClientSession, kind: int, number: int) -> dict[str, object]:
        while True:
            form = aiohttp.FormData({"tier": "flash", "cache": "false"})
            form.add_field("files", self.documents[kind], filename=f"d{number}.pdf")
            try:
                async with client.post("/v1/jobs", data=form, headers={"Idempotency-Key": str(number)}) as answer:
                    if answer.status in (200, 202):
                        job: dict[str, object] = await answer.json()
                        return job
                    assert answer.status == 429, await answer.text()
            except aiohttp.ClientConnectionError:
                self.resets += 1
                continue
            self.refused += 1
            await asyncio.sleep(float(answer.headers["Retry-After"]))


@dataclass
class _Memory:
    """Looks at the server's memory now and then."""

    pid: int
    server: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)

    async def watch(self) -> None:
        process = psutil.Process(self.pid)
        tree = Tree(process)
        while True:
            tree.refresh()
            if (found := tree.look()) is not None:
                self.server.append(process.memory_info().rss / (1 << 20))
                self.all.append(found[0])
            await asyncio.sleep(_LOOK_S)

    @staticmethod
    def by_minute(values: list[float]) -> list[float]:
        looks = round(60 / _LOOK_S)
        return [round(median(values[at : at + looks]), 1) for at in range(0, len(values), looks)]


def _until(end: float) -> Iterator[int]:
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())


async def _run(server: Process, clients: int, jobs: int, minutes: float) -> Report:
    assert server.process is not None
    began = time.monotonic()
    load = _Load(_until(began + 60 * minutes) if minutes else iter(range(jobs)))
    memory = _Memory(server.process.pid)
    watching = asyncio.create_task(memory.watch())
    connector = aiohttp.TCPConnector(limit=clients, keepalive_timeout=3)
    async with aiohttp.ClientSession(server.url, connector=connector, timeout=aiohttp.ClientTimeout(60)) as client:
        await asyncio.gather(*(load.client(client) for _ in range(clients)))
        seconds = time.monotonic() - began
        watching.cancel()
        known = set()
        page = {"has_more": True, "last_id": None}
        while page["has_more"]:
            after = {"after": page["last_id"]} if page["last_id"] else {}
            async with client.get("/v1/jobs", params={"limit": "100", **after}) as answer:
                page = await answer.json()
            known |= {job["id"] for job in page["data"]}
    ordered = sorted(load.latencies)
    return Report(
        clients=clients,
        jobs=len(load.ids),
        seconds=round(seconds, 1),
        outcomes=dict(load.outcomes),
        wrong=load.wrong,
        lost=len(load.ids - known) + len(known - load.ids),
        twice=load.twice,
        refused=load.refused,
        resets=load.resets,
        gets=len(ordered),
        get_ms={f"p{share:g}": round(quantile(ordered, share / 100), 1) for share in (50, 95, 99, 100)},
        server_mib=memory.by_minute(memory.server),
        all_mib=memory.by_minute(memory.all),
    )


def main() -> None:
    """The command."""
    parser = arguments(__doc__, jobs=1000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long, however many jobs that is")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Process(Path(place) / "data", "--concurrency", "2").start()
        try:
            report = asyncio.run(_run(server, given.clients, given.jobs, given.minutes))
        finally:
            server.stop()
    publish(report, given.output)


if __name__ == "__main__":
    main()
