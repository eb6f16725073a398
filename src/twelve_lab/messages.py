"""The text that readers see outside notebooks: gettext messages whose ids are English templates.

    message("{name} has shape {got}, expected {expected}", name="scores", got=got, expected=shape)

A template is a whole sentence, so it can be translated as a unit. `make catalogue` collects all
templates in locale/twelve_lab.pot. The environment variable TWELVE_LANG selects a language when the
lab is imported; `language("zh")` changes the language afterwards.
"""

import os
from gettext import NullTranslations, translation
from pathlib import Path

LOCALE = Path(__file__).with_name("locale")
DOMAIN = "twelve_lab"
ENGLISH = "en"

_translations = NullTranslations()
_language = ENGLISH


def message(template: str, /, **values: object) -> str:
    """Translate a template into the reader's language and fill in its fields.

    Args:
        template: English text with fields in braces, as in `str.format`. It must be a literal,
            because the catalogue is collected from the source.
        values: Value of each field.

    Raises:
        KeyError: If a field has no value.
    """
    return _translations.gettext(template).format(**values)


def plural(one: str, many: str, count: int, /, **values: object) -> str:
    """Translate the template for a count, which may contain the field {count}.

    Args:
        one: Template for a count of 1.
        many: Template for every other count.
        count: Count that selects the template.
        values: Value of each further field.
    """
    return _translations.ngettext(one, many, count).format(count=count, **values)


def declared(text: str) -> str:
    """Translate a text that is declared as data, such as a contract. Its fields are not filled in.

    Args:
        text: English text. `tools/write_messages.py` collects it from the declarations.
    """
    return _translations.gettext(text) if text else ""


def translated() -> dict[str, str]:
    """Map each template in the current catalogue to its translation, without plurals.

    The live page looks up its texts in this mapping, because a page cannot call gettext.
    """
    catalogue = getattr(_translations, "_catalog", {})  # gettext has no public API for its entries
    return {id: text for id, text in catalogue.items() if id and isinstance(id, str)}


def use(translations: NullTranslations) -> NullTranslations:
    """Switch to another catalogue for all messages.

    Args:
        translations: Catalogue, as returned by `gettext.translation`.

    Returns:
        The previous catalogue.
    """
    global _translations
    before, _translations = _translations, translations
    return before


def languages() -> list[str]:
    """List the languages that have a catalogue, English first."""
    compiled = LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")
    return [ENGLISH, *sorted(path.parents[1].name for path in compiled)]


def language(name: str) -> None:
    """Select the language of all messages, verdicts and figures.

    Args:
        name: Language code, such as "zh". "en" selects English.

    Raises:
        ValueError: If there is no catalogue for this language.
    """
    global _language
    if name not in languages():
        known = ", ".join(languages())
        raise ValueError(
            message("unknown language {name} (known: {languages})", name=name, languages=known)
        )
    use(NullTranslations() if name == ENGLISH else translation(DOMAIN, LOCALE, [name]))
    _language = name


def current() -> str:
    """Return the selected language."""
    return _language


language(os.environ.get("TWELVE_LANG") or ENGLISH)
