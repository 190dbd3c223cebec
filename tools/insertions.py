"""What programs write into README.md and into the pages of docs/.

In README.md it stands between `<!-- begin KIND NAME -->` and `<!-- end -->`, where `python
tools/generate.py` writes it. A page of docs/ has a line `<!-- insert KIND NAME -->` in its place,
which is replaced when the site is built (tools/pages.py). Kinds:

- `flags ppo.py`: the flags of a script, its own ones first;
- `diff ppo_atari.py`: what a script changes, with notes (notes.py);
- `table results/ppo.md`: the first table of a file in docs/ that a benchmark wrote;
- `folded results/ppo.md`: all of it, what follows the table in a part that is folded;
- `scripts index.md` and `scores index.md`: the tables of the first pages (scores.py);
- `presets table` and `presets commands` (scores.py);
- `details matrix`, `details list` and `details deviations` (details.py);
- `ablations summary` and `ablations tables`: what each detail is worth (ablations.py);
- `results all`: every score (scores.py).
"""

import re
from collections import defaultdict
from dataclasses import dataclass

import ablations
import annotated
import details
import mutations
import notes
import scores
from scripts import defaults
from sync import Collection

BLOCK = re.compile(r"(<!-- begin (\w+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
INSERTION = re.compile(r"^<!-- insert (\w+) (\S+) -->$", re.MULTILINE)
WORDS = {"True": "on", "False": "off", "None": "none", "Path(__file__).stem": "the file's name"}


def flag_name(field: str) -> str:
    """The command line's name of a field of Args."""
    return f"--{field.replace('_', '-')}"


@dataclass(frozen=True)
class Flag:
    """A flag of a script's command line, as its class Args has it."""

    name: str  # --num-envs
    default: str  # in Markdown
    meaning: str  # in Markdown

    def row(self) -> str:
        """Its row of a table."""
        return f"| `{self.name}` | {self.default} | {self.meaning} |"


def flags(source: str) -> list[Flag]:
    """The fields of a script's class Args: a line each, with a trailing comment.

    Raises SyntaxError for a source that is not Python, ValueError if it has no such class.
    """
    lines = source.splitlines()
    found = []
    for field, value in defaults(source).items():
        code, _, meaning = lines[value.lineno - 1].partition("  # ")
        name, _, default = code.rpartition(" = ")
        if not name.startswith(f"    {field}: "):
            raise ValueError(f"line {value.lineno}: a field of Args has to be one line")
        meaning = re.sub(r"--[a-z][a-z0-9-]*", r"`\g<0>`", meaning).replace("|", "\\|")
        shown = WORDS.get(default) or f"`{default.strip(chr(34))}`"
        found.append(Flag(flag_name(field), shown, meaning))
    return found


def flags_table(shown: list[Flag]) -> str:
    """Markdown table of flags."""
    return "\n".join(["| flag | default | meaning |", "|---|---|---|", *(f.row() for f in shown)])


def folded(title: str, text: str, style: str = "abstract") -> str:
    """A part of a page that opens when its title is clicked, in a file shown as it is, too."""
    opening = f'<details class="{style}" markdown>'
    return f"{opening}\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def flags_section(source: str, parent: str, parent_source: str) -> str:
    """The flags that make a script different from its parent; all, if it has none."""
    everything = flags(source)
    if not parent:
        return flags_table(everything)
    rows = {flag.row() for flag in flags(parent_source)}
    shown = [flag for flag in everything if flag.row() not in rows]
    if not shown:
        return f"All {len(everything)} are those of `{parent}`, with the same defaults."
    others = f"The other {len(everything) - len(shown)} flags are those of `{parent}`."
    return f"{flags_table(shown)}\n\n{others}"


def first_table(text: str) -> str:
    """The first table of a Markdown text; ValueError if it has none."""
    found = re.search(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    if not found:
        raise ValueError("no table")
    return found[0].strip()


def table_and_rest(text: str) -> str:
    """A Markdown text whose first table is followed by single lines, which are folded away.

    Raises ValueError if there is no table.
    """
    before, table, rest = text.partition(first_table(text))
    lines = [f"- {line}" for line in rest.splitlines() if line]
    return before + table + "\n\n" + folded("Seeds, flags, versions", "\n".join(lines), "note")


def about_details(collection: Collection) -> dict[str, list[str]]:
    """By tag, sentences: where the detail is explained, what tests it and what it is worth."""
    about: dict[str, list[str]] = defaultdict(list)
    for module in (annotated, mutations, ablations):
        for tag, sentences in module.sentences(collection).items():
            about[tag] += sentences
    return about


def content(collection: Collection, kind: str, name: str) -> str:
    """What stands for a kind and a name.

    Raises OSError if the file that it is made from is missing, ValueError if nothing can be made.
    """
    docs = collection.root / "docs"
    match kind, name:
        case "flags", script:
            parent = collection.family[script].parent
            parent_source = collection.source(parent) if parent else ""
            return flags_section(collection.source(script), parent or "", parent_source)
        case "diff", script:
            return notes.section(collection, script)
        case "table", file:
            return first_table((docs / file).read_text(encoding="utf-8"))
        case "folded", file:
            return table_and_rest((docs / file).read_text(encoding="utf-8"))
        case "scripts", page:
            return scores.scripts_table(collection, page)
        case "scores", _:
            return scores.scores_table(collection)
        case "presets", "table":
            return scores.presets_table(collection.root)
        case "presets", "commands":
            return scores.presets_commands(collection.root)
        case "details", "matrix":
            return details.matrix(collection)
        case "details", "list":
            return details.explanations(collection, about_details(collection))
        case "details", "deviations":
            return details.deviations(collection)
        case "ablations", "summary":
            return ablations.summary(collection)
        case "ablations", "tables":
            return ablations.tables(collection)
        case "results", "all":
            return scores.tables(collection.root, collection.scripts())
    raise ValueError("there is nothing of that name")


def made(collection: Collection, kind: str, name: str) -> str:
    """The same; ValueError that names it if nothing can be made."""
    try:
        return content(collection, kind, name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"`{kind} {name}`: {error}") from error


def insert(collection: Collection, text: str) -> str:
    """A page with all that is to be inserted. Raises ValueError if something cannot be made."""
    return INSERTION.sub(lambda match: made(collection, match[1], match[2]), text)


def readme(collection: Collection) -> str:
    """README.md with its blocks filled. Raises OSError without it, ValueError if one cannot be."""
    text = (collection.root / "README.md").read_text(encoding="utf-8")
    if text.count("<!-- begin ") != len(BLOCK.findall(text)):
        raise ValueError("README.md: a `<!-- begin` has no `<!-- end -->`")
    return BLOCK.sub(lambda m: f"{m[1]}\n{made(collection, m[2], m[3])}\n\n{m[4]}", text)
