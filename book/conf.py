"""Sphinx configuration: build the staged pages as a site, or as one page to print."""

import re
import sys
from itertools import pairwise

from docutils import nodes
from sphinx import addnodes
from sphinx.search.zh import SearchChinese

# nbformat imports jsonschema, which would spend two seconds on building a grammar for IRIs.
sys.modules.setdefault("rfc3987_syntax", None)

project = "Twelve Numbers"
language = "en"
root_doc = "course"  # index.html is the live page
templates_path = ["templates"]
exclude_patterns = ["downloads", "extra", "src", "static", "templates"]
needs_sphinx = "9.0"

# Sphinx 9.0 uses the English stemmer for Chinese search, but under the wrong language name.
SearchChinese.language_name = "English"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
]

# Show the stored outputs; the tests compare them with a fresh run.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 6

mathjax_path = "mathjax.js"
# Screen readers get MathML. The menu of MathJax would add each equation to the tab order.
mathjax3_config = {
    "options": {"enableMenu": False},
    "svg": {"displayAlign": "left"},  # the text is narrower than the page
}

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Source"]
napoleon_use_rtype = False
# Docstrings mark code with one pair of backticks, as Markdown does.
default_role = "code"

html_theme = "sphinx_book_theme"
html_title = "Twelve Numbers"
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_extra_path = ["extra"]
html_css_files = ["book.css"]
html_js_files = ["found.js", "live.js", "read.js", "search.js"]
html_use_index = False
html_domain_indices = False
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "home_page_in_toc": True,
    "navbar_persistent": [],
    "footer_content_items": ["extra-footer.html"],
    "article_header_end": ["languages.html", "article-header-buttons.html"],
    "secondary_sidebar_items": {"**": ["page-toc.html"], "course": []},
    "navigation_with_keys": True,
    "back_to_top_button": False,  # it covered live parts on a phone
    "show_toc_level": 2,
    "max_navbar_depth": 1,
    "collapse_navbar": True,  # builds the same pages a fifth faster
    "use_download_button": False,
}

# Show `Float[Tensor, 'batch seq']` as in the source; one page explains the notation.
_ANNOTATION = re.compile(r"\b(?:jaxtyping|torch|collections\.abc|pathlib|nbformat)\.(?=[A-Z])")
_PARAMETERS = re.compile(r'<dl>\s*((?:<dd><em class="sig-param">.*?</dd>\s*)+)</dl>', re.DOTALL)
_PLACES = re.compile(r"Step \w\w \| .+\.ipynb \| tests/[\w/]+\.py")
# A long inline equation may break before these operators.
_OPERATOR = re.compile(r"(?<=[\w)}])(?<!\\cdot)(?<!\\approx)(?=[=+-]|\\approx)")


def _readable(app, what, name, obj, options, signature, returned):
    """Format annotations as in the source."""
    return tuple(text and _ANNOTATION.sub("", text) for text in (signature, returned))


def _as_written(app, what, name, obj, options, lines):
    """Show indented lines verbatim: they are equations and code.

    Remove the line in which a module names its notebook and its test: the page links to both.
    """
    shown = []
    for line in lines:
        before = next(filter(str.strip, reversed(shown)), "    ")
        if line.startswith("    ") and shown[-1:] == [""] and not before.startswith(" "):
            shown += ["::", ""]
        if not _PLACES.fullmatch(line):
            shown.append(line)
    lines[:] = shown


def _apart(app, tree, docname):
    """Prefix the anchors of the single page by chapter: headings such as "The layer" recur."""
    if app.builder.name != "singlehtml":
        return
    for chapter in tree.findall(addnodes.start_of_file):
        own = chapter["docname"].replace("/", "-")
        for node in chapter.findall(nodes.Element):
            node["ids"] = [f"{own}-{name}" for name in node["ids"]]
            if "refid" in node:
                node["refid"] = f"{own}-{node['refid']}"
    for link in tree.findall(nodes.reference):
        if target := re.search(r"#document-([^#]+)#(.+)", link.get("refuri", "")):
            link["refuri"] = f"#{target[1].replace('/', '-')}-{target[2]}"


def _breakable(app, tree, docname):
    """Split long inline equations at operators: MathJax never breaks them."""
    for node in [*tree.findall(nodes.math)]:
        pieces = _pieces(node.astext())
        for piece in pieces[:-1]:
            node.parent.insert(node.parent.index(node), nodes.math("", piece))
        last, after = nodes.math("", pieces[-1]), node.next_node(descend=False, siblings=True)
        # Keep punctuation with the equation before it, so no line begins with a full stop.
        mark = re.match(r"[.,:;)]*", after if isinstance(after, nodes.Text) else "")[0]
        if mark:
            node.parent.replace(after, nodes.Text(after[len(mark) :]))
            last = nodes.inline("", "", last, nodes.Text(mark), classes=["unbroken"])
        node.replace_self(last)


def _pieces(equation):
    """Split an equation of more than 30 characters before each operator outside brackets."""
    cuts = [0]
    for match in _OPERATOR.finditer(equation) if len(equation) > 30 else ():
        before = equation[: match.start()]
        if all(before.count(a) == before.count(b) for a, b in ("{}", "()", ("left", "right"))):
            cuts.append(match.start())
    pieces = [equation[a:b] for a, b in pairwise([*cuts, None])]
    return [pieces[0], *("{}" + piece for piece in pieces[1:])]  # {} keeps the operator binary


def _named(app, page, template, context, tree):
    """Give each collapsed cell its accessible name, and flatten the list of parameters."""
    body = context.get("body", "").replace(' aria-label="Toggle hidden content"', "")
    context["body"] = _PARAMETERS.sub(_as_lines, body)


def _as_lines(parameters):
    lines = parameters[1].replace("<dd>", '<span class="parameter">')
    return lines.replace("</dd>", "</span>")


def _on_paper(app):
    """Add the style sheet of the printed book."""
    if app.builder.name == "singlehtml":
        app.add_css_file("print.css", priority=900, media="print")  # after book.css


def setup(app):
    """Connect the handlers above; the docstring handler runs before napoleon parses sections."""
    app.connect("builder-inited", _on_paper)
    app.connect("doctree-resolved", _apart)
    app.connect("doctree-resolved", _breakable)
    app.connect("html-page-context", _named)
    app.connect("autodoc-process-signature", _readable)
    app.connect("autodoc-process-docstring", _as_written, priority=100)
