"""The pages docs/read-*.md: a whole script side by side with its explanation.

`python tools/generate.py` writes docs/read-ppo.md from ppo/ppo.py and docs/reading/ppo.md. Comments
cut that text: `<!-- unit compute_gae -->` begins what is to be read beside a unit, as `python
tools/sync.py list ppo` names it, and `<!-- at goes_on = -->` what belongs to the unit's lines from
the one with `goes_on =` on. A line that begins with [core-5] begins the explanation of the detail
that one of these lines is tagged with; the page ends it with what was measured without the detail.
Above the first unit stands the introduction, in which `<!-- map -->` becomes a list of headings.

What does not fit the script is an error: a unit or a tag that is not explained, an explanation of
one that is not there, and `code` in the text that is not in the script.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ablations import RESULTS, Effect, cell, read_effects
from details import DETAILS, find_tags
from sync import Collection, Unit, by_name, split_lines

MARK = re.compile(r"^<!-- (unit|at) (.+) -->\n", re.MULTILINE)
MAP = "<!-- map -->"
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
DETAIL = re.compile(r"^\[([a-z]+-\d+|deviation)\] ", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
FOLDED = ("plumbing",)  # units whose code is shown on demand


@dataclass(frozen=True)
class Part:
    """A run of lines of a unit, and the text beside them."""

    unit: str
    text: str
    first: int  # number of the first line, from 1
    code: str  # without the blank lines that follow

    @property
    def last(self) -> int:
        """Number of the last line."""
        return self.first + self.code.count("\n")

    @property
    def lines(self) -> str:
        """Its place in the script: lines 12 to 34."""
        one = self.first == self.last
        return f"line {self.first}" if one else f"lines {self.first} to {self.last}"


def find_line(unit: Unit, anchor: str) -> int:
    """Number of the one line of a unit that contains a text; ValueError if it is not one."""
    lines = split_lines(unit.text)
    found = [unit.first + i for i, line in enumerate(lines) if anchor in line]
    if len(found) != 1:
        raise ValueError(f"`{anchor}` is in {len(found)} lines of unit `{unit.name}`, not in one")
    return found[0]


def texts_of(pieces: list[str], units: dict[str, Unit]) -> dict[int, tuple[str, str]]:
    """Name of the unit and text of each part, by its first line.

    pieces: unit or at, what it names, and the text, in turn; units: of the script, by name. Raises
    ValueError if they do not fit together.
    """
    texts: dict[int, tuple[str, str]] = {}
    explained: list[str] = []
    for kind, name, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        if kind == "unit" and name not in units:
            raise ValueError(f"unit `{name}` is not in the script")
        if kind == "unit" and name in explained:
            raise ValueError(f"unit `{name}` is explained twice")
        if kind == "unit":
            explained.append(name)
            first = units[name].first
        elif explained:
            first = find_line(units[explained[-1]], name)
        else:
            raise ValueError(f"`{name}` stands before the first unit")
        if first in texts:
            raise ValueError(f"line {first} begins two parts: `{name}`")
        texts[first] = explained[-1], text.strip()
    for name in units:
        if name not in explained:
            raise ValueError(f"unit `{name}` is not explained")
    return texts


def parse(text: str, source: str) -> tuple[str, list[Part]]:
    """The introduction of an explanation and its parts, in the order of the script's lines.

    Raises ValueError if the explanation does not fit the script.
    """
    introduction, *pieces = MARK.split(text)
    texts = texts_of(pieces, by_name(source))
    lines = split_lines(source)
    firsts = sorted(texts)
    parts = []
    for first, after in zip(firsts, [*firsts[1:], len(lines) + 1], strict=True):
        code = "".join(lines[first - 1 : after - 1]).rstrip("\n")
        parts.append(Part(*texts[first], first, code))
    return introduction.strip(), parts


def titles_of(part: Part, source: str) -> dict[str, str]:
    """Tags of the part's lines, with what the details are called."""
    tags = [tag for tag in find_tags(source) if part.first <= tag.line <= part.last]
    return {tag.name: DETAILS.get(tag.name, tag.text) for tag in tags}


def check(part: Part, source: str) -> None:
    """Refuses a text that explains other details than its lines have, or has code of its own.

    Raises ValueError.
    """
    tags = titles_of(part, source).keys()
    explained = set(DETAIL.findall(part.text))
    if missing := sorted(tags - explained):
        raise ValueError(f"{part.lines}: [{missing[0]}] is not explained")
    if foreign := sorted(explained - tags):
        raise ValueError(f"{part.lines}: [{foreign[0]}] is explained, but no tag of theirs")
    for code in CODE.findall(part.text):
        if code not in source:
            raise ValueError(f"{part.lines}: `{code}` is not in the script")


def measured(tag: str, effects: list[Effect]) -> str:
    """A sentence on what leaving out a detail did to the score; empty if it was not run."""
    own = [effect for effect in effects if effect.tag == tag and effect.runs]
    if not own:
        return ""
    each = [f"{effect.env_id} {cell(effect)}" for effect in own]
    how = "[measured](details.md#what-each-detail-is-worth)"
    return f"Change of the mean score without it, as {how}: {'; '.join(each)}."


def slug(name: str) -> str:
    """An anchor: `train: setup` is train-setup."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")


def shown_text(part: Part, titles: dict[str, str], effects: list[Effect]) -> str:
    """The text with anchors; the explanations of details get titles, and what was measured.

    titles: of the details in the part's lines, by tag.
    """
    text = HEADING.sub(rf"## \1 {{ #{slug(part.unit)} }}", part.text, count=1)
    before, *pieces = DETAIL.split(text)
    out = [before.strip()]
    for tag, explanation in zip(pieces[::2], pieces[1::2], strict=True):
        title = titles[tag]
        key = f"{tag} {title}" if tag == "deviation" else tag
        out += [f'<div class="detail" id="{slug(key)}" markdown>', ""]
        target = "details.md" if tag == "deviation" else f"details.md#{tag}"
        out += [f"**[{tag}]({target}): {title}.** {explanation.strip()}", ""]
        out += [measured(key, effects), "", "</div>"]
    return "\n".join(out).strip()


def side_by_side(part: Part, text: str) -> list[str]:
    """Markdown of the part's text and, beside it, its code."""
    code = [f'``` {{ .python linenums="{part.first}" }}', part.code, "```"]
    if part.unit in FOLDED:
        summary = f"<summary>{part.lines.capitalize()}</summary>"
        code = ["<details markdown>", summary, "", *code, "", "</details>"]
    cells = ["<div markdown>", "", text, "", "</div>", "<div markdown>", "", *code, "", "</div>"]
    return ['<div class="read" markdown>', *cells, "</div>"]


def headings(parts: list[Part]) -> list[str]:
    """A list with a link to each heading and the line that it begins at."""
    items = ['<div class="read-map" markdown>', ""]
    for part in parts:
        if found := HEADING.search(part.text):
            items.append(f"- {part.first} [{found[1]}](#{slug(part.unit)})")
    return [*items, "", "</div>"]


def page(script: str, source: str, text: str, effects: list[Effect]) -> str:
    """Text of the page that explains a script.

    source: of the script; text: the explanation; effects: of leaving out its details. Raises
    ValueError if explanation and script do not fit together.
    """
    introduction, parts = parse(text, source)
    origin = f"from ppo/{script} and docs/reading/{Path(script).stem}.md"
    out = ["---", "hide: [navigation, toc]", "---"]
    out += [f"<!-- Generated by tools/generate.py {origin}. Do not edit. -->"]
    out += ['<div class="read-intro" markdown>', ""]
    out += [introduction.replace(MAP, "\n".join(headings(parts))), "", "</div>"]
    for part in parts:
        check(part, source)
        explanation = shown_text(part, titles_of(part, source), effects)
        out += ["", *side_by_side(part, explanation)]
    return "\n".join(out) + "\n"


def sentences(collection: Collection) -> dict[str, list[str]]:
    """By tag: links to where the detail is explained beside its line."""
    found: dict[str, list[str]] = {}
    for path in sorted((collection.root / "docs" / "reading").glob("*.md")):
        for tag in DETAIL.findall(path.read_text(encoding="utf-8")):
            link = f"[Read {path.stem}.py](read-{path.stem}.md#{tag})"
            found.setdefault(tag, []).append(f"Explained beside its line: {link}.")
    return found


def pages(collection: Collection) -> dict[Path, str]:
    """Path and text of the page of each script that has an explanation.

    Raises ValueError that names an explanation that does not fit its script.
    """
    docs = collection.root / "docs"
    result = {}
    for path in sorted((docs / "reading").glob("*.md")):
        script = f"{path.stem}.py"
        effects = read_effects(collection.root / RESULTS / f"ablation_{path.stem}.csv")
        try:
            text = page(
                script, collection.source(script), path.read_text(encoding="utf-8"), effects
            )
        except ValueError as error:
            raise ValueError(f"docs/reading/{path.name}: {error}") from error
        result[docs / f"read-{path.stem}.md"] = text
    return result
