"""What a caller may ask of one parse: tier, OCR mode, pages and limits."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from mineru_engine.errors import OptionError
from mineru_engine.nearest import did_you_mean

if TYPE_CHECKING:
    from mineru_engine.settings import VlmSettings

__all__ = ("Engine", "ImageFormat", "OcrMode", "ParseOptions", "Password", "Tier")

Password = SecretStr | Callable[[str], str | None]
"""A secret, or a callable that gets the document's name and returns its password (or ``None``)."""


class Tier(StrEnum):
    """How much machinery reads a document; see the table in the README."""

    AUTO = "auto"
    FLASH = "flash"
    BASIC = "basic"
    HIGH = "high"
    XHIGH = "xhigh"


class OcrMode(StrEnum):
    """Where the text of a page comes from. ``auto`` decides for every page."""

    AUTO = "auto"
    TXT = "txt"
    OCR = "ocr"


class Engine(StrEnum):
    """What runs the vision-language model of tiers ``high`` and ``xhigh``."""

    AUTO = "auto"
    HTTP = "http"
    VLLM = "vllm"
    TRANSFORMERS = "transformers"
    LLAMA_CPP = "llama-cpp"
    LMDEPLOY = "lmdeploy"
    MLX = "mlx"
    ONNX = "onnx"


class ImageFormat(StrEnum):
    """How page images travel to a vision-language model; PNG is lossless."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"


_TIER_ALIASES = {"medium": Tier.BASIC, "standard": Tier.HIGH, "advanced": Tier.XHIGH}


def _tier(value: object) -> object:
    return _TIER_ALIASES.get(value.lower(), value.lower()) if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class ParseOptions(BaseModel):
    """Options of one parse. Unknown names and impossible values raise :class:`OptionError`.

    Secrets never show in ``repr``, in :meth:`fingerprint` or in the result.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    tier: Annotated[Tier, BeforeValidator(_tier)] = Tier.AUTO
    ocr_mode: Annotated[OcrMode, BeforeValidator(_lower)] = OcrMode.AUTO
    pages: str = Field(default="", description="one-based, as '1-5,8,r3-r1'; empty for all")
    image_analysis: bool = Field(default=True, description="let a VLM describe images and charts")
    engine: Annotated[Engine, BeforeValidator(_lower)] = Engine.AUTO
    server_url: str | None = Field(default=None, description="OpenAI-compatible VLM server")
    model: str | None = Field(default=None, description="model name at the server, or a local path")
    timeout_s: float | None = Field(default=None, gt=0, description="deadline of the whole document, seconds")
    page_timeout_s: float | None = Field(
        default=None, gt=0, description="deadline of one page, seconds; default from settings"
    )
    window_size: int | None = Field(default=None, ge=1, description="pages per window; default from settings")
    attachments: bool = Field(default=False, description="parse files attached to a PDF as well")
    password: Password | None = Field(default=None, repr=False, exclude=True)

    @classmethod
    def create(cls, **values: Any) -> ParseOptions:
        """Build options; a plain string password is wrapped as a secret.

        :raises OptionError: if a name is unknown or a value impossible.
        """
        if isinstance(values.get("password"), str):
            values["password"] = SecretStr(values["password"])
        try:
            return cls(**values)
        except ValidationError as exc:
            raise OptionError(_first_problem(exc), hint=_hint(exc)) from None

    def effective_tier(self, vlm: VlmSettings) -> Tier:
        """The tier that ``auto`` stands for: ``high`` where a vision-language model is configured, else ``basic``."""
        if self.tier is not Tier.AUTO:
            return self.tier
        named = self.engine if self.engine is not Engine.AUTO else vlm.engine
        configured = self.server_url or vlm.server_url or named not in (Engine.AUTO, Engine.ONNX)
        return Tier.HIGH if configured else Tier.BASIC

    def fingerprint(self) -> dict[str, object]:
        """The options that change what comes out, as JSON values. Limits and secrets are left out."""
        skipped = {"timeout_s", "page_timeout_s", "window_size", "password"}
        return self.model_dump(mode="json", exclude=skipped)


def _first_problem(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in error["loc"]) or "options"
    if error["type"] == "extra_forbidden":
        return f"unknown option {name!r}"
    return f"{name}: {error['msg']}"


def _hint(exc: ValidationError) -> str | None:
    error = exc.errors(include_url=False, include_input=False)[0]
    if error["type"] != "extra_forbidden":
        return None
    known = ParseOptions.model_fields
    return did_you_mean(str(error["loc"][-1]), known) or f"known options: {', '.join(known)}"
