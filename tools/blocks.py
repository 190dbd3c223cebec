"""The generated blocks of README.md and of the pages in docs/.

A block stands between `<!-- begin KIND NAME -->` and `<!-- end -->`, where `python
tools/generate.py` writes it, so that a page is whole where it is shown as a plain file. Kinds:

- `flags ppo.py`: the flags of a script, its own ones first;
- `diff ppo_atari.py`: how many lines of its parent a script changes;
- `file results/speed.md`: a file in docs/ that a benchmark wrote;
- `table results/ppo.md`: the first table of it;
- `folded results/ppo.md`: all of it, what follows the table in a part that is folded;
- `code examples/play.py`: a file in docs/ as code;
- `scripts index.md` and `scores index.md`: see home.py;
- `presets table` and `presets commands`: see presets.py.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import home
import notes
import presets
from family import FAMILY
from sync import Collection

BLOCK = re.compile(r"(<!-- begin (\w+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
LANGUAGES = {".py": "python", ".diff": "diff"}
WORDS = {"True": "on", "False": "off", "None": "none", "Path(__file__).stem": "the file's name"}


def flag_name(field: str) -> str:
    """The command line's name of a field of Args."""
    return f"--{field.replace('_', '-')}"


@dataclass(frozen=True)
class Flag:
    """A flag of a script's command line, as its class Args has it."""

    name: str  # --num-envs
    topic: str  # of the comment above its group of lines: the task
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
    classes = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.ClassDef)}
    if "Args" not in classes:
        raise ValueError("no class Args")
    found = []
    for node in classes["Args"].body:
        if not isinstance(node, ast.AnnAssign) or node.value is None:
            continue
        above = lines[classes["Args"].lineno : node.lineno]
        topics = [line.strip(" #") for line in above if line.strip().startswith("#")]
        # Columns count bytes; the lines are ASCII up to their comments.
        if node.end_lineno != node.lineno:
            raise ValueError(f"line {node.lineno}: a field of Args has to be one line")
        line = lines[node.lineno - 1]
        default = line[node.value.col_offset : node.value.end_col_offset]
        meaning = line[node.value.end_col_offset :].strip(" #")
        meaning = re.sub(r"--[a-z][a-z0-9-]*", r"`\g<0>`", meaning).replace("|", "\\|")
        shown = WORDS.get(default) or f"`{default.strip(chr(34))}`"
        topic = topics[-1] if topics else ""
        found.append(Flag(flag_name(ast.unparse(node.target)), topic, shown, meaning))
    return found


def flags_table(shown: list[Flag]) -> str:
    """Markdown table of flags."""
    return "\n".join(["| flag | default | meaning |", "|---|---|---|", *(f.row() for f in shown)])


def folded(title: str, text: str, style: str = "abstract") -> str:
    """A part of a page that opens when its title is clicked, in a file shown as it is, too."""
    opening = f'<details class="{style}" markdown>'
    return f"{opening}\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def code(path: Path) -> str:
    """A file as a block of code. Raises OSError if it is missing, ValueError for other suffixes."""
    if path.suffix not in LANGUAGES:
        raise ValueError(f"no language for {path.suffix}")
    return f"```{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8').rstrip()}\n```"


def flags_section(source: str, parent: str, parent_source: str) -> str:
    """The flags that make a script different from its parent; all of them in a part that is folded.

    A script without a parent shows those of the task and the algorithm.
    """
    everything = flags(source)
    rows = {flag.row() for flag in flags(parent_source)} if parent else set()
    if parent:
        shown = [flag for flag in everything if flag.row() not in rows]
        kept = len(everything) - len(shown)
        opening = f"New here, or not as in `{parent}`; the other {kept} are the same there."
    else:
        shown = [flag for flag in everything if flag.topic in ("the task", "the algorithm")]
        opening = "Those of the task and of the algorithm:"
    if not shown:
        opening = f"All {len(everything)} are those of `{parent}`, with the same defaults."
    parts = [opening, *([flags_table(shown)] if shown else [])]
    return "\n\n".join([*parts, folded("All flags", flags_table(everything))])


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


def content(root: Path, kind: str, name: str) -> str:
    """What belongs into a block.

    Raises OSError if the file that it is made from is missing, ValueError if nothing can be made.
    """
    if kind == "flags":
        parent = FAMILY[name].parent or "" if name in FAMILY else ""
        parent_source = (root / "ppo" / parent).read_text(encoding="utf-8") if parent else ""
        return flags_section(
            (root / "ppo" / name).read_text(encoding="utf-8"), parent, parent_source
        )
    if kind == "table":
        return first_table((root / "docs" / name).read_text(encoding="utf-8"))
    if kind == "folded":
        return table_and_rest((root / "docs" / name).read_text(encoding="utf-8"))
    if kind == "file":
        return (root / "docs" / name).read_text(encoding="utf-8").strip()
    if kind == "code":
        return code(root / "docs" / name)
    if kind == "diff":
        return notes.summary(Collection(root), name)
    if kind == "scripts":
        return home.scripts_table(Collection(root), name)
    if kind == "scores":
        return home.scores_table(Collection(root))
    if kind == "presets" and name == "table":
        return presets.table(root)
    if kind == "presets" and name == "commands":
        return presets.commands(root)
    raise ValueError("no such kind of block")


def fill(root: Path, text: str) -> str:
    """The text with its blocks filled. Raises ValueError that names a block that cannot be."""

    def block(match: re.Match[str]) -> str:
        begin, kind, name, end = match.groups()
        try:
            return f"{begin}\n{content(root, kind, name)}\n\n{end}"
        except (OSError, ValueError) as error:
            raise ValueError(f"block `{kind} {name}`: {error}") from error

    for match in BLOCK.finditer(text):
        if match[0].count("<!-- begin ") > 1:
            raise ValueError(f"block `{match[2]} {match[3]}` has no end")
    return BLOCK.sub(block, text)


def pages(collection: Collection) -> dict[Path, str]:
    """Path and text of every page that has blocks. Raises ValueError if one cannot be filled."""
    root = collection.root
    result = {}
    pages = [*(root / "docs").glob("*.md"), *(root / "docs" / "howto").glob("*.md")]
    for path in (root / "README.md", *sorted(pages)):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if BLOCK.search(text):
            try:
                result[path] = fill(root, text)
            except ValueError as error:
                raise ValueError(f"{path.relative_to(root)}: {error}") from error
    return result
