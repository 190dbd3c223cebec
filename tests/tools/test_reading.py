"""read-ppo.md shows all of ppo.py beside what explains it; formulas become MathML."""

import re
from xml.etree import ElementTree

import pytest
from ablations import Effect
from annotated import page, read_ppo
from sync import Collection

FENCE = re.compile(r'^``` \{ \.python linenums="(\d+)" \}\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_all_lines_are_shown_with_their_numbers():
    collection = Collection()
    lines = collection.source("ppo.py").splitlines()
    text = (collection.root / "docs" / "read-ppo.md").read_text()
    shown = {}
    for first, code in FENCE.findall(read_ppo(collection, text)):
        shown |= dict(enumerate(code.splitlines(), int(first)))
    assert shown == {n: lines[n - 1] for n in shown}
    left_out = [n for n in range(1, len(lines) + 1) if n not in shown and lines[n - 1].strip()]
    assert left_out == []


# ------ a small script ------
SCRIPT = '''\
"""Title."""


def loss(x):
    y = x * x  # [core-5] generalized
    return y


def train():
    """Learns."""
    # ------ setup ------
    step = 0
    return step
'''
TEXT = """\
# Read it

<!-- map -->

<!-- unit docstring -->
## First

<!-- unit loss -->
Of `loss`.

<!-- at y = -->
## The square

[core-5] A square.

<!-- unit train -->
All.

<!-- unit train: setup -->
## Setup
"""


def test_a_page_has_a_row_for_each_part():
    text = page(SCRIPT, TEXT, [])
    code = [(int(first), code) for first, code in FENCE.findall(text)]
    assert [first for first, _ in code] == [1, 4, 5, 9, 11]
    assert code[2][1] == "    y = x * x  # [core-5] generalized\n    return y\n"
    assert "- 5 [The square](#loss)\n" in text and "## The square { #loss }" in text
    assert "**[core-5](details.md#core-5): generalized advantage estimation.** A square." in text


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("<!-- unit loss -->", "<!-- unit lose -->", "unit `lose` is not in the script"),
        ("<!-- unit loss -->", "<!-- unit lose -->", "unit `loss` is not explained"),
        ("<!-- unit train -->\n", "", "unit `train` is not explained"),
        ("<!-- at y = -->", "<!-- at z = -->", "`at z =`: 0 lines of unit `loss` have it"),
        ("<!-- at y = -->", "<!-- at x -->", "`at x`: 2 lines of unit `loss` have it"),
        ("<!-- at y = -->", "<!-- at def -->", "`at def`: line 4 begins another part, too"),
        ("[core-5] A", "A", "unit `loss`, lines 5 to 8: explain core-5 there"),
        ("All.", "[core-5] All.", "unit `train`, lines 9 to 10: explain nothing there"),
    ],
)
def test_what_does_not_fit_is_told(old: str, new: str, complaint: str):
    assert TEXT.count(old) == 1
    with pytest.raises(ValueError, match=re.escape(complaint)):
        page(SCRIPT, TEXT.replace(old, new), [])


def test_what_was_measured_ends_the_explanation():
    nan = float("nan")
    effects = [
        Effect("core-5", "CartPole-v1", 3, 0, 120, 3, 500, 20, -380, -400, -360),
        Effect("core-5", "Acrobot-v1", 0, 0, nan, 3, -84, -500, nan, nan, nan),
        Effect("core-6", "CartPole-v1", 3, 0, 490, 3, 500, 20, -10, -30, 10),
    ]
    text = page(SCRIPT, TEXT, effects)
    measured = text.partition("A square.\n\n")[2].partition("\n\n</div>")[0]
    assert measured.endswith(": CartPole-v1 **-380** (-400 to -360).")


# ------ formulas ------


def test_a_formula_becomes_mathml():
    mathml = pytest.importorskip("mathml", reason="needs the extra `docs`")
    html = r'a <span class="arithmatex">\(r &lt; \frac12\)</span>'
    block = '<div class="arithmatex">\\[\nx\n\\]</div>'
    inline, display = re.findall(r"<math.*?</math>", mathml.on_page_content(html + block))
    assert [element.text for element in ElementTree.fromstring(inline).iter() if element.text] == [
        "r",
        "<",
        "1",
        "2",
    ]
    assert 'display="inline"' in inline and 'display="block"' in display


@pytest.mark.parametrize("latex", [r"\nosuchthing x", r"a & b"])
def test_a_formula_that_is_not_understood_is_refused(latex: str):
    mathml = pytest.importorskip("mathml", reason="needs the extra `docs`")
    with pytest.raises(ValueError, match="latex2mathml"):
        mathml.to_mathml(latex)
