"""The generated blocks of README.md and of the pages in docs/.

A block stands between `<!-- begin KIND NAME -->` and `<!-- end -->`, where `python
tools/generate.py` writes it. Kinds: `flags ppo.py`, the flags of a script with defaults and help;
`table results/ppo.md`, the first table of a file in docs/ that a benchmark wrote.
"""

import ast
import re
from pathlib import Path

from sync import Collection

BLOCK = re.compile(r"(<!-- begin (\w+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
WORDS = {"True": "on", "False": "off", "None": "none", "Path(__file__).stem": "the file's name"}


def flag_name(field: str) -> str:
    """The command line's name of a field of Args."""
    return f"--{field.replace('_', '-')}"


def flags_table(source: str) -> str:
    """Markdown table of the fields of a script's class Args: flag, default, trailing comment.

    Raises SyntaxError for a source that is not Python, ValueError if it has no such class.
    """
    lines = source.splitlines()
    rows = ["| flag | default | meaning |", "|---|---|---|"]
    classes = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.ClassDef)}
    if "Args" not in classes:
        raise ValueError("no class Args")
    for node in classes["Args"].body:
        if not isinstance(node, ast.AnnAssign) or node.value is None:
            continue
        flag = flag_name(ast.unparse(node.target))
        # A field is one line. Columns count bytes; the lines are ASCII up to their comments.
        line = lines[node.lineno - 1]
        default = line[node.value.col_offset : node.value.end_col_offset]
        meaning = line[node.value.end_col_offset :].strip(" #")
        meaning = re.sub(r"--[a-z-]+", r"`\g<0>`", meaning).replace("|", "\\|")
        shown = WORDS.get(default) or f"`{default.strip(chr(34))}`"
        rows.append(f"| `{flag}` | {shown} | {meaning} |")
    return "\n".join(rows)


def first_table(text: str) -> str:
    """The first table of a Markdown text; ValueError if it has none."""
    found = re.search(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    if not found:
        raise ValueError("no table")
    return found[0].strip()


def content(root: Path, kind: str, name: str) -> str:
    """What belongs into a block.

    Raises OSError if the file that it is made from is missing, ValueError if nothing can be made.
    """
    if kind == "flags":
        return flags_table((root / "ppo" / name).read_text())
    if kind == "table":
        return first_table((root / "docs" / name).read_text())
    raise ValueError("no such kind of block")


def fill(root: Path, text: str) -> str:
    """The text with its blocks filled. Raises ValueError that names a block that cannot be."""

    def block(match: re.Match[str]) -> str:
        begin, kind, name, end = match.groups()
        try:
            return f"{begin}\n{content(root, kind, name)}\n\n{end}"
        except (OSError, ValueError) as error:
            raise ValueError(f"block `{kind} {name}`: {error}") from error

    return BLOCK.sub(block, text)


def pages(collection: Collection) -> dict[Path, str]:
    """Path and text of every page that has blocks. Raises ValueError if one cannot be filled."""
    root = collection.root
    result = {}
    for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        text = path.read_text() if path.exists() else ""
        if BLOCK.search(text):
            try:
                result[path] = fill(root, text)
            except ValueError as error:
                raise ValueError(f"{path.relative_to(root)}: {error}") from error
    return result
