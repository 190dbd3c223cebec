"""The implementation details: what docs/details.md shows of them, and the pages source/*.md.

Cells of the matrix link to line anchors of the source pages, which MkDocs makes (pymdownx.highlight
with anchor_linenums), so that they work offline too.
"""

import io
import re
import tokenize
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sync import Collection, by_name

EXPLAINED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
DETAILS = {tag: detail["title"] for tag, detail in EXPLAINED.items()}
GROUPS = {  # heading of each group
    "core": "Core",
    "atari": "Atari",
    "continuous": "Continuous actions",
    "lstm": "LSTM",
    "multidiscrete": "MultiDiscrete actions",
    "aux": "Auxiliary, outside the 37",
}
TAG = re.compile(r"\[([a-z]+-\d+|deviation)\] *(.*)")


@dataclass(frozen=True)
class Tag:
    """A tag in a comment of a script."""

    name: str  # core-3, or deviation
    text: str  # what follows the tag
    line: int  # from 1
    ends_code: bool  # the comment stands behind code and starts with the tag


def find_tags(source: str) -> list[Tag]:
    """All tags in the comments of a script, in file order."""
    tags = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        behind_code = bool(token.line[: token.start[1]].strip())
        for match in TAG.finditer(token.string):
            starts = token.string[: match.start()] == "# "
            tags.append(Tag(match[1], match[2].strip(), token.start[0], behind_code and starts))
    return tags


def docstring_of(source: str) -> str:
    """The text of a script's docstring; empty if there is none."""
    unit = by_name(source).get("docstring")
    return unit.code.strip('"\n') if unit else ""


def declared_deviations(source: str) -> str:
    """The docstring's paragraph `Deviations: ...` on one line; empty if there is none."""
    found = re.search(r"^Deviations: (.+?)(?:\n\s*\n|\Z)", docstring_of(source), re.M | re.S)
    return " ".join(found[1].split()) if found else ""


def link(script: str, line: int, text: str) -> str:
    """Markdown link to a line of a script's source page; pointing at it tells where it leads."""
    page = f"source/{Path(script).stem}.md#__codelineno-0-{line}"
    return f'[{text}]({page}){{ title="{script}, line {line}" }}'


def columns_of(collection: Collection) -> dict[str, list[str]]:
    """The scripts of each column of the matrix."""
    columns: dict[str, list[str]] = {}
    for script in collection.scripts():
        columns.setdefault(collection.family[script].column, []).append(script)
    return columns


def dots(name: str, scripts: list[str], tags: dict[str, dict[str, Tag]]) -> str:
    """The cell of a detail: a dot for each script that has it, a circle for each other one."""
    found = [(script, tags[script].get(name)) for script in scripts]
    if not any(tag for _, tag in found):
        return ""
    return " ".join(link(script, tag.line, "●") if tag else "○" for script, tag in found)


def order_of_dots(columns: dict[str, list[str]]) -> list[str]:
    """Lines that tell, of the columns with several scripts, which dot is which."""
    several = {family: scripts for family, scripts in columns.items() if len(scripts) > 1}
    lines = [f"- *{name}*: {', '.join(f'`{s}`' for s in several[name])}" for name in several]
    if not lines:
        return []
    return ["Dots from left to right, a circle for a script without the detail:", "", *lines]


def tags_of(collection: Collection) -> dict[str, dict[str, Tag]]:
    """The tags of each script, by name."""
    found = {script: find_tags(collection.source(script)) for script in collection.scripts()}
    return {script: {tag.name: tag for tag in tags} for script, tags in found.items()}


def matrix(collection: Collection) -> str:
    """Table with a row for each detail, a column for each family, a dot for each script."""
    tags = tags_of(collection)
    columns = columns_of(collection)
    rows = [f"| detail | {' | '.join(columns)} |", "|---|" + ":-:|" * len(columns)]
    for name, title in DETAILS.items():
        cells = [dots(name, scripts, tags) for scripts in columns.values()]
        rows.append(f"| [{name}](#{name}) {title} | {' | '.join(cells)} |")
    table = ['<div class="matrix" markdown="1">', "", *rows, "", "</div>", ""]
    return "\n".join([*table, *order_of_dots(columns)])


def places(name: str, tags: dict[str, dict[str, Tag]]) -> str:
    """Where a detail is: its line in the first script that has it, and how many more do."""
    found = [(script, tags[script][name]) for script in tags if name in tags[script]]
    if not found:
        return "In no script."
    script, tag = found[0]
    text = f"Line: {link(script, tag.line, f'`{script}`, line {tag.line}')}"
    if others := len(found) - 1:
        plural = "s" if others > 1 else ""
        text += f", and in [{others} more script{plural}](#which-script-has-which-detail)"
    return f"{text}."


def explanations(collection: Collection, more: Mapping[str, list[str]]) -> str:
    """A section for each detail; more: what ends the list of each, in Markdown."""
    tags = tags_of(collection)
    out = []
    for group, heading in GROUPS.items():
        out.append(f"## {heading}")
        for name in DETAILS:
            if name.rpartition("-")[0] == group:
                out.append(f"### {name}: {DETAILS[name]} {{ #{name} }}")
                out.append(EXPLAINED[name]["text"].strip())
                out.append("\n".join(f"- {s}" for s in [places(name, tags), *more.get(name, [])]))
    return "\n\n".join(out)


def deviations(collection: Collection) -> str:
    """A list: where each script departs from openai/baselines."""
    out = []
    for script in collection.scripts():
        source = collection.source(script)
        out.append(f"- `{script}`: {declared_deviations(source) or 'none'}")
        for tag in find_tags(source):
            if tag.name == "deviation":
                out.append(f"    - {link(script, tag.line, f'line {tag.line}')}: {tag.text}")
    return "\n".join(out)


def source_page(script: str) -> str:
    """Text of the page that shows a script with line anchors."""
    return f"""\
---
hide: [toc]
---
# {script}

[What it is, results, flags](../{Path(script).stem}.md)

``` {{ .python linenums="1" }}
--8<-- "ppo/{script}"
```
"""
