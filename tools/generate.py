"""Bring up to date what is generated and committed: the diffs in docs/diffs/, README.md's tables.

    python tools/generate.py            write what is stale
    python tools/generate.py --check    write nothing; exit code 1 if anything is stale

Both refuse, with exit code 1 and a line per problem, while the scripts are out of sync: a unit that
changed has to be copied, or to get a note, first (tools/sync.py), so that no drift is generated
away. Pages are made when the site is built (tools/pages.py).
"""

import argparse
import sys
from pathlib import Path

import insertions
from sync import Collection


def stale_files(collection: Collection) -> dict[Path, str | None]:
    """Files that are missing, out of date or left over, and what they must be; None: deleted.

    Raises OSError or ValueError if a block of README.md cannot be filled.
    """
    wanted = {collection.root / "README.md": insertions.readme(collection)}
    wanted |= collection.golden_diffs()
    stale: dict[Path, str | None] = {
        path: text
        for path, text in wanted.items()
        if not path.exists() or path.read_bytes() != text.encode()
    }
    left_over = set(collection.root.glob("docs/diffs/*.diff")) - wanted.keys()
    return dict(sorted((stale | dict.fromkeys(left_over)).items()))


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
    stale: dict[Path, str | None] = {}
    try:
        problems = collection.check()
        if not problems:
            stale = stale_files(collection)
    except (OSError, SyntaxError, ValueError) as error:
        problems = [str(error)]
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
