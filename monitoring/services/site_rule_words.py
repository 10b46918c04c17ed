"""What is wrong in rules of the site, in the reader's language: plain code that reads them says it in English alone."""

import re

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

SAID = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (
            r"“(?P<text>.*)” has no piece of (?P<n>\d+) letters without a hole",
            gettext_noop("“%(text)s” has no piece of %(n)s letters without a hole"),
        ),
        (r"“(?P<name>.*)” stands twice in “(?P<text>.*)”", gettext_noop("“%(name)s” stands twice in “%(text)s”")),
        (r"(?P<names>.*) stands twice", gettext_noop("%(names)s stands twice")),
        (
            r"“(?P<name>.*)” is no id; write small letters, digits and hyphens",
            gettext_noop("“%(name)s” is no id; write small letters, digits and hyphens"),
        ),
        (r"begin each rule with a line (?P<line>\S+)", gettext_noop("begin each rule with a line %(line)s")),
        (r"(?P<name>\w+) is a list of texts", gettext_noop("%(name)s is a list of texts")),
        (r"off: there is no rule (?P<names>.*)", gettext_noop("off: there is no rule %(names)s")),
        (
            r"(?P<why>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)",
            gettext_noop("line %(line)s, column %(column)s: %(why)s"),
        ),
    )
)


def told(problem: str, stage: str) -> str:
    """`problem` of a BadRule, with the rule's id before it where one is to blame; `stage` is what no reader wrote."""
    problem = re.sub(rf"\A{re.escape(stage)}(: |/)", "", problem)
    rule, parted, rest = problem.partition(": ")
    if parted and re.fullmatch(r"[a-z0-9-]+", rule) and rule != "off":
        return f"{rule}: {_words(rest)}"
    return _words(problem)


def _words(problem: str) -> str:
    for form, words in SAID:
        if found := form.fullmatch(problem):
            return _(words) % found.groupdict()
    return problem
