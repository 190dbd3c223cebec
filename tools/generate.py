"""Bring what is generated up to date: diffs, notes, details, source, reading, scores, blocks.

    python tools/generate.py            write what is stale
    python tools/generate.py --check    write nothing; exit code 1 if anything is stale

Both refuse, with exit code 1 and a line per problem, while the scripts are out of sync: a unit that
changed has to be copied or accepted first (tools/sync.py), so that no drift is generated away. So
they do while a hunk of a diff has no note, or a note no hunk (tools/notes.py).
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import ablations
import blocks
import details
import notes
import reading
import scores
import undo
from sync import Collection

# Of these files those are left over that are generated, says their text, and that nothing makes.
PATTERNS = ("docs/diffs/*.diff", "docs/diffs/*.md", "docs/source/*.md", "docs/read-*.md")


def about_details(collection: Collection) -> dict[str, list[str]]:
    """By tag, sentences: where the detail is explained, what tests it and what it is worth."""
    about: dict[str, list[str]] = defaultdict(list)
    for module in (reading, undo, ablations):
        for tag, sentences in module.sentences(collection).items():
            about[tag] += sentences
    return about


def generated(collection: Collection) -> dict[Path, str]:
    """Path and text of every generated file.

    Raises ValueError if a block of a page cannot be filled, or if an explanation does not fit.
    """
    return (
        blocks.pages(collection)
        | details.pages(collection, about_details(collection), ablations.section(collection))
        | reading.pages(collection)
        | collection.golden_diffs()
        | notes.pages(collection)
        | scores.pages(collection)
    )


def is_generated(path: Path) -> bool:
    """Whether a page says so itself; diffs cannot."""
    return path.suffix == ".diff" or "<!-- Generated " in path.read_text(encoding="utf-8")


def stale_files(collection: Collection) -> dict[Path, str | None]:
    """Files that are missing, out of date or left over, and what they must be; None: deleted.

    Raises ValueError if a block of a page cannot be filled, or if an explanation does not fit.
    """
    stale: dict[Path, str | None] = {}
    wanted = generated(collection)
    for path, text in wanted.items():
        if not path.exists() or path.read_bytes() != text.encode():
            stale[path] = text
    for pattern in PATTERNS:
        for path in collection.root.glob(pattern):
            if path not in wanted and is_generated(path):
                stale[path] = None
    return dict(sorted(stale.items()))


def tag_problems(collection: Collection) -> list[str]:
    """Tags of the scripts that no detail has, a sentence for each."""
    return [
        f"ppo/{script}: line {tag.line}: tools/details.toml has no [{tag.name}]"
        for script in collection.scripts()
        for tag in details.find_tags(collection.source(script))
        if tag.name not in details.DETAILS and tag.name != "deviation"
    ]


def write(path: Path, text: str | None) -> None:
    """Write a file, or delete it if there is no text for it."""
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def main(argv: list[str] | None = None, collection: Collection | None = None) -> int:
    """Command line; returns the exit code: 0 fine, 1 stale or out of sync."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file is stale")
    args = parser.parse_args(argv)
    collection = collection or Collection()
    try:
        problems = collection.check() or notes.check(collection) or tag_problems(collection)
        stale = {} if problems else stale_files(collection)
    except (OSError, ValueError) as error:
        problems, stale = [str(error)], {}
    for problem in problems:
        print(problem)
    for path, text in stale.items():
        name = path.relative_to(collection.root)
        if args.check:
            print(f"{name} is stale: python tools/generate.py")
        else:
            write(path, text)
            print(f"{name} {'deleted' if text is None else 'written'}")
    return int(bool(problems) or (args.check and bool(stale)))


if __name__ == "__main__":
    sys.exit(main())
