"""A small LaTeX subset: letters, digits, Greek, ``_``, ``^``, ``\\frac`` and ``\\sum``.

``inline_markup`` turns a formula into the XML of a reportlab paragraph; ``DisplayMath`` sets it as a
numbered display formula, with real text glyphs as a TeX document has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable

_SYMBOLS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "rho": "ρ", "lambda": "λ", "sigma": "σ", "theta": "θ",
    "Delta": "Δ", "sum": "∑", "times": "×", "cdot": "⋅", "leq": "≤", "geq": "≥", "approx": "≈",
    "pm": "±", "in": "∈", "sqrt": "√",
}  # fmt: skip
_OPERATORS = set("=+−×≤≥≈±∈")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.")


@dataclass(frozen=True)
class _Node:
    """A glyph, a fraction or a group of nodes, with optional scripts."""

    text: str = ""
    children: tuple[_Node, ...] = ()
    denominator: tuple[_Node, ...] | None = None
    sub: tuple[_Node, ...] = ()
    sup: tuple[_Node, ...] = ()


def _parse(latex: str) -> tuple[_Node, ...]:
    """Parse the LaTeX subset into nodes."""
    tokens = [token for token in _TOKEN.findall(latex) if not token.isspace()]
    tokens.reverse()
    return _parse_group(tokens)


def _parse_group(tokens: list[str]) -> tuple[_Node, ...]:
    """Parse up to the closing brace or the end; ``tokens`` is a stack, next token last."""
    nodes: list[_Node] = []
    while tokens and tokens[-1] != "}":
        token = tokens.pop()
        if token in "_^":
            last, script = nodes.pop(), _parse_argument(tokens)
            nodes.append(
                _Node(
                    last.text,
                    last.children,
                    last.denominator,
                    sub=script if token == "_" else last.sub,
                    sup=script if token == "^" else last.sup,
                )
            )
        elif token == r"\frac":
            nodes.append(_Node(children=_parse_argument(tokens), denominator=_parse_argument(tokens)))
        elif token == "{":
            nodes.append(_Node(children=_parse_group(tokens)))
            tokens.pop()
        elif token.startswith("\\"):
            nodes.append(_Node(_SYMBOLS[token[1:]]))
        else:
            nodes.append(_Node("−" if token == "-" else token))
    return tuple(nodes)


def _parse_argument(tokens: list[str]) -> tuple[_Node, ...]:
    """Parse a braced group or a single token."""
    if tokens[-1] != "{":
        token = tokens.pop()
        return (_Node(_SYMBOLS[token[1:]] if token.startswith("\\") else token),)
    tokens.pop()
    nodes = _parse_group(tokens)
    tokens.pop()
    return nodes


def inline_markup(latex: str) -> str:
    """The formula as reportlab paragraph XML."""
    return "".join(_node_markup(node) for node in _parse(latex))


def _node_markup(node: _Node) -> str:
    if node.denominator is not None:
        raise ValueError("fractions are for display formulas")
    body = "".join(map(_node_markup, node.children))
    if node.text:
        body = escape(node.text)
        if node.text in _OPERATORS:
            body = f" {body} "
        elif node.text.isascii() and node.text.isalpha():
            body = f"<i>{body}</i>"
        elif node.text == ",":
            body = ", "
    for tag, script in (("sub rise=2 size=7", node.sub), ("super rise=4 size=7", node.sup)):
        if script:
            body += f"<{tag}>{''.join(map(_node_markup, script)).replace(' ', '')}</{tag.split()[0]}>"
    return body


@dataclass(frozen=True)
class _Box:
    """A piece of a display formula: its size about the baseline and how to draw it."""

    width: float
    ascent: float
    descent: float
    draw: Callable[[Canvas, float, float], None]


def _glyph(text: str, size: float) -> _Box:
    """One character: letters slanted, symbols from the Symbol font, operators with space around."""
    pad = 0.28 * size if text in _OPERATORS else 0.0
    upright = "Times-Roman" if text.isascii() or text in "−×±" else "Symbol"
    font = "Times-Italic" if text.isascii() and text.isalpha() else upright
    if text == ",":
        pad = 0.1 * size

    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.setFont(font, size)
        canvas.drawString(x + pad, y, text)

    return _Box(stringWidth(text, font, size) + 2 * pad, 0.7 * size, 0.22 * size, draw)


def _row(boxes: list[tuple[_Box, float]]) -> _Box:
    """Boxes side by side, each with a vertical shift."""

    def draw(canvas: Canvas, x: float, y: float) -> None:
        for box, shift in boxes:
            box.draw(canvas, x, y + shift)
            x += box.width

    return _Box(
        sum(box.width for box, _ in boxes),
        max((box.ascent + shift for box, shift in boxes), default=0.0),
        max((box.descent - shift for box, shift in boxes), default=0.0),
        draw,
    )


def _layers(width: float, parts: list[tuple[_Box, float]], bar_y: float | None = None) -> _Box:
    """Boxes above each other, centred, with an optional fraction bar."""

    def draw(canvas: Canvas, x: float, y: float) -> None:
        for box, shift in parts:
            box.draw(canvas, x + (width - box.width) / 2, y + shift)
        if bar_y is not None:
            canvas.setLineWidth(0.5)
            canvas.line(x + 0.5, y + bar_y, x + width - 0.5, y + bar_y)

    return _Box(
        width,
        max(box.ascent + shift for box, shift in parts),
        max(box.descent - shift for box, shift in parts),
        draw,
    )


def _box(nodes: tuple[_Node, ...], size: float) -> _Box:
    """Lay out a list of nodes on one baseline."""
    return _row([(_node_box(node, size), 0.0) for node in nodes])


def _node_box(node: _Node, size: float) -> _Box:
    """Lay out one node with its scripts."""
    small = 0.7 * size
    if node.denominator is not None:
        top, bottom, axis = _box(node.children, size), _box(node.denominator, size), 0.25 * size
        width = max(top.width, bottom.width) + 0.3 * size
        parts = [(top, axis + top.descent + 0.12 * size), (bottom, axis - bottom.ascent - 0.18 * size)]
        return _layers(width, parts, bar_y=axis)
    if node.text == "∑":
        big, low, high = _glyph("∑", 1.4 * size), _box(node.sub, small), _box(node.sup, small)
        width = max(big.width, low.width, high.width) + 0.2 * size
        return _layers(width, [(big, -0.15 * size), (low, -1.15 * size), (high, 1.05 * size)])
    base = _glyph(node.text, size) if node.text else _box(node.children, size)
    boxes = [(base, 0.0)]
    if node.sub:
        boxes.append((_box(node.sub, small), -0.2 * size))
    if node.sup:
        boxes.append((_box(node.sup, small), 0.4 * size))
    return _row(boxes)


class DisplayMath(Flowable):  # type: ignore[misc]
    """A centred display formula with its number at the right margin."""

    def __init__(self, latex: str, number: int, size: float) -> None:
        super().__init__()
        self._box, self._number, self._size = _box(_parse(latex), size), number, size
        self.spaceBefore = self.spaceAfter = 6.0

    def wrap(self, available_width: float, available_height: float) -> tuple[float, float]:
        """Take the full column width and the height of the formula."""
        self.width, self.height = available_width, self._box.ascent + self._box.descent
        return self.width, self.height

    def draw(self) -> None:
        """Draw formula and number on one baseline."""
        canvas: Canvas = self.canv
        self._box.draw(canvas, (self.width - self._box.width) / 2, self._box.descent)
        canvas.setFont("Times-Roman", self._size)
        canvas.drawRightString(self.width, self._box.descent, f"({self._number})")
