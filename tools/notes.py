"""What a script changes, with a note beside each unit: the part of its page below the diff's size.

Scripts are compared unit by unit (tools/sync.py). Notes stand in docs/notes/<script>.md, Markdown
under headings that name the units that differ from the parent's, are new or are gone:

    ## make_envs
    ## Agent + Agent.features
    ## train: rollout

A class that is new or gone has one note with its methods. Links are written as in the script's
page; those of tags like [core-3] are made. Of a script without a line budget, whose parent is too
far away for a diff of lines, the notes alone are shown.
"""

import re
from difflib import unified_diff
from pathlib import Path

from sync import FREE, Collection, by_name, diff_size

TAG = re.compile(r"\[([a-z]+-\d+)\](?!\()")  # of an implementation detail
FOLD = """\
<details markdown>
<summary>What differs, with a note beside each unit</summary>"""


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
    parent, budget = collection.parent(child), collection.family[child].budget
    sources = collection.source(parent), collection.source(child)
    old, new = map(by_name, sources)
    own = collection.own_units(child)
    grouped: dict[str, list[str]] = {}  # names of units by heading; what is gone stands last
    for name in dict.fromkeys([*new, *old]):
        if name in own:
            grouped.setdefault(own[name], []).append(name)
    parts = ["Compared unit by unit: the parent is too far away for a diff of lines.", FOLD]
    if budget is not None:
        removed, added = diff_size(*sources)
        link = f"diffs/{Path(child).stem}.diff"
        parts[0] = f"**\u2212{removed} +{added} lines** ([as a diff]({link}))."
    notes = collection.notes(child)
    for heading, names in grouped.items():
        title, diff = change(parent, child, names, collection)
        parts += ["---", title, TAG.sub(r"[\1](details.md#\1)", notes[heading])]
        parts += [diff] if budget is not None else []
    same = [name for name in new if name in old and old[name].code == new[name].code]
    same = [f"`{name}`" for name in same if name not in FREE]
    return "\n\n".join(
        [*parts, f"The same to the byte: {', '.join(same) or 'nothing'}.", "</details>"]
    )
