"""The page docs/read-ppo.md: the whole of ppo.py side by side with its explanation.

The file has the explanation; the code is added when the site is built. Comments cut the text:
`<!-- unit compute_gae -->` begins what is to be read beside a unit, as `python tools/sync.py list
ppo` names it, and `<!-- at [core-5] -->` what belongs to the unit's lines from the one with that
text on. A line that begins with [core-5] begins the explanation of the detail that one of these
lines is tagged with; the page ends it with what leaving it out did to the scores, unless that may
be chance. Above the first unit stands the introduction, in which `<!-- map -->` becomes a list of
headings.
"""

import re
from dataclasses import dataclass

from ablations import Effect, changes, sure_effects
from details import DETAILS, find_tags
from sync import Collection, Unit, by_name, split_lines

PAGE = "read-ppo.md"  # in docs/
MARK = re.compile(r"^<!-- (unit|at) (.+) -->\n", re.MULTILINE)
MAP = "<!-- map -->"
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
DETAIL = re.compile(r"^\[([a-z]+-\d+|deviation)\] ", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """A run of lines of a unit, and the text beside them."""

    unit: str
    text: str
    first: int  # number of the first line, from 1
    code: str  # without the blank lines that follow
    titles: dict[str, str]  # tags of its lines, with what the details are called


def find_line(unit: Unit, key: str) -> int:
    """Number of the one line of a unit that contains a text; ValueError if it is not one."""
    lines = split_lines(unit.text)
    found = [unit.first + i for i, line in enumerate(lines) if key in line]
    if len(found) != 1:
        raise ValueError(f"`at {key}`: {len(found)} lines of unit `{unit.name}` have it, not one")
    return found[0]


def first_lines(pieces: list[str], units: dict[str, Unit]) -> dict[int, tuple[str, str]]:
    """Unit and text of each part, by its first line.

    pieces: unit or at, what it names, and the text, in turn; units: of the script, by name. Raises
    ValueError that names units without explanation and explanations without unit.
    """
    marks = list(zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True))
    explained = [name for kind, name, _ in marks if kind == "unit"]
    problems = [f"unit `{name}` is not in the script" for name in explained if name not in units]
    problems += [f"unit `{name}` is not explained" for name in units if name not in explained]
    if problems:
        raise ValueError("; ".join(problems))
    found: dict[int, tuple[str, str]] = {}
    unit = ""
    for kind, name, text in marks:
        if kind == "unit":
            unit = name
        first = units[unit].first if kind == "unit" else find_line(units[unit], name)
        if first in found:
            raise ValueError(f"`{kind} {name}`: line {first} begins another part, too")
        found[first] = unit, text.strip()
    return dict(sorted(found.items()))


def parse(text: str, source: str) -> tuple[str, list[Part]]:
    """The introduction of an explanation and its parts, in the order of the script's lines.

    Raises ValueError if the explanation does not fit the script.
    """
    introduction, *pieces = MARK.split(text)
    texts = first_lines(pieces, by_name(source))
    lines = split_lines(source)
    tags = find_tags(source)
    parts = []
    for first, after in zip(texts, [*list(texts)[1:], len(lines) + 1], strict=True):
        unit, explanation = texts[first]
        own = [tag for tag in tags if first <= tag.line < after]
        titles = {tag.name: DETAILS.get(tag.name, tag.text) for tag in own}
        if titles.keys() != set(DETAIL.findall(explanation)):
            shown = ", ".join(sorted(titles)) or "nothing"
            raise ValueError(f"unit `{unit}`, lines {first} to {after - 1}: explain {shown} there")
        code = "".join(lines[first - 1 : after - 1]).rstrip("\n")
        parts.append(Part(unit, explanation, first, code, titles))
    return introduction.strip(), parts


def measured(tag: str, effects: list[Effect]) -> str:
    """A sentence on what leaving out a detail did to the score; empty if that may be chance."""
    own = [effect for effect in effects if effect.tag == tag]
    if not own:
        return ""
    return f"Change of the mean score without it, as [measured](ablations.md): {changes(own)}."


def slug(name: str) -> str:
    """An anchor: `train: setup` is train-setup."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")


def shown_text(part: Part, effects: list[Effect]) -> str:
    """The text with anchors; explanations of details get titles, and what was measured."""
    text = HEADING.sub(rf"## \1 {{ #{slug(part.unit)} }}", part.text, count=1)
    before, *pieces = DETAIL.split(text)
    out = [before.strip()]
    for tag, explanation in zip(pieces[::2], pieces[1::2], strict=True):
        title = part.titles[tag]
        key = f"{tag} {title}" if tag == "deviation" else tag
        out += [f'<div class="detail" id="{slug(key)}" markdown>', ""]
        target = "details.md" if tag == "deviation" else f"details.md#{tag}"
        out += [f"**[{tag}]({target}): {title}.** {explanation.strip()}", ""]
        out += [measured(key, effects), "", "</div>"]
    return "\n".join(out).strip()


def side_by_side(part: Part, text: str) -> list[str]:
    """Markdown of the part's text and, beside it, its code; that of the plumbing is folded."""
    code = [f'``` {{ .python linenums="{part.first}" }}', part.code, "```"]
    if part.unit == "plumbing":
        code = ["<details markdown>", "<summary>The code</summary>", "", *code, "", "</details>"]
    cells = ["<div markdown>", "", text, "", "</div>", "<div markdown>", "", *code, "", "</div>"]
    return ['<div class="read" markdown>', *cells, "</div>"]


def headings(parts: list[Part]) -> str:
    """A list with a link to each heading and the line that it begins at."""
    items = ['<div class="read-map" markdown>', ""]
    for part in parts:
        if found := HEADING.search(part.text):
            items.append(f"- {part.first} [{found[1]}](#{slug(part.unit)})")
    return "\n".join([*items, "", "</div>"])


def page(source: str, text: str, effects: list[Effect]) -> str:
    """Text of the page that explains a script.

    source: of the script; text: the explanation; effects: the sure ones of leaving out its details.
    Raises ValueError if explanation and script do not fit together.
    """
    introduction, parts = parse(text, source)
    out = ['<div class="read-intro" markdown>', ""]
    out += [introduction.replace(MAP, headings(parts)), "", "</div>"]
    for part in parts:
        out += ["", *side_by_side(part, shown_text(part, effects))]
    return "\n".join(out) + "\n"


def sentences(collection: Collection) -> dict[str, list[str]]:
    """By tag: a link to where the detail is explained beside its line."""
    text = (collection.root / "docs" / PAGE).read_text(encoding="utf-8")
    link = "Explained beside its line: [Read ppo.py]"
    return {tag: [f"{link}({PAGE}#{tag})."] for tag in DETAIL.findall(text)}


def read_ppo(collection: Collection, text: str) -> str:
    """The page that explains ppo.py; text: docs/read-ppo.md without its front matter.

    Raises ValueError if it does not fit the script.
    """
    return page(collection.source("ppo.py"), text, sure_effects(collection).get("ppo.py", []))
