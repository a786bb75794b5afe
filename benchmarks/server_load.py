"""Many clients at one server: every job ends in its right state, and asking for a job stays quick.

::

    python -m benchmarks.server_load --clients 200 --jobs 1000
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks._server import DEMO, arguments, publish
from mineru_cli.bench.sampling import quantile
from tests.server.serving import Process

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """What the clients saw.

    :ivar outcomes: what was sent and the state it ended in → jobs.
    :ivar wrong: jobs that did not end as they should.
    :ivar twice: jobs that were begun more than once.
    :ivar get_ms: of ``GET /v1/jobs/{id}`` while the jobs ran.
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
    rss_mib: dict[str, float]


class _Load:
    def __init__(self, url: str, jobs: int) -> None:
        self.url = url
        self.documents = [(DEMO / "contract.pdf").read_bytes(), (DEMO / "paper.pdf").read_bytes(), b"%PDF-1.7 nothing"]
        self.left = iter(range(jobs))
        self.outcomes: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.ids: set[str] = set()
        self.wrong = self.twice = self.refused = self.resets = 0

    async def client(self, client: httpx.AsyncClient) -> None:
        for number in self.left:
            kind = 2 if number % 20 == 0 else number % 2
            job = await self.create(client, kind, number)
            self.ids.add(job["id"])
            while job["state"] in ("queued", "running"):
                await asyncio.sleep(_POLL_S)
                job = await self.look(client, job["id"])
            sent = "damaged" if kind == 2 else "good"
            self.outcomes[f"{sent}: {job['state']}"] += 1
            self.wrong += job["state"] != ("failed" if kind == 2 else "completed")
            self.twice += job["attempts"] != 1

    async def look(self, client: httpx.AsyncClient, job_id: object) -> dict[str, object]:
        while True:
            began = time.perf_counter()
            try:
                answer = await client.get(f"/v1/jobs/{job_id}")
            except httpx.TransportError:  # the server closed an idle connection as we took it
                self.resets += 1
                continue
            self.latencies.append((time.perf_counter() - began) * 1000)
            job: dict[str, object] = answer.json()
            return job

    async def create(self, client: httpx.AsyncClient, kind: int, number: int) -> dict[str, object]:
        while True:
            files = {"files": (f"d{number}.pdf", self.documents[kind])}
            try:
                answer = await client.post(
                    "/v1/jobs",
                    files=files,
                    data={"tier": "flash", "cache": "false"},
                    headers={"Idempotency-Key": str(number)},
                )
            except httpx.TransportError:
                self.resets += 1
                continue
            if answer.status_code in (200, 202):
                job: dict[str, object] = answer.json()
                return job
            assert answer.status_code == 429, answer.text
            self.refused += 1
            await asyncio.sleep(float(answer.headers["Retry-After"]))


async def _run(server: Process, clients: int, jobs: int) -> Report:
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    load = _Load(server.url, jobs)
    before, began = process.memory_info().rss, time.monotonic()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients, keepalive_expiry=3)
    async with httpx.AsyncClient(base_url=server.url, limits=limits, timeout=60, trust_env=False) as client:
        await asyncio.gather(*(load.client(client) for _ in range(clients)))
        seconds = time.monotonic() - began
        known = set()
        page = {"has_more": True, "last_id": None}
        while page["has_more"]:
            after = {"after": page["last_id"]} if page["last_id"] else {}
            page = (await client.get("/v1/jobs", params={"limit": 100, **after})).json()
            known |= {job["id"] for job in page["data"]}
    ordered = sorted(load.latencies)
    return Report(
        clients=clients,
        jobs=jobs,
        seconds=round(seconds, 1),
        outcomes=dict(load.outcomes),
        wrong=load.wrong,
        lost=len(load.ids - known) + len(known - load.ids),
        twice=load.twice,
        refused=load.refused,
        resets=load.resets,
        gets=len(ordered),
        get_ms={f"p{share:g}": round(quantile(ordered, share / 100), 1) for share in (50, 95, 99, 100)},
        rss_mib={"start": round(before / (1 << 20), 1), "end": round(process.memory_info().rss / (1 << 20), 1)},
    )


def main() -> None:
    """The command."""
    parser = arguments(__doc__, jobs=1000)
    parser.add_argument("--clients", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Process(Path(place) / "data", "--concurrency", "2").start()
        try:
            report = asyncio.run(_run(server, given.clients, given.jobs))
        finally:
            server.stop()
    publish(report, given.output)


if __name__ == "__main__":
    main()
