"""A benchmark in this process: warm-up, runs, cancels, and the report of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath

from mineru_cli.bench.cancel import CancelStep, run_cancel
from mineru_cli.bench.counters import Counters, requests_in_flight
from mineru_cli.bench.feed import Arrival, Feed, Load
from mineru_cli.bench.head import Head
from mineru_cli.bench.identity import builtin_engine, identify
from mineru_cli.bench.leftovers import scratch_directory
from mineru_cli.bench.live import Board, Step
from mineru_cli.bench.modes import Interrupted, Round, Stop, Target, order_of_runs, run_round
from mineru_cli.bench.plan import Plan
from mineru_cli.bench.report import Cancellation, DocumentSample, EngineIdentity, Mode, Report, Run
from mineru_cli.bench.results import Results
from mineru_cli.bench.sampling import Sampler, Watched
from mineru_cli.bench.server_metrics import ServerMetrics
from mineru_cli.bench.source import describe_source
from mineru_cli.bench.workload import BenchDocument
from mineru_engine import api
from mineru_engine.errors import MineruError
from mineru_engine.gpu import GpuProbe
from mineru_engine.options import Engine, ParseOptions, Tier
from mineru_engine.processes import Tree
from mineru_engine.resident import needs_model
from mineru_engine.runtime.registry import Lease
from mineru_engine.settings import Settings
from mineru_engine.vlm.config import VlmConfig

__all__ = ("Hooks", "measure")


@dataclass(frozen=True, slots=True)
class Hooks:
    """What others have to do with a benchmark in progress.

    :ivar stop: ends it.
    :ivar ready: called when the engine is up; from then on ``stop`` is heeded.
    :ivar keep: gets the report of what there is after each repeat.
    """

    board: Board
    stop: Stop
    ready: Callable[[], object] = lambda: None
    keep: Callable[[Report], object] = lambda report: None


def measure(plan: Plan, hooks: Hooks) -> Report:
    """Do all that the plan says; after a stop, the report of what was done until then.

    :raises Interrupted: if a stop came before anything was measured.
    :raises MineruError: if the engine does not come up, or no document at all can be read.
    """
    with ExitStack() as stack:
        session = _Session(plan, hooks, stack)
        hooks.ready()
        try:
            session.warm_up()
            session.run_all()
            session.cancel_all()
        except Interrupted:
            if not session.runs and not session.cancellation:
                raise
            return session.report(complete=False)
        return session.report(complete=True)


class _Session:
    """State of a benchmark.

    :param stack: gets the release of everything that it takes.
    """

    def __init__(self, plan: Plan, hooks: Hooks, stack: ExitStack) -> None:
        self.runs: list[Run] = []
        self.cancellation: list[Cancellation] = []
        self._plan, self._hooks = plan, hooks
        settings, options = Settings.load(plan.config), ParseOptions.create(**plan.options)
        self._head = Head(plan, settings, options, partial(describe_source, plan.source_state))
        self._documents = plan.documents.documents
        self._results = Results(len(self._documents))
        self._looking_s = 0.0
        self._scratch = stack.enter_context(scratch_directory())
        self._target = Target(self._documents, settings, stack.enter_context(Lease("bench")), plan.options)
        tier = options.effective_tier(settings.model.vlm)
        config = VlmConfig.resolve(settings.model.vlm, options) if needs_model(tier) else None
        self._server = stack.enter_context(ServerMetrics(config))
        served = config is not None and config.engine is Engine.HTTP
        self._watched = Watched(
            Tree(), stack.enter_context(GpuProbe(served=served)), requests_in_flight, tell=hooks.board.show
        )
        self._engine = self._start(tier, config)

    def _start(self, tier: Tier, config: VlmConfig | None) -> EngineIdentity:
        info = api.preload(settings=self._target.settings, lease=self._target.lease, **self._plan.options)
        if info is None or config is None:
            return builtin_engine(tier)
        return identify(info, config, simulated=self._server.simulated())

    # running

    def warm_up(self) -> None:
        """Read all documents before anything counts.

        :raises MineruError: if none can be read.
        """
        steps = [
            Step(mode, concurrency, repeat) for repeat in self._repeats for mode, concurrency in self._order(repeat)
        ]
        self._hooks.board.plan(steps)
        for number in range(self._plan.warmup):
            step = Step(None, max(self._plan.concurrencies), number)
            work = self._round(step)
            with self._sampler():
                run_round(Mode.ASYNC, step.concurrency, work, self._hooks.stop)
            self._hooks.board.warmed_up(work, self._plan.duration_s or work.elapsed_s)
            self._tell_errors(work)
            if number == 0 and self._plan.save_results is not None:
                _save(work, self._documents, self._plan.save_results)
            self._keep_results(work)

    def run_all(self) -> None:
        """Every repeat of every mode and concurrency."""
        for repeat in self._repeats:
            for mode, concurrency in self._order(repeat):
                self._run(Step(mode, concurrency, repeat))
            self._hooks.keep(self.report(complete=False))
        share = self._looking_s / sum(run.elapsed_s for run in self.runs)
        self._hooks.board.say(f"looking at memory and load took {share:.2%} of one core")

    def cancel_all(self) -> None:
        """The runs that are cancelled, if there are to be any."""
        if self._plan.cancel_after_s is None:
            return
        for repeat in self._repeats:
            for concurrency in self._plan.concurrencies:
                documents = [number % len(self._documents) for number in range(repeat, repeat + concurrency)]
                step = CancelStep(documents, self._plan.cancel_after_s, repeat)
                found = run_cancel(step, self._target, self._server, self._scratch, self._hooks.stop)
                self.cancellation.append(found)
                slowest = f", the slowest returned after {max(found.return_s):.3f} s" if found.return_s else ""
                self._hooks.board.say(
                    f"cancel, {concurrency} at a time, repeat {repeat + 1}: {len(found.return_s)} cancelled{slowest}"
                )

    def _run(self, step: Step) -> None:
        assert step.mode is not None
        work = self._round(step)
        before = Counters.read(self._server)
        with self._sampler() as sampler:
            lag = run_round(step.mode, step.concurrency, work, self._hooks.stop)
        counted = Counters.read(self._server).since(before)
        samples = sampler.samples()
        self._looking_s += samples.own_s
        good = [sample for sample in work.samples if sample.error is None]
        pages, elapsed_s = sum(sample.pages for sample in good), work.elapsed_s
        run = Run(
            mode=step.mode,
            concurrency=step.concurrency,
            repeat=step.repeat,
            elapsed_s=elapsed_s,
            pages=pages,
            documents_per_s=len(good) / elapsed_s,
            pages_per_s=pages / elapsed_s,
            samples=[_rounded(sample) for sample in work.samples],
            loop_lag=lag,
            resources=samples.resources(pages),
            requests=counted.report(samples, elapsed_s),
            gpu=samples.gpu(),
            series=samples.series(),
        )
        self.runs.append(run)
        self._hooks.board.end(step, run)
        self._keep_results(work)

    @property
    def _repeats(self) -> range:
        return range(self._plan.first_repeat, self._plan.first_repeat + self._plan.repeats)

    def _order(self, repeat: int) -> list[tuple[Mode, int]]:
        return order_of_runs(self._plan.modes, self._plan.concurrencies, f"{self._plan.seed}/{repeat}")

    def _round(self, step: Step) -> Round:
        """The warm-up is a batch; all modes and concurrencies of a repeat get the documents in the same order."""
        plan = self._plan
        load = Load(plan.times)
        if step.mode is not None:
            load = Load(plan.times, Arrival.parse(plan.arrival), plan.duration_s)
        feed = Feed(len(self._documents), load, f"{plan.seed}/{step.repeat}")
        work = Round(self._target, feed)
        self._hooks.board.begin(step, work)
        return work

    def _sampler(self) -> Sampler:
        return Sampler(self._watched, self._plan.sample_every_s)

    def _keep_results(self, work: Round) -> None:
        for index, result in work.results.items():
            self._results.add(index, result)
        work.results.clear()

    def _tell_errors(self, work: Round) -> None:
        for index, error in work.errors.items():
            what = f"{error.message} ({error.code})" if isinstance(error, MineruError) else repr(error)
            self._hooks.board.say(f"{self._documents[index].name}: {what}")
        if not work.results and work.errors:
            raise next(iter(work.errors.values()))

    # reporting

    def report(self, *, complete: bool) -> Report:
        """What there is by now."""
        return self._head.report(
            self._engine,
            self._results.pages,
            self.runs,
            self._results.table(),
            complete=complete,
            cancellation=self.cancellation,
        )


def _rounded(sample: DocumentSample) -> DocumentSample:
    """To microseconds: more is noise."""
    names = ("due_s", "queued_s", "parse_s")
    return sample.model_copy(update={name: round(getattr(sample, name), 6) for name in names})


def _save(work: Round, documents: Sequence[BenchDocument], directory: Path) -> None:
    for index, result in sorted(work.results.items()):
        whole, _, pages = documents[index].name.partition("#")
        path = PurePath(whole)
        stem = "_".join(filter(None, (*path.parts[:-1], path.stem, pages))).replace("/", "")
        replace(result, name=f"{stem}{path.suffix}").save(directory)
