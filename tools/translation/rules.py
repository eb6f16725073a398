"""Rules for translations: complete, faithful to the source, consistent with the glossary."""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache
from typing import NamedTuple

from babel.messages.catalog import Message

from tests.course.notebook_rules import CONTRACTS
from tools.translation import catalogue
from tools.translation.build import build, selects
from tools.translation.pieces import FIXED, fields, has_words
from twelve_lab.show.wide import width

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?![A-Za-z_])", re.A)
SCALES = {"million": 1e6, "billion": 1e9, "万": 1e4, "亿": 1e8}
SCALED = re.compile(rf"(\d[\d,]*(?:\.\d+)?) *({'|'.join(SCALES)})")
BOLD = re.compile(r"\*\*[^*]+\*\*")
EMPHASIS = re.compile(r"(\*\*?)[^*\s](?:[^*]*[^*\s])?\1")
TAG = re.compile(r"</?(?:small|details|summary|b|i|br|sub|sup|kbd|img|a|p|div)\b[^>]*>")
# Maximum length of a line of code in the book.
WIDEST = 105
HAN = "\u3400-\u9fff"
# A contract that consists of names and axes has nothing to translate.
AXES_ONLY = re.compile(r"\w+ \([^()]*\)|\([^()]*\)|\w*_\w+|\b\w\b|->")
STYLE = {
    rf"[{HAN}][,.;:?!](?![\w/])|[{HAN}],\w|[,;:?!] ?[{HAN}]": "a half-width mark: write ，。；：？",
    rf"[{HAN}]\(|\([^()]*[{HAN}][^()]*\)": "half-width parentheses around Chinese: write （ ）",
    r"\"": "a straight quote: write “ ”",
    rf"[{HAN}][A-Za-z0-9⸨]|[A-Za-z0-9%⸩][{HAN}]": "a space is missing between Chinese and Latin",
    r" [，。；：？！、（）“”]|[，。；：？！、（]( (?!\|)|⸨ )": "a space beside a full-width mark",
    rf"[{HAN}] [{HAN}]": "a space between two Chinese characters",
    r"。。|，，|\.\.\.(?!\))": "a doubled mark (the ellipsis is ……)",
}


class Term(NamedTuple):
    """A row of the glossary.

    Args:
        english: English term, in lower case.
        chosen: Allowed translations, one of which must occur.
        never: Forbidden translations.
        enforced: Whether the rule applies to every entry with the term.
    """

    english: str
    chosen: tuple[str, ...]
    never: tuple[str, ...]
    enforced: bool


@cache
def glossary(language: str) -> tuple[Term, ...]:
    """Read the glossary, longest terms first. Terms below `## By sense` are not enforced.

    A new language may not have a glossary; then it is empty.
    """
    path = catalogue.ROOT / "locale" / language / "glossary.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rows, _, advice = text.partition("## By sense")
    found = []
    for part, enforced in ((rows, True), (advice, False)):
        for row in re.findall(r"^\| *([^|-][^|]*)\|([^|]*)\|([^|]*)\|", part, re.M)[1:]:
            english, chosen, never = (
                tuple(filter(None, (word.strip() for word in column.split("/")))) for column in row
            )
            found += [Term(word.lower(), chosen, never, enforced) for word in english]
    return tuple(sorted(found, key=lambda term: -len(term.english)))


def problems(name: str, language: str, only: str = "") -> Iterator[str]:
    """Yield the problems of a catalogue, with the location and the beginning of each entry.

    Args:
        name: Name of the catalogue.
        language: Language of the catalogue.
        only: Substring of a location; other entries are left out.
    """
    wanted, found = catalogue.template(name), catalogue.read(name, language)
    for entry in wanted:
        places = " ".join(place for place, _ in entry.locations) or name
        if not entry.id or only not in places:
            continue
        head = f"{places}: {_forms(entry.id)[0][:60]!r}"
        translation = found.get(entry.id)
        if translation is None:
            yield f"{head}: not in the catalogue: run python -m tools.translate update"
        else:
            yield from (f"{head}: {line}" for line in of_entry(translation, name, language))
    for entry in found:
        if entry.id and entry.id not in wanted and not only:
            yield f"{name}: {_forms(entry.id)[0][:60]!r}: no longer in the source: run update"
    if name in catalogue.pages() and not only:
        yield from _page(name, language)


def of_entry(entry: Message, name: str, language: str) -> Iterator[str]:
    """Yield the problems of an entry."""
    strings = _forms(entry.string)
    if not all(strings):
        yield "not translated"
        return
    if entry.fuzzy:
        previous = (entry.previous_id or [""])[0]
        yield f"fuzzy: the English text changed, it was {previous[:60]!r}"
        return
    for text in strings:
        yield from _faithful(_forms(entry.id)[-1], text, entry, name, language)
        yield from _terms(_forms(entry.id)[-1], text, language, entry)
        if language == "zh":
            yield from _style(text.strip())


def _forms(text: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the singular and, if present, the plural forms of an id or a translation."""
    return text if isinstance(text, tuple) else (text,)


def _faithful(source: str, text: str, entry: Message, name: str, language: str) -> Iterator[str]:
    """Compare the parts that a translation must not change, such as fields and numbers."""
    if text == source and not _is_language_free(source):
        yield "equal to its source"
    kind = "code" if entry.auto_comments else "markdown"
    if name == catalogue.MESSAGES:
        kind = "message"
    if kind != "markdown":
        held = [fields(source), fields(text)]
        if kind == "message":  # a message may repeat a field
            held = [sorted(set(side)) for side in held]
        yield from _differences("the field", *held)
        source, text = _without_fields(source), _without_fields(text)
    if kind != "code" or "`" in source + text:
        expected = [_contract(part, language) for part in FIXED.findall(source)]
        yield from _differences("the code, formula, tag or link", expected, FIXED.findall(text))
    numbers = [NUMBER.findall(_scaled(FIXED.sub(" ", side))) for side in (source, _spaced(text))]
    yield from _differences("the number", *numbers)
    yield from _differences("the arrow", re.findall("->", source), re.findall("->", text))
    if kind == "markdown":
        for mark, pattern in {
            "heading": r"^#+ ", "list item": r"^ *[-*] |^ *\d+\. ", "table row": r"^\|.*\|$",
            "table column": r"\|",
        }.items():  # fmt: skip
            one, other = (re.findall(pattern, FIXED.sub("", side), re.M) for side in (source, text))
            if len(one) != len(other) or (mark != "table row" and sorted(one) != sorted(other)):
                yield f"{mark}: {len(one)} in the source, {len(other)} in the translation"
        # In Chinese, italics become bold or quotation marks.
        at_least, emphasized = len(BOLD.findall(source)), len(EMPHASIS.findall(source))
        if not at_least <= len(BOLD.findall(text)) <= emphasized or text.count("**") % 2:
            yield f"bold text: at least {at_least} and at most {emphasized} times"
    for side in ("\n", " "):
        if source.startswith(side) != text.startswith(side) or (
            source.endswith(side) != text.endswith(side)
        ):
            yield f"begins or ends with {side!r} in one of the two"


def _contract(span: str, language: str) -> str:
    """Translate a code span that is the contract of an exercise."""
    inside = span.strip("`")
    if inside not in CONTRACTS:
        return span
    return f"`{catalogue.translations(catalogue.SHARED, language).get(inside, inside)}`"


def _scaled(text: str) -> str:
    """Expand numbers with a scale word: 7 billion equals 70 亿."""
    return SCALED.sub(
        lambda found: str(round(float(found[1].replace(",", "")) * SCALES[found[2]])), text
    )


def _spaced(text: str) -> str:
    """Put spaces around Chinese characters, because no word boundary separates digits from them."""
    return re.sub(rf"([{HAN}，。；：？！、（）“”])", r" \1 ", text)


def _without_fields(text: str) -> str:
    for field in fields(text):
        text = text.replace(field, "⸨⸩", 1)
    return text


def _differences(what: str, one: list[str], other: list[str]) -> Iterator[str]:
    missing, added = Counter(one) - Counter(other), Counter(other) - Counter(one)
    if missing:
        yield f"{what} {', '.join(sorted(missing.elements()))} is missing"
    if added:
        yield f"{what} {', '.join(sorted(added.elements()))} is not in the source"


def _is_language_free(text: str) -> bool:
    """Return whether a text is the same in every language: a formula, a name, a list of axes."""
    if text in CONTRACTS:
        return not re.search(r"[a-z]{2,} [a-z]{2,}", AXES_ONLY.sub(",", text))
    # A name such as AdamW has an inner capital letter; a call is code.
    return not has_words(re.sub(r"^\w+[A-Z]\w*$|^\w+\(\w*\)$", "", _without_fields(text)))


def _terms(source: str, text: str, language: str, entry: Message) -> Iterator[str]:
    """Apply the glossary. A comment `allow: term` above an entry permits an exception."""
    lines = [line[len("allow:") :] for line in entry.user_comments if line.startswith("allow:")]
    allowed = {word.strip() for line in lines for word in line.split(",")}
    rest = FIXED.sub(" ", _without_fields(source)).lower()
    for term in glossary(language):
        pattern = rf"(?<![\w-]){re.escape(term.english)}(?:s|es)?(?![\w-])"
        if re.search(pattern, rest):
            rest = re.sub(pattern, " ", rest)  # a longer term takes precedence over its parts
            if term.enforced and term.english not in allowed:
                # A word that is still English is a name in code.
                if not any(word.lower() in text.lower() for word in (*term.chosen, term.english)):
                    yield f"glossary: {term.english} is {' or '.join(term.chosen)}"
    for term in glossary(language):
        for word in term.never:
            if word in text and word not in allowed:
                yield f"glossary: {word} is not used; {term.english} is {'/'.join(term.chosen)}"


def _style(text: str) -> Iterator[str]:
    """Apply the rules of Chinese typography outside code and formulas."""
    plain = re.sub(r"(?<=\])\([^()\s]+\)", "", TAG.sub("\n", _without_fields(text)))
    plain = FIXED.sub("⸨⸩", plain)
    if not re.search(f"[{HAN}]", plain):
        return
    for pattern, line in STYLE.items():
        if found := re.search(pattern, plain):
            place = plain[max(0, found.start() - 8) : found.end() + 8]
            yield f"{line}, at {place!r}"


def _page(name: str, language: str) -> Iterator[str]:
    """Build the page, and compare its code with the English code."""
    page, ours = catalogue.read_page(name), build(name, language)
    known = catalogue.translations(name, language)
    texts = frozenset(map(_flat, [*known, *known.values()]))
    pairs = zip(page.cells, ours.cells, strict=True)
    for index, (cell, other) in enumerate(pair for pair in pairs if pair[0].cell_type == "code"):
        code = cell.source if index else cell.source + selects(cell.source, language)
        for line in other.source.splitlines():
            if width(line) > WIDEST:
                yield f"{name}/{cell.id}: the book cuts off {line!r}: at most {WIDEST} columns"
        try:
            if skeleton(code, texts) != skeleton(other.source, texts):
                yield f"{name}/{cell.id}: a translation changes the code"
        except SyntaxError as error:
            yield f"{name}/{cell.id}: the translated code does not parse: {error.msg}"


def skeleton(source: str, texts: Collection[str]) -> str:
    """Dump the syntax tree of code without translatable strings, comments and layout.

    The fields of an f-string are sorted, because a translation may order them differently.

    Args:
        source: Source code.
        texts: Strings that a translation may change.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            held = [part for part in node.values if isinstance(part, ast.FormattedValue)]
            node.values = sorted(held, key=ast.dump)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _flat(node.value) in texts:
                node.value = ""
    return ast.dump(tree)


def _flat(text: str) -> str:
    return "".join(text.replace("\\n", "").split())


def state(name: str, language: str) -> tuple[int, int, int]:
    """Return the numbers of all, translated and fuzzy entries of a catalogue."""
    ids = [entry.id for entry in catalogue.template(name) if entry.id]
    known = [entry for entry in map(catalogue.read(name, language).get, ids) if entry]
    fuzzy = [entry for entry in known if entry.fuzzy]
    return (
        len(ids),
        sum(all(_forms(entry.string)) for entry in known if not entry.fuzzy),
        len(fuzzy),
    )
