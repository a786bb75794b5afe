"""A request as the body of a chat completion, and the reply in the answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from mineru_engine.vlm.transport import Sampling, VlmReply, VlmRequest

__all__ = ("BadAnswerError", "error_message", "read_reply", "request_body")

_END_OF_TURN = "<|im_end|>"
_EXTENSIONS = ("top_k", "repetition_penalty", "skip_special_tokens", "vllm_xargs")
"""What servers of open models take and OpenAI's own models refuse."""


class BadAnswerError(ValueError):
    """An answer that holds no reply. The message may quote the server."""


def request_body(model: str, request: VlmRequest) -> bytes:
    """The JSON body for ``/v1/chat/completions``."""
    image = {"type": "image_url", "image_url": {"url": request.image.data_uri()}}
    messages: list[dict[str, object]] = []
    if request.system_prompt:
        messages.append({"role": "system", "content": request.system_prompt})
    messages.append({"role": "user", "content": [image, {"type": "text", "text": request.prompt}]})
    fields = _sampling_fields(request.sampling)
    if model.lower().startswith("gpt"):
        fields = {name: value for name, value in fields.items() if name not in _EXTENSIONS}
    return orjson.dumps({"model": model, "messages": messages, **fields})


def _sampling_fields(sampling: Sampling) -> dict[str, object]:
    ngram = sampling.no_repeat_ngram_size
    fields = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "vllm_xargs": None if ngram is None else {"no_repeat_ngram_size": ngram},
        "max_completion_tokens": sampling.max_new_tokens,
        "max_tokens": sampling.max_new_tokens,  # its old name, the only one that some servers know
        "skip_special_tokens": False,
    }
    return {name: value for name, value in fields.items() if value is not None}


def read_reply(body: bytes) -> VlmReply:
    """The reply in a complete answer.

    :raises BadAnswerError: if it has another shape, is an error, or did not come to an end of its own.
    """
    try:
        answer = orjson.loads(body)
        choice = answer["choices"][0]
        content, reason = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BadAnswerError(f"the answer is no chat completion: {error_message(body)}") from None
    if content is not None and not isinstance(content, str):
        raise BadAnswerError("the answer is no chat completion: its content is no text")
    if reason not in ("stop", "length"):
        raise BadAnswerError(f"the model did not finish: finish_reason is {reason!r}")
    usage = answer.get("usage") or {}
    return VlmReply(
        text=(content or "").removesuffix(_END_OF_TURN),
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        truncated=reason == "length",
    )


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) else None


def error_message(body: bytes) -> str:
    """What a server says went wrong, in any of the usual shapes; else the body as text."""
    try:
        answer: Any = orjson.loads(body)
    except ValueError:
        answer = None
    for name in ("error", "message", "detail"):
        if isinstance(answer, Mapping) and answer.get(name):
            answer = answer[name]
    return (answer if isinstance(answer, str) else body.decode(errors="replace")) or "no message"
