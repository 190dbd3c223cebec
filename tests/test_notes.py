"""Every hunk of a diff has a note, and the annotated diffs show what the scripts have."""

import html
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from notes import Pair, find_hunks, fragment, problems_of, read_notes, summary
from sync import FREE, ROOT, Collection, cut, split_lines

COLLECTION = Collection()
PAIRS = COLLECTION.pairs()
ROW = re.compile(
    r"<(ins|del|span|i)( style=\"counter-reset: line (\d+)\")?>(.*?)\n</\1>", re.DOTALL
)

PARENT = '''\
"""Parent."""

import os


class Args:
    lr = 1e-3
    b = 2
    c = 3
    d = 4
    e = 5
    f = 6
    g = 7


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


def loss'''
CHILD = PARENT.replace('"""Parent."""', '"""Child."""').replace("lr = 1e-3", "lr = 1e-4")
CHILD = CHILD.replace("g = 7", "g = 8\n    h = 9").replace("import os", "import os\nimport sys")
CHILD = CHILD.replace("def old(x):\n    return x\n\n\ndef loss", NEW)
PAIR = Pair("ppo.py", "ppo_a.py", PARENT, CHILD, by_unit=False)
NOTES = """\
# Title

## imports
Why sys.
## Args `lr`
Why lr.

## Args `g = 8`
Why `g` and h, see [core-3] and [a page](page.md).
## old
Why not.
## Wrapper
Why a wrapper.
"""


def shown(text: str) -> list[tuple[str, list[tuple[str, int, str]]]]:
    """Unit and rows of each hunk of a fragment: tag, number of the line, text."""
    hunks = []
    for piece in text.split('<div class="hunk" markdown>')[1:]:
        unit = re.search(r"\[`(.+?)`\]\(source", piece)
        rows = []
        number = 0
        # The header's lines stand behind the last hunk's.
        for tag, _, start, line in ROW.findall(piece.partition("\n</div>\n\n</div>")[0]):
            number = int(start) if start else number
            number += tag in ("ins", "span")
            rows.append((tag, number, html.unescape(re.sub(r"</?span[^>]*>", "", line))))
        hunks.append((unit[1], rows))
    return hunks


def units(notes: str) -> list[str]:
    return [hunk.unit for hunk in find_hunks(PAIR, read_notes(notes))]


# ------ small scripts ------
def test_the_notes_fit():
    assert problems_of(PAIR, read_notes(NOTES)) == []


def test_hunks_are_cut_at_units_and_within_them():
    assert units("") == ["imports", "Args", "Args", "Wrapper", "old"]
    first, second = [hunk for hunk in find_hunks(PAIR, []) if hunk.unit == "Args"]
    assert [row.text.strip() for row in first.changed] == ["lr = 1e-3", "lr = 1e-4"]
    assert [row.text.strip() for row in second.changed] == ["g = 7", "g = 8", "h = 9"]


def test_changes_beside_each_other_are_one_hunk():
    pair = replace(PAIR, child_source=CHILD.replace("c = 3", "c = 4"))
    hunks = [hunk for hunk in find_hunks(pair, []) if hunk.unit == "Args"]
    assert len(hunks) == 1 and len(hunks[0].changed) == 7


def test_a_note_of_a_method_begins_a_hunk():
    assert units("## Wrapper.step\nWhy.")[3:] == ["Wrapper", "Wrapper.step", "old"]
    wrapper = next(hunk for hunk in find_hunks(PAIR, []) if hunk.unit == "Wrapper")
    assert [row.text for row in wrapper.rows] == NEW.removesuffix("\n\n\ndef loss").split("\n")


def test_by_unit_a_unit_is_one_hunk():
    hunks = find_hunks(replace(PAIR, by_unit=True), [])
    assert [hunk.unit for hunk in hunks] == ["imports", "Args", "Wrapper", "old"]
    assert [row.kind for row in hunks[1].rows].count("gap") == 1


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("## old\nWhy not.", "", "no note for the hunk of `old` that has: def old(x):"),
        ("## Args `lr`\nWhy lr.", "", "no note for the hunk of `Args` that has: lr = 1e-3"),
        ("## old", "## loss\nWhy.\n## old", "no hunk for the note ## loss"),
        ("## Args `lr`", "## Args `lr = 1e-5`", "no hunk for the note ## Args `lr = 1e-5`"),
        ("## Args `lr`", "## Args", "2 hunks for the note ## Args: write words of a changed line"),
        ("## old", "## old\nWhy.\n## old", "2 notes for the hunk of `old` that has: def old(x):"),
        ("Why not.", "", "nothing is written below ## old"),
        # Words of unchanged lines do not count.
        ("## Args `lr`", "## Args `b = 2`", "no hunk for the note ## Args `b = 2`"),
    ],
)
def test_what_does_not_fit_is_told(old: str, new: str, problem: str):
    assert old in NOTES
    problems = problems_of(PAIR, read_notes(NOTES.replace(old, new)))
    assert any(line.startswith(f"docs/notes/ppo_a.md: {problem}") for line in problems), problems


def test_a_fragment():
    text = fragment(PAIR, read_notes(NOTES))
    assert "[`Args`](source/ppo_a.md#__codelineno-0-8)\n\nWhy lr.\n</div>" in text
    assert "see [core-3](details.md#core-3) and [a page](page.md)." in text
    assert "[`old`](source/ppo.md#__codelineno-0-16) is gone" in text
    assert "<summary>2 lines of ppo.py</summary>" in text
    assert text.endswith("The same to the byte: `loss`.\n\n</details>\n")
    [_, (unit, rows), *_] = shown(text)
    assert unit == "Args"
    assert rows[:3] == [
        ("span", 7, "class Args:"),
        ("del", 7, "    lr = 1e-3"),
        ("ins", 8, "    lr = 1e-4"),
    ]
    header = text.partition("<summary>PEP 723 header and docstring</summary>")[2]
    assert "Child." in header and "Parent." in header


# ------ the scripts of this repository ------
@pytest.fixture(params=PAIRS, ids=[child for _, child in PAIRS])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


def text_of(child: str) -> str:
    """The annotated diff of a script as it is in docs."""
    return (ROOT / "docs" / "diffs" / f"{Path(child).stem}.md").read_text()


def test_the_lines_shown_are_those_of_the_scripts(pair: tuple[str, str]):
    parent, child = pair
    lines = COLLECTION.source(child).split("\n")
    removed = Counter(COLLECTION.source(parent).split("\n"))
    hunks = shown(text_of(child))
    assert hunks
    for unit, rows in hunks:
        assert rows, unit
        for tag, number, text in rows:
            if tag in ("ins", "span"):
                assert lines[number - 1] == text
        assert not Counter(text for tag, _, text in rows if tag == "del") - removed


def lines_of(script: str) -> Counter[str]:
    """How often each line stands in a script, without header, docstring and plumbing."""
    kept = [unit for unit in cut(COLLECTION.source(script)) if unit.name not in (*FREE, "plumbing")]
    return Counter(line for unit in kept for line in unit.code.split("\n") if line)


def test_no_change_is_left_out(pair: tuple[str, str]):
    """The lines that are new, less those that are gone, are what the child has more."""
    parent, child = pair
    rows = [row for _, hunk in shown(text_of(child)) for row in hunk]
    balance = Counter(line for tag, _, line in rows if tag == "ins" and line)
    balance.subtract(line for tag, _, line in rows if tag == "del" and line)
    wanted = lines_of(child)
    wanted.subtract(lines_of(parent))
    assert balance == wanted


def test_the_number_of_lines_is_that_of_the_diff(pair: tuple[str, str]):
    _, child = pair
    diff = ROOT / "docs" / "diffs" / f"{Path(child).stem}.diff"
    if not diff.exists():
        assert COLLECTION.family[child].budget is None
        return
    signs = Counter(line[0] for line in split_lines(diff.read_text())[2:])
    assert f"**\u2212{signs['-']} +{signs['+']} lines**" in summary(COLLECTION, child)


def test_a_hunk_links_to_its_first_new_line(pair: tuple[str, str]):
    parent, child = pair
    links = re.findall(r"\(source/(\w+)\.md#__codelineno-0-(\d+)\)", text_of(child))
    hunks = shown(text_of(child))
    assert len(links) == len(hunks)
    for (stem, number), (_, rows) in zip(links, hunks, strict=True):
        tags = [tag for tag, _, _ in rows]
        first = next((tag for tag in ("ins", "del", "span") if tag in tags), None)
        _, _, text = rows[tags.index(first)]
        assert f"{stem}.py" == (parent if first == "del" else child)
        assert COLLECTION.source(f"{stem}.py").split("\n")[int(number) - 1] == text


def test_the_page_shows_it(pair: tuple[str, str]):
    stem = Path(pair[1]).stem
    page = (ROOT / "docs" / f"{stem}.md").read_text()
    assert f"## What differs from {pair[0]}\n" in page
    assert f"<!-- begin diff {pair[1]} -->" in page
    assert f'\n--8<-- "docs/diffs/{stem}.md"\n' in page
