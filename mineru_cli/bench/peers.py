"""Another tool reads the same documents, through its runner in ``benchmarks/peers``; the report is of the same form.

A runner is a process in the tool's own environment, and tells of a round what it knows: what it does not tell, and what
cannot be seen from outside, is ``None`` in the report.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import psutil

from mineru_cli.bench.feed import Arrival
from mineru_cli.bench.head import Head
from mineru_cli.bench.identity import identify
from mineru_cli.bench.modes import Interrupted
from mineru_cli.bench.plan import Plan
from mineru_cli.bench.report import (
    Caveat,
    DocumentResult,
    DocumentSample,
    EngineIdentity,
    Mode,
    Report,
    RequestCounts,
    Run,
    Source,
)
from mineru_cli.bench.sampling import Sampler, Samples, Watched
from mineru_cli.bench.server_metrics import ServerMetrics
from mineru_cli.bench.session import Hooks
from mineru_cli.bench.source import git_state, package_root
from mineru_cli.bench.workload import BenchDocument
from mineru_cli.errors import UsageProblem
from mineru_engine import api
from mineru_engine.errors import MineruError
from mineru_engine.gpu import GpuProbe
from mineru_engine.manifest import hash_file
from mineru_engine.options import Engine, ParseOptions, Tier
from mineru_engine.processes import Tree
from mineru_engine.resident import needs_model
from mineru_engine.runtime.registry import Lease
from mineru_engine.settings import Settings
from mineru_engine.vlm.config import VlmConfig

__all__ = ("measure_peer",)

_RUNNERS = Path("benchmarks", "peers")
_ENVIRONMENTS = Path("build", "peers")
_SHARED = "_measure.py"
_LIST = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
_UNKNOWN = RequestCounts(
    done=None,
    failed=None,
    requests_per_s=None,
    completion_tokens=None,
    tokens_per_s=None,
    mean_in_flight=None,
    peak_in_flight=None,
    busy_s=None,
)


def measure_peer(name: str, plan: Plan, hooks: Hooks) -> Report:
    """Measure a peer; after a stop, the report of what was done until then.

    :raises UsageProblem: if there is no such peer, or it cannot do what is asked for.
    :raises Interrupted: if a stop came before anything was measured.
    :raises MineruError: if its runner fails.
    """
    peer = _Peer.find(name)
    with ExitStack() as stack:
        session = _Session(peer, plan, hooks, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        hooks.ready()
        try:
            session.run_all()
        except Interrupted:
            if not session.runs:
                raise
            return session.report(complete=False)
        return session.report(complete=True)


@dataclass(frozen=True, slots=True)
class _Peer:
    """A tool that can be run.

    :ivar root: of the repository.
    """

    name: str
    root: Path
    python: Path
    runner: Path

    @classmethod
    def find(cls, name: str) -> _Peer:
        """By the name of its environment or of its runner."""
        root = package_root("mineru_cli")
        short = name.removesuffix("_http")
        runners = [root / _RUNNERS / f"{stem}.py" for stem in (short, f"{short}_http")]
        runner = next((path for path in runners if path.is_file()), None)
        if runner is None or name.startswith("_"):
            environments = sorted((root / _ENVIRONMENTS).glob("*/bin/python"))
            ready = ", ".join(path.parents[1].name for path in environments) or "none is set up"
            raise UsageProblem(f"no peer {name!r}", f"peers come with the repository, in {_RUNNERS}; {ready}")
        python = root / _ENVIRONMENTS / short / "bin" / "python"
        if not python.is_file():
            raise UsageProblem(f"the peer {name} is not installed", f"run {_RUNNERS / 'setup.sh'} {short}")
        return cls(short, root, python, runner)

    def source(self) -> Source:
        """Its runner, and what is installed with it."""
        files = {
            path.relative_to(self.root).as_posix(): hash_file(path)
            for path in (self.runner.with_name(_SHARED), self.runner)
        }
        listed = "".join(f"{digest}  {name}\n" for name, digest in files.items())
        revision, dirty = git_state(self.root)
        lock = self.root / "requirements" / f"peer-{self.name.replace('_', '-')}.txt"
        said = subprocess.run([str(self.python), "-c", _LIST], capture_output=True, check=True)
        return Source(
            revision=revision,
            dirty=dirty,
            tree_sha256=sha256(listed.encode()).hexdigest(),
            files=files,
            distributions=dict(sorted(orjson.loads(said.stdout).items())),
            lock_sha256=hash_file(lock) if lock.is_file() else None,
        )


class _Session:
    """State of a benchmark of a peer.

    :param scratch: for files that the peer needs.
    """

    def __init__(self, peer: _Peer, plan: Plan, hooks: Hooks, scratch: Path) -> None:
        self.runs: list[Run] = []
        self._version = "unknown"
        self._peer, self._hooks = peer, hooks
        self._plan = plan.model_copy(update={"modes": (Mode.ASYNC,)})
        settings, options = Settings.load(plan.config), ParseOptions.create(**plan.options)
        self._url = _server_url(settings, options, plan)
        self._head = Head(self._plan, settings, options, peer.source)
        self._engine = _identify(settings, options, plan)
        self._max_requests = settings.model.vlm.max_concurrency
        files = [_as_file(document, scratch) for document in plan.documents.documents]
        self._files, self._pages = [path for path, _ in files], [pages for _, pages in files]

    def run_all(self) -> None:
        """Every concurrency in every repeat; each round is a process of its own, with its own warm-up."""
        for repeat in range(self._plan.repeats):
            order = list(self._plan.concurrencies)
            random.Random(f"{self._plan.seed}/{repeat}").shuffle(order)
            for concurrency in order:
                run = self._run(concurrency, repeat)
                self.runs.append(run)
                self._hooks.board.say(
                    f"{self._peer.name}, {concurrency} at a time, repeat {repeat + 1}: {run.pages_per_s:.2f} pages/s, "
                    f"{run.resources.peak_rss_mib:.0f} MiB"
                )
            self._hooks.keep(self.report(complete=False))

    def _run(self, concurrency: int, repeat: int) -> Run:
        order = list(range(len(self._files))) * self._plan.times
        random.Random(f"{self._plan.seed}/{repeat}/documents").shuffle(order)
        command = [self._peer.python, self._peer.runner, "--server-url", self._url, "--concurrency", concurrency]
        command += ["--max-concurrency", self._max_requests]
        command += ["--warm-up", self._files[order[0]]] if self._plan.warmup else []
        said, samples = self._watch([str(word) for word in (*command, *(self._files[index] for index in order))])
        self._version = said["version"]
        elapsed_s, pages = said["seconds"], said["pages"]
        return Run(
            mode=Mode.ASYNC,
            concurrency=concurrency,
            repeat=repeat,
            elapsed_s=elapsed_s,
            pages=pages,
            documents_per_s=said["documents"] / elapsed_s,
            pages_per_s=pages / elapsed_s,
            samples=self._samples(said.get("samples", []), order),
            loop_lag=None,
            resources=samples.resources(pages).model_copy(
                update={
                    "peak_rss_mib": round(said["peak_rss_mb"], 1),
                    "cpu_s": round(said["cpu_s"], 3),
                    "cpu_ms_per_page": round(1000 * said["cpu_s"] / pages, 3) if pages else None,
                }
            ),
            requests=_UNKNOWN,
            gpu=samples.gpu(),
            series=samples.series(),
        )

    def _watch(self, command: Sequence[str]) -> tuple[dict[str, Any], Samples]:
        """Run it to its end; what it printed of its round, and what was seen of its processes in that time."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MINERU_")}
        with tempfile.TemporaryFile("w+") as complaints, GpuProbe(served=True) as gpu:
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=complaints, env=environment, start_new_session=True
            ) as process:
                assert process.stdout is not None
                with (
                    self._hooks.stop.ends(process.terminate),
                    Sampler(Watched(Tree(psutil.Process(process.pid)), gpu), self._plan.sample_every_s) as sampler,
                ):
                    line = process.stdout.readline()
                    ended_s = sampler.elapsed()
            complaints.seek(0)
            if process.returncode or not line:
                end = complaints.read()[-2000:].strip()
                raise MineruError(f"the runner of {self._peer.name} ended with {process.returncode}: {end}")
        said: dict[str, Any] = orjson.loads(line)
        return said, _during(sampler.samples(), ended_s - said["seconds"], ended_s)

    def _samples(self, told: Sequence[dict[str, Any]], order: Sequence[int]) -> list[DocumentSample]:
        """For each document, in the order of the command line, what a runner tells: when it began, and seconds."""
        samples = []
        for index, item in zip(order, told, strict=False):
            times = {"queued_s": round(item["began_s"], 6), "parse_s": round(item["seconds"], 6)}
            samples.append(DocumentSample(input=index, due_s=0.0, pages=item["pages"], **times))
        return samples

    def report(self, *, complete: bool) -> Report:
        """What there is by now."""
        nothing_seen = [
            DocumentResult(input=index, sha256=None, blocks=[], variants=0) for index in range(len(self._files))
        ]
        peer = Caveat(
            code="peer",
            text=f"{self._peer.name} (version {self._version}) was measured, which reads all with the model as tier "
            f"{Tier.XHIGH} does; its results were not looked at",
        )
        return self._head.report(self._engine, self._pages, self.runs, nothing_seen, complete=complete, caveats=[peer])


def _server_url(settings: Settings, options: ParseOptions, plan: Plan) -> str:
    """The address, which is no secret: it is shown to everybody on the machine, in the list of processes.

    :raises UsageProblem: if there is none, or what is asked for is more than runners can do.
    """
    vlm = settings.model.vlm
    tier = options.effective_tier(vlm)
    config = VlmConfig.resolve(vlm, options) if needs_model(tier) else None
    if config is None or config.engine is not Engine.HTTP or config.server_url is None:
        raise UsageProblem("peers read with a model at a server", "name it with --server-url, and --tier xhigh")
    if config.api_key is not None or "@" in config.server_url:
        raise UsageProblem("the runners of peers take no credentials", "name a server that wants none")
    if plan.duration_s is not None or plan.cancel_after_s is not None or Arrival.parse(plan.arrival) != Arrival():
        raise UsageProblem("the runners of peers read a batch", "leave out --duration, --arrival and --cancel-after")
    if Mode.ASYNC not in plan.modes or plan.save_results is not None:
        raise UsageProblem("the runners of peers are asynchronous, and keep no results", "leave out the option")
    return config.server_url


def _identify(settings: Settings, options: ParseOptions, plan: Plan) -> EngineIdentity:
    config = VlmConfig.resolve(settings.model.vlm, options)
    with Lease("bench") as lease, ServerMetrics(config) as server:
        info = api.preload(settings=settings, lease=lease, **plan.options)
        assert info is not None
        return identify(info, config, simulated=server.simulated())


def _as_file(document: BenchDocument, scratch: Path) -> tuple[Path, int]:
    """The document, or a file that holds only the pages asked for, as runners know whole files; and how many pages."""
    if document.path.suffix.lower() != ".pdf":
        return document.path, 1
    import pypdfium2

    from mineru_engine.pages import parse_pages

    with pypdfium2.PdfDocument(document.path) as whole:
        pages = parse_pages(document.pages, len(whole))
        if not document.pages:
            return document.path, len(pages)
        target = scratch / f"{document.path.stem}_{document.pages.replace(',', '_')}.pdf"
        with pypdfium2.PdfDocument.new() as part:
            part.import_pages(whole, pages)
            part.save(target)
    return target, len(pages)


def _during(samples: Samples, start_s: float, end_s: float) -> Samples:
    """The looks between two moments; the last one before them if there are none."""
    inside = [replace(look, t_s=look.t_s - start_s) for look in samples.looks if start_s <= look.t_s <= end_s]
    return replace(samples, looks=inside or [replace(samples.looks[-1], t_s=0.0)])
