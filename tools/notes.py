"""The annotated diffs docs/diffs/*.md: what a script changes, with a note beside every hunk.

Scripts are compared unit by unit (tools/sync.py). A hunk is a run of changed lines of one unit; a
unit that is new is one hunk, and so is one that is gone. Methods of such a class, and statements
behind it, belong to the hunk above them, unless a note names them. All that stands above the first
function or class counts as the unit `imports`.

Notes stand in docs/notes/<script>.md, Markdown under a heading for each:

    ## make_envs                    the only hunk of this unit
    ## Args `clip_coef`             the hunk of this unit that changes a line with these words

Each hunk needs exactly one note, each note exactly one hunk. Links are written as in the script's
page; those of tags like [core-3] are made. PEP 723 header and docstring need no note. A script that
the table gives no budget, as it is in another framework, has one hunk for each unit, and none of
its plumbing's lines are shown.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Operator, String
from sync import FREE, Collection, Unit, by_name, cut, diff_size

CONTEXT = 2  # unchanged lines shown above and below a change
HEADING = re.compile(r"^## (.+?)(?: `([^`]+)`)?$", re.MULTILINE)
TAG = re.compile(r"\[([a-z]+-\d+)\](?!\()")  # of an implementation detail
DEFINITION = re.compile(r"^(?:def|class) ", re.MULTILINE)
# Classes of coarse kinds of tokens; finer ones differ between versions of Pygments.
COLOURS = {Comment: "c", String: "s", Keyword: "k", Operator.Word: "k"}

Kind = Literal["del", "ins", "same", "gap"]


@dataclass(frozen=True)
class Pair:
    """A script and its parent."""

    parent: str
    child: str
    parent_source: str
    child_source: str
    by_unit: bool  # all changed lines of a unit are one hunk

    @property
    def notes_file(self) -> str:
        """Where the notes stand."""
        return f"docs/notes/{Path(self.child).stem}.md"


@dataclass(frozen=True)
class Row:
    """A line of a hunk, or a gap between lines."""

    kind: Kind
    number: int = 0  # of the line in its file, the parent for `del`, else the child; from 1
    text: str = ""


@dataclass(frozen=True)
class Hunk:
    """Changed lines of a unit, and some unchanged ones around them."""

    unit: str
    rows: tuple[Row, ...]

    @property
    def changed(self) -> list[Row]:
        """The rows that are not the same in both scripts."""
        return [row for row in self.rows if row.kind in ("del", "ins")]

    @property
    def is_gone(self) -> bool:
        """Does the child have nothing of it?"""
        return all(row.kind == "del" for row in self.rows)


@dataclass(frozen=True)
class Note:
    """What docs/notes says about a hunk."""

    unit: str
    words: str  # in a changed line of the hunk; empty: the unit has one hunk
    text: str

    @property
    def heading(self) -> str:
        """The note's heading, as written."""
        return f"## {self.unit} `{self.words}`" if self.words else f"## {self.unit}"

    def fits(self, hunk: Hunk) -> bool:
        """Is this note meant for that hunk?"""
        if not self.words:
            return hunk.unit == self.unit
        return hunk.unit == self.unit and any(self.words in row.text for row in hunk.changed)


def read_notes(text: str) -> list[Note]:
    """Notes of a file of docs/notes, in its order."""
    pieces = HEADING.split(text)[1:]  # unit, words or None, text; again and again
    triples = zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    return [Note(unit, words or "", body.strip()) for unit, words, body in triples]


def units_of(source: str) -> dict[str, Unit]:
    """Units under their names, without header and docstring; `imports` reaches to the first def."""
    units: dict[str, Unit] = {}
    for unit in cut(source):
        is_definition = DEFINITION.search(unit.code) or unit.name == "plumbing"
        if unit.name in FREE:
            continue
        if list(units) == ["imports"] and not is_definition:
            above = units["imports"]
            unit = Unit("imports", above.first, above.text + unit.text)
        units[unit.name] = unit
    return units


def unit_order(parent: dict[str, Unit], child: dict[str, Unit]) -> list[str]:
    """Names of the units of both scripts in file order; what is gone stands where it was."""
    order: list[str] = []
    waiting = list(parent)
    for name in child:
        if name in waiting:
            position = waiting.index(name)
            order += waiting[:position]
            waiting = waiting[position + 1 :]
        order.append(name)
    return order + waiting


def changed_unit(parent: Unit, child: Unit, by_unit: bool) -> list[Hunk]:
    """Hunks of a unit that both scripts have; one at most if by_unit. None if it is the same."""
    a, b = parent.code.split("\n"), child.code.split("\n")
    runs: list[list[Row]] = []
    for group in SequenceMatcher(None, a, b, False).get_grouped_opcodes(CONTEXT):
        rows: list[Row] = []
        for tag, a_start, a_end, b_start, b_end in group:
            if tag == "equal":
                rows += [Row("same", child.first + i, b[i]) for i in range(b_start, b_end)]
            else:
                rows += [Row("del", parent.first + i, a[i]) for i in range(a_start, a_end)]
                rows += [Row("ins", child.first + i, b[i]) for i in range(b_start, b_end)]
        runs.append(rows)
    if not by_unit:
        return [Hunk(child.name, tuple(rows)) for rows in runs]
    if child.name == "plumbing" and runs:
        return [Hunk(child.name, (Row("same", child.first, b[0]),))]
    joined = [row for rows in runs for row in (Row("gap"), *rows)][1:]
    return [Hunk(child.name, tuple(joined))] if runs else []


def whole_unit(unit: Unit, kind: Kind, above: tuple[Row, ...] = ()) -> tuple[Row, ...]:
    """All lines of a unit that is new or gone, behind those of the units above that it joins."""
    blank = range(above[-1].number + 1, unit.first) if above else ()
    rows = [*above, *(Row(kind, number) for number in blank)]
    rows += [Row(kind, unit.first + i, line) for i, line in enumerate(unit.code.split("\n"))]
    return tuple(rows)


def find_hunks(pair: Pair, notes: list[Note]) -> list[Hunk]:
    """Hunks of a script in the order of its file.

    notes: methods and statements that they name do not join the hunk above.
    """
    parent, child = units_of(pair.parent_source), units_of(pair.child_source)
    named = {note.unit for note in notes}
    found: list[Hunk] = []
    kind_above: Kind = "same"
    for name in unit_order(parent, child):
        kind: Kind = "same"
        if name in parent and name in child:
            found += changed_unit(parent[name], child[name], pair.by_unit)
        else:
            kind = "ins" if name in child else "del"
            unit = child[name] if name in child else parent[name]
            joins = kind == kind_above and name not in named
            if joins and not DEFINITION.search(unit.code):
                above = found.pop()
                found.append(Hunk(above.unit, whole_unit(unit, kind, above.rows)))
            else:
                found.append(Hunk(name, whole_unit(unit, kind)))
        kind_above = kind
    return found


def problems_of(pair: Pair, notes: list[Note]) -> list[str]:
    """Hunks without exactly one note and notes without exactly one hunk, a sentence for each."""
    hunks = find_hunks(pair, notes)
    file = pair.notes_file
    problems = []
    for hunk in hunks:
        count = sum(note.fits(hunk) for note in notes)
        line = next((row.text.strip() for row in hunk.changed if row.text.strip()), "")
        if count == 0:
            problems.append(f"{file}: no note for the hunk of `{hunk.unit}` that has: {line}")
        elif count > 1:
            problems.append(f"{file}: {count} notes for the hunk of `{hunk.unit}` that has: {line}")
    for note in notes:
        count = sum(note.fits(hunk) for hunk in hunks)
        if count == 0:
            problems.append(f"{file}: no hunk for the note {note.heading}")
        elif count > 1:
            problems.append(
                f"{file}: {count} hunks for the note {note.heading}: write words of a changed "
                "line behind the unit, in backquotes"
            )
        if not note.text:
            problems.append(f"{file}: nothing is written below {note.heading}")
    return problems


@cache
def coloured(source: str) -> list[str]:
    """HTML of each line of a script: comments, strings and keywords stand in spans."""
    lines = [""]
    tokens = PythonLexer(stripnl=False).get_tokens(source)
    for name, group in groupby(tokens, key=lambda token: css_class(token[0])):
        text = "".join(value for _, value in group)
        for i, piece in enumerate(text.split("\n")):
            if i > 0:
                lines.append("")
            shown = escape(piece, quote=False)
            lines[-1] += f'<span class="{name}">{shown}</span>' if name and piece else shown
    return lines


def css_class(token: Any) -> str:
    """Class of a kind of token; empty if it has no colour."""
    return next((name for kind, name in COLOURS.items() if token in kind), "")


def pre(rows: Iterable[Row], pair: Pair) -> str:
    """HTML of the rows of a hunk.

    CSS counts the numbers of the child's lines, so that an edit does not change all of this text.
    """
    parent, child = coloured(pair.parent_source), coloured(pair.child_source)
    html = ""
    above = 0  # number of the child's line above
    for row in rows:
        if row.kind == "gap":
            html += "<i>\n</i>"
        elif row.kind == "del":
            html += f"<del>{parent[row.number - 1]}\n</del>"
        else:
            tag = "ins" if row.kind == "ins" else "span"
            jump = row.number != above + 1
            start = f' style="counter-reset: line {row.number - 1}"' if jump else ""
            html += f"<{tag}{start}>{child[row.number - 1]}\n</{tag}>"
            above = row.number
    return f'<pre class="hunk-lines"><code>{html}</code></pre>'


def hunk_html(hunk: Hunk, note: Note, pair: Pair) -> str:
    """A hunk with its note, for Markdown with md_in_html."""
    first = min(hunk.rows, key=lambda row: ("ins", "del", "same", "gap").index(row.kind))
    script = pair.parent if first.kind == "del" else pair.child
    unit = f"[`{hunk.unit}`](source/{Path(script).stem}.md#__codelineno-0-{first.number})"
    text = TAG.sub(r"[\1](details.md#\1)", note.text)
    code = pre(hunk.rows, pair)
    if hunk.is_gone:
        unit += " is gone"
        summary = f"<summary>{len(hunk.rows)} lines of {pair.parent}</summary>"
        code = f"<details>{summary}{code}</details>"
    return f"""\
<div class="hunk" markdown>
<div class="hunk-note" markdown>
{unit}

{text}
</div>
{code}
</div>

"""


def header_html(pair: Pair) -> str:
    """The changes of PEP 723 header and docstring, folded; empty if there are none."""
    parent, child = by_name(pair.parent_source), by_name(pair.child_source)
    rows: list[Row] = []
    for name in FREE:
        if name in parent and name in child:
            for hunk in changed_unit(parent[name], child[name], by_unit=True):
                rows += [Row("gap"), *hunk.rows]
    if not rows:
        return ""
    summary = "<summary>PEP 723 header and docstring</summary>"
    return f"<details>{summary}{pre(rows[1:], pair)}</details>\n\n"


def shared_units(pair: Pair) -> list[str]:
    """Names of the units that are the same in both, without the heads of classes and of train."""
    parent, child = units_of(pair.parent_source), units_of(pair.child_source)
    heads = {re.split("[.:]", name)[0] for name in child if re.search("[.:]", name)}
    both = [name for name in child if name in parent and name not in heads]
    return [name for name in both if child[name].code == parent[name].code]


def summary(collection: Collection, child: str) -> str:
    """How many lines of its parent a script changes, a sentence. Raises ValueError without one."""
    pair = next((pair for pair, _ in pairs_with_notes(collection) if pair.child == child), None)
    if not pair:
        raise ValueError("no script with a parent")
    page = Path(child).stem
    if pair.by_unit:
        kinds = [row.kind for hunk in find_hunks(pair, []) for row in hunk.rows]
        removed, added = kinds.count("del"), kinds.count("ins")
        where = "above the plumbing, compared part by part"
    else:
        removed, added = diff_size(pair.parent_source, pair.child_source)
        where = f"([as a diff](diffs/{page}.diff))"
    return f"""\
**\u2212{removed} +{added} lines** {where}. The numbers beside them are those of
[`{child}`](source/{page}.md)."""


def fragment(pair: Pair, notes: list[Note]) -> str:
    """The annotated diff of two scripts, a part of the child's page below `summary`."""
    text = f"""\
<!-- Generated from the scripts and {pair.notes_file}. Do not edit. -->

<details markdown>
<summary>All lines that differ, with a note beside each change</summary>

<div class="hunks" markdown>

"""
    for hunk in find_hunks(pair, notes):
        [note] = [note for note in notes if note.fits(hunk)]
        text += hunk_html(hunk, note, pair)
    text += f"</div>\n\n{header_html(pair)}"
    if shared := shared_units(pair):
        text += f"The same to the byte: {', '.join(f'`{name}`' for name in shared)}.\n\n"
    return f"{text}</details>\n"


def pairs_with_notes(collection: Collection) -> Iterator[tuple[Pair, list[Note]]]:
    """Each script that has a parent, with its notes; none if it has no file of them."""
    for parent, child in collection.pairs():
        by_unit = collection.family[child].budget is None
        sources = collection.source(parent), collection.source(child)
        pair = Pair(parent, child, *sources, by_unit)
        path = collection.root / pair.notes_file
        yield pair, read_notes(path.read_text(encoding="utf-8")) if path.exists() else []


def check(collection: Collection) -> list[str]:
    """Hunks and notes of all scripts that do not fit together, a sentence for each."""
    problems = []
    known = set()
    for pair, notes in pairs_with_notes(collection):
        known.add(pair.notes_file)
        problems += problems_of(pair, notes)
    for path in sorted((collection.root / "docs" / "notes").glob("[!.]*.md")):
        name = str(path.relative_to(collection.root))
        if name not in known:
            problems.append(f"{name}: there is no such script")
    return problems


def pages(collection: Collection) -> dict[Path, str]:
    """Path and text of every annotated diff. `check` has found no problems."""
    folder = collection.root / "docs" / "diffs"
    return {
        folder / f"{Path(pair.child).stem}.md": fragment(pair, notes)
        for pair, notes in pairs_with_notes(collection)
    }
