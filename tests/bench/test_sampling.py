"""What a run costs, and what looking at it costs."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from mineru_cli.bench.sampling import LagProbe, Sample, Sampler, Samples, Watched, quantile
from mineru_engine.gpu import GpuProbe
from mineru_engine.processes import Tree

GPU = GpuProbe(served=True)
MIB = 1 << 20


def burn(seconds: float) -> None:
    """Use the processor."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with 100 MiB that burns and says so, then waits."""
    code = "import sys, time\nx = bytearray(100 << 20)\nend = time.process_time() + 0.3\n"
    code += "while time.process_time() < end: pass\nprint('ready', flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process


def look(t_s: float, in_flight: int | None = None, vram: float | None = None, busy: float | None = None) -> Sample:
    return Sample(t_s, 100.0 + t_s, 5, 10, in_flight, vram, busy)


def test_children_count() -> None:
    alone = Tree()
    alone.refresh()
    before = alone.look()
    assert before is not None
    code = "x = bytearray(100 << 20)\nprint(1, flush=True)\nimport sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alone.refresh()
        after = alone.look()
        assert after is not None
        assert process.pid in alone.pids()
    assert after[0] > before[0] + 100
    assert after[1] > before[1]
    assert after[2] is not None and before[2] is not None and after[2] > before[2]


def test_the_time_of_a_child_counts_also_when_it_has_ended(child: subprocess.Popen[bytes]) -> None:
    with Sampler(Watched(Tree(), GPU), every_s=0) as sampler:
        assert child.stdout is not None
        child.stdout.readline()
        with Sampler(Watched(Tree(), GPU), every_s=0) as inner:
            child.communicate()
    assert inner.samples().cpu_s < 0.25  # what it had used before does not come again when it ends
    assert sampler.samples().cpu_s > 0.2


def test_a_tree_that_has_ended_is_not_a_tree_of_nothing(child: subprocess.Popen[bytes]) -> None:
    tree = Tree(psutil.Process(child.pid))
    with Sampler(Watched(tree, GPU), every_s=0) as sampler:
        child.communicate()
    assert len(sampler.samples().looks) == 1
    assert sampler.samples().resources(1).peak_rss_mib > 1


def test_there_is_a_look_at_the_start_and_at_the_end_and_in_between() -> None:
    seen: list[int] = []

    def in_flight() -> int:
        seen.append(len(seen))
        return len(seen)

    with Sampler(Watched(Tree(), GPU, in_flight), every_s=0.01) as sampler:
        while len(seen) < 4:
            time.sleep(0.001)
    looks = sampler.samples().looks
    assert [item.in_flight for item in looks] == list(range(1, len(seen) + 1))
    assert len(looks) >= 5
    assert looks[0].t_s < 0.05
    assert sampler.samples().series().in_flight == [item.in_flight for item in looks]


def test_dear_looks_are_rare_and_their_time_is_taken_off() -> None:
    def dear() -> None:
        burn(0.05)

    with Sampler(Watched(Tree(), GPU, dear), every_s=0.01) as sampler:
        time.sleep(0.4)
    samples = sampler.samples()
    assert len(samples.looks) == 3  # the first, one after 0.01 s, the last; the next one was due after 10 s
    assert samples.own_s > 0.15
    assert samples.cpu_s < 0.1


def test_ordinary_looks_cost_less_than_a_hundredth_of_a_core() -> None:
    with Sampler(Watched(Tree(), GPU)) as sampler:
        time.sleep(2)
    own_s = sampler.samples().own_s
    # The first and the last are not paced: they are no part of the share.
    assert own_s < 0.02 + 0.03


def test_what_goes_wrong_while_looking_comes_out() -> None:
    def bad() -> int:
        if sampler_started:
            raise ZeroDivisionError
        return 0

    sampler_started: list[bool] = []
    sampler = Sampler(Watched(Tree(), GPU, bad), every_s=0.01)
    with pytest.raises(ZeroDivisionError), sampler:
        sampler_started.append(True)
        sampler._thread.join()
        sampler_started.clear()


def test_unknown_stays_unknown() -> None:
    samples = Samples([look(0.0), look(1.0)], cpu_s=1.0, own_s=0.0, vram_reason="no GPU")
    assert samples.mean_in_flight() is samples.peak_in_flight() is None
    assert samples.resources(0).cpu_ms_per_page is None
    gpu = samples.gpu()
    assert (gpu.peak_vram_mib, gpu.vram_reason, gpu.mean_utilization_percent) == (None, "no GPU", None)
    assert samples.series().vram_mib == [None, None]


def test_figures_of_a_run() -> None:
    looks = [look(0.0, 0, 1.0, 0.0), look(1.0, 4, 7.0, 50.0), look(4.0, 4, 3.0, 100.0), look(5.0, 0)]
    samples = Samples(looks, cpu_s=3.0, own_s=0.1, vram_reason="went away")
    assert samples.mean_in_flight() == pytest.approx((2 + 12 + 2) / 5)
    assert samples.peak_in_flight() == 4
    resources = samples.resources(6)
    assert (resources.peak_rss_mib, resources.cpu_ms_per_page) == (105.0, 500.0)
    gpu = samples.gpu()
    assert (gpu.peak_vram_mib, gpu.vram_reason, gpu.mean_utilization_percent) == (7.0, None, 50.0)


def test_a_late_loop_is_seen() -> None:
    async def block() -> LagProbe:
        async with LagProbe() as probe:
            await asyncio.sleep(0.05)
            time.sleep(0.2)  # noqa: ASYNC251 - that is what is to be seen
            await asyncio.sleep(0.05)
        return probe

    lag = asyncio.run(block()).summary()
    assert lag is not None
    assert lag.max_ms > 150
    assert lag.p50_ms < 100


def test_a_loop_that_had_no_time_tells_no_lag() -> None:
    async def nothing() -> LagProbe:
        async with LagProbe() as probe:
            pass
        return probe

    assert asyncio.run(nothing()).summary() is None


def test_quantiles_are_those_of_the_standard_library() -> None:
    values = sorted([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0])
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    assert [quantile(values, share) for share in (0.5, 0.9, 0.99)] == pytest.approx([cuts[49], cuts[89], cuts[98]])
    assert quantile([7.0], 0.5) == 7.0
