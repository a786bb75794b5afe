"""What every paged document can do: measure a page and draw it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mineru_engine.errors import DamagedDocumentError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]

__all__ = ("MAX_PIXELS", "PageSource", "checked_size")

MAX_PAGE_POINTS = 50_000.0  # 694 inches; ISO 32000 allows 200
MAX_PIXELS = 40_000_000


class PageSource(ABC):
    """Pages that can be measured and rendered."""

    page_count: int

    @abstractmethod
    def page_size(self, index: int) -> tuple[float, float]:
        """Width and height in points.

        :raises MineruError: if the page cannot be loaded or its size is absurd.
        """

    @abstractmethod
    def render(self, index: int, long_side: int) -> Pixels:
        """The page as RGB, shape (height, width, 3), its longer side about ``long_side`` pixels."""

    @abstractmethod
    def render_square(self, index: int, side: int) -> Pixels:
        """The page as RGB, squashed or stretched to shape (side, side, 3)."""

    @abstractmethod
    def close(self) -> None:
        """Release the file."""


def checked_size(size: tuple[float, float], index: int) -> tuple[float, float]:
    """The size, if a page of that size can exist.

    :raises DamagedDocumentError: if it is not finite, not positive or absurdly large.
    """
    width, height = size
    if not (0 < width < MAX_PAGE_POINTS and 0 < height < MAX_PAGE_POINTS):
        raise DamagedDocumentError(f"the page is {width:g} x {height:g} points", page=index)
    return width, height
