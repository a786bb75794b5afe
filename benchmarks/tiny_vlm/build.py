"""Build the tiny model: ``python -m benchmarks.tiny_vlm.build DIR``, with the Python that has vLLM.

A Qwen2-VL of 350,000 random parameters (0.7 MB) with a byte-level tokenizer that knows the special tokens of the
MinerU protocol. The same versions of torch and transformers make the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|ref_start|>", "<|ref_end|>"),
    *("<|rotate_up|>", "<|rotate_right|>", "<|rotate_down|>", "<|rotate_left|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
    *("<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>", "<|txt_contd_tgt|>"),
)
MAX_LENGTH = 8192
PATCH = 14
MERGE = 2
IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)
_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}" + _IMAGE + "{% elif 'text' in part %}"
    "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_STAMP = "tiny_vlm.json"
_VERSION = 1


def build(directory: Path) -> Path:
    """Write the model into a directory, unless it is there already; returns the directory."""
    import transformers

    stamp = {"version": _VERSION, "transformers": transformers.__version__}
    file = directory / _STAMP
    if file.is_file() and json.loads(file.read_text()) == stamp:
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    _write_weights(directory, _write_tokenizer(directory))
    _write_image_processor(directory)
    file.write_text(json.dumps(stamp))
    return directory


def _write_tokenizer(directory: Path) -> dict[str, int]:
    """Write the tokenizer; returns the ids of all tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: number for number, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
    )
    fast.save_pretrained(directory)
    return dict(tokenizer.get_vocab())


def _write_weights(directory: Path, ids: dict[str, int]) -> None:
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    config = Qwen2VLConfig(
        text_config={
            "vocab_size": -(-len(ids) // 64) * 64,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": MAX_LENGTH,
            "rope_parameters": {
                "type": "mrope",
                "rope_type": "default",
                "mrope_section": [4, 6, 6],
                "rope_theta": 1e6,
            },
            "bos_token_id": ids["<|im_start|>"],
            "eos_token_id": ids["<|im_end|>"],
        },
        vision_config={
            "depth": 2,
            "embed_dim": 64,
            "hidden_size": 64,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    torch.manual_seed(0)
    model = Qwen2VLForConditionalGeneration(config).to(torch.bfloat16)
    model.save_pretrained(directory)


def _write_image_processor(directory: Path) -> None:
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
        "min_pixels": 56 * 56,
        "max_pixels": 28 * 28 * 256,
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "image_mean": IMAGE_MEAN,
        "image_std": IMAGE_STD,
    }
    (directory / "preprocessor_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny_vlm.build", description="Build the tiny model.")
    parser.add_argument("directory", type=Path)
    print(build(parser.parse_args().directory))
