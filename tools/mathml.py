"""Hook of mkdocs.yml: formulas become MathML when the site is built.

Pages write $...$ and $$...$$; pymdownx.arithmatex finds them, latex2mathml translates them. The
built pages have no LaTeX and load nothing to show a formula.
"""

import re
from html import unescape
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert

# What arithmatex makes with `generic: true`: \(...\) in a span, \[...\] in a div.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def to_mathml(latex: str, block: bool = False) -> str:
    """A formula as MathML, on a line of its own if block.

    Raises ValueError if it has a command that latex2mathml does not know.
    """
    mathml = convert(latex, display="block" if block else "inline")
    try:
        ElementTree.fromstring(mathml)
    except ElementTree.ParseError as error:
        raise ValueError(f"latex2mathml makes no XML of ${latex}$") from error
    if "\\" in mathml:
        raise ValueError(f"latex2mathml does not know all of ${latex}$")
    return mathml


def on_page_content(html: str, **_: Any) -> str:
    """The page with its formulas in MathML."""
    return FORMULA.sub(lambda match: to_mathml(unescape(match[2]), match[1] == "div"), html)
