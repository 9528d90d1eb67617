"""Text over named columns, read as the coefficients of one linear equation.

`"V = V_ocv - eta"` becomes `{"V": 1, "V_ocv": -1, "eta": 1}`. Columns are replaced by placeholders, the rest is parsed
into a syntax tree, and a white list of its nodes is added up. Nothing is ever evaluated as code.
"""

from __future__ import annotations

import ast
import math
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from equipoise.balances.names import column_symbol, did_you_mean, quoted_list
from equipoise.errors import EquipoiseError

MAX_CHARACTERS = 20_000

# Combining marks are no word characters to `re`, but Q̇ and x̄ are names.
_NAME = r"[^\W\d][\w\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]*"
_TOKEN = re.compile(
    rf"""`(?P<quoted>[^`]*(?:``[^`]*)*)`
    | (?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)
    | (?P<name>{_NAME})
    | (?P<relation>[<>!:+*/%@&|^-]=+|=[<>=]+|[=<>≤≥≠≈])
    | (?P<stray>[`'"#\\])
    | (?P<space>\s+)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_OPERANDS = ("quoted", "number", "name")
_SPELLINGS = {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/"}
_ARITHMETIC = "Use + - * / and parentheses around numbers and column names, and put unusual names in backticks."
_NONLINEAR = "Compute it beforehand and give it a column of its own."
_POWER = ("the power", "Write a constant as a number, such as 1e-3, and give a power a column of its own.")
_REFUSED = {
    ast.Call: ("the call", "Write '*' for a product, and put a column name that holds parentheses in backticks."),
    ast.Attribute: ("the attribute", "Put a column name that holds a dot in backticks."),
    ast.Subscript: ("the subscript", "Put a column name that holds brackets, its unit included, in backticks."),
    ast.Tuple: ("a comma in", "Write decimals with a point, and put a column name that holds a comma in backticks."),
    ast.Pow: _POWER,
    ast.BitXor: _POWER,
}

# Column -> coefficients that are still to be added up; None holds the constants.
_LinearForm = dict[str | None, list[float]]


class EquationError(EquipoiseError, ValueError):
    """A text of a balance that is not a linear equation over the known columns."""


@dataclass(frozen=True)
class LinearEquation:
    """One linear equation `Σ_j c_j z_j + c_0 = 0`, as read from text.

    Attributes:
        text: The text, without surrounding blanks.
        coefficients: Full column name `z_j` -> `c_j` of left minus right side, without zeros.
        constant: `c_0`, the constant part of left minus right side.
    """

    text: str
    coefficients: dict[str, float] = field(hash=False)
    constant: float


def parse_equation(text: str, columns: Sequence[str]) -> LinearEquation:
    """Read one linear equation over named columns.

    Both sides may use `+ - * /`, parentheses, numbers and column names. Backticks quote any name (a doubled backtick
    stands for one). A name without its unit finds its column as long as only one fits; an exact match always wins.

    Args:
        text: The equation, with exactly one `=`.
        columns: All column names that the text may use.
    Returns: The coefficients of left minus right side.
    Raises: EquationError, with the text and the part of it that cannot be used.
    Example:
        >>> parse_equation("0.2*feed + 3 = 2*(a + b)/4", ["feed", "a", "b"]).coefficients
        {'feed': 0.2, 'a': -0.5, 'b': -0.5}
        >>> parse_equation("Voltage = `OCV [V]` - `Loss pos`", ["Voltage [V]", "OCV [V]", "Loss pos [V]"]).coefficients
        {'Voltage [V]': 1.0, 'OCV [V]': -1.0, 'Loss pos [V]': 1.0}
    """
    return _Reader(text.strip(), tuple(columns)).equation()


def format_equation(coefficients: Mapping[str, float], constant: float = 0.0) -> str:
    """Write the equation `Σ_j c_j z_j + c_0 = 0` as text that `parse_equation` reads back exactly.

    Args:
        coefficients: Column name `z_j` -> `c_j`.
        constant: `c_0`.
    Returns: The equation; positive coefficients stand on its left side and negative ones on its right side, or all of
        them on its left side where none is positive.
    Example:
        >>> format_equation({"Voltage [V]": 1.0, "ocv": -1.0, "eta": 0.5}, constant=-3.0)
        '`Voltage [V]` + 0.5*eta = ocv + 3'
    """
    left = {name: c for name, c in coefficients.items() if c > 0} or dict(coefficients)
    right = {name: -c for name, c in coefficients.items() if name not in left}
    return f"{_sum_text(left, 0.0)} = {_sum_text(right, -constant)}"


class _Reader:
    """Parser of one equation: its text, and the column names that placeholders `_0`, `_1`, … replace in its source.

    Args:
        text: The equation, without surrounding blanks.
        columns: All column names that the text may use.
    """

    def __init__(self, text: str, columns: tuple[str, ...]):
        self.text = text
        self.columns = columns
        self.words: list[str] = []
        self.names: list[str] = []

    def equation(self) -> LinearEquation:
        """Parse the equation and add up the coefficients of each column."""
        if (length := len(self.text)) > MAX_CHARACTERS:
            raise self.error(f"have at most {MAX_CHARACTERS} characters", f"{length}", "Give a matrix of coefficients.")
        try:
            left, right = (self.tree(side) for side in self.sides())
            form = self.expand(ast.BinOp(left, ast.Sub(), right))
        except (RecursionError, MemoryError):
            advice = "Remove parentheses, or give a matrix of coefficients."
            raise self.error("be flat enough to parse", "too many nested terms", advice) from None
        totals = {column: _total(terms) for column, terms in form.items()}
        for column, total in totals.items():
            if not math.isfinite(total):
                where = "as its constant" if column is None else f"for column {column!r}"
                raise self.error("have finite coefficients", f"{total} {where}", "Use smaller numbers.")
        constant = totals.pop(None, 0.0)
        return LinearEquation(self.text, {name: c for name, c in totals.items() if name is not None and c}, constant)

    def sides(self) -> tuple[str, str]:
        """Return the source of the left and the right side, with placeholders in place of columns."""
        tokens = [(match.lastgroup, match) for match in _TOKEN.finditer(self.text)]
        relations = [match.group() for kind, match in tokens if kind == "relation"]
        if relations != ["="]:
            advice = "Write one equality per balance, such as 'a = b + c'."
            raise self.error("contain exactly one '='", quoted_list(relations), advice)
        self.check_neighbours([(kind, match.group()) for kind, match in tokens if kind != "space"])
        middle = next(i for i, (kind, _) in enumerate(tokens) if kind == "relation")
        left, right = (
            "".join(self.source(kind, match) for kind, match in part).strip()
            for part in (tokens[:middle], tokens[middle + 1 :])
        )
        if not (left and right):
            raise self.error("have terms on both sides of '='", "an empty side", "Write 0 for nothing.")
        return left, right

    def check_neighbours(self, tokens: list[tuple[str | None, str]]) -> None:
        """Raise if two operands stand side by side, or a character cannot be part of an equation."""
        before = None
        for kind, word in tokens:
            if kind == "stray":
                raise self.stray(word)
            if kind in _OPERANDS and before is not None:
                advice = "Write '*' for a product, and put a column name that holds blanks in backticks."
                raise self.error("have an operator between its terms", f"{before!r} next to {word!r}", advice)
            before = word if kind in _OPERANDS else None

    def stray(self, character: str) -> EquationError:
        """Return the error for a character that cannot be part of an equation."""
        if character == "`":
            return self.error("close every backtick", "an unmatched one", "Write `column name`.")
        return self.error("consist of columns, numbers and + - * /", f"the character {character!r}", _ARITHMETIC)

    def source(self, kind: str | None, match: re.Match[str]) -> str:
        """Translate one token to Python's grammar; a column name is remembered and becomes a placeholder.

        Args:
            kind: Kind of the token, as the pattern of tokens names it.
            match: The token in the equation's text.
        """
        if kind in ("quoted", "name"):
            self.words.append(match.group())
            self.names.append(match[kind].replace("``", "`"))
            return f"_{len(self.names) - 1}"
        return " " if kind == "space" else _SPELLINGS.get(match.group(), match.group())

    def tree(self, source: str) -> ast.expr:
        """Parse the source of one side into a syntax tree, without evaluating it."""
        try:
            return ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError) as error:
            reason = _shorten(getattr(error, "msg", str(error)).partition(". Perhaps")[0], most=80)
            raise self.error("be plain arithmetic", f"{self.user_text(source)!r} ({reason})", _ARITHMETIC) from None

    def expand(self, node: ast.expr) -> _LinearForm:
        """Return the coefficients of a sum by column."""
        form: _LinearForm = {}
        for term, sign in _addends(node):
            for column, coefficients in self.term(term).items():
                form.setdefault(column, []).extend(sign * c for c in coefficients)
        return form

    def term(self, node: ast.expr) -> _LinearForm:
        """Return the coefficients of one term by column; other nodes than those of arithmetic are refused."""
        if isinstance(node, ast.Constant):
            return {None: [self.number(node)]}
        if isinstance(node, ast.Name):
            return {self.column(self.names[int(node.id[1:])]): [1.0]}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.product(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self.quotient(node)
        raise self.refused(node)

    def number(self, node: ast.Constant) -> float:
        """Convert a constant to a finite float."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refused(node)
        if abs(value) > sys.float_info.max:
            raise self.error("use finite numbers", f"one beyond {sys.float_info.max:.2g}", "Use a smaller number.")
        return float(value)

    def product(self, node: ast.BinOp) -> _LinearForm:
        """Return the coefficients of a product, one factor of which must be a number."""
        left, right = self.expand(node.left), self.expand(node.right)
        for factor, form in ((left, right), (right, left)):
            if factor.keys() == {None}:
                value = _total(factor[None])
                return {column: [value * c for c in terms] for column, terms in form.items()}
        raise self.error("be linear in its columns", f"the product {self.user_text(node)}", _NONLINEAR)

    def quotient(self, node: ast.BinOp) -> _LinearForm:
        """Return the coefficients of a quotient, the divisor of which must be a number other than 0."""
        form, divisor = self.expand(node.left), self.expand(node.right)
        if divisor.keys() != {None}:
            raise self.error("be linear in its columns", f"the quotient {self.user_text(node)}", _NONLINEAR)
        value = _total(divisor[None])
        if value == 0:
            raise self.error("not divide by zero", self.user_text(node), "Correct the divisor.")
        return {column: [c / value for c in terms] for column, terms in form.items()}

    def column(self, name: str) -> str:
        """Find the one column that a name stands for: by its full name, its normalised one, or that without unit."""
        normalised = _normalise(name)
        for known, key in zip(_index_columns(self.columns), (name, normalised, normalised), strict=True):
            matches = known.get(key, [])
            if len(matches) == 1:
                return matches[0]
            if matches:
                got = f"{name!r}, which fits {quoted_list(matches)}"
                raise self.error("name each column unambiguously", got, "Write the full name in backticks.")
        raise self.error("use known columns only", f"{name!r}", did_you_mean(name, self.columns))

    def refused(self, node: ast.expr) -> EquationError:
        """Return the error for a node that is not linear arithmetic."""
        kind = type(node.op) if isinstance(node, ast.BinOp) else type(node)
        construct, advice = _REFUSED.get(kind, ("the expression", _ARITHMETIC))
        return self.error("use only + - * / and parentheses", f"{construct} {self.user_text(node)}", advice)

    def user_text(self, code: ast.expr | str) -> str:
        """Write source or a syntax tree with the user's column names in place of placeholders."""
        source = code if isinstance(code, str) else ast.unparse(code)
        return _shorten(re.sub(r"\b_(\d+)\b", lambda match: self.words[int(match[1])], source))

    def error(self, rule: str, got: str, advice: str) -> EquationError:
        """Return the error for a broken rule, with the equation's text, what it has instead, and advice.

        Args:
            rule: The rule, as it follows 'must'.
            got: What the equation has instead.
            advice: What to write; a whole sentence.
        """
        return EquationError(
            f"Equation {_shorten(self.text)!r} must {rule}, but got {_shorten(got, most=500)}. {advice}"
        )


def _addends(node: ast.expr) -> Iterator[tuple[ast.expr, float]]:
    """Iterate over the terms of a sum with their signs; not by recursion, since a sum may have thousands of terms."""
    stack = [(node, 1.0)]
    while stack:
        node, sign = stack.pop()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            stack += [(node.right, -sign if isinstance(node.op, ast.Sub) else sign), (node.left, sign)]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            stack.append((node.operand, -sign if isinstance(node.op, ast.USub) else sign))
        else:
            yield node, sign


def _total(terms: list[float]) -> float:
    """Sum the terms; exactly zero where they cancel to rounding, as 0.1 + 0.2 - 0.3 does."""
    try:
        total, size = math.fsum(terms), math.fsum(map(abs, terms))
    except (OverflowError, ValueError):
        return math.inf
    return 0.0 if abs(total) <= 4 * sys.float_info.epsilon * size < math.inf else total


@lru_cache(maxsize=16)
def _index_columns(columns: tuple[str, ...]) -> tuple[dict[str, list[str]], ...]:
    """Index columns by exact name, by normalised name, and by normalised name without unit."""
    indices: tuple[dict[str, list[str]], ...] = ({}, {}, {})
    for column in dict.fromkeys(columns):
        keys = (column, _normalise(column), _normalise(column_symbol(column)))
        for index, key in zip(indices, keys, strict=True):
            index.setdefault(key, []).append(column)
    return indices


def _normalise(name: str) -> str:
    """Return the NFKC form of a name, so that both micro signs are one; superscripts stay, because x² is not x2."""
    if name.isascii():
        return name.strip()
    characters = (c if "<super>" in unicodedata.decomposition(c) else unicodedata.normalize("NFKC", c) for c in name)
    return unicodedata.normalize("NFC", "".join(characters)).strip()


def _sum_text(coefficients: Mapping[str, float], constant: float) -> str:
    terms = [(c, _term_text(abs(c), name)) for name, c in coefficients.items()]
    if constant or not terms:
        terms.append((constant, _number_text(abs(constant))))
    text = "".join(f" {'-' if c < 0 else '+'} {term}" for c, term in terms)
    return text.removeprefix(" + ") if text.startswith(" + ") else "-" + text.removeprefix(" - ")


def _term_text(coefficient: float, name: str) -> str:
    quoted = name if re.fullmatch(_NAME, name) else "`" + name.replace("`", "``") + "`"
    return quoted if coefficient == 1 else f"{_number_text(coefficient)}*{quoted}"


def _number_text(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _shorten(text: str, most: int = 300) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
