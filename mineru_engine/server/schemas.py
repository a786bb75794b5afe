"""Parts of the OpenAPI document for bodies that a route reads itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

__all__ = ("BINARY", "form_schema", "json_schema", "request_body", "with_first")

BINARY = {"type": "string", "format": "binary"}


def request_body(schemas: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """``openapi_extra`` of a route.

    :param schemas: media type → schema.
    """
    body: dict[str, Any] = {"content": {kind: {"schema": schema} for kind, schema in schemas.items()}}
    return {"requestBody": {"required": True, **body} if required else body}


def form_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Of a form with documents as its parts ``files`` and the fields of a model."""
    return with_first(json_schema(model), "files", {"type": "array", "items": BINARY, "description": "the documents"})


def with_first(schema: dict[str, Any], name: str, value: dict[str, Any]) -> dict[str, Any]:
    """A schema with one more property, which is the only one that is required."""
    return {**schema, "properties": {name: value, **schema["properties"]}, "required": [name]}


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema in one piece: what is put into an OpenAPI document cannot refer to parts of itself."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return whole(parts[value["$ref"].rpartition("/")[2]])
        return {key: whole(item) for key, item in value.items() if key != "discriminator"}

    resolved: dict[str, Any] = whole(schema)
    return resolved
