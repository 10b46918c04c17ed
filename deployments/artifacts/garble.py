"""Is an answer garbled? What damaged weights or a wrong scale give: one sign again and again, NaN, letters of scripts
that nobody asked for. Pure; it says which signs there are, and judges nothing else.

A model that knows nothing answers so, too: an answer counts only where the parent's is not garbled in the same way.
"""

import math
import re
import unicodedata
from collections.abc import Sequence

from deployments.artifacts.prompts import Prompt, is_chinese
from deployments.steps import Text

SIGNS: dict[str, Text] = {
    "empty": Text("没有回答", "No answer"),
    "marks": Text("只有感叹号之类的符号", "Marks and nothing else, such as “!!!!”"),
    "nan": Text("对数概率不是数（NaN）", "Log probabilities that are no numbers (NaN)"),
    "repeated": Text("同一个词反复出现", "The same token again and again"),
    "looped": Text("同一句话反复出现", "The same phrase again and again"),
    "script": Text("文字与提问的语言不符", "Letters of a script that was not asked for"),
    "broken": Text("无法解码的字符", "Characters that cannot be decoded"),
}
RUN = 16  # the same token so often in a row, or at the end
LOOP_SHARE, LOOP_LEAST, LOOP_TIMES = 0.6, 24, 4  # a phrase that fills so much of an answer of so many characters
BROKEN_SHARE, BROKEN_LEAST = 0.1, 3
SCRIPT_SHARE, SCRIPT_LEAST = 0.3, 12  # letters
SINGLE = re.compile(r"(.)\1{15,}", re.DOTALL)
FINE_RUNS = frozenset(" \t\n-=_*#.~·─━")  # rules, indents and rows of dots


def signs(text: str, lang: str, tokens: Sequence[str] = (), logprobs: Sequence[float | None] = ()) -> list[str]:
    """The signs of SIGNS that an answer shows, in their order; [] for a healthy one. `lang` is that of `expected`."""
    found = set()
    if any(one is not None and math.isnan(one) for one in logprobs):
        found.add("nan")
    stripped = text.strip()
    if not stripped:
        return [name for name in SIGNS if name in found | {"empty"}]
    if is_marks(stripped):
        found.add("marks")
    elif is_repeated(stripped, tokens):
        found.add("repeated")
    elif is_looped(stripped):
        found.add("looped")
    if is_broken(stripped):
        found.add("broken")
    if is_other_script(stripped, lang):
        found.add("script")
    return [name for name in SIGNS if name in found]


def is_marks(text: str) -> bool:
    """“!!!!”: eight signs or more, nearly all of them one punctuation mark."""
    tight = "".join(text.split())
    if len(tight) < 8:
        return False
    most = max(set(tight), key=tight.count)
    return unicodedata.category(most)[0] in "PS" and most not in FINE_RUNS and tight.count(most) >= 0.9 * len(tight)


def is_repeated(text: str, tokens: Sequence[str]) -> bool:
    """The same token or letter RUN times in a row; rules and indents may."""
    if any(run[1] not in FINE_RUNS for run in SINGLE.finditer(text)):
        return True
    words = list(tokens) or text.split()
    length, before = 0, ""
    for word in words:
        length = length + 1 if word == before else 1
        before = word
        if length >= RUN and word.strip() and set(word.strip()) - FINE_RUNS:
            return True
    return False


def is_looped(text: str) -> bool:
    """A phrase of 2 to 120 characters LOOP_TIMES in a row that fills most of the answer, its end included."""
    tight = re.sub(r"\s+", " ", text)
    if len(tight) < LOOP_LEAST:
        return False
    for length in range(2, min(120, len(tight) // LOOP_TIMES) + 1):
        end = len(tight)
        same = 0
        while end - same - length > 0 and tight[end - same - 1] == tight[end - same - 1 - length]:
            same += 1
        repeated = same + length
        phrase = tight[-length:]
        if repeated >= LOOP_TIMES * length and repeated >= LOOP_SHARE * len(tight) and any(map(str.isalpha, phrase)):
            return True
    return False


def is_broken(text: str) -> bool:
    """Replacement characters and controls, more than one cut off at the end can be."""
    bad = sum(1 for sign in text if sign == "\ufffd" or (unicodedata.category(sign) in ("Cc", "Cn", "Co") and
              not sign.isspace()))  # fmt: skip
    return bad >= BROKEN_LEAST and bad >= BROKEN_SHARE * len(text)


def is_other_script(text: str, lang: str) -> bool:
    """Whether a good part of the letters are neither Latin nor Chinese, or they are of the other one of these two than
    `lang` asks for: nearly all Chinese for en, no Chinese at all for zh; '' asks for neither."""
    letters = [sign for sign in text if sign.isalpha()]
    if len(letters) < SCRIPT_LEAST:
        return False
    chinese = sum(map(is_chinese, letters))
    known = sum(1 for sign in letters if _is_known(sign))
    if len(letters) - chinese - known >= SCRIPT_SHARE * len(letters):
        return True
    return (lang == "en" and chinese >= 0.8 * len(letters)) or (lang == "zh" and not chinese)


def expected(prompt: Prompt) -> str:
    """The language that an answer is to have, '' where code and translations may have any."""
    return "" if prompt.kind in ("code", "translation", "format") else prompt.lang


def _is_known(sign: str) -> bool:
    """Latin with its accents, and Greek letters as formulas have them."""
    return unicodedata.name(sign, "").startswith(("LATIN", "GREEK", "FULLWIDTH LATIN", "MODIFIER", "FEMININE", "MASC"))


def of_the_child(parent: Sequence[str], child: Sequence[str]) -> list[str]:
    """The signs of the child that its parent's answer does not show, too."""
    return [name for name in child if name not in parent]
