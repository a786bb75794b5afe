"""Which engine a parse uses, and with what: settings and options brought together."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from mineru_engine.errors import EngineUnavailableError
from mineru_engine.options import Engine, ImageFormat

if TYPE_CHECKING:
    from mineru_engine.options import ParseOptions
    from mineru_engine.settings import VlmSettings

__all__ = ("DEFAULT_MODEL", "VlmConfig")

DEFAULT_MODEL = "opendatalab/MinerU2.5-Pro-2605-1.2B"
"""What MinerU 4.0.12 loads when no model is named; local engines find it in the Hugging Face cache."""


@dataclass(frozen=True, slots=True)
class VlmConfig:
    """Everything that makes one engine different from another: the key under which it is kept and shared.

    :ivar engine: never ``auto``.
    :ivar api_key: goes to the host of ``server_url`` only.
    :ivar options: engine options as canonical JSON, so that the configuration can be a key.
    """

    engine: Engine
    server_url: str | None = field(default=None, repr=False)  # it may hold a password
    api_key: SecretStr | None = field(default=None, repr=False)
    model: str | None = None
    max_concurrency: int = 100
    http_timeout: float = 600.0
    connect_timeout: float = 10.0
    max_retries: int = 4
    proxy_from_env: bool = False
    image_format: ImageFormat = ImageFormat.PNG
    device: str | None = None
    options: str = "{}"

    @classmethod
    def resolve(cls, settings: VlmSettings, options: ParseOptions) -> VlmConfig:
        """The configuration in force; what a call names is stronger than the settings.

        A key from the settings is not sent to a server that only the call names.

        :raises EngineUnavailableError: if engine ``http`` is asked for and no server is known.
        """
        url = options.server_url or settings.server_url
        asked = options.engine if options.engine is not Engine.AUTO else settings.engine
        engine = _choose(url) if asked is Engine.AUTO else asked
        remote = engine is Engine.HTTP
        if remote and not url:
            raise EngineUnavailableError("engine http needs a server", hint="set MINERU_MODEL_VLM_SERVER_URL")
        return cls(
            engine=engine,
            server_url=url if remote else None,
            api_key=settings.api_key if remote and _may_carry_key(settings.server_url, url) else None,
            model=options.model or settings.model,
            max_concurrency=settings.max_concurrency,
            http_timeout=settings.http_timeout,
            connect_timeout=settings.connect_timeout,
            max_retries=settings.max_retries,
            proxy_from_env=settings.proxy_from_env,
            image_format=settings.image_format,
            device=settings.device,
            options=json.dumps(settings.engine_options, sort_keys=True),
        )

    @property
    def local_model(self) -> str:
        """Path or hub name of what an engine in this process loads."""
        return self.model or DEFAULT_MODEL

    @property
    def engine_options(self) -> dict[str, Any]:
        """Engine options by name."""
        values: dict[str, Any] = json.loads(self.options)
        return values


def _choose(server_url: str | None) -> Engine:
    if server_url:
        return Engine.HTTP
    return Engine.VLLM if _has_vllm_and_cuda() else Engine.ONNX


@functools.cache
def _has_vllm_and_cuda() -> bool:
    """Whether vLLM is installed and the driver shows a GPU; asks without importing either, once for all calls."""
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        return False
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        return int(pynvml.nvmlDeviceGetCount()) > 0
    finally:
        pynvml.nvmlShutdown()


def _may_carry_key(configured: str | None, url: str | None) -> bool:
    return configured is None or _origin(configured) == _origin(url or "")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
