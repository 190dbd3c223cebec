"""The tags of the implementation details agree with docstrings and titles; all are shown."""

import re
from pathlib import Path

import pytest
from details import (
    DETAILS,
    declared_deviations,
    deviations,
    docstring_of,
    find_tags,
    matrix,
)
from sync import Collection, by_name

COLLECTION = Collection()


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def declared_details(source: str) -> list[str]:
    """Tags that the docstring's line `Details: core 1-12, atari 1-9, aux 3 (remark)` names."""
    (line,) = re.findall(r"^Details: (.*)$", docstring_of(source), re.MULTILINE)
    declared, group = [], ""
    for item in re.sub(r"\(.*?\)", "", line).strip(" .").split(","):
        found = re.fullmatch(r"(?:([a-z]+) )?(\d+)(?:-(\d+))?", item.strip(" ."))
        assert found, f"cannot read `{item}`"
        group = found[1] or group
        numbers = range(int(found[2]), int(found[3] or found[2]) + 1)
        declared += [f"{group}-{number}" for number in numbers]
    return declared


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_tags_and_docstring_agree(name: str):
    """Each tag ends a line of code above the plumbing, once; docstring and titles have its words.

    Words count up to the first comma, colon, semicolon or parenthesis; of a deviation their stems.
    """
    source = COLLECTION.source(name)
    tags, deviations = find_tags(source), declared_deviations(source)
    end = by_name(source)["plumbing"].first
    assert all(tag.ends_code and tag.line < end for tag in tags)
    names = [tag.name for tag in tags if tag.name != "deviation"]
    assert sorted(names) == sorted(declared_details(source))
    assert bool(deviations) == any(tag.name == "deviation" for tag in tags)
    for tag in tags:
        said = set(words(re.split(r"[,;:(]", tag.text)[0]))
        if tag.name == "deviation":
            said, known = {word[:5] for word in said}, {word[:5] for word in words(deviations)}
        else:
            known = set(words(DETAILS[tag.name]))
        assert said and said <= known, tag


def test_every_tag_is_shown():
    """Each cell of the matrix leads to the line of the script that carries its tag."""
    rows = {row.partition("](")[0]: row for row in matrix(COLLECTION).split("\n")}
    departures = deviations(COLLECTION)
    for script in COLLECTION.scripts():
        for tag in find_tags(COLLECTION.source(script)):
            link = f"source/{Path(script).stem}.md#__codelineno-0-{tag.line})"
            assert link in (departures if tag.name == "deviation" else rows[f"| [{tag.name}"])
