"""Every implementation detail is tested: when its line is undone, a test fails.

tests/mutations/ lists the ways to undo details. Each edits a copy of a script, and the tests that
must notice run on that copy (tests/helpers/in_process.py imports it in place of the script). They
must fail by an assertion: a copy that crashes would prove nothing.
"""

import re
from pathlib import Path

import pytest
from edits import TABLES
from helpers.mutations import run_tests
from mutations import Mutation, read_mutations, tagged_lines
from sync import Collection

COLLECTION = Collection()
SCRIPTS = [f"{file.stem}.py" for file in sorted(TABLES.glob("*.toml"))]
MUTATIONS = [mutation for script in SCRIPTS for mutation in read_mutations(script)]


@pytest.mark.slow("mutations")
@pytest.mark.parametrize(
    "mutation", MUTATIONS, ids=[f"{m.script}-{m.tag}-{m.undone}" for m in MUTATIONS]
)
def test_undone_detail_is_noticed(mutation: Mutation, tmp_path: Path):
    copy = tmp_path / mutation.script
    copy.write_text(mutation.apply(COLLECTION.source(mutation.script)))
    exit_code, output = run_tests(copy, {mutation.tests})
    assert exit_code == 1, f"pytest ended with {exit_code}, not with a failed test\n{output}"
    assert re.search(r"^FAILED .* - (AssertionError|assert )", output, re.MULTILINE), output


@pytest.mark.slow("mutations")
def test_unchanged_copy_passes(tmp_path: Path):
    """One control is enough: the suite itself runs the same tests on the unedited scripts."""
    copy = tmp_path / "ppo.py"
    copy.write_text(COLLECTION.source("ppo.py"))
    exit_code, output = run_tests(copy, {mutation.tests for mutation in read_mutations("ppo.py")})
    assert exit_code == 0, output


def lines_of_tags(script: str) -> dict[str, str]:
    """The line of each tag of a script, by the tag's name; of deviations with the text."""
    source = COLLECTION.source(script)
    lines = source.split("\n")
    return {tag: lines[number - 1] for tag, number in tagged_lines(source).items()}


def edited_lines(mutation: Mutation) -> set[str]:
    """Lines of the script that a mutation changes."""
    source = COLLECTION.source(mutation.script)
    return set(source.split("\n")) - set(mutation.apply(source).split("\n"))


@pytest.mark.parametrize("script", COLLECTION.scripts())
def test_every_tag_has_a_mutation(script: str):
    """A tag that a script has from its parent, on the same line, is tested there."""
    lines = lines_of_tags(script)
    parent = COLLECTION.family[script].parent
    inherited = lines_of_tags(parent) if parent else {}
    own = {tag for tag, line in lines.items() if inherited.get(tag) != line}
    table = read_mutations(script)
    assert {mutation.tag for mutation in table} >= own, "a tag without a mutation"
    assert {mutation.tag for mutation in table} <= set(lines), "a mutation of no tag"
    for tag in own:
        edited = [edited_lines(mutation) for mutation in table if mutation.tag == tag]
        assert any(lines[tag] in changed for changed in edited), f"{tag}: its line stays as it is"
