"""Build a tiny model for llama.cpp: ``python -m benchmarks.tiny_vlm.build_gguf DIR``, with a Python that has ``gguf``.

A Qwen2-VL of 340,000 random parameters (1.4 MB): ``model.gguf`` reads bytes and writes ASCII, ``mmproj-model.gguf``
sees. What it says is noise, at temperature 0 the same noise for the same picture and prompt. Names of keys and tensors
are those of llama.cpp's ``convert_hf_to_gguf.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tiny_vlm.build import IMAGE_MEAN, IMAGE_STD, MAX_LENGTH, MERGE, PATCH, SPECIAL_TOKENS

MODEL, PROJECTOR = "model.gguf", "mmproj-model.gguf"
_WIDTH, _INNER, _HEADS, _LAYERS = 64, 128, 2, 2
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build(directory: Path) -> tuple[Path, Path]:
    """Write both files into a directory; returns the model and its projector."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    _write(directory / MODEL, "qwen2vl", _text_keys, _text_tensors(random))
    _write(directory / PROJECTOR, "clip", _vision_keys, _vision_tensors(random))
    return directory / MODEL, directory / PROJECTOR


def _write(path: Path, architecture: str, keys: Callable[[Any], None], tensors: dict[str, np.ndarray]) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    keys(writer)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tokens() -> tuple[list[str], list[int]]:
    """All tokens with their kinds: the 256 bytes in GPT-2's letters, one pair, the special tokens of the protocol."""
    import gguf

    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = sorted([chr(code) for code in plain] + [chr(256 + number) for number in range(256 - len(plain))])
    words = [*letters, "th"]  # llama.cpp refuses a vocabulary without any pair
    kinds = [gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS)
    return [*words, *SPECIAL_TOKENS], [int(kind) for kind in kinds]


def _text_keys(writer: Any) -> None:
    tokens, kinds = _tokens()
    writer.add_context_length(MAX_LENGTH)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_rope_dimension_sections([4, 6, 6, 0])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHAT_TEMPLATE)


def _vision_keys(writer: Any) -> None:
    import gguf

    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN2VL)
    writer.add_vision_projection_dim(_WIDTH)
    writer.add_vision_image_size(560)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(_WIDTH)
    writer.add_vision_feed_forward_length(_INNER)
    writer.add_vision_block_count(_LAYERS)
    writer.add_vision_head_count(_HEADS)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_image_mean(list(IMAGE_MEAN))
    writer.add_vision_image_std(list(IMAGE_STD))


def _text_tensors(random: np.random.Generator) -> dict[str, np.ndarray]:
    tokens = _tokens()[0]
    # llama.cpp's Python binding refuses an answer that is not UTF-8: only ASCII gets a say.
    spoken = np.array([[token.isascii()] for token in tokens])
    tensors = {
        "token_embd.weight": _matrix(random, len(tokens), _WIDTH),
        "output_norm.weight": np.ones(_WIDTH),
        "output.weight": _matrix(random, len(tokens), _WIDTH) * spoken,
    }
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        tensors |= {f"{block}.{norm}_norm.weight": np.ones(_WIDTH) for norm in ("attn", "ffn")}
        tensors |= _linear(random, f"{block}.attn_q", _WIDTH, _WIDTH)
        tensors |= _linear(random, f"{block}.attn_k", _WIDTH, _WIDTH)
        tensors |= _linear(random, f"{block}.attn_v", _WIDTH, _WIDTH)
        tensors[f"{block}.attn_output.weight"] = _matrix(random, _WIDTH, _WIDTH)
        tensors[f"{block}.ffn_gate.weight"] = _matrix(random, _INNER, _WIDTH)
        tensors[f"{block}.ffn_up.weight"] = _matrix(random, _INNER, _WIDTH)
        tensors[f"{block}.ffn_down.weight"] = _matrix(random, _WIDTH, _INNER)
    return tensors


def _vision_tensors(random: np.random.Generator) -> dict[str, np.ndarray]:
    merged = _WIDTH * MERGE * MERGE
    tensors = {
        "v.patch_embd.weight": _matrix(random, _WIDTH, 3, PATCH, PATCH),
        "v.patch_embd.weight.1": _matrix(random, _WIDTH, 3, PATCH, PATCH),
        **_norm("v.post_ln"),
        **_linear(random, "mm.0", merged, merged),
        **_linear(random, "mm.2", _WIDTH, merged),
    }
    for layer in range(_LAYERS):
        block = f"v.blk.{layer}"
        tensors |= _norm(f"{block}.ln1") | _norm(f"{block}.ln2")
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            tensors |= _linear(random, f"{block}.{part}", _WIDTH, _WIDTH)
        tensors |= _linear(random, f"{block}.ffn_up", _INNER, _WIDTH)
        tensors |= _linear(random, f"{block}.ffn_down", _WIDTH, _INNER)
    return tensors


def _linear(random: np.random.Generator, name: str, out: int, into: int) -> dict[str, np.ndarray]:
    return {f"{name}.weight": _matrix(random, out, into), f"{name}.bias": np.zeros(out)}


def _norm(name: str) -> dict[str, np.ndarray]:
    return {f"{name}.weight": np.ones(_WIDTH), f"{name}.bias": np.zeros(_WIDTH)}


def _matrix(random: np.random.Generator, out: int, *into: int) -> np.ndarray:
    return random.normal(0, float(np.prod(into)) ** -0.5, (out, *into))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny_vlm.build_gguf", description=__doc__)
    parser.add_argument("directory", type=Path)
    print(*build(parser.parse_args().directory))
