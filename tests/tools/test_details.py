"""The tags of the implementation details agree with docstrings and titles; all are shown."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from blocks import about_details
from details import (
    DETAILS,
    GROUPS,
    check_tags,
    declared_details,
    declared_deviations,
    deviations,
    explanations,
    find_tags,
    matrix,
)
from family import FAMILY
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
    about = about_details(COLLECTION)
    for name in DETAILS:
        text = "\n".join(about.get(name, []))
        found = re.findall(r"`(tests/\w+/\w+\.py)::(?:(\w+)::)?(\w+)`", text)
        assert found or name == "aux-1"  # which no script has
        assert f"(read-ppo.md#{name})" in text or not name.startswith("core-")
    text = explanations(COLLECTION, about)
    assert all(f"{{ #{name} }}" in text for name in DETAILS)


def test_names_of_a_mutations_tests():
    selection = "test_details.py a_failure and x or undo"
    mutation = Mutation(Path("ppo.toml"), "core-1", (), "nothing", selection)
    assert mutation.test_names() == ["tests/tools/test_details.py::test_a_failure_of_each_kind"]
    with pytest.raises(ValueError, match=r"ppo\.toml: no test in tests/tools/test_details\.py"):
        replace(mutation, tests="test_details.py nothing_of_the_kind").test_names()


def test_every_tag_is_shown():
    """Each cell of the matrix leads to the line of the script that carries its tag."""
    rows = {row.partition("](")[0]: row for row in matrix(COLLECTION).split("\n")}
    departures = deviations(COLLECTION)
    for script in COLLECTION.scripts():
        for tag in find_tags(COLLECTION.source(script)):
            link = f"source/{Path(script).stem}.md#__codelineno-0-{tag.line})"
            assert link in (departures if tag.name == "deviation" else rows[f"| [{tag.name}"])


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


def test_a_detail_tells_its_first_line_and_a_dot_each_script(tmp_path: Path):
    (tmp_path / "ppo").mkdir()
    rows = {name: FAMILY[name] for name in ("ppo.py", "ppo_atari.py", "ppo_atari_lstm.py")}
    rows["ppo_new.py"] = FAMILY["ppo.py"]
    collection = Collection(tmp_path, rows, ())
    for name in rows:
        text = SCRIPT.replace("core-4", "atari-1") if name == "ppo_atari_lstm.py" else SCRIPT
        collection.path(name).write_text(text)
    shown = {row.partition("](")[0]: row for row in matrix(collection).split("\n")}
    assert "| detail | classic | Atari | ppo_new |" in shown
    assert shown["| [core-1"].count("●") == 4 and "○" not in shown["| [core-1"]
    assert shown["| [atari-1"].index("○") < shown["| [atari-1"].index("●")
    text = explanations(collection, {"core-1": ["Tested by itself."]})
    section = text.split("### core-1: ")[1].split("###")[0]
    assert "- Line: [`ppo.py`, line 10](source/ppo.md#__codelineno-0-10)" in section
    assert ", and in [3 more scripts]" in section and "- Tested by itself." in section
    assert "In no script." in text.split("### atari-2")[1].split("###")[0]
