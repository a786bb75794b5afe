"""The V1 API of MinerU 4.0: what the server can do, and the routers of the rest.

A job is the same as everywhere else on this server; ``standard`` is tier ``high``, ``advanced`` is ``xhigh``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter

from mineru_engine.errors import ErrorCode
from mineru_engine.options import Tier
from mineru_engine.server import mineru4_jobs, mineru4_tasks, mineru4_uploads
from mineru_engine.server.jobs import iso
from mineru_engine.server.mineru4_jobs import access_level, tier_name
from mineru_engine.server.mineru4_results import FORMATS
from mineru_engine.server.mineru4_route import V1Error, V1Route
from mineru_engine.server.native import TheCaller, TheService
from mineru_engine.version import __version__

__all__ = ("routers",)

router = APIRouter(prefix="/v1", tags=["MinerU 4.0"], route_class=V1Route)
routers = (router, mineru4_uploads.router, mineru4_jobs.router, mineru4_tasks.router)

MODEL = f"mineru-{__version__}"
_MOST_JOBS = 10_000
_TIERS = {
    Tier.FLASH: "text layer and office formats, without a model",
    Tier.BASIC: "text layer, and OCR of scanned pages with the bundled models",
    Tier.HIGH: "text layer; a vision-language model reads the rest",
    Tier.XHIGH: "a vision-language model reads every page",
}


@router.get("/health", summary="Is the server well?")
async def health(service: TheService) -> dict[str, Any]:
    """What it can give and where documents may come from."""
    problem = service.engine_problem
    if problem is not None:
        name = "engine_dead" if problem.code is ErrorCode.ENGINE_DEAD else "model_preload_failed"
        raise V1Error(name, problem.message, status=503)
    urls = ["url"] if service.settings.server.url_hosts else []
    features = {"webhook": False, "output_formats": FORMATS, "sources": ["file_id", *urls, "inline"]}
    return {"status": "ok", "version": __version__, "features": features}


@router.get("/tiers", summary="Tiers")
async def tiers(service: TheService) -> dict[str, Any]:
    """All that there are; without a vision-language model the bundled models take its place."""
    model = service.settings.model.vlm.model
    data = [
        {
            "id": tier_name(tier),
            "description": text,
            "current_model": model if tier in (Tier.HIGH, Tier.XHIGH) else None,
        }
        for tier, text in _TIERS.items()
    ]
    return {"object": "list", "data": data}


@router.get("/models", summary="Models")
async def models(service: TheService) -> dict[str, Any]:
    """One, which stands for the whole of this version."""
    return {"object": "list", "data": [_model(service.started)]}


@router.get("/models/{model_id}", summary="One model")
async def model(service: TheService, model_id: str) -> dict[str, Any]:
    """The only one."""
    if model_id != MODEL:
        raise V1Error("model_not_found", f"no model {model_id!r}", status=404, param="model_id")
    return _model(service.started)


def _model(created: float) -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": int(created), "owned_by": "mineru"}


@router.get("/usage", summary="Usage")
async def usage(service: TheService, caller: TheCaller) -> dict[str, Any]:
    """What the caller did this month, as far as the jobs are still kept; at most the last 10,000."""
    now = datetime.now(UTC)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = start.replace(year=now.year + now.month // 12, month=now.month % 12 + 1)
    jobs = await service.store.page(caller.tenant, limit=_MOST_JOBS, since=start.timestamp())
    limits = service.settings.server
    return {
        "object": "usage",
        "access_level": access_level(caller.tenant),
        "billing_period": {"start": iso(start.timestamp()), "end": iso(following.timestamp())},
        "current": {
            "pages_processed": sum(job.done for job in jobs),
            "files_processed": sum(file.state.has_result for job in jobs for file in job.files),
            "jobs_created": len(jobs),
        },
        "limits": {
            "max_pages_per_file": service.settings.processing.max_pages or None,
            "max_file_size_bytes": limits.max_request_mb << 20,
            "max_files_per_job": min(limits.max_files, 100),
            "max_concurrent_jobs": limits.concurrency,
            "max_file_retention_days": round(limits.retention_hours / 24, 3) or None,
        },
    }
