"""What whoever runs the server sees of it: figures, readiness, logs, spans."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.simulator import Simulator, SimulatorConfig
from mineru_engine.errors import EngineUnavailableError
from tests.server.serving import Client, Process, Running, wait_until


def figures(client: Client) -> dict[tuple[str, tuple[str, ...]], float]:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_the_figures_follow_the_jobs(client: Client, demo: Path) -> None:
    before = figures(client)
    assert before["mineru_queue_length", ()] == 0
    assert before["mineru_memory_bytes", ()] > 10 << 20
    assert before["mineru_vlm_in_flight", ()] == 0
    for document in (demo / "contract.pdf", demo / "contract.pdf", ("x.pdf", b"%PDF-1.7")):
        job = client.ended(client.create(document)["id"])
    pages = client.job(client.get("/v1/jobs").json()["data"][1]["id"])["files"][0]["pages_done"]
    after = figures(client)
    assert after["mineru_jobs", ("completed",)] == 2
    assert after["mineru_jobs", ("failed",)] == 1
    assert after["mineru_job_duration_seconds_count", ("completed",)] == 2
    assert after["mineru_job_duration_seconds_count", ("failed",)] == 1
    assert after["mineru_job_wait_seconds_count", ()] == 3
    assert after["mineru_pages_total", ("false", "flash")] == after["mineru_pages_total", ("true", "flash")] == pages
    assert (after["mineru_cache_hits_total", ()], after["mineru_cache_misses_total", ()]) == (1, 2)
    assert after["mineru_memory_bytes", ()] > before["mineru_memory_bytes", ()]  # the workers count
    assert job["state"] == "failed"


def test_the_figures_show_what_waits_and_runs(client: Client, demo: Path) -> None:
    running = client.create(demo / "contract_scan.pdf", tier="basic")
    client.create(demo / "contract.pdf")
    wait_until(lambda: client.job(running["id"])["state"] == "running")
    seen = figures(client)
    assert (seen["mineru_queue_length", ()], seen["mineru_jobs_running", ()]) == (1, 1)
    assert (seen["mineru_jobs", ("queued",)], seen["mineru_jobs", ("running",)]) == (1, 1)
    client.post(running["links"]["cancel"])


def test_two_applications_have_figures_of_their_own(
    serving: Callable[..., Running], small: Path, tmp_path: Path
) -> None:
    one, two = (serving(data_dir=tmp_path / name) for name in ("one", "two"))
    with one.client() as first, two.client() as second:
        first.ended(first.create(small)["id"])
        assert figures(first)["mineru_jobs", ("completed",)] == 1
        assert figures(second)["mineru_jobs", ("completed",)] == 0
        assert ("mineru_job_wait_seconds_count", ()) in figures(second)


def test_ready_says_what_is_in_the_way(server: Running, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/ready").json() == {"status": "ready"}
    service = server.app.state.service
    obstacles: list[tuple[Any, str, Any, str]] = [
        (service.storage, "free_bytes", lambda: 1 << 20, "disk"),
        (service, "engine_starting", True, "starting"),
        (service, "engine_problem", EngineUnavailableError("no such model"), "no such model"),
        (service.queue, "_accepting", False, "shutting down"),
    ]
    for holder, name, value, reason in obstacles:
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, value)
            answer = client.get("/ready")
            assert answer.status_code == 503 and answer.headers["retry-after"]
            assert reason in answer.json()["reason"]
    assert client.get("/ready").status_code == 200


def test_an_engine_that_does_not_come_up_makes_a_preloading_server_not_ready(serving: Callable[..., Running]) -> None:
    settings = {"model.vlm.server_url": "http://127.0.0.1:9/v1", "model.vlm.max_retries": 0}
    with serving(settings, defaults={"tier": "high"}, preload=True).client() as client:
        reason = wait_until(lambda: r if "no engine" in (r := client.get("/ready").json().get("reason", "")) else None)
        assert client.get("/ready").status_code == 503
        assert "127.0.0.1" in reason


@pytest.mark.timeout(180)
def test_an_engine_that_died_is_started_again_without_a_job(
    serving: Callable[..., Running], demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mineru_engine.server.service._ENGINE_PAUSE_S", 0.2)

    def ready() -> Any:
        return answer if (answer := client.get("/ready")).status_code == 200 else None

    with ExitStack() as stack:
        with Simulator(SimulatorConfig()) as simulator:
            settings = {"model.vlm.server_url": simulator.url, "model.vlm.max_retries": 0}
            client = stack.enter_context(serving(settings, defaults={"tier": "xhigh"}, preload=True).client())
            wait_until(ready)
        job = client.ended(client.create(demo / "contract.pdf", tier="xhigh")["id"])
        assert (job["state"], job["files"][0]["error"]["code"]) == ("failed", "engine_dead")
        gone = client.get("/ready")
        assert gone.status_code == 503 and "no engine" in gone.json()["reason"]
        with Simulator(SimulatorConfig(port=simulator.port)):
            wait_until(ready)
            assert client.ended(client.create(demo / "contract.pdf", tier="xhigh")["id"])["state"] == "completed"


def test_json_logs_name_the_job(serve: Callable[..., Process], small: Path) -> None:
    server = serve("--log-format", "json").start()
    with server.client() as client:
        job = client.ended(client.create(small)["id"])
    server.signal(15)
    assert server.wait() == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    about = [line for line in lines if line["job"] == job["id"]]
    assert [(line["level"], line["state"], line["pages"]) for line in about] == [
        ("info", "completed", job["files"][0]["pages_done"])
    ]
    assert any("Uvicorn running" in line["message"] for line in lines)
    assert {"time", "level", "logger", "message", "job"} <= lines[0].keys()


def test_text_logs_name_the_job_too(serve: Callable[..., Process], small: Path) -> None:
    server = serve().start()
    with server.client() as client:
        job = client.ended(client.create(small)["id"])
    assert "completed after" in server.log.read_text() and f"[job {job['id']}]" in server.log.read_text()


class _Collector(HTTPServer):
    """Takes spans as a collector of OpenTelemetry does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        import gzip

        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


def _attributes(span: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def test_spans_reach_a_collector(serve: Callable[..., Process], demo: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")
    with _Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        server = serve(environ={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "NO_PROXY": "*"}).start()
        with server.client() as client:
            job = client.ended(client.create(demo / "contract.pdf", ("x.pdf", b"%PDF-1.7"))["id"])
        server.signal(15)
        assert server.wait() == 0  # what was not sent yet is sent now
        collector.shutdown()
        thread.join()
    (whole,) = [span for span in collector.spans if span.name == "job"]
    documents = [span for span in collector.spans if span.name == "document"]
    assert [span.parent_span_id for span in documents] == [whole.span_id] * 2
    assert _attributes(whole)["mineru.job"] == job["id"]
    assert _attributes(whole)["mineru.state"] == "partial"
    assert [_attributes(span)["mineru.tier"] for span in documents] == ["flash", ""]
    assert [span.status.code for span in documents] == [0, 2]
