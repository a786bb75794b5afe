"""Images for the model: what is sent decodes to the same pixels, and libraries see them as Pillow images."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mineru_engine.options import ImageFormat
from mineru_engine.pdf import encode
from mineru_engine.pdf.encode import encode_image
from mineru_engine.pdf.pixels_image import PixelsImage, pixels_of
from mineru_engine.pdf.source import PdfSource

RNG = np.random.default_rng(7)


def picture(height: int, width: int, *, colour: bool) -> np.ndarray:
    pixels = RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if not colour:
        pixels[:, :, 1:] = pixels[:, :, :1]
    return pixels


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (37, 53), (1036, 1036)])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("compress", [encode.compress, zlib.compress])
def test_png_is_lossless_and_grey_where_it_can_be(
    size: tuple[int, int], colour: bool, compress: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "compress", compress)
    pixels = picture(*size, colour=colour)
    sent = encode_image(pixels, ImageFormat.PNG)
    image = Image.open(io.BytesIO(sent.decode()))
    image.verify()
    image = Image.open(io.BytesIO(sent.decode()))
    assert image.mode == ("RGB" if colour else "L")
    assert np.array_equal(np.asarray(image.convert("RGB")), pixels)
    assert sent.media_type == "image/png"


def test_one_coloured_pixel_is_enough_for_colour() -> None:
    pixels = picture(100, 100, colour=False)
    pixels[3, 5] = (255, 0, 0)
    image = Image.open(io.BytesIO(encode_image(pixels, ImageFormat.PNG).decode()))
    assert np.array_equal(np.asarray(image), pixels)


def test_a_view_of_a_page_is_encoded_like_a_copy() -> None:
    page = picture(200, 300, colour=True)
    view = page[20:90, 31:107]
    assert encode_image(view, ImageFormat.PNG).data == encode_image(view.copy(), ImageFormat.PNG).data


@pytest.mark.parametrize("image_format", [ImageFormat.JPEG, ImageFormat.WEBP])
def test_lossy_formats_keep_the_colours_in_their_places(image_format: ImageFormat) -> None:
    noise = RNG.integers(0, 60, (64, 64, 1), dtype=np.uint8)
    pixels = np.array([190, 120, 10], dtype=np.uint8) + noise
    sent = encode_image(pixels, image_format)
    image = Image.open(io.BytesIO(sent.decode()))
    assert image.format == image_format.upper()
    assert sent.media_type == f"image/{image_format}"
    assert np.abs(np.asarray(image.convert("RGB")).astype(int) - pixels).mean() < 20


def test_print_on_paper_is_smaller_as_png_and_stays_lossless(demo: Path) -> None:
    page = PdfSource(demo / "paper.pdf").render(0, 1500)
    sent = encode_image(page, ImageFormat.JPEG)
    assert sent.media_type == "image/png"
    assert len(sent.data) < len(encode_image(page, ImageFormat.WEBP).data) * 3


def test_a_crop_is_the_one_that_pillow_makes() -> None:
    pixels = picture(200, 300, colour=True)
    mine, theirs = PixelsImage(pixels), Image.fromarray(pixels)
    for box in [(0, 0, 300, 200), (10.4, 20.5, 99.5, 150.6), (250, 150, 300, 200), (5, 5, 5, 9)]:
        crop = mine.crop(box)
        assert crop.size == theirs.crop(box).size
        assert np.array_equal(pixels_of(crop), np.asarray(theirs.crop(box)).reshape(pixels_of(crop).shape))
        assert np.shares_memory(pixels_of(crop), pixels) or 0 in crop.size


def test_it_works_as_an_ordinary_image() -> None:
    pixels = picture(40, 60, colour=True)
    mine, theirs = PixelsImage(pixels).crop((5, 5, 45, 35)), Image.fromarray(pixels).crop((5, 5, 45, 35))
    assert mine.mode == "RGB"
    assert np.array_equal(np.asarray(mine.rotate(90, expand=True)), np.asarray(theirs.rotate(90, expand=True)))
    assert np.array_equal(np.asarray(mine.resize((80, 60))), np.asarray(theirs.resize((80, 60))))
    canvas = Image.new("RGB", (100, 100))
    canvas.paste(mine, (3, 4))
    assert canvas.getpixel((3, 4)) == tuple(pixels[5, 5])
    assert mine.convert("RGB").tobytes() == theirs.tobytes()


def test_a_grey_array_is_an_rgb_image_to_others() -> None:
    grey = picture(40, 60, colour=False)[:, :, 0]
    mine = PixelsImage(grey).crop((5, 5, 45, 35))
    assert pixels_of(mine).shape == (30, 40)
    assert mine.mode == "RGB"
    assert np.asarray(mine.rotate(90, expand=True)).shape == (40, 30, 3)
    sent = Image.open(io.BytesIO(encode_image(pixels_of(mine), ImageFormat.PNG).decode()))
    assert np.array_equal(np.asarray(sent), grey[5:35, 5:45])


@pytest.mark.parametrize("name", ["paper.pdf", "contract_scan.pdf"])
def test_pages_are_drawn_as_pypdfium2_draws_them(demo: Path, name: str) -> None:
    source = PdfSource(demo / name)
    mine = source.render(0, 1500)
    with source.page(0) as page:
        scale = 1500 / max(page.get_size())
        theirs = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False, maybe_alpha=False).to_numpy()
    assert np.array_equal(mine, theirs[:, :, :3])
    assert source.render_square(0, 500).shape == (500, 500, 3)
