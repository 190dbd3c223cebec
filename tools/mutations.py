"""Mutations: ways to undo the details of the scripts, each of which some test must notice.

They stand in tests/mutations/, whose README.md has the keys of the tables; benchmark/edits.py reads
what is in them besides, the ablations.
"""

import sys
from dataclasses import dataclass

from details import DETAILS, find_tags
from sync import ROOT, Collection

sys.path.append(str(ROOT / "benchmark"))
from edits import Undoing, edits_of, read_rows, table_of

TESTS = ROOT / "tests"


@dataclass(frozen=True)
class Mutation(Undoing):
    """One that must be noticed."""

    undone: str  # what the edited script does instead
    tests: str  # what must fail: a test file, and what pytest -k selects in it

    @property
    def script(self) -> str:
        """File name of the script whose table it stands in."""
        return f"{self.table.stem}.py"

    @property
    def command(self) -> str:
        """Runs the tests of which one must fail."""
        file, _, selection = self.tests.partition(" ")
        return f'pytest {path_of(file)} -k "{selection}"'


def path_of(file: str) -> str:
    """A test file by its name, from the root: tests/algorithms/test_ppo.py."""
    (path,) = TESTS.glob(f"*/{file}")
    return path.relative_to(ROOT).as_posix()


def read_mutations(script: str) -> list[Mutation]:
    """The mutations in the table of a script."""
    table = table_of(script)
    return [
        Mutation(table, row["tag"], edits_of(row), row["undone"], row["tests"])
        for row in read_rows(table, "mutation")
    ]


def tagged_lines(source: str) -> dict[str, int]:
    """Line of each tag of a script, from 1; in the order of the details, deviations at the end."""
    lines = {}
    for tag in find_tags(source):
        name = f"{tag.name} {tag.text}" if tag.name == "deviation" else tag.name
        lines[name] = tag.line
    order = [*(name for name in DETAILS if name in lines), *lines]
    return {name: lines[name] for name in order}


def sentences(collection: Collection) -> dict[str, list[str]]:
    """By tag: what tests the detail in the first script that has a mutation of it."""
    found: dict[str, list[str]] = {}
    for script in collection.scripts():
        commands: dict[str, list[str]] = {}
        for mutation in read_mutations(script):
            commands.setdefault(mutation.tag, []).append(f"`{mutation.command}`")
        for tag, listed in commands.items():
            found.setdefault(tag, [f"Tested by {', '.join(dict.fromkeys(listed))}."])
    return found
