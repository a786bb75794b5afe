"""What a model server counts: its page for Prometheus, where it has one."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from mineru_engine.vlm.config import VlmConfig

__all__ = ("ServerMetrics",)

_TIMEOUT_S = 5.0
_SIMULATOR = "simulator_"
_BUSY = "simulator_busy_seconds_total"  # vLLM has nothing like it: its seconds are summed over requests
_IN_FLIGHT = (
    ("simulator_requests_in_flight", "simulator_requests_working_after_disconnect"),
    ("vllm:num_requests_running", "vllm:num_requests_waiting"),
)


class ServerMetrics:
    """Asks ``/metrics`` of the server in use; a context manager.

    It is asked with the credentials that this very server is asked with for everything else, and no redirect is
    followed: they go nowhere else.

    :param config: of an engine that may be no server: then nothing is known.
    """

    def __init__(self, config: VlmConfig | None) -> None:
        self._url = ""
        if config is None or not config.server_url:
            return
        import httpx

        from mineru_engine.vlm.server_address import ServerAddress

        address = ServerAddress.parse(config.server_url, config.api_key)
        self._url = f"{address.base}/metrics"
        self._client = httpx.Client(
            headers=address.headers, timeout=_TIMEOUT_S, follow_redirects=False, trust_env=config.proxy_from_env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._url:
            self._client.close()

    @property
    def known(self) -> bool:
        """Whether there is a server to ask."""
        return bool(self._url)

    def read(self) -> dict[str, float]:
        """Name → value, added up over the labels; empty where there are none."""
        if not self._url:
            return {}
        import httpx

        try:
            answer = self._client.get(self._url)
        except (httpx.HTTPError, UnicodeError):
            return {}
        return _values(answer.text) if answer.is_success else {}

    def busy_s(self) -> float | None:
        """Seconds that the engine has worked so far; ``None`` where it does not tell."""
        return self.read().get(_BUSY)

    def in_flight(self) -> int | None:
        """Requests that the server works on or keeps waiting; ``None`` where it does not tell."""
        values = self.read()
        names = next((names for names in _IN_FLIGHT if names[0] in values), None)
        return None if names is None else int(sum(values.get(name, 0.0) for name in names))

    def simulated(self) -> bool:
        """Whether it says of itself that it runs no model."""
        return any(name.startswith(_SIMULATOR) for name in self.read())


def _values(text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if line.startswith("#"):
            continue
        if "{" in name:  # a label may have spaces in it
            rest = line.rpartition("}")[2].strip()
            name = name.partition("{")[0]
        try:
            values[name] = values.get(name, 0.0) + float(rest.split()[0])
        except (ValueError, IndexError):  # no Prometheus text
            continue
    return values
