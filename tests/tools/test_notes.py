"""Every unit in which a script differs from its parent has a note, and the page shows both."""

import re
from collections import Counter
from pathlib import Path

import pytest
from notes import changes, check, headings, section
from scripts import SCRIPTS as FAMILY
from scripts import Script
from sync import Collection, body

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

## Wrapper
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
    return result


def test_the_notes_of_this_repository_fit():
    assert check(Collection()) == []


def test_methods_and_statements_share_the_note_above_them(collection: Collection):
    assert check(collection) == []
    found = changes(PARENT, CHILD, dict.fromkeys(["imports", "Args", "old", "Wrapper"], ""))
    wrapper = ["Wrapper", "Wrapper.reset", "Wrapper.step", "STEPS"]
    assert found == {"imports": ["imports"], "Args": ["Args"], "Wrapper": wrapper, "old": ["old"]}
    assert headings(CHILD, {"Wrapper": "", "Wrapper.step": ""})["STEPS"] == "Wrapper.step"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("## old\nWhy not.", "", "no note `## old`, for `old`"),
        ("Why not.", "", "no note `## old`, for `old`"),
        ("## Wrapper\n", "## Wrapper.reset\n", "no note `## Wrapper`, for `Wrapper`"),
        ("## Wrapper\n", "## Wrapper.reset\n", "no note `## Wrapper.step`, for `Wrapper.step`"),
        ("## old", "## loss\nWhy.\n\n## old", "`## loss` is no unit that differs from ppo.py's"),
    ],
)
def test_what_does_not_fit_is_told(old: str, new: str, problem: str, collection: Collection):
    assert old in NOTES
    (collection.root / "docs/notes/ppo_a.md").write_text(NOTES.replace(old, new))
    assert any(line.startswith(f"docs/notes/ppo_a.md: {problem}") for line in check(collection))


def test_notes_of_no_script_are_told(collection: Collection):
    (collection.root / "docs/notes/ppo_gone.md").write_text(NOTES)
    assert check(collection) == ["docs/notes/ppo_gone.md: there is no such script"]


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


def lines_of(source: str) -> list[str]:
    return "".join(body(source)[1]).splitlines()


@pytest.mark.parametrize("child", [name for name, row in FAMILY.items() if row.budget])
def test_no_changed_line_is_left_out(child: str):
    """The lines that come, less those that go, are what the child has more."""
    collection = Collection()
    fences = re.findall(r"^```diff\n(.*?)^```$", section(collection, child), re.M | re.S)
    balance = Counter[str]()
    for line in "".join(fences).splitlines():
        balance[line[1:]] += {"+": 1, "-": -1}.get(line[0], 0) if line else 0
    balance.update(lines_of(collection.source(FAMILY[child].parent)))
    balance.subtract(lines_of(collection.source(child)))
    assert fences and {line for line, count in balance.items() if count and line.strip()} == set()
