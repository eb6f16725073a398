"""Edit a function by patterns on its syntax tree: the notation of all mistakes.

A change is a pattern and its replacement: {"X.softmax(-1)": "X.softmax(-2)"}. The exercises declare
mistakes as changes to a right answer, the mutation tests plant them in the layers, and the checker
searches for undeclared changes.

A pattern is Python source, compared with the syntax tree. Comments, formatting and annotations of
local variables therefore never matter. An upper-case name in a pattern matches any expression, and
stands for that expression in the replacement.
"""

import ast
import re
from typing import Any

# Fields for the context of a name, the prefix of a string, and type comments.
IGNORED_FIELDS = ("ctx", "kind", "type_comment")
Matches = dict[str, ast.expr]


def edit(source: str, function: str, changes: dict[str, str]) -> str:
    """Apply changes to one function.

    Args:
        source: The text of the file.
        function: Its qualified name, such as `Encoder.forward`.
        changes: Patterns and their replacements. A pattern is an expression or a statement. A
            replacement is an expression, or one or more statements.

    Raises:
        ValueError: If the function or a pattern does not occur exactly once.
    """
    for pattern, replacement in changes.items():
        source = _replace(source, function, pattern, replacement)
    return source


def _replace(source: str, function: str, pattern: str, replacement: str) -> str:
    wanted = parse(pattern)[0]
    matching = [
        (node, matches)
        for node in ast.walk(_find_function(ast.parse(source), function))
        if (matches := match(wanted, node)) is not None
    ]
    if len(matching) != 1:
        raise ValueError(f"{function} must contain {pattern!r} once, got {len(matching)} times")
    ((node, matches),) = matching
    segments = {name: ast.get_source_segment(source, each) for name, each in matches.items()}

    def replaced(inner: str, outer: str) -> str:
        text = re.sub(
            r"\b[A-Z_]+\b",
            lambda name: inner.format(segments[name[0]]) if name[0] in segments else name[0],
            replacement,
        )
        if isinstance(node, ast.stmt):
            text = text.replace("\n", "\n" + " " * node.col_offset)
        return replace_node(source, node, outer.format(text))

    # Omit the parentheses if that does not change the meaning.
    brackets = ("{}", "({})")
    outside = ("{}",) if isinstance(node, ast.stmt) else brackets
    texts = [replaced(inner, outer) for outer in outside for inner in brackets]
    meaning = ast.dump(ast.parse(texts[-1]))
    return next(text for text in texts if _means(text, meaning))


def _means(text: str, meaning: str) -> bool:
    try:
        return ast.dump(ast.parse(text)) == meaning
    except SyntaxError:
        return False


def replace_node(source: str, node: ast.AST, text: str) -> str:
    """Replace the source text of one node."""
    # ast counts bytes, not characters.
    rows = source.encode().splitlines(keepends=True)
    start = sum(map(len, rows[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, rows[: node.end_lineno - 1])) + node.end_col_offset
    return (source.encode()[:start] + text.encode() + source.encode()[end:]).decode()


def parse(code: str) -> list[ast.AST]:
    """Parse expressions and statements."""
    body = ast.parse(code).body
    return [each.value if isinstance(each, ast.Expr) else each for each in body]


def match(pattern: ast.AST, node: ast.AST) -> Matches | None:
    """Compare code with a pattern.

    Returns:
        The expression for each upper-case name; None if the code does not match.
    """
    matches: Matches = {}
    return matches if _equal(pattern, node, matches) else None


def fill(template: Any, matches: Matches) -> Any:
    """Copy code, and replace its upper-case names with expressions."""
    if isinstance(template, list):
        return [fill(each, matches) for each in template]
    if isinstance(template, ast.Name) and template.id in matches:
        return matches[template.id]
    if not isinstance(template, ast.AST):
        return template
    new = type(template)(**{key: fill(value, matches) for key, value in ast.iter_fields(template)})
    return ast.copy_location(new, template)


def _find_function(tree: ast.Module, name: str) -> ast.AST:
    node: Any = tree
    for part in name.split("."):
        inside = [each for each in node.body if getattr(each, "name", None) == part]
        if len(inside) != 1:
            raise ValueError(f"{name} must be defined once, got {len(inside)} times")
        node = inside[0]
    return node


def _equal(pattern: Any, node: Any, matches: Matches) -> bool:
    """Compare two syntax trees, and collect the expressions that upper-case names match."""
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
