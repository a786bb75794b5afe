"""One connection under uvicorn: clients that never finish what they began are let go."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ("impatient",)


def impatient(timeout: float) -> type[H11Protocol]:
    """A protocol for uvicorn that gives a client so many seconds for the head of a request.

    uvicorn itself waits for ever. h11 bounds the size of a head, which uvicorn's other implementation does not. The
    body has its own bounds (see limits.py), but once a request was answered what is left of its body gets no longer.
    """

    class Impatient(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop()

        def _watch(self) -> None:
            """Let the time run while something must come from the client before anybody can go on."""
            answered = self.cycle is None or self.cycle.response_complete
            if not answered or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._stop()
            elif self._timer is None:
                self._timer = self.loop.call_later(timeout, self.transport.abort)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Impatient
