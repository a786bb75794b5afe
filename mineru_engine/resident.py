"""Which resident runtime a call uses: settings and options in, runtime out."""

from __future__ import annotations

from mineru_engine.options import ParseOptions, Tier
from mineru_engine.runtime.registry import Lease, process_lease
from mineru_engine.runtime.runtime import Runtime
from mineru_engine.settings import Settings
from mineru_engine.vlm.config import VlmConfig

__all__ = ("needs_model", "runtime_for")


def needs_model(tier: Tier) -> bool:
    """Whether a tier reads with a vision-language model."""
    return tier in (Tier.HIGH, Tier.XHIGH)


def runtime_for(settings: Settings, options: ParseOptions | None = None, lease: Lease | None = None) -> Runtime:
    """The runtime for a parse with these options; without options one that has workers only.

    :param lease: who keeps the runtime alive; default the process.
    :raises EngineUnavailableError: if the tier needs an engine that is not configured.
    """
    holder = lease or process_lease()
    if options is None or not needs_model(options.effective_tier(settings.model.vlm)):
        return holder.runtime(settings.worker, None, None)
    from mineru_engine.vlm.transports import engine_maker

    config = VlmConfig.resolve(settings.model.vlm, options)
    return holder.runtime(settings.worker, config, engine_maker(config))
