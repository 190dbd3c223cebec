"""Fill the generated blocks of README.md and of the pages in docs/.

    python tools/blocks.py            write them
    python tools/blocks.py --check    exit code 1 if one is stale

A block stands between `<!-- begin KIND NAME -->` and `<!-- end -->`. Kinds: `flags ppo.py`, the
flags of a script with defaults and help; `table results/ppo.md`, the first table of a file in docs/
that a benchmark wrote.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- begin (\w+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
WORDS = {"True": "on", "False": "off", "None": "none", "Path(__file__).stem": "the file's name"}


def flag_name(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def flags_table(source: str) -> str:
    """Markdown table of the fields of a script's class Args: flag, default, trailing comment."""
    lines = source.splitlines()
    rows = ["| flag | default | meaning |", "|---|---|---|"]
    args = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef))
    for node in args.body:
        if not isinstance(node, ast.AnnAssign) or node.value is None:
            continue
        flag = flag_name(ast.unparse(node.target))
        default = ast.get_source_segment(source, node.value) or ""
        # Columns of the syntax tree count bytes; the lines of Args are ASCII up to their comments.
        meaning = lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :].strip(" #")
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


def content(kind: str, name: str) -> str:
    """What belongs into a block; OSError or ValueError if it cannot be made."""
    if kind == "flags":
        return flags_table((ROOT / "ppo" / name).read_text())
    if kind == "table":
        return first_table((ROOT / "docs" / name).read_text())
    raise ValueError(f"no such kind of block: {kind}")


def fill(text: str) -> tuple[str, list[str]]:
    """The text with its blocks filled, and what is wrong with those that cannot be."""
    problems = []

    def block(match: re.Match[str]) -> str:
        begin, kind, name, end = match.groups()
        try:
            return f"{begin}\n{content(kind, name)}\n\n{end}"
        except (OSError, ValueError) as error:
            problems.append(f"{kind} {name}: {error}")
            return match[0]

    return BLOCK.sub(block, text), problems


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code: 1 if a block is stale or cannot be filled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a block is stale")
    args = parser.parse_args(argv)
    exit_code = 0
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        old = path.read_text()
        new, problems = fill(old)
        for problem in problems:
            print(f"{path.relative_to(ROOT)}: {problem}", file=sys.stderr)
        if new != old:
            print(f"{path.relative_to(ROOT)} {'is stale' if args.check else 'written'}")
            if not args.check:
                path.write_text(new)
        exit_code |= bool(problems) or (args.check and new != old)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
