"""``mineru bench``: the words on the command line, and real small runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from benchmarks.simulator import Fault, FaultRule, Simulator, SimulatorConfig
from mineru_cli.app import app
from mineru_cli.bench import run as bench_run
from mineru_cli.bench.caveats import caveats_of
from mineru_cli.bench.masking import masked
from mineru_cli.bench.report import DocumentSample, Mode, Report, load_report
from mineru_cli.bench.run import BenchJob
from mineru_cli.bench.server_metrics import ServerMetrics
from mineru_engine.options import Engine
from mineru_engine.vlm.config import VlmConfig

CANARY = "canary-7f3a"
SLOW = SimulatorConfig(step_base_ms=20, step_per_seq_ms=1, tokens_per_step=32)


def start(*words: object, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """``mineru bench`` as a process."""
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": str(root), "MINERU_WORKER_PROCESSES": "2"} | environment
    command = [sys.executable, "-m", "mineru_cli", "bench", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    with process:
        out, err = process.communicate(timeout=100)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def bench(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return finish(start(*words, cwd=cwd, **environment))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[BenchJob]:
    """What the command would do."""
    found: list[BenchJob] = []

    def note(job: BenchJob) -> int:
        found.append(job)
        return 0

    monkeypatch.setattr(bench_run, "run_bench", note)
    return found


# the command line


@pytest.mark.parametrize(
    ("words", "paths", "concurrencies"),
    [
        ("--concurrency 1 2 4 8 --repeats 3", (), (1, 2, 4, 8)),
        ("--concurrency 1,2,4,8 --repeats 3", (), (1, 2, 4, 8)),
        ("--concurrency 1 --concurrency 2 --repeats 3 --concurrency 4,8", (), (1, 2, 4, 8)),
        ("--concurrency=1 2 --repeats 3", (), (1, 2)),
        ("--concurrency 1,2 4 --repeats 3", (), (1, 2, 4)),
        ("--repeats 3 --concurrency 1 2 a.pdf", ("a.pdf",), (1, 2)),
        ("a.pdf --concurrency 1 2 --repeats 3", ("a.pdf",), (1, 2)),
        ("a.pdf --repeats 3 --concurrency 1 2 b.pdf", ("a.pdf", "b.pdf"), (1, 2)),
        ("--concurrency 1 2 ./8 --repeats 3", ("./8",), (1, 2)),
        ("--concurrency 2 --repeats 3 -- 8", ("8",), (2,)),
        ("--repeats 3 8 --concurrency 2", ("8",), (2,)),
        ("--concurrency 2 2 1 --repeats 3", (), (2, 1)),
        ("--repeats 3", (), (1, 4)),
    ],
)
def test_concurrency_in_all_its_forms(
    words: str, paths: tuple[str, ...], concurrencies: tuple[int, ...], jobs: list[BenchJob]
) -> None:
    done = CliRunner().invoke(app, ["bench", *words.split()])
    assert done.exit_code == 0, done.output
    (job,) = jobs
    assert (job.paths, job.concurrencies, job.repeats) == (paths, concurrencies, 3)
    assert job.command == ("mineru", "bench", *words.split())


def test_all_options_arrive(jobs: list[BenchJob]) -> None:
    words = [
        *("x.pdf", "--concurrency", "2", "--mode", "async", "--repeats", "5", "--warmup", "2", "--duration", "9.5"),
        *("--arrival", "poisson:2", "--cancel-after", "0.5", "--tier", "xhigh", "--ocr-mode", "ocr"),
        *("--engine", "http", "--server-url", "http://h", "--model", "m", "--window-size", "3", "--against", "HEAD"),
        *("--output", "o.json", "--html", "o.html", "--save-results", "d", "--markdown", "--config", "c"),
        *("--seed", "7", "--sample-every", "0", "-q"),
    ]
    assert CliRunner().invoke(app, ["bench", *words]).exit_code == 0
    options = {"tier": "xhigh", "ocr_mode": "ocr", "engine": "http", "server_url": "http://h", "model": "m"}
    assert jobs == [
        BenchJob(
            paths=("x.pdf",),
            output=Path("o.json"),
            options=options | {"window_size": 3},
            modes=(Mode.ASYNC,),
            concurrencies=(2,),
            repeats=5,
            warmup=2,
            duration_s=9.5,
            arrival="poisson:2",
            cancel_after_s=0.5,
            sample_every_s=0.0,
            seed=7,
            save_results=Path("d"),
            html=Path("o.html"),
            config=Path("c"),
            against="HEAD",
            markdown=True,
            quiet=True,
            command=("mineru", "bench", *words),
        )
    ]


def test_the_report_is_named_after_the_time(jobs: list[BenchJob]) -> None:
    CliRunner().invoke(app, ["bench"])
    assert re.fullmatch(r"bench-\d{8}T\d{6}Z\.json", str(jobs[0].output))
    assert jobs[0].modes == (Mode.ASYNC, Mode.SYNC_THREAD)


@pytest.mark.parametrize(
    "words",
    [
        "--concurrency",
        "--concurrency 0",
        "--concurrency two",
        "--concurrency 1,,2",
        "--mode threads",
        "--repeats 0",
        "--arrival poisson:fast",
        "--against HEAD --peer mineru_345",
        "--markdown --json",
        "--tier best",
        "--peer nobody",
        "--peer mineru_vl_utils",
        "--against no-such-thing",
        "--output no/such/directory/x.json",
        "--save-results kept --warmup 0",
        "--config no-such-file",
    ],
)
def test_usage_errors(words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, demo: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["bench", str(demo / "contract.pdf"), *words.split()])
    assert done.exit_code == 2, done.output
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_results_do_not_go_among_others(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    done = CliRunner().invoke(app, ["bench", "x.pdf", "--save-results", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not empty" in done.stderr


def test_a_page_without_plotly_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, demo: Path
) -> None:
    monkeypatch.setattr("mineru_cli.bench.figures.find_spec", lambda name: None)
    monkeypatch.setattr(bench_run, "measure", lambda plan, hooks: pytest.fail("it was measured"))
    words = ["--output", str(tmp_path / "x.json"), "--html", str(tmp_path / "x.html")]
    done = CliRunner().invoke(app, ["bench", str(demo / "contract.pdf"), *words])
    assert done.exit_code == 2
    assert "plotly, which is not installed" in done.stderr
    assert "pip install 'mineru[report]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_two_runs_have_the_same_seed_unless_told_otherwise(jobs: list[BenchJob]) -> None:
    for words in ([], [], ["--seed", "7"]):
        assert CliRunner().invoke(app, ["bench", *words]).exit_code == 0
    assert [job.seed for job in jobs] == [0, 0, 7]


# real runs


def test_a_small_run(tmp_path: Path, demo: Path) -> None:
    words = ["--tier", "flash", "--concurrency", 1, 2, "--repeats", 2, "--output", "x.json", "--save-results", "kept"]
    done = bench(demo / "contract.pdf", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = load_report(tmp_path / "x.json")
    assert report.intact
    assert report.complete
    assert {(run.mode, run.concurrency, run.repeat) for run in report.runs} == {
        (mode, concurrency, repeat) for mode in Mode for concurrency in (1, 2) for repeat in (0, 1)
    }
    for run in report.runs:
        # Two callers have a document each.
        assert [(sample.input, sample.pages, sample.error) for sample in run.samples] == [(0, 3, None)] * 2
        assert run.pages == 6
        assert run.pages_per_s == pytest.approx(6 / run.elapsed_s)
        assert run.resources.cpu_s > 0
        assert run.resources.peak_rss_mib > 20
        assert (run.loop_lag is None) == (run.mode is Mode.SYNC_THREAD)
        assert run.requests.done is run.requests.peak_in_flight is None
    (item,) = report.inputs
    assert (item.name, item.pages, item.bytes) == ("contract.pdf", 3, (demo / "contract.pdf").stat().st_size)
    (result,) = report.results
    assert result.variants == 1
    assert len(result.blocks) == 3
    assert report.workload.single_document == "contract.pdf"
    assert (report.engine.engine, report.engine.device, report.workload.tier) == ("native", "cpu", "flash")
    assert {"cpu_engine", "single_sample"} <= {caveat.code for caveat in report.caveats}
    assert report.command[:2] == ["mineru", "bench"]
    assert "mineru_engine/api.py" in report.source.files
    assert "contract.md" in {path.name for path in (tmp_path / "kept").rglob("*")}
    assert "sync-thread" in done.stdout
    assert "[8/8]" in done.stderr
    assert "about" in done.stderr.splitlines()[0]
    assert "report: x.json" in done.stderr


def test_what_goes_to_stdout(tmp_path: Path, demo: Path) -> None:
    words = ["--tier", "flash", "--concurrency", 1, "--mode", "async", "--repeats", 1, "-q", "--sample-every", 0]
    done = bench(demo / "contract.pdf", *words, "--json", "--output", "x.json", "--html", "x.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report = Report.model_validate(orjson.loads(done.stdout))
    assert report == load_report(tmp_path / "x.json")
    assert len(report.runs[0].series.t_s) == 2
    assert "<html" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_a_document_that_fails_is_told(tmp_path: Path, demo: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    words = ["--tier", "flash", "--concurrency", 1, "--mode", "async", "--repeats", 1, "--output", "x.json"]
    done = bench(demo / "contract.pdf", "broken.pdf", *words, cwd=tmp_path)
    assert done.returncode == 1
    assert "broken.pdf: " in done.stderr
    report = load_report(tmp_path / "x.json")
    assert {sample.error for sample in report.runs[0].samples} == {None, "file_damaged"}
    assert report.runs[0].pages == 3
    assert [(result.variants, result.sha256 is None) for result in report.results] == [(1, False), (0, True)]
    assert "documents_failed" in {caveat.code for caveat in report.caveats}


def test_without_a_document_that_can_be_read_there_is_no_report(tmp_path: Path, demo: Path) -> None:
    done = bench(demo / "contract_scan.pdf", "--tier", "flash", "--output", "x.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "no usable text" in done.stderr or "OCR" in done.stderr
    assert not (tmp_path / "x.json").exists()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> dict[str, Any]:
    """A run at a server that wants a key, with secrets in environment, settings and URL."""
    directory = tmp_path_factory.mktemp("simulated")
    (directory / "mineru.toml").write_text(
        f'[enhance]\nserver_url = "http://u:{CANARY}-enhance@127.0.0.1:9"\n'
        f'[model.vlm.engine_options]\nhf_token = "{CANARY}-option"\nmax_model_len = 4096\n'
    )
    key = f"{CANARY}-key"
    with Simulator(SimulatorConfig(step_base_ms=2, api_key=key)) as simulator:
        url = simulator.url.replace("://", f"://user:{CANARY}-url@")
        words = ["--tier", "xhigh", "--concurrency", 1, 2, "--repeats", 1, "--cancel-after", 0.2, "--output", "x.json"]
        done = bench(
            demo / "contract.pdf",
            demo / "paper.pdf",
            *words,
            "--server-url",
            url,
            "--html",
            "x.html",
            cwd=directory,
            MINERU_MODEL_VLM_API_KEY=key,
        )
        stats = simulator.stats()
    return {"done": done, "report": load_report(directory / "x.json"), "stats": stats, "directory": directory}


def test_a_run_at_a_simulated_server(simulated: dict[str, Any]) -> None:
    done, report, stats = (simulated[name] for name in ("done", "report", "stats"))
    assert done.returncode == 0, done.stderr
    engine = report.engine
    assert (engine.engine, engine.model, engine.device) == ("http", "mineru-simulator", "remote")
    assert (engine.version, engine.models, engine.simulated) == ("simulator-1", ["mineru-simulator"], True)
    assert {"simulated", "remote_vram"} <= {caveat.code for caveat in report.caveats}
    for run in report.runs:
        requests = run.requests
        assert requests.done > 20
        assert requests.failed == 0
        assert requests.requests_per_s == pytest.approx(requests.done / run.elapsed_s)
        assert requests.completion_tokens > requests.done
        assert 0 < requests.busy_s < run.elapsed_s
        assert 0 < requests.mean_in_flight <= requests.peak_in_flight
        assert run.gpu.peak_vram_mib is None
        assert "the engine is a server" in run.gpu.vram_reason
    counted = [run.requests.done for run in report.runs]
    assert len(set(counted)) == 1
    assert stats.ok >= sum(counted)
    assert [result.variants for result in report.results] == [1, 1]


def test_cancelled_documents_leave_nothing(simulated: dict[str, Any]) -> None:
    report = simulated["report"]
    assert [cancel.concurrency for cancel in report.cancellation] == [1, 2]
    for cancel in report.cancellation:
        assert len(cancel.return_s) + cancel.finished_before == cancel.concurrency
        left = cancel.leftovers
        assert left.requests_in_flight == left.requests_at_server == 0
        assert left.tasks == left.temporary_files == left.fds == 0
        assert left.server_reason is None
    assert any(cancel.return_s for cancel in report.cancellation)
    assert simulated["stats"].in_flight == 0


def test_no_secret_gets_out(simulated: dict[str, Any]) -> None:
    done, directory = simulated["done"], simulated["directory"]
    assert CANARY not in done.stdout
    assert CANARY not in done.stderr
    for name in ("x.json", "x.html"):
        assert CANARY.encode() not in (directory / name).read_bytes()
    report = simulated["report"]
    assert report.settings["model.vlm.api_key"] == "********"
    assert report.settings["model.vlm.engine_options"] == {"hf_token": "********", "max_model_len": 4096}
    assert report.settings["enhance.server_url"] == "http://***@127.0.0.1:9"
    assert any(word.startswith("http://***@") for word in report.command)


@pytest.mark.parametrize("mode", ["async", "sync-thread"])
def test_an_interrupt_keeps_what_was_measured(mode: str, tmp_path: Path, demo: Path) -> None:
    with Simulator(SLOW) as simulator:
        process = start(
            *(demo / "contract.pdf", "--tier", "xhigh", "--server-url", simulator.url, "--mode", mode),
            *("--concurrency", 1, "--repeats", 50, "--output", "x.json", "--seed", 1),
            cwd=tmp_path,
        )
        assert process.stderr is not None
        while "[2/50]" not in (line := process.stderr.readline()):
            assert line, "it ended too early"
        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert simulator.stats().in_flight == 0
    assert done.returncode == 130
    assert "stopping" in done.stderr
    report = load_report(tmp_path / "x.json")
    assert report.intact
    assert not report.complete
    assert 2 <= len(report.runs) < 50
    assert all(sample.error is None for run in report.runs for sample in run.samples)
    assert "incomplete" in {caveat.code for caveat in report.caveats}
    assert mode in done.stdout


def test_an_interrupt_before_anything_was_measured(tmp_path: Path, demo: Path) -> None:
    with Simulator() as simulator:
        simulator.control(faults=[FaultRule(fault=Fault.HANG)])
        words = ["--tier", "xhigh", "--server-url", simulator.url, "--output", "x.json"]
        process = start(demo / "contract.pdf", *words, cwd=tmp_path)
        while not simulator.stats().in_flight:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        done = finish(process)
    assert done.returncode == 130
    assert "interrupted" in done.stderr
    assert not (tmp_path / "x.json").exists()


# what is told of a report


def change(report: Report, **values: Any) -> Report:
    return report.model_copy(update=values)


def codes(report: Report, load_before: float | None = 0.0) -> set[str]:
    return {caveat.code for caveat in caveats_of(report, load_before=load_before)}


def test_results_that_differ_are_told_and_fail(
    simulated: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, demo: Path
) -> None:
    report = simulated["report"]
    results = [report.results[0].model_copy(update={"variants": 2}), report.results[1]]
    bad = change(report, results=results)
    bad = change(bad, caveats=caveats_of(bad, load_before=None))
    told = {caveat.code: caveat.text for caveat in bad.caveats}
    assert "contract.pdf" in told["results_differ"]
    assert "paper.pdf" not in told["results_differ"]
    monkeypatch.setattr(bench_run, "measure", lambda plan, hooks: bad)
    words = ["bench", str(demo / "contract.pdf"), "--output", str(tmp_path / "x.json")]
    assert CliRunner().invoke(app, words).exit_code == 1
    assert (tmp_path / "x.json").exists()


def test_caveats_follow_the_figures(simulated: dict[str, Any]) -> None:
    report = simulated["report"]
    (first, *_) = [run for run in report.runs if run.mode is Mode.ASYNC]
    steady = change(report, runs=[first.model_copy(update={"repeat": repeat}) for repeat in range(3)])
    assert codes(steady) == {"simulated", "remote_vram"}
    assert codes(change(steady, runs=steady.runs[:2])) == {"simulated", "remote_vram", "single_sample"}
    faster = first.model_copy(update={"pages_per_s": first.pages_per_s * 1.06})
    assert "machine_noisy" in codes(change(steady, runs=[*steady.runs[1:], faster]))
    assert "machine_noisy" in codes(steady, load_before=steady.machine.cores_allowed + 0.1)
    assert "machine_noisy" not in codes(steady, load_before=steady.machine.cores_allowed - 0.1)
    assert "incomplete" in codes(change(steady, complete=False))
    failed = DocumentSample(input=1, due_s=0, queued_s=0, parse_s=1, pages=0, error="worker_crashed")
    worse = first.model_copy(update={"samples": [*first.samples, failed]})
    texts = [caveat.text for caveat in caveats_of(change(steady, runs=[worse] * 3), load_before=None)]
    assert any("paper.pdf (worker_crashed)" in text for text in texts)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://user:pa/ss@host/v1", "https://***@host/v1"),
        ("https://host/v1?token=x", "https://host/v1?***"),
        ("plain@text", "plain@text"),
        ({"api_key": "x", "Token": "x", "tokenizer": "x", "key": 7}, None),
        ([SecretStr("x")], ["********"]),
        (3, 3),
    ],
)
def test_masking(value: Any, shown: Any) -> None:
    expected = {"api_key": "********", "Token": "********", "tokenizer": "x", "key": 7} if shown is None else shown
    assert masked(value) == expected


# the server's metrics


class Pages(BaseHTTPRequestHandler):
    """Answers with what is set, and notes what it is sent."""

    status = 200
    body = b""
    location: str | None = None
    seen: list[str | None]

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        self.send_response(self.status)
        if self.location is not None:
            self.send_header("Location", self.location)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Any]:
    servers = []

    def start_one(**values: Any) -> tuple[str, type[Pages]]:
        handler = type("Handler", (Pages,), {"seen": [], **values})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}", handler

    yield start_one
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def metrics(url: str) -> ServerMetrics:
    return ServerMetrics(VlmConfig(Engine.HTTP, server_url=url, api_key=SecretStr(CANARY)))


def test_the_key_goes_to_the_server_and_not_where_it_points(serve: Any) -> None:
    elsewhere, other = serve(body=b"simulator_busy_seconds_total 3\n")
    url, handler = serve(status=307, location=f"{elsewhere}/metrics")
    with metrics(f"{url}/v1/") as server:
        assert server.read() == {}
        assert server.busy_s() is None
    assert handler.seen == [f"Bearer {CANARY}"] * 2
    assert other.seen == []


def test_metrics_of_vllm(serve: Any) -> None:
    body = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a name with spaces"} 3.0
vllm:num_requests_running{engine="1",model_name="a name with spaces"} 2.0
vllm:num_requests_waiting{engine="0"} 1.0 1700000000
nonsense
"""
    with metrics(serve(body=body)[0]) as server:
        assert server.in_flight() == 6
        assert server.busy_s() is None
        assert not server.simulated()


@pytest.mark.parametrize("answer", [{"status": 404}, {"body": b"<html>"}, {"body": b"\xff\xfe"}])
def test_a_server_without_metrics(serve: Any, answer: dict[str, Any]) -> None:
    with metrics(serve(**answer)[0]) as server:
        assert server.known
        assert server.in_flight() is server.busy_s() is None
        assert not server.simulated()


def test_an_engine_in_this_process_is_not_asked() -> None:
    with ServerMetrics(VlmConfig(Engine.ONNX)) as server:
        assert not server.known
        assert server.read() == {}
