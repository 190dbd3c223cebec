"""What a script changes, with a note beside each unit: the part of its page below the diff's size.

Scripts are compared unit by unit (tools/sync.py). Notes stand in docs/notes/<script>.md, Markdown
under a heading for each unit that differs from the parent's, is new or is gone:

    ## make_envs
    ## Agent.features
    ## train: rollout

A method without a note shares that of its class, a statement that of what stands above it (those
on top: `imports`). PEP 723 header and docstring need no note. Links are written as in the script's
page; those of tags like [core-3] are made. Of a script without a line budget, whose parent is too
far away for a diff of lines, the notes alone are shown.
"""

import re
from difflib import unified_diff
from pathlib import Path

from sync import FREE, Collection, by_name, compare, cut, diff_size

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
TAG = re.compile(r"\[([a-z]+-\d+)\](?!\()")  # of an implementation detail
DEFINITION = re.compile(r"^\s*(?:def|class) ", re.MULTILINE)
FOLD = """\
<details markdown>
<summary>What differs, with a note beside each unit</summary>"""


def notes_file(child: str) -> str:
    """Where the notes of a script stand."""
    return f"docs/notes/{Path(child).stem}.md"


def read_notes(collection: Collection, child: str) -> dict[str, str]:
    """Text of each note by its heading; none if there is no file."""
    path = collection.root / notes_file(child)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    pieces = HEADING.split(text)[1:]
    return {name: body.strip() for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def headings(source: str, notes: dict[str, str]) -> dict[str, str]:
    """The heading under which each unit of a script has its note, or should have it."""
    found = {}
    heading = "imports"
    for unit in cut(source):
        class_name = unit.name.partition(".")[0]
        is_named = unit.name in notes
        if class_name in notes and not is_named:
            heading = class_name
        elif is_named or DEFINITION.search(unit.code) or unit.name.startswith("train: "):
            heading = unit.name
        found[unit.name] = heading
    return found


def changes(parent_source: str, child_source: str, notes: dict[str, str]) -> dict[str, list[str]]:
    """Names of the units that differ, by the heading of their note; what is gone stands last."""
    states = compare(parent_source, child_source)
    places = headings(parent_source, notes) | headings(child_source, notes)
    grouped: dict[str, list[str]] = {}
    for name in dict.fromkeys([*by_name(child_source), *by_name(parent_source)]):
        if name in states:
            grouped.setdefault(places[name], []).append(name)
    return grouped


def check(collection: Collection) -> list[str]:
    """Units without a note and notes without a unit, a sentence for each."""
    problems = []
    known = set()
    for parent, child in collection.pairs():
        file = notes_file(child)
        known.add(file)
        notes = read_notes(collection, child)
        grouped = changes(collection.source(parent), collection.source(child), notes)
        for heading, names in grouped.items():
            if not notes.get(heading):
                problems.append(f"{file}: no note `## {heading}`, for `{'`, `'.join(names)}`")
        for heading in notes.keys() - grouped.keys():
            problems.append(f"{file}: `## {heading}` is no unit that differs from {parent}'s")
    for path in sorted((collection.root / "docs" / "notes").glob("[!.]*.md")):
        name = str(path.relative_to(collection.root))
        if name not in known:
            problems.append(f"{name}: there is no such script")
    return problems


def diff_of(parent: str, child: str) -> str:
    """The lines that differ between two texts, with some around them, for Markdown."""
    lines = unified_diff(parent.rstrip().splitlines(), child.rstrip().splitlines(), lineterm="")
    shown = ["@@ ... @@" if line.startswith("@@") else line for line in lines]
    return "\n".join(["```diff", *shown[3:], "```"])  # without names of files and the first place


def change(parent: str, child: str, names: list[str], collection: Collection) -> tuple[str, str]:
    """A line that names some units, the first with a link to its code; and how they differ."""
    sides = [by_name(collection.source(script)) for script in (parent, child)]
    before, after = [[units[name] for name in names if name in units] for units in sides]
    diff = diff_of("".join(unit.text for unit in before), "".join(unit.text for unit in after))
    script, state = child, "" if before else " is new"
    if not after:
        script, state = parent, " is gone"
        summary = f"{diff.count(chr(10)) - 1} lines of {parent}"
        diff = f"<details markdown>\n<summary>{summary}</summary>\n\n{diff}\n\n</details>"
    unit = (after or before)[0]
    link = f"source/{Path(script).stem}.md#__codelineno-0-{unit.first}"
    return f"**[`{unit.name}`]({link})**{state}", diff


def section(collection: Collection, child: str) -> str:
    """How much a script changes, then each change with its note; ValueError without a parent."""
    row = collection.family.get(child)
    if row is None or row.parent is None:
        raise ValueError("no script with a parent")
    sources = collection.source(row.parent), collection.source(child)
    notes = read_notes(collection, child)
    parts = ["Compared unit by unit: the parent is too far away for a diff of lines.", FOLD]
    if row.budget is not None:
        removed, added = diff_size(*sources)
        link = f"diffs/{Path(child).stem}.diff"
        parts[0] = f"**\u2212{removed} +{added} lines** ([as a diff]({link}))."
    for heading, names in changes(*sources, notes).items():
        title, diff = change(row.parent, child, names, collection)
        parts += ["---", title, TAG.sub(r"[\1](details.md#\1)", notes[heading])]
        parts += [diff] if row.budget is not None else []
    old, new = by_name(sources[0]), by_name(sources[1])
    same = [name for name in new if name in old and old[name].code == new[name].code]
    same = [f"`{name}`" for name in same if name not in FREE]
    return "\n\n".join(
        [*parts, f"The same to the byte: {', '.join(same) or 'nothing'}.", "</details>"]
    )
