"""``mineru parse --api-url``: a job server parses, the results are written here as if it had been done here."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx
import orjson

from mineru_cli.errors import UsageProblem
from mineru_engine.detect import detect
from mineru_engine.errors import ErrorCode, MineruError, error_from_dict
from mineru_engine.options import ParseOptions
from mineru_engine.progress import Progress
from mineru_engine.result import Attachment, Diagnostic, PageKind, ParseResult
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.vlm.retry import BUSY

__all__ = ("RemoteServer",)

_PATIENCE_S = 600.0  # of a server that is busy, or was there a moment ago
_GREETING_S = 5.0  # of one that never answered
_LONGEST_PAUSE_S = 30.0
_POLL_S = (0.1, 1.0)  # from, to
_WITHDRAW_S = 5.0


class RemoteServer:
    """A job server; an asynchronous context manager.

    :param api_key: sent as a bearer token.
    :param proxy_from_env: use ``HTTP_PROXY`` and its like.
    """

    def __init__(self, url: str, api_key: str | None, *, proxy_from_env: bool = False) -> None:
        if httpx.URL(url).scheme not in ("http", "https"):
            raise UsageProblem(f"--api-url: not an address of a server: {url!r}", "as http://127.0.0.1:8000")
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(
            base_url=self._url, headers=headers, timeout=httpx.Timeout(60, connect=10), trust_env=proxy_from_env
        )
        self._met = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def parse_async(self, path: Path, *, on_progress: Callable[[Progress], None], **options: Any) -> ParseResult:
        """As :func:`mineru_engine.api.parse_async`, by the server. A cancel ends the job there too.

        :raises MineruError: what ended the document there, or that the server does not do it.
        """
        began = time.perf_counter()
        job = await self._accepted(path, options)
        try:
            job = await self._ended(job, on_progress)
        except asyncio.CancelledError:
            await run_to_end(self._cancel(job["id"]))
            raise
        file = job["files"][0]
        if job["state"] not in ("completed", "partial"):
            raise _error(file["error"] or job["error"], f"the server ended the job: {job['state']}")
        answer = await self._ask("GET", f"/v1/jobs/{job['id']}/result", params={"format": "zip"})
        result = await asyncio.to_thread(_result, path, file, answer.content, options)
        result.seconds = time.perf_counter() - began
        return result

    async def _accepted(self, path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        """The new job. A cancel that comes while it is being accepted takes it back."""
        task = asyncio.create_task(self._create(path, options))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await run_to_end(self._withdraw(task))
            raise

    async def _withdraw(self, task: asyncio.Task[dict[str, Any]]) -> None:
        await asyncio.wait({task}, timeout=_WITHDRAW_S)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        elif task.exception() is None:
            await self._cancel(task.result()["id"])

    async def _create(self, path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        fields = {name: _field(value) for name, value in options.items()}
        headers = {"Idempotency-Key": str(uuid4())}  # however often it must be sent, it is one job
        answer = await self._ask("POST", "/v1/jobs", path=path, data={**fields, "formats": "json"}, headers=headers)
        return _of_job(answer, self._url)

    async def _ended(self, job: dict[str, Any], on_progress: Callable[[Progress], None]) -> dict[str, Any]:
        pause, longest = _POLL_S
        while job["state"] in ("queued", "running"):
            progress = job["progress"]
            if progress["pages_total"]:
                on_progress(Progress(job["files"][0]["name"], progress["pages_done"], progress["pages_total"]))
            await asyncio.sleep(pause)
            pause = min(longest, pause * 1.3)
            job = _of_job(await self._ask("GET", f"/v1/jobs/{job['id']}"), self._url)
        return job

    async def _cancel(self, job_id: str) -> None:
        try:
            await self._client.post(f"/v1/jobs/{job_id}/cancel")
        except httpx.HTTPError:
            return  # it is gone: there is nobody to tell

    async def _ask(self, method: str, at: str, *, path: Path | None = None, **arguments: Any) -> httpx.Response:
        """A good answer; asked again while the server is busy or away.

        :raises MineruError: if it refuses, or does not answer for too long.
        """
        began, pause = time.monotonic(), 0.5
        while True:
            answer, problem = await self._try(method, at, path, arguments)
            if answer is not None and answer.status_code not in BUSY:
                return answer
            if time.monotonic() - began > (_PATIENCE_S if self._met else _GREETING_S):
                raise problem
            await asyncio.sleep(_wait_s(answer, pause))
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    async def _try(
        self, method: str, at: str, path: Path | None, arguments: dict[str, Any]
    ) -> tuple[httpx.Response | None, MineruError]:
        try:
            if path is None:
                answer = await self._client.request(method, at, **arguments)
            else:
                with path.open("rb") as stream:
                    answer = await self._client.request(method, at, files={"files": (path.name, stream)}, **arguments)
        except httpx.TransportError as exc:
            gone = f"{self._url} does not answer: {exc or type(exc).__name__}"
            return None, MineruError(gone, code=ErrorCode.ENGINE_UNAVAILABLE, hint="is it up? mineru serve")
        problem = _problem(answer, self._url)
        self._met = self._met or problem.code is not ErrorCode.ENGINE_UNAVAILABLE
        if answer.status_code >= 400 and answer.status_code not in BUSY:
            raise problem
        return answer, problem


def _wait_s(answer: httpx.Response | None, pause: float) -> float:
    """What the server asks for, else the pause, more or less: many clients must not come back together."""
    asked = "" if answer is None else answer.headers.get("Retry-After", "")
    return min(_LONGEST_PAUSE_S, float(asked) if asked.isdigit() else pause) * random.uniform(0.8, 1.2)


def _field(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_job(answer: httpx.Response, url: str) -> dict[str, Any]:
    try:
        job: dict[str, Any] = answer.json()
        if job["object"] == "job" and job["files"]:
            return job
    except (ValueError, KeyError, TypeError):
        pass
    raise _stranger(url)


def _problem(answer: httpx.Response, url: str) -> MineruError:
    """What an answer complains of; of one that is fine it is not used."""
    if answer.status_code < 400:
        return MineruError("")
    try:
        return _error(answer.json()["error"], f"{url} answered {answer.status_code}")
    except (ValueError, KeyError, TypeError):
        return _stranger(url)


def _stranger(url: str) -> MineruError:
    return MineruError(
        f"{url} is not a mineru job server", code=ErrorCode.ENGINE_UNAVAILABLE, hint="start one: mineru serve"
    )


def _error(value: Mapping[str, Any] | None, otherwise: str) -> MineruError:
    """An error as the server tells it; it may be of a later version, with codes that are not known here."""
    known = dict(value or {"message": otherwise})
    if known.get("code") not in list(ErrorCode):
        known["code"] = str(ErrorCode.INTERNAL)
    error = error_from_dict(known)
    if error.code is ErrorCode.ACCESS_DENIED:
        error.hint = "set MINERU_API_KEY to a key of that server"
    return error


def _result(path: Path, file: Mapping[str, Any], archive: bytes, options: Mapping[str, Any]) -> ParseResult:
    with zipfile.ZipFile(BytesIO(archive)) as members:
        inside = f"{file['stem']}/"
        files = {item[len(inside) :]: members.read(item) for item in members.namelist() if item.startswith(inside)}
    result = _document(path.name, file["stem"], files, options)
    result.tier, result.engine, result.model = (file[part] or "" for part in ("tier", "engine", "model"))
    result.source_sha256, result.source_bytes = file["sha256"], file["bytes"]
    result.diagnostics = [Diagnostic(**item) for item in file["diagnostics"]]
    result.page_kinds = _page_kinds(path, result, lost=file["state"] == "partial")
    below = {path.split("/")[1] for path in files if path.startswith("attachments/")}
    result.attachments = [_attachment(folder, files, options) for folder in sorted(below)]
    return result


def _page_kinds(path: Path, result: ParseResult, *, lost: bool) -> dict[int, PageKind]:
    """As far as it is known here: that there are pages, and which are lost."""
    with contextlib.suppress(MineruError):  # an image that can be read there, and not here
        if detect(path, path.name).kind == "native":
            return {}
    kinds = dict.fromkeys(range(result.page_count), PageKind.NATIVE)
    if lost:
        pages = [item.page for item in result.diagnostics if item.page is not None]
        kinds.update(dict.fromkeys(pages or [0], PageKind.LOST))
    return kinds


def _attachment(folder: str, files: Mapping[str, bytes], options: Mapping[str, Any]) -> Attachment:
    start = f"attachments/{folder}/"
    own = {path[len(start) :]: content for path, content in files.items() if path.startswith(start)}
    return Attachment(f"{folder}.", 0, _document(f"{folder}.", folder, own, options))


def _document(name: str, stem: str, files: Mapping[str, bytes], options: Mapping[str, Any]) -> ParseResult:
    from docvortex.schema import MiddleJson, ModelJson

    chosen = ParseOptions.create(**options)
    model = files.get(f"{stem}_model.json")
    middle = MiddleJson.from_dict(orjson.loads(files[f"{stem}_middle.json"]))
    return ParseResult(
        name=name,
        middle_json=middle,
        model_json=ModelJson.model_construct() if model is None else ModelJson.from_dict(orjson.loads(model)),
        assets={path: content for path, content in files.items() if path.startswith("images/")},
        tier="",
        engine="",
        ocr_mode=str(chosen.ocr_mode),
        versions={},
        options=chosen.fingerprint(),
    )
