"""A script's page shows the units in which it differs from its parent, each with its note."""

from pathlib import Path

import pytest
from notes import section
from scripts import Script
from sync import Collection

PARENT = '''\
"""Parent."""

import os


class Args:
    lr = 1e-3


def old(x):
    return x


def loss(x):
    return x < 1
'''
NEW = '''\
class Wrapper:
    """New."""

    def reset(self):
        return 0

    def step(self):
        return 1


STEPS = 4


def loss'''
CHILD = PARENT.replace('"""Parent."""', '"""Child."""').replace("lr = 1e-3", "lr = 1e-4")
CHILD = CHILD.replace("import os", "import os\nimport sys")
CHILD = CHILD.replace("def old(x):\n    return x\n\n\ndef loss", NEW)
NOTES = """\
# Title

## imports
Why sys.

## Args
Why lr, see [core-3] and [a page](page.md).

## old
Why not.

## Wrapper + STEPS
Why a wrapper.
"""


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """Two scripts and the notes of their diff."""
    for folder in ("ppo", "docs/notes"):
        (tmp_path / folder).mkdir(parents=True)
    rows = {"ppo.py": Script(None, None), "ppo_a.py": Script("ppo.py", (9, 99))}
    result = Collection(tmp_path, rows, ())
    result.path("ppo.py").write_text(PARENT)
    result.path("ppo_a.py").write_text(CHILD)
    (tmp_path / "docs/notes/ppo_a.md").write_text(NOTES)
    assert result.check() == []
    return result


def test_the_page_shows_notes_and_lines(collection: Collection):
    text = section(collection, "ppo_a.py")
    assert "see [core-3](details.md#core-3) and [a page](page.md)." in text
    assert "```diff\n class Args:\n-    lr = 1e-3\n+    lr = 1e-4\n```" in text
    assert "[`old`](source/ppo.md#__codelineno-0-10)** is gone" in text
    assert "-def old(x):\n-    return x\n```\n\n</details>" in text
    assert "+STEPS = 4\n```" in text
    collection.family["ppo_a.py"] = Script("ppo.py", None)
    text = section(collection, "ppo_a.py")
    assert "Why not." in text and "```" not in text
