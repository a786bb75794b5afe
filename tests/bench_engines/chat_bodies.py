"""Chat requests as mineru-vl-utils sends them, for the tests of the simulated and the tiny server."""

from __future__ import annotations

import base64
import io
from functools import cache
from typing import Any

from PIL import Image


@cache
def data_uri(width: int = 640, height: int = 120, file_format: str = "PNG") -> str:
    """A white image."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(buffer, file_format)
    return f"data:image/{file_format.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def chat_body(prompt: str = "\nText Recognition:", uri: str | None = None, **more: Any) -> dict[str, Any]:
    """A request body."""
    image = {"type": "image_url", "image_url": {"url": uri or data_uri()}}
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": [image, {"type": "text", "text": prompt}]},
    ]
    return {"model": "mineru-simulator", "messages": messages, "temperature": 0.0, "skip_special_tokens": False} | more
