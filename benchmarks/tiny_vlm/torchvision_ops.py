"""Lets PyPI's torchvision, built for CUDA, load beside a CPU torch: defines the two operators it misses.

``setup.sh`` copies this file into the virtual environment together with a ``.pth`` file that imports it at start-up,
because vLLM's engine runs in processes of its own.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_keep: list[object] = []


class _Finder(MetaPathFinder):
    """Steps aside at the first import of torchvision, after defining the operators."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        sys.meta_path.remove(self)
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for operator in _OPERATORS:
            library.define(operator)
        _keep.append(library)  # the operators live as long as the library object
        return importlib.util.find_spec(fullname)


sys.meta_path.insert(0, _Finder())
