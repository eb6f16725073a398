"""Edit one function of a Python file by the structure of its code.

A pattern is Python source that is compared with the syntax tree, so that comments, formatting and
the annotation of a local never matter. A name in capital letters in a pattern matches any
expression, and stands for that expression in the replacement.
"""

import ast
from typing import Any

# Fields that say where a name is used, or how a string was quoted.
IGNORED_FIELDS = ("ctx", "kind", "type_comment")
Matches = dict[str, ast.expr]


def edit(source: str, function: str, changes: dict[str, str]) -> str:
    """Apply changes to one function.

    Args:
        source: The text of the file.
        function: Its qualified name, such as `Encoder.forward`.
        changes: One expression or statement each, and what replaces it: an expression, or one or
            more statements.

    Raises:
        ValueError: If the function or a pattern does not occur exactly once.
    """
    for pattern, replacement in changes.items():
        source = _replace(source, function, pattern, replacement)
    return source


def _replace(source: str, function: str, pattern: str, replacement: str) -> str:
    wanted = _parse(pattern)[0]
    places: list[tuple[ast.AST, Matches]] = []
    for node in ast.walk(_find_function(ast.parse(source), function)):
        matches: Matches = {}
        if _equal(wanted, node, matches):
            places.append((node, matches))
    if len(places) != 1:
        raise ValueError(f"{function} must contain {pattern!r} once, got {len(places)} times")
    node, matches = places[0]
    new = [ast.unparse(_Fill(matches).visit(each)) for each in _parse(replacement)]
    text = f"({new[0]})"
    if isinstance(node, ast.stmt):
        lines = "\n".join(new).splitlines()
        text = ("\n" + " " * node.col_offset).join(lines)
    return replace_node(source, node, text)


def replace_node(source: str, node: ast.AST, text: str) -> str:
    """Replace the text of one node of a file."""
    # ast counts bytes, not characters.
    rows = source.encode().splitlines(keepends=True)
    start = sum(map(len, rows[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, rows[: node.end_lineno - 1])) + node.end_col_offset
    return (source.encode()[:start] + text.encode() + source.encode()[end:]).decode()


def _parse(code: str) -> list[ast.AST]:
    body = ast.parse(code).body
    return [each.value if isinstance(each, ast.Expr) else each for each in body]


def _find_function(tree: ast.Module, name: str) -> ast.AST:
    node: Any = tree
    for part in name.split("."):
        inside = [each for each in node.body if getattr(each, "name", None) == part]
        if len(inside) != 1:
            raise ValueError(f"{name} must be defined once, got {len(inside)} times")
        node = inside[0]
    return node


def _equal(pattern: Any, node: Any, matches: Matches) -> bool:
    """Compare two syntax trees, and collect what the names in capital letters match."""
    if isinstance(pattern, ast.Name) and pattern.id.isupper() and isinstance(node, ast.expr):
        first = matches.setdefault(pattern.id, node)
        return ast.dump(first) == ast.dump(node)
    if isinstance(pattern, ast.Assign) and isinstance(node, ast.AnnAssign):
        node = ast.Assign([node.target], node.value)
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, list):
        pairs = zip(pattern, node, strict=False)
        return len(pattern) == len(node) and all(_equal(*pair, matches) for pair in pairs)
    if not isinstance(pattern, ast.AST):
        return pattern == node
    names = [name for name in pattern._fields if name not in IGNORED_FIELDS]
    return all(
        _equal(getattr(pattern, name, None), getattr(node, name, None), matches) for name in names
    )


class _Fill(ast.NodeTransformer):
    """Write the matched expressions into a replacement."""

    def __init__(self, matches: Matches) -> None:
        self.matches = matches

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.matches.get(node.id, node)
