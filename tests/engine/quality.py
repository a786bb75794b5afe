"""How close a Markdown text comes to its ground truth.

Two dialects of Markdown should compare by what they say, so every metric works on normalized text: no
marks, no image references, one form for quotes, dashes, spaces and simple LaTeX.

The table metric is TEDS (X. Zhong, E. ShafieiBavani, A. Jimeno Yepes: "Image-based table recognition: data,
model, and evaluation", ECCV 2020), computed with the tree edit distance of K. Zhang and D. Shasha ("Simple
fast algorithms for the editing distance between trees and related problems", SIAM J. Comput. 18, 1989).
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser

from rapidfuzz.distance import Levenshtein

_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)|<img\b[^>]*>", re.IGNORECASE)
_DETAILS = re.compile(r"<details\b.*?</details>", re.IGNORECASE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?:[^()\s]|\([^()]*\))*\)")
_INLINE_TAG = re.compile(r"</?(?:sub|sup|b|strong|i|em|u|s|span|small|a|eq|code|font|mark)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->", re.DOTALL)
_MATH = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_PIPE_RULE = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_LINE_MARK = re.compile(r"^\s*(?:#{1,6}\s+|>\s*|[-*+•‣▪●○◦·]\s+)+", re.MULTILINE)
_RULE_LINE = re.compile(r"^\s*(?:[-*_]\s*){3,}$", re.MULTILINE)
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+\-.!~$|>])")
_EMPHASIS = re.compile(r"\*{1,3}|~~|`+|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)")
_LEADERS = re.compile(r"(?:[.·…]\s*){4,}")
_LOOSE_SPACE = re.compile(r"\s+(?=[^\w\s])|(?<=[^\w\s])\s+")
_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_CJK_SPACE = re.compile(rf"(?<=[{_CJK}])\s+|\s+(?=[{_CJK}])")
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")

_ONE_FORM = str.maketrans(
    {
        "‘": "'", "’": "'", "‚": "'", "′": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-", "−": "-",
        "‐": "-", "‑": "-", "∙": "·", "⋅": "·", "∆": "Δ", "∑": "Σ", "\xad": None, "\u200b": None, "\ufeff": None,
    }
)  # fmt: skip
_COMMANDS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ",
    "Theta": "Θ", "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "sum": "Σ", "prod": "∏",
    "int": "∫", "times": "×", "cdot": "·", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠",
    "approx": "≈", "pm": "±", "in": "∈", "infty": "∞", "partial": "∂", "sqrt": "√", "to": "→",
    "rightarrow": "→", "circ": "°", "degree": "°",
}  # fmt: skip
_KEEP_NAME = {"log", "ln", "exp", "sin", "cos", "tan", "min", "max", "lim", "det", "arg"}
_COMMAND = re.compile(r"\\([A-Za-z]+)|\\(.)")


def normalize_markdown(text: str) -> str:
    """Reduce Markdown to its content, one line, so that two dialects can be compared.

    Dropped: image references, folded ``<details>`` (text found inside pictures), tags, heading, list and
    emphasis marks, dot leaders, spaces that carry no meaning (beside punctuation or CJK characters).
    """
    text = _DETAILS.sub(" ", text.replace("\r\n", "\n"))
    text = _IMAGE.sub(" ", text)
    text = _MATH.sub(lambda m: f" {_plain_math(next(g for g in m.groups() if g is not None))} ", text)
    text = _LINK.sub(r"\1", text)
    text = _strip_pipes(text)
    text = _RULE_LINE.sub(" ", text)
    text = _LINE_MARK.sub("", text)
    text = _TAG.sub(" ", _INLINE_TAG.sub("", text))
    return _plain(text)


def char_similarity(candidate: str, truth: str) -> float:
    """1 minus the normalized Levenshtein distance of the normalized texts."""
    return float(Levenshtein.normalized_similarity(normalize_markdown(candidate), normalize_markdown(truth)))


def word_recall(reference_words_text: str, candidate: str) -> float:
    """Share of the reference's words that the candidate has too, counted with repetition; CJK by character."""
    wanted = Counter(_words(reference_words_text))
    if not wanted:
        return 1.0
    return (wanted & Counter(_words(candidate))).total() / wanted.total()


def table_similarity(candidate: str, truth: str) -> float:
    """Mean TEDS over the tables of both texts; a missing or extra table counts as 0.

    Tables are paired by their text, the most similar first. HTML and pipe tables are both understood; tables
    inside ``<details>`` are not counted.
    """
    found, wanted = _tables(candidate), _tables(truth)
    if not found and not wanted:
        return 1.0
    texts_found, texts_wanted = [_table_text(t) for t in found], [_table_text(t) for t in wanted]
    pairs = sorted(
        (-Levenshtein.normalized_similarity(a, b), abs(i - j), i, j)
        for i, a in enumerate(texts_found)
        for j, b in enumerate(texts_wanted)
    )
    total, used_found, used_wanted = 0.0, set[int](), set[int]()
    for _, _, i, j in pairs:
        if i not in used_found and j not in used_wanted:
            total += _teds(found[i], wanted[j])
            used_found.add(i)
            used_wanted.add(j)
    return total / max(len(found), len(wanted))


def _plain(text: str) -> str:
    """One form for characters and spaces of text without block structure."""
    hidden = _ESCAPE.sub(lambda m: f"\x00{ord(m[1])}\x00", text)
    text = re.sub(r"\x00(\d+)\x00", lambda m: html.escape(chr(int(m[1]))), _EMPHASIS.sub("", hidden))
    text = unicodedata.normalize("NFKC", html.unescape(text)).translate(_ONE_FORM)
    text = _LEADERS.sub(" ", text)
    text = _LOOSE_SPACE.sub("", _CJK_SPACE.sub("", text))
    return " ".join(text.split())


def _plain_math(latex: str) -> str:
    """LaTeX as the plain characters that a text layer would have, without spaces."""
    latex = re.sub(r"\\tag\s*\{([^{}]*)\}", r"(\1)", latex)

    def command(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[2] if match[2] in "%$#&_{}" else ""
        return _COMMANDS.get(name, name if name in _KEEP_NAME else "")

    plain = re.sub(r"[\s{}_^&~]", "", _COMMAND.sub(command, latex))
    return plain.replace("*", r"\*").replace("<", "&lt;").replace(">", "&gt;")


def _strip_pipes(text: str) -> str:
    """Rows of pipe tables as lines of cells."""
    lines = []
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            line = "" if _PIPE_RULE.match(line) else " ".join(_pipe_cells(line))
        lines.append(line)
    return "\n".join(lines)


def _pipe_cells(line: str) -> list[str]:
    """The cells of one row of a pipe table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]


def _words(text: str) -> list[str]:
    """Words in lower case; every CJK character is a word."""
    return _WORD.findall(normalize_markdown(text).casefold())


@dataclass
class _Node:
    """A node of a table tree: a table, a row or a cell."""

    tag: str
    text: str = ""
    spans: tuple[int, int] = (1, 1)
    children: list[_Node] = field(default_factory=list)


class _TableParser(HTMLParser):
    """Collect tables as trees table, row, cell; ``thead`` and ``th`` make no difference, nested tables are text."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[_Node] = []
        self._depth = 0
        self._cell: _Node | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a table, a row or a cell."""
        if tag == "table":
            self._depth += 1
            if self._depth == 1:
                self.tables.append(_Node("table"))
                self._cell = None
        elif self._depth == 1 and tag == "tr":
            self.tables[-1].children.append(_Node("tr"))
        elif self._depth == 1 and tag in ("td", "th") and self.tables[-1].children:
            given = dict(attrs)
            self._cell = _Node("td", spans=(_span(given.get("rowspan")), _span(given.get("colspan"))))
            self.tables[-1].children[-1].children.append(self._cell)
        elif self._cell is not None and tag in ("br", "p", "li", "div"):
            self._cell.text += " "

    def handle_endtag(self, tag: str) -> None:
        """Close a table or a cell."""
        if tag == "table" and self._depth:
            self._depth -= 1
        if self._depth == 0 or (self._depth == 1 and tag in ("td", "th")):
            self._cell = None

    def handle_data(self, data: str) -> None:
        """Text belongs to the open cell."""
        if self._cell is not None:
            self._cell.text += html.escape(data, quote=False)


def _span(value: str | None) -> int:
    """A span attribute; nonsense counts as 1."""
    return max(1, int(value)) if value is not None and value.isdecimal() else 1


def _tables(text: str) -> list[_Node]:
    """All tables of a Markdown text in their order, as trees with normalized cell text."""
    parser = _TableParser()
    parser.feed(_pipe_tables_to_html(_DETAILS.sub(" ", text.replace("\r\n", "\n"))))
    parser.close()
    for table in parser.tables:
        table.children = [row for row in table.children if row.children]
        for row in table.children:
            for cell in row.children:
                cell.text = normalize_markdown(cell.text)
    return [table for table in parser.tables if table.children]


def _pipe_tables_to_html(text: str) -> str:
    """Write pipe tables as HTML, where they stand."""
    lines, out, at = text.split("\n"), list[str](), 0
    while at < len(lines):
        is_table = lines[at].lstrip().startswith("|") and at + 1 < len(lines) and _PIPE_RULE.match(lines[at + 1])
        if not is_table:
            out.append(lines[at])
            at += 1
            continue
        rows = [lines[at]]
        at += 2
        while at < len(lines) and lines[at].lstrip().startswith("|"):
            rows.append(lines[at])
            at += 1
        cells = ("".join(f"<td>{cell}</td>" for cell in _pipe_cells(row)) for row in rows)
        out.append("<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>")
    return "\n".join(out)


def _table_text(table: _Node) -> str:
    """The cells of a table as text, to find its partner."""
    return "\t".join(cell.text for row in table.children for cell in row.children)


def _teds(a: _Node, b: _Node) -> float:
    """Tree edit distance based similarity of two tables, in [0, 1]."""
    if a == b:
        return 1.0
    size = max(_count(a), _count(b)) - 1
    return max(0.0, 1.0 - _tree_distance(a, b) / size) if size else 1.0


def _count(node: _Node) -> int:
    return 1 + sum(map(_count, node.children))


def _change_cost(a: _Node, b: _Node) -> float:
    """Cost of turning one node into another: text of cells by Levenshtein, anything else all or nothing."""
    if a.tag != b.tag or a.spans != b.spans:
        return 1.0
    return 0.0 if a.text == b.text else float(Levenshtein.normalized_distance(a.text, b.text))


@dataclass(frozen=True)
class _Postorder:
    """A tree in postorder, with the leftmost leaf of each node and the key roots."""

    nodes: list[_Node]
    leftmost: list[int]
    key_roots: list[int]


def _postorder(root: _Node) -> _Postorder:
    nodes: list[_Node] = []
    leftmost: list[int] = []

    def visit(node: _Node) -> int:
        first = [visit(child) for child in node.children]
        nodes.append(node)
        leftmost.append(first[0] if first else len(nodes) - 1)
        return leftmost[-1]

    visit(root)
    last_with = {leaf: index for index, leaf in enumerate(leftmost)}
    return _Postorder(nodes, leftmost, sorted(last_with.values()))


def _tree_distance(a: _Node, b: _Node) -> float:
    """Zhang-Shasha edit distance with unit cost for insertion and deletion."""
    left, right = _postorder(a), _postorder(b)
    known = [[0.0] * len(right.nodes) for _ in left.nodes]
    for i in left.key_roots:
        for j in right.key_roots:
            _fill_distances(left, right, i, j, known, _change_cost)
    return known[-1][-1]


def _fill_distances(
    left: _Postorder,
    right: _Postorder,
    i: int,
    j: int,
    known: list[list[float]],
    cost: Callable[[_Node, _Node], float],
) -> None:
    """Distances between all prefixes of the forests under key roots ``i`` and ``j``; trees go to ``known``."""
    first_i, first_j = left.leftmost[i], right.leftmost[j]
    rows, columns = i - first_i + 2, j - first_j + 2
    forest = [[float(x + y) if not x or not y else 0.0 for y in range(columns)] for x in range(rows)]
    for x in range(1, rows):
        node_x = first_i + x - 1
        for y in range(1, columns):
            node_y = first_j + y - 1
            best = min(forest[x - 1][y], forest[x][y - 1]) + 1.0
            if left.leftmost[node_x] == first_i and right.leftmost[node_y] == first_j:
                swap = forest[x - 1][y - 1] + cost(left.nodes[node_x], right.nodes[node_y])
                forest[x][y] = known[node_x][node_y] = min(best, swap)
            else:
                above, before = left.leftmost[node_x] - first_i, right.leftmost[node_y] - first_j
                forest[x][y] = min(best, forest[above][before] + known[node_x][node_y])
