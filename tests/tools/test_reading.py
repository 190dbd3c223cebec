"""read-ppo.md shows all of ppo.py beside what explains it; formulas become MathML."""

import re

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
