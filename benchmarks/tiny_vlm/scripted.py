"""A vLLM V1 logits processor that makes the model say what a script wants.

Give it to ``AsyncEngineArgs(logits_processors=[ScriptedLogits])`` or to the server as
``--logits-processors benchmarks.tiny_vlm.scripted:ScriptedLogits``. The script file (the simulator's format, see
``benchmarks/simulator/script.py``) comes from the environment variable TINY_VLM_SCRIPT; without one every page has
the default layout. Scheduler, image encoder, batching and aborts are vLLM's own; only the tokens are ours.

vLLM does not show images to logits processors. So this module also watches requests enter the batch: it keeps their
pixel values until ``update_state`` asks, and compares the thumbnail with the fingerprints of the script.
"""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from transformers import AutoTokenizer
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
from vllm.v1.worker.gpu_input_batch import InputBatch

from benchmarks.simulator.images import Fingerprint
from benchmarks.simulator.script import Script, recognise
from benchmarks.tiny_vlm.build import IMAGE_MEAN, IMAGE_STD, MERGE, PATCH

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig

SCRIPT_VARIABLE = "TINY_VLM_SCRIPT"
_MAX_KEPT = 1024
_RAW_ABOVE = 8  # normalized values stay below 3


@dataclass(frozen=True, slots=True)
class SeenImage:
    """What rules look at; the size is that after the model's own resizing."""

    size: tuple[int, int]
    fingerprint: Fingerprint
    sha256: str = ""  # the encoded file is not to be had here

    @classmethod
    def of(cls, pixel_values: torch.Tensor, rows: int, columns: int) -> SeenImage:
        """From the patches that the image encoder gets."""
        parts = pixel_values.float().cpu().reshape(rows // MERGE, columns // MERGE, MERGE, MERGE, 3, -1, PATCH, PATCH)
        picture = parts[:, :, :, :, :, 0].permute(0, 2, 5, 1, 3, 6, 4).reshape(rows * PATCH, columns * PATCH, 3)
        if picture.max() < _RAW_ABOVE:  # normalized; some versions leave that to the model and pass 0 to 255
            picture = (picture * torch.tensor(IMAGE_STD) + torch.tensor(IMAGE_MEAN)) * 255
        image = Image.fromarray(picture.clamp(0, 255).round().to(torch.uint8).numpy())
        return cls(image.size, Fingerprint.of(image))


class _Watcher:
    """Remembers the image of each request that enters a batch, by its list of output tokens."""

    def __init__(self) -> None:
        self._features: OrderedDict[int, Any] = OrderedDict()
        self._images: OrderedDict[str, SeenImage] = OrderedDict()

    def install(self) -> None:
        """Wrap ``InputBatch.add_request``."""
        original = InputBatch.add_request

        @functools.wraps(original)
        def add_request(batch: InputBatch, request: Any) -> int:
            if request.mm_features:
                self._features[id(request.output_token_ids)] = request.mm_features[0]
                if len(self._features) > _MAX_KEPT:
                    self._features.popitem(last=False)
            return original(batch, request)

        InputBatch.add_request = add_request

    def take(self, output_tokens: list[int]) -> SeenImage | None:
        """The image of the request with this list of output tokens."""
        feature = self._features.pop(id(output_tokens), None)
        if feature is None:
            return None
        known = self._images.get(feature.identifier)
        if known is None and feature.data is not None:
            data = feature.data.get_data()
            _, rows, columns = data["image_grid_thw"].flatten().tolist()
            known = self._images[feature.identifier] = SeenImage.of(data["pixel_values"], rows, columns)
            if len(self._images) > _MAX_KEPT:
                self._images.popitem(last=False)
        return known


_watcher = _Watcher()
_watcher.install()


class ScriptedLogits(LogitsProcessor):
    """Leaves one token possible for each request: the next one of its script."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        path = os.environ.get(SCRIPT_VARIABLE)
        self._script = Script.load(path) if path else Script()
        self._tokenizer = AutoTokenizer.from_pretrained(vllm_config.model_config.model)
        self._image_token = self._tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self._encoded: dict[str, list[int]] = {}
        self._rows: dict[int, tuple[list[int], list[int]]] = {}

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        """Any parameters will do."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, _, prompt, made in batch_update.added:
            self._rows[row] = (self._tokens_for(prompt or [], made), made)
        for first, second, direction in batch_update.moved:
            one, other = self._rows.pop(first, None), self._rows.pop(second, None)
            if one is not None:
                self._rows[second] = one
            if other is not None and direction == MoveDirectionality.SWAP:
                self._rows[first] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        rows = [row for row in self._rows if row < logits.shape[0]]
        wanted = [self._next_token(row) for row in rows]
        logits[rows] = float("-inf")
        logits[rows, wanted] = 0.0
        return logits

    def _next_token(self, row: int) -> int:
        tokens, made = self._rows[row]
        return tokens[min(len(made), len(tokens) - 1)]

    def _tokens_for(self, prompt: list[int], made: list[int]) -> list[int]:
        text = self._tokenizer.decode([token for token in prompt if token != self._image_token])
        output = self._script.find(recognise(text), _watcher.take(made)).text
        if output not in self._encoded:
            tokens = self._tokenizer.encode(output, add_special_tokens=False)
            self._encoded[output] = [*tokens, self._tokenizer.eos_token_id]
        return self._encoded[output]
