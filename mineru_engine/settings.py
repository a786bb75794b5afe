"""Settings of an installation: defaults, a TOML file, the environment, explicit values.

Every leaf has one dotted name (``model.vlm.server_url``), which is also its place in the file
(``[model.vlm] server_url = …``) and, with ``MINERU_`` in front, its environment variable
(``MINERU_MODEL_VLM_SERVER_URL``). Precedence: explicit value > environment > file > default.
:attr:`Settings.sources` remembers where each value that is not a default came from.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
)

from mineru_engine.errors import ErrorCode, OptionError
from mineru_engine.nearest import did_you_mean
from mineru_engine.options import Engine, ImageFormat

__all__ = (
    "EnhanceSettings",
    "ModelSettings",
    "ProcessingSettings",
    "ServerSettings",
    "Settings",
    "VlmSettings",
    "WorkerSettings",
)

CONFIG_NAME = "mineru.toml"
ENV_PREFIX = "MINERU_"
_TABLES = ("model.vlm.engine_options",)
_ENV_NAMES = {"server.cache_url": "MINERU_CACHE_URL"}  # the one that has a shorter name than its place says


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class VlmSettings(_Section):
    """The vision-language model of tiers ``high`` and ``xhigh``."""

    engine: Engine = Field(default=Engine.AUTO, description="what runs the model; auto chooses by what is there")
    server_url: str | None = Field(default=None, description="base URL of an OpenAI-compatible server")
    api_key: SecretStr | None = Field(default=None, description="sent as a bearer token to server_url only")
    model: str | None = Field(default=None, description="model name at the server, or a local path")
    max_concurrency: int = Field(default=100, ge=1, description="VLM requests in flight, over all documents")
    http_timeout: float = Field(default=600.0, gt=0, description="seconds for one request")
    connect_timeout: float = Field(default=10.0, gt=0, description="seconds for a connection to the server")
    max_retries: int = Field(default=4, ge=0, description="tries again after 429, 502, 503, 504 and lost connections")
    proxy_from_env: bool = Field(default=False, description="use HTTP_PROXY and its like for the server")
    image_format: ImageFormat = Field(default=ImageFormat.PNG, description="how page images travel: png, jpeg, webp")
    device: str | None = Field(default=None, description="device of a local engine, as cuda:0 or cpu")
    engine_options: dict[str, Any] = Field(
        default_factory=dict, description="passed to a local engine by name, as gpu_memory_utilization"
    )


class ModelSettings(_Section):
    """Models."""

    vlm: VlmSettings = VlmSettings()


class ProcessingSettings(_Section):
    """How a document is cut up and how long a page may take."""

    window_size: int = Field(default=8, ge=1, description="pages analysed together")
    page_timeout: float = Field(default=20.0, gt=0, description="seconds for one page before it is given up")
    max_file_mb: int = Field(default=2048, ge=1, description="largest input accepted, MiB")
    max_pages: int = Field(default=0, ge=0, description="pages read of one document; 0 for any number")
    image_budget_mb: int = Field(default=128, ge=8, description="page images held for the VLM by the process, MiB")


class WorkerSettings(_Section):
    """The worker processes in which native code runs."""

    processes: int = Field(default=0, ge=0, description="number of processes; 0 for one per usable core, at most 8")
    memory_mb: int = Field(default=2048, ge=256, description="resident memory at which a worker is killed, MiB")
    recycle_mb: int = Field(default=768, ge=128, description="resident memory at which an idle worker is replaced, MiB")
    max_tasks: int = Field(default=500, ge=1, description="tasks after which a worker is replaced")


class EnhanceSettings(_Section):
    """A language model that looks at the finished document; off unless one of the two switches is on."""

    server_url: str | None = Field(default=None, description="base URL of an OpenAI-compatible server")
    api_key: SecretStr | None = Field(default=None, description="sent as a bearer token to enhance.server_url only")
    model: str | None = Field(default=None, description="model name at the server; default its only one")
    title_levels: bool = Field(default=False, description="ask it for the levels of all headings")
    tables: bool = Field(default=False, description="ask it which tables go on across pages")
    timeout: float = Field(default=60.0, gt=0, description="seconds for one question, tries again included")

    @property
    def active(self) -> bool:
        """Whether there is anything to ask for."""
        return self.title_levels or self.tables


def _listed(value: object) -> object:
    """In the environment a list is written with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _check_host(text: str) -> str:
    if not re.fullmatch(r"(https?://)?[^/@?#*\s]+", text):
        raise ValueError(f"{text!r}: write HOST, HOST:PORT, or http:// or https:// before one")
    return text


_Names = Annotated[list[str], BeforeValidator(_listed)]
_Hosts = Annotated[list[Annotated[str, AfterValidator(_check_host)]], BeforeValidator(_listed)]


class ServerSettings(_Section):
    """The job server."""

    concurrency: int = Field(default=1, ge=1, description="jobs that run at once")
    queue_limit: int = Field(default=1000, ge=1, description="jobs that may wait; more are refused with 429")
    max_attempts: int = Field(
        default=2, ge=1, description="times that a job is begun: again, if the server died under it"
    )
    max_files: int = Field(default=100, ge=1, description="documents in one job")
    max_request_mb: int = Field(default=512, ge=1, description="largest request body, MiB")
    retention_hours: float = Field(default=24.0, ge=0, description="hours for which ended jobs are kept; 0 for ever")
    retention_gb: float = Field(default=20.0, ge=0, description="room for ended jobs, GB, the oldest go; 0 for any")
    min_free_mb: int = Field(default=512, ge=0, description="free disk space, MiB, below which no job is taken")
    cache_ttl: float = Field(
        default=300.0, ge=0, description="seconds for which memory and Redis keep a result; 0 for no cache at all"
    )
    cache_url: SecretStr | None = Field(default=None, description="Redis that servers share results in, redis://HOST")
    cors_origins: _Names = Field(default=[], description="web origins that may call from a browser")
    url_hosts: _Hosts = Field(default=[], description="hosts that documents may be fetched from, http://HOST for HTTP")
    vlm_hosts: _Hosts = Field(
        default=[], description="hosts that a request may name as server_url, also http://HOST:8000"
    )
    private_hosts: _Names = Field(default=[], description="which of these hosts or addresses need not be public")
    url_timeout: float = Field(default=60.0, gt=0, description="seconds for the documents of one request to be fetched")
    request_timeout: float = Field(default=30.0, gt=0, description="seconds that a client may dawdle over a request")
    audit: bool = Field(default=True, description="keep DATA/audit.jsonl: who had what parsed, and what came of it")
    audit_mb: int = Field(default=64, ge=1, description="size at which the audit log is rotated, MiB; 10 are kept")
    audit_exchanges: bool = Field(
        default=False, description="keep DATA/exchanges.jsonl: what a model was asked and what it answered"
    )


class Settings(_Section):
    """All settings. Build with :meth:`load`; plain ``Settings()`` is the defaults alone."""

    model: ModelSettings = ModelSettings()
    processing: ProcessingSettings = ProcessingSettings()
    worker: WorkerSettings = WorkerSettings()
    enhance: EnhanceSettings = EnhanceSettings()
    server: ServerSettings = ServerSettings()

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def sources(self) -> Mapping[str, str]:
        """Dotted name → where the value came from; names not listed have their default."""
        return self._sources

    @classmethod
    def load(
        cls,
        config: Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Settings:
        """Read the settings in force.

        :param config: a TOML file; else ``./mineru.toml``, else the one in the user's config directory.
        :param environ: environment to read instead of the process's own.
        :param overrides: dotted name → value, stronger than everything else; ``None`` values are skipped.
        :raises OptionError: if the file is missing or malformed, a name unknown or a value impossible.
        """
        values: dict[str, tuple[Any, str]] = {}
        for path, layer in _file_layers(config):
            values.update({name: (value, str(path)) for name, value in layer.items()})
        values.update(_environment(os.environ if environ is None else environ))
        for name, value in (overrides or {}).items():
            if value is not None:
                _check_name(name, "option")
                values[name] = (value, "option")
        settings = _validate(cls, values)
        settings._sources.update({name: source for name, (_, source) in values.items()})
        return settings

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """All dotted names with their values, secrets still wrapped."""
        for name in leaf_names():
            value: Any = self
            for part in name.split("."):
                value = getattr(value, part)
            yield name, value


def leaf_names(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Dotted names of all settings, in order of declaration."""
    names: list[str] = []
    for name, info in model.model_fields.items():
        annotation = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names += leaf_names(annotation, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def env_name(name: str) -> str:
    """Environment variable of a dotted name."""
    return _ENV_NAMES.get(name) or ENV_PREFIX + name.replace(".", "_").upper()


def user_config_path() -> Path:
    """Where a user's own settings file lies."""
    from platformdirs import user_config_dir

    return Path(user_config_dir("mineru", appauthor=False)) / CONFIG_NAME


def _file_layers(config: Path | None) -> list[tuple[Path, dict[str, Any]]]:
    if config is not None:
        if not config.is_file():
            raise OptionError(f"no settings file at {config}", code=ErrorCode.SETTING_INVALID)
        return [(config, _read_file(config))]
    for path in (Path(CONFIG_NAME), user_config_path()):
        if path.is_file():
            return [(path, _read_file(path))]
    return []


def _read_file(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise OptionError(f"{path}: {exc}", code=ErrorCode.SETTING_INVALID) from exc
    flat = dict(_flatten(tree))
    for name in flat:
        _check_name(name, str(path))
    return flat


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    known = leaf_names()
    for key, value in tree.items():
        if isinstance(value, dict) and prefix + key not in known:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for name in leaf_names():
        value = environ.get(env_name(name), "")
        if value != "":
            found[name] = (_table(value, env_name(name)) if name in _TABLES else value, env_name(name))
    return found


def _table(text: str, source: str) -> dict[str, Any]:
    """A setting that is itself a table is written as JSON in the environment."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OptionError(
            f"{source}: not a JSON object", code=ErrorCode.SETTING_INVALID, hint=f"""as {source}='{{"name": 1}}'"""
        )
    return value


def _check_name(name: str, source: str) -> None:
    known = leaf_names()
    if name in known:
        return
    raise OptionError(
        f"{source}: unknown setting {name!r}",
        code=ErrorCode.SETTING_INVALID,
        hint=did_you_mean(name, known) or f"known settings: {', '.join(known)}",
    )


def _validate(cls: type[Settings], values: Mapping[str, tuple[Any, str]]) -> Settings:
    tree: dict[str, Any] = {}
    for name, (value, _) in values.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    try:
        return cls(**tree)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in error["loc"])
        source = values[name][1] if name in values else "settings"
        raise OptionError(f"{source}: {name}: {error['msg']}", code=ErrorCode.SETTING_INVALID) from None
