"""The tags of the implementation details agree with docstrings, titles and docs/details.md."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from details import (
    DETAILS,
    GROUPS,
    check_tags,
    declared_details,
    declared_deviations,
    details_page,
    find_tags,
    pages,
)
from sync import Collection
from undo import Mutation

COLLECTION = Collection()


def test_there_are_the_blogs_details():
    counts = [sum(name.startswith(f"{group}-") for name in DETAILS) for group in GROUPS]
    assert dict(zip(GROUPS, counts, strict=True)) == {
        "core": 13,
        "atari": 9,
        "continuous": 9,
        "lstm": 5,
        "multidiscrete": 1,
        "aux": 4,
    }


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_tags_and_docstring_agree(name: str):
    assert check_tags(COLLECTION.source(name)) == []


def test_ppo_has_all_core_details():
    declared = declared_details(COLLECTION.source("ppo.py"))
    assert {f"core-{number}" for number in range(1, 14)} <= declared


def test_every_detail_names_a_test_and_core_details_their_explanation():
    page = (COLLECTION.root / "docs" / "details.md").read_text()
    for name in DETAILS:
        section = page.split(f"{{ #{name} }}")[1].split("\n#")[0]
        found = re.findall(r"`(tests/\w+\.py)::(?:(\w+)::)?(\w+)`", section)
        assert found or name == "aux-1"  # which no script has
        for file, class_name, test in found:
            source = (COLLECTION.root / file).read_text()
            assert f"def {test}(" in source
            assert not class_name or f"\nclass {class_name}:" in source
        assert (f"(read-ppo.md#{name})" in section) == (name.startswith("core-") or name == "aux-3")


def test_names_of_a_mutations_tests():
    mutation = Mutation(
        "ppo.py", "core-1", (), "nothing", "test_details.py a_failure and x or undo"
    )
    assert mutation.test_names() == ["tests/test_details.py::test_a_failure_of_each_kind"]
    with pytest.raises(ValueError, match=r"mutations/ppo\.toml: no test in tests/test_details\.py"):
        replace(mutation, tests="test_details.py nothing_of_the_kind").test_names()


def test_titles_of_the_pages_cells_are_the_tags_lines():
    """Each cell of the page leads to the line of the script that carries its tag."""
    page = (COLLECTION.root / "docs" / "details.md").read_text()
    for script in COLLECTION.scripts():
        lines = COLLECTION.source(script).split("\n")
        for tag in find_tags(COLLECTION.source(script)):
            assert f"[{tag.name}]" in lines[tag.line - 1]
            link = f"source/{Path(script).stem}.md#__codelineno-0-{tag.line})"
            assert link in page
            if tag.name != "deviation":
                (row,) = [row for row in page.split("\n") if row.startswith(f"| [{tag.name}](")]
                assert link in row


# ------ each kind of failure, on a synthetic script ------
SCRIPT = '''\
"""Title.

Details: core 1-2, 4, aux 3 (core-3 is left out).
Deviations: truncated episodes are bootstrapped; values
are not clipped.

More.
"""

envs = 1  # [core-1] vectorized architecture
text = "# [core-9] in a string"
init = 2  # [core-2] orthogonal initialization, as in the paper; gain sqrt(2)
lr = 3  # [core-4] annealing
for epoch in range(3):
    break  # [aux-3] early stopping on KL
boot = 5  # [deviation] truncated episodes bootstrapped, unlike baselines
# ====== plumbing: nothing below changes what is learned ======
log = 6
'''


def test_the_synthetic_script_is_fine():
    assert declared_details(SCRIPT) == {"core-1", "core-2", "core-4", "aux-3"}
    expected = "truncated episodes are bootstrapped; values are not clipped."
    assert declared_deviations(SCRIPT) == expected
    assert [tag.line for tag in find_tags(SCRIPT)] == [10, 12, 13, 15, 16]
    assert check_tags(SCRIPT) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("lr = 3  # [core-4] annealing", "lr = 3", "the code lacks core-4 of the docstring's"),
        ("core 1-2, 4", "core 1-2", "the docstring's `Details:` line lacks core-4"),
        ("log = 6", "log = 6  # [core-1] vectorized", "[core-1] appears 2 times"),
        ("log = 6", "log = 6  # [core-3] Adam epsilon", "is below the plumbing line"),
        (
            "lr = 3  # [core-4] annealing",
            "# [core-4] annealing\nlr = 3",
            "not a comment at the end",
        ),
        ("# [core-4] annealing", "# see [core-4] annealing", "not a comment at the end"),
        ("# [core-4] annealing", "# [core-4] Adam epsilon", "the detail's title is `Adam learning"),
        ("# [core-4] annealing", "# [core-4]", "the detail's title is `Adam learning"),
        ("# [core-4] annealing", "# [core-14] annealing", "is not one of the 41 details"),
        ("core 1-2, 4,", "1-2, core 4,", "cannot read `1-2`"),
        ("core 1-2, 4,", "core 1-2, 2, 4,", "names core-2 twice"),
        ("Details: core", "Tags: core", "has 0 lines `Details: ...`"),
        ("[deviation] truncated", "[deviation] simulated", "not in the docstring's `Deviations:`"),
        ("Deviations: ", "Departures: ", "not in the docstring's `Deviations:`"),
        ("# [deviation]", "# deviation:", "no line is tagged [deviation]"),
    ],
)
def test_a_failure_of_each_kind(old: str, new: str, complaint: str):
    assert old in SCRIPT
    problems = check_tags(SCRIPT.replace(old, new))
    assert any(complaint in problem for problem in problems), problems


def test_page_of_two_scripts():
    page = details_page({"ppo.py": SCRIPT, "ppo_atari.py": SCRIPT.replace("core-4", "atari-1")}, {})
    ours = '[●](source/ppo.md#__codelineno-0-10){ title="ppo.py, line 10" }'
    ataris = '[●](source/ppo_atari.md#__codelineno-0-10){ title="ppo_atari.py, line 10" }'
    assert "| detail | classic | Atari |" in page
    assert f"| [core-1](#core-1) vectorized architecture | {ours} | {ataris} |" in page
    assert "| [atari-1](#atari-1) NoopReset |  | [●](source/ppo_atari.md#__codelineno-0-13)" in page
    section = page.split("### atari-1: NoopReset { #atari-1 }")[1].split("###")[0]
    assert "1 to 30 frames" in section
    assert "- Line: [`ppo_atari.py`, line 13](source/ppo_atari.md#__codelineno-0-13)" in section
    assert "more script" not in section
    section = page.split("### core-1: ")[1].split("###")[0]
    assert "- Line: [`ppo.py`, line 10](source/ppo.md#__codelineno-0-10)" in section
    assert ", and in [1 more script](#which-script-has-which-detail).\n" in section
    assert "### atari-2" in page and "In no script." in page.split("### atari-2")[1].split("###")[0]
    assert "No script anneals `clip_coef`" in page.split("### aux-1")[1].split("###")[0]
    assert '{ title="ppo.py, line 16" }: truncated episodes bootstrapped' in page
    assert "Dots from left to right" not in page


def test_a_column_of_two_scripts_tells_which_dot_is_which():
    other = SCRIPT.replace("core-4", "atari-1")
    page = details_page({"ppo_atari.py": SCRIPT, "ppo_atari_lstm.py": other}, {})
    assert "- *Atari*: `ppo_atari.py`, `ppo_atari_lstm.py`\n" in page
    rows = {name: next(x for x in page.splitlines() if f"(#{name})" in x) for name in DETAILS}
    assert rows["core-1"].count("●") == 2 and "○" not in rows["core-1"]
    assert rows["core-4"].partition("●")[2].endswith(" ○ |"), "the second one lacks it"
    assert rows["atari-1"].index("○") < rows["atari-1"].index("●")
    assert "○" not in rows["atari-2"], "no script has it"


def test_script_of_no_family_has_a_column():
    page = details_page({"ppo.py": SCRIPT, "ppo_new.py": SCRIPT}, {})
    assert "| detail | classic | ppo_new |" in page


def test_a_collection_has_the_matrix_and_a_page_for_each_script(tmp_path: Path):
    collection = Collection(tmp_path)
    (tmp_path / "ppo").mkdir()
    collection.path("ppo.py").write_text(SCRIPT)
    docs = tmp_path / "docs"
    more = {"core-1": ["Tested by itself.", "Without it: worse."]}
    found = pages(collection, more)
    assert found.keys() == {docs / "details.md", docs / "source" / "ppo.md"}
    assert found[docs / "details.md"] == details_page({"ppo.py": SCRIPT}, more)
    assert "What each detail is worth" not in found[docs / "details.md"]
    effects = "## What each detail is worth\n\nMuch.\n\n## Core\n"
    assert effects in pages(collection, more, "Much.\n")[docs / "details.md"]
    section = found[docs / "details.md"].split("### core-1: ")[1].split("###")[0]
    assert section.rstrip().endswith("\n- Tested by itself.\n- Without it: worse.")
    assert '--8<-- "ppo/ppo.py"' in found[docs / "source" / "ppo.md"]
