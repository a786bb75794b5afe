"""``kill -9`` at random moments: afterwards every job that was accepted has exactly one result, or says that it ran
at as many of them as ``server.max_attempts`` lets it.

::

    python -m benchmarks.server_kill --jobs 100 --kills 20
    python -m benchmarks.server_kill --jobs 100 --kills 20 --max-attempts 21    # whatever was killed is done in the end
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import httpx

from benchmarks._server import DEMO, arguments, publish
from tests.server.serving import Client, Process


@dataclass(frozen=True, slots=True)
class Report:
    """What was found after the last kill.

    :ivar lost: ids that were accepted and are not known any more.
    :ivar states: state → jobs.
    :ivar results_per_job: whole results of a job → jobs; those that were interrupted for good are not among them.
    :ivar interrupted: jobs that ran at so many of the kills, and say so.
    :ivar twice: idempotency keys that made more than one job.
    """

    jobs: int
    kills: int
    max_attempts: int
    seconds: float
    lost: list[str]
    states: dict[str, int]
    results_per_job: dict[int, int]
    interrupted: int
    attempts: dict[int, int]
    twice: int


def run(
    server: Process,
    documents: Sequence[Path],
    *,
    jobs: int,
    kills: int,
    seed: int,
    every: tuple[float, float] = (1.0, 6.0),
    max_attempts: int = 2,
) -> Report:
    """Send jobs while the server is killed and started again and again.

    :param every: shortest and longest life of a server, seconds.
    :param max_attempts: what the server was told.
    """
    began, chance = time.monotonic(), random.Random(seed)
    accepted: dict[str, set[str]] = {}
    server.start()
    pause = kills * sum(every) / 2 / jobs  # so that jobs come until the last kill
    sender = threading.Thread(target=_send, args=(server, documents, jobs, accepted, pause))
    sender.start()
    for _ in range(kills):
        time.sleep(chance.uniform(*every))
        server.kill()
        server.start()
    sender.join()
    with server.client() as client:
        return _look(client, accepted, kills, began, max_attempts)


def _send(server: Process, documents: Sequence[Path], jobs: int, accepted: dict[str, set[str]], pause: float) -> None:
    """Each job until it is accepted, as a client with an idempotency key does."""
    with server.client() as client:
        for number in range(jobs):
            key = str(uuid4())
            while key not in accepted:
                with contextlib.suppress(httpx.TransportError, AssertionError):
                    job = client.create(
                        documents[number % len(documents)], headers={"Idempotency-Key": key}, cache="false"
                    )
                    accepted.setdefault(key, set()).add(job["id"])
                time.sleep(0.02)
            time.sleep(pause)


def _look(client: Client, accepted: dict[str, set[str]], kills: int, began: float, most: int) -> Report:
    lost: list[str] = []
    states, results, attempts, interrupted = Counter[str](), Counter[int](), Counter[int](), 0
    for job_id in [job_id for ids in accepted.values() for job_id in ids]:
        if client.get(f"/v1/jobs/{job_id}").status_code != 200:
            lost.append(job_id)
            continue
        job = client.ended(job_id)
        states[job["state"]] += 1
        attempts[job["attempts"]] += 1
        if job["error"] and job["error"]["code"] == "job_interrupted" and job["attempts"] == most:
            interrupted += 1
        else:
            results[_results(client, job)] += 1
    twice = sum(len(ids) > 1 for ids in accepted.values())
    seconds = round(time.monotonic() - began, 1)
    return Report(
        len(accepted),
        kills,
        most,
        seconds,
        lost,
        dict(states),
        dict(results),
        interrupted,
        dict(sorted(attempts.items())),
        twice,
    )


def _results(client: Client, job: dict[str, object]) -> int:
    """Whole results in what the job gives out."""
    answer = client.get(f"/v1/jobs/{job['id']}/result", params={"format": "zip"})
    if answer.status_code != 200:
        return 0
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        return sum(name.endswith(".md") and len(archive.read(name)) > 100 for name in archive.namelist())


def main() -> None:
    """The command."""
    parser = arguments(__doc__, jobs=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, nargs=2, default=(1.0, 6.0), metavar="SECONDS")
    parser.add_argument("--max-attempts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        environ = {"MINERU_SERVER_MAX_ATTEMPTS": str(given.max_attempts)}
        server = Process(Path(place) / "data", "--concurrency", "2", environ=environ)
        try:
            documents = [DEMO / "contract.pdf", DEMO / "paper.pdf"]
            report = run(
                server,
                documents,
                jobs=given.jobs,
                kills=given.kills,
                seed=given.seed,
                every=given.every,
                max_attempts=given.max_attempts,
            )
        finally:
            server.stop()
    publish(report, given.output)


if __name__ == "__main__":
    main()
