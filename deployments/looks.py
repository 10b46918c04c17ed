"""How states look on pages."""

from dataclasses import dataclass

from django.utils.functional import Promise

StrOrPromise = str | Promise


@dataclass(frozen=True)
class Look:
    """How a state looks: a symbol of icons.svg, a class of colour, a word in the reader's language."""

    icon: str
    css: str
    word: StrOrPromise
