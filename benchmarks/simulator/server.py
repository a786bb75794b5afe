"""The OpenAI-compatible server in front of the simulated engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Any

import orjson

from benchmarks.simulator.chat import BadChatError, Chat, ChatRequest
from benchmarks.simulator.config import Fault, FaultRule, SimulatorConfig
from benchmarks.simulator.engine import Engine, EngineCounters, Sequence
from benchmarks.simulator.faults import FaultPlan
from benchmarks.simulator.recorder import Recorder, visit
from benchmarks.simulator.script import Script
from benchmarks.simulator.stats import Stats, prometheus_text
from benchmarks.simulator.wire import Connection, Request

JSON = "application/json"
_ENGINE_SETTINGS = frozenset(
    {"model", "step_base_ms", "step_per_seq_ms", "tokens_per_step", "max_seqs", "prefill_ms_per_mpixel"}
    | {"prefill_ms_per_step", "abort_on_disconnect"}
)
_STATUS_OF_FAULT = {
    Fault.TOO_MANY_REQUESTS: HTTPStatus.TOO_MANY_REQUESTS,
    Fault.SERVER_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
    Fault.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Fault.WRONG_MODEL: HTTPStatus.NOT_FOUND,
}


class SimulatorServer:
    """Answers requests; ``serve()`` keeps it listening."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config
        self.script = Script.load(config.script) if config.script else Script()
        self.engine = Engine(config)
        self.faults = FaultPlan()
        self.port = 0
        self._connections: set[Connection] = set()
        self._orphans: set[asyncio.Task[None]] = set()
        self.seen = Recorder()
        self._routes: Mapping[tuple[str, str], Callable[[Request, Connection], Awaitable[None]]] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/stats"): self._stats,
            ("GET", "/log"): self._log,
            ("POST", "/control"): self._control,
        }

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Listen; yields the port."""
        loop = asyncio.get_running_loop()

        def connect() -> Connection:
            self.seen.connections += 1
            return Connection(self._handle, self._connections)

        server = await loop.create_server(connect, self.config.host, self.config.port, backlog=1024)
        engine = loop.create_task(self.engine.run())
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self.port
        finally:
            server.close()
            for connection in list(self._connections):
                await connection.join()
            for task in (engine, *self._orphans):
                task.cancel()
            await asyncio.wait((engine, *self._orphans))

    async def _handle(self, request: Request, connection: Connection) -> None:
        route = self._routes.get((request.method, request.path))
        if route is None:
            _error(connection, HTTPStatus.NOT_FOUND, f"nothing at {request.method} {request.path}")
            return
        authorization = request.headers.get("authorization")
        self.seen.with_authorization += authorization is not None
        if self.config.api_key and request.path.startswith("/v1/") and authorization != f"Bearer {self.config.api_key}":
            _error(connection, HTTPStatus.UNAUTHORIZED, "wrong or missing API key")
            return
        await route(request, connection)

    # the API

    async def _chat(self, request: Request, connection: Connection) -> None:
        recorder = self.seen
        with visit(recorder, len(request.body)) as here:
            try:
                chat = Chat(ChatRequest.parse(request.body), self.script)
            except BadChatError as error:
                here.outcome = "rejected"
                _error(connection, HTTPStatus.BAD_REQUEST, str(error))
                return
            recorder.understood(here, chat)
            here.outcome = await self._answer(chat, connection)

    async def _answer(self, chat: Chat, connection: Connection) -> str:
        """Answer a chat as the faults in force want it; returns the outcome."""
        rule = self.faults.choose(chat.kind)
        fault = rule.fault if rule else None
        if rule is not None:
            self.seen.faults[rule.fault] += 1
        if rule is not None and fault in _STATUS_OF_FAULT:
            after = {"retry-after": f"{rule.retry_after_s:g}"} if rule.retry_after_s is not None else {}
            headers = after if fault in (Fault.TOO_MANY_REQUESTS, Fault.UNAVAILABLE) else {}
            _error(connection, _STATUS_OF_FAULT[Fault(fault)], f"simulated {fault}", headers)
            return "failed"
        if rule is not None and fault is Fault.REDIRECT:
            connection.respond(HTTPStatus.TEMPORARY_REDIRECT, b"", JSON, {"location": rule.location})
            return "failed"
        if fault is Fault.HANG:
            await asyncio.get_running_loop().create_future()
        if rule is not None and fault is Fault.DELAY:
            await asyncio.sleep(rule.delay_s)
        if self.config.check_model and chat.request.model != self.config.model:
            _error(connection, HTTPStatus.NOT_FOUND, f"The model `{chat.request.model}` does not exist.")
            return "rejected"
        if chat.request.stream:
            return await self._stream(chat, connection, rule)
        tokens = chat.tokens // 2 if fault is Fault.CUT_CONNECTION else chat.tokens
        await self._generate(Sequence(max(1, tokens), self._prefill_ms(chat)))
        return await _finish(connection, orjson.dumps(chat.completion(self.config.model)), rule)

    async def _stream(self, chat: Chat, connection: Connection, rule: FaultRule | None) -> str:
        """Send the text as server-sent events, a step's tokens each."""
        ready = asyncio.Event()
        sequence = Sequence(chat.tokens, self._prefill_ms(chat), lambda made: ready.set())
        half = rule is not None and rule.fault in (Fault.CUT_CONNECTION, Fault.TRUNCATED_BODY)
        connection.head(HTTPStatus.OK, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        work = asyncio.ensure_future(self._generate(sequence))
        sent = 0
        try:
            while sent < chat.tokens:
                await ready.wait()
                ready.clear()
                for event in chat.events(self.config.model, sent, sequence.made):
                    if rule is not None and rule.fault is Fault.MALFORMED_JSON:
                        event = event[: len(event) // 2]
                    connection.chunk(b"data: " + event + b"\n\n")
                sent = sequence.made
                if half and rule is not None and sent >= chat.tokens // 2:
                    _break(connection, rule.fault)
                    return "failed"
                if rule is not None and rule.fault is Fault.TRICKLE:
                    await asyncio.sleep(rule.interval_s)
                await connection.drain()
            await work
        finally:
            work.cancel()
            await asyncio.wait([work])
        connection.chunk(b"data: [DONE]\n\n")
        connection.chunk(b"")
        return "failed" if rule is not None and rule.fault is Fault.MALFORMED_JSON else "ok"

    def _prefill_ms(self, chat: Chat) -> float:
        return chat.mpixels * self.config.prefill_ms_per_mpixel

    async def _generate(self, sequence: Sequence) -> None:
        """Have the engine make a sequence; a client that goes away takes it out of the batch."""
        self.engine.submit(sequence)
        try:
            await asyncio.shield(sequence.done)
        except asyncio.CancelledError:
            if self.config.abort_on_disconnect:
                self.engine.abort(sequence)
            elif not sequence.done.done():
                orphan = asyncio.ensure_future(_wait(sequence.done))
                self._orphans.add(orphan)
                orphan.add_done_callback(self._orphans.discard)
            raise

    async def _models(self, request: Request, connection: Connection) -> None:
        card = {"id": self.config.model, "object": "model", "created": 0, "owned_by": "simulator"}
        _json(connection, {"object": "list", "data": [card]})

    async def _health(self, request: Request, connection: Connection) -> None:
        connection.respond(HTTPStatus.OK, b"", "text/plain")

    async def _version(self, request: Request, connection: Connection) -> None:
        _json(connection, {"version": "simulator-1"})

    async def _metrics(self, request: Request, connection: Connection) -> None:
        text = prometheus_text(self.read_stats())
        connection.respond(HTTPStatus.OK, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def _stats(self, request: Request, connection: Connection) -> None:
        _json(connection, self.read_stats().to_dict())

    async def _log(self, request: Request, connection: Connection) -> None:
        _json(connection, list(self.seen.log))

    async def _control(self, request: Request, connection: Connection) -> None:
        """``{"reset": true, "faults": [RULE …], "engine": {"step_base_ms": …}, "script": PATH}``, all optional."""
        try:
            orders = json.loads(request.body)
            unknown = orders.keys() - {"reset", "faults", "engine", "script"}
            unknown |= orders.get("engine", {}).keys() - _ENGINE_SETTINGS
            if unknown:
                raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
            config = replace(self.config, **orders.get("engine", {}))
            rules = [FaultRule.from_dict(rule) for rule in orders.get("faults", ())]
            script = Script.load(orders["script"]) if orders.get("script") else self.script
        except (ValueError, TypeError, KeyError, OSError, AttributeError) as error:
            _error(connection, HTTPStatus.BAD_REQUEST, f"{type(error).__name__}: {error}")
            return
        self.config = self.engine.config = config
        self.script = script
        if "faults" in orders:
            self.faults.replace(rules)
        if orders.get("reset"):
            self.seen = Recorder(self.seen.in_flight)
            self.engine.counters = EngineCounters(peak_running=self.engine.running)
        _json(connection, self.read_stats().to_dict())

    def read_stats(self) -> Stats:
        """All counters and gauges."""
        seen = self.seen
        return Stats(
            limit_tokens_per_s=self.config.limit_tokens_per_s,
            max_seqs=self.config.max_seqs,
            arrivals=seen.arrivals,
            ok=seen.outcomes["ok"],
            failed=seen.outcomes["failed"],
            rejected=seen.outcomes["rejected"],
            cancelled=seen.outcomes["cancelled"],
            in_flight=seen.in_flight,
            peak_in_flight=seen.peak_in_flight,
            working_after_disconnect=len(self._orphans),
            with_authorization=seen.with_authorization,
            by_kind={str(kind): number for kind, number in seen.kinds.items()},
            by_fault={str(fault): number for fault, number in seen.faults.items()},
            mpixels=seen.mpixels,
            image_bytes=seen.image_bytes,
            body_bytes=seen.body_bytes,
            connections=seen.connections,
            connections_open=len(self._connections),
            elapsed_s=seen.elapsed_s,
            cpu_s=seen.cpu_s,
            running=self.engine.running,
            waiting=self.engine.waiting,
            **asdict(self.engine.counters),
        )


async def _wait(done: asyncio.Future[None]) -> None:
    await asyncio.wait([done])


async def _finish(connection: Connection, body: bytes, rule: FaultRule | None) -> str:
    """Send an answer, whole or as a fault wants it; returns the outcome."""
    length = {"content-type": JSON, "content-length": str(len(body))}
    match rule.fault if rule else None:
        case Fault.CUT_CONNECTION | Fault.TRUNCATED_BODY as fault:
            if fault is Fault.TRUNCATED_BODY:
                connection.head(HTTPStatus.OK, length)
                connection.write(body[: len(body) // 2])
            _break(connection, fault)
            return "failed"
        case Fault.MALFORMED_JSON:
            connection.respond(HTTPStatus.OK, body[: len(body) // 2], JSON)
            return "failed"
        case Fault.TRICKLE:
            if rule is not None:
                connection.head(HTTPStatus.OK, length)
                for at in range(0, len(body), rule.chunk_bytes):
                    connection.write(body[at : at + rule.chunk_bytes])
                    await asyncio.sleep(rule.interval_s)
        case _:
            connection.respond(HTTPStatus.OK, body, JSON)
    return "ok"


def _break(connection: Connection, fault: Fault) -> None:
    if fault is Fault.CUT_CONNECTION:
        connection.reset()
    else:
        connection.finish_early()


def _json(connection: Connection, data: Any) -> None:
    connection.respond(HTTPStatus.OK, orjson.dumps(data), JSON)


def _error(connection: Connection, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> None:
    body = {"error": {"message": message, "type": status.phrase, "param": None, "code": status.value}}
    connection.respond(status, orjson.dumps(body), JSON, headers)
