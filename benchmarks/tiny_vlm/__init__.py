"""A real vLLM with a tiny random model that says what a script wants; needs the CPU build of vLLM, see README.md."""

from benchmarks.tiny_vlm.serve import TinyServer, TinyServerError, vllm_python

__all__ = ["TinyServer", "TinyServerError", "vllm_python"]
