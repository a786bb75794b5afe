"""For whoever runs the server: ``/metrics`` for Prometheus, ``/ready`` for whatever sends it requests."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from mineru_engine.server.native import TheService
from mineru_engine.server.service import Service

__all__ = ("router",)

router = APIRouter(tags=["operation"])


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
async def metrics(service: TheService) -> Response:
    """Queue, jobs, pages, requests to the model, cache, memory."""
    return Response(await service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


@router.get("/ready", summary="Whether jobs may come", responses={503: {"description": "Not now; it says why."}})
async def ready(service: TheService) -> JSONResponse:
    """200 if the server takes jobs and can run them."""
    reason = _obstacle(service)
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not_ready", "reason": reason}, 503, {"Retry-After": "5"})


def _obstacle(service: Service) -> str | None:
    if not service.queue.accepting:
        return "the server is shutting down"
    if not service.has_space:
        return "too little free disk space"
    if service.engine_starting:
        return "the engine is starting"
    # Whoever asks this keeps jobs away until the answer is yes, so no job would start the engine.
    if service.engine_problem is not None:
        service.start_engine()
        return f"no engine: {service.engine_problem.message}"
    return None
