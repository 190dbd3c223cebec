"""Reads the tables of tests/mutations/, which undo the details of the scripts.

A mutation is what some test must notice. An ablation is what a person means by "without this
detail": benchmark/ablation.py trains with it. tests/mutations/README.md has the keys of the tables.
"""

import ast
import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from details import DETAILS, find_tags
from family import FAMILY
from sync import ROOT, Collection

TESTS = ROOT / "tests"
TABLES = TESTS / "mutations"  # a file for each script
Edits = tuple[tuple[str, str], ...]  # old text, new text


@dataclass(frozen=True)
class Undoing:
    """A way to undo a detail of a script."""

    script: str  # file name of the script whose table it stands in
    tag: str  # the tag that stands in the script's comment; of a deviation with its text
    edits: Edits

    @property
    def table(self) -> str:
        """The file that it stands in."""
        return f"tests/mutations/{Path(self.script).stem}.toml"

    def fits(self, source: str) -> bool:
        """Whether it can be applied to a source."""
        return all(source.count(old) == 1 for old, _ in self.edits)

    def apply(self, source: str) -> str:
        """The edited source; ValueError if an old text does not occur exactly once."""
        for old, new in self.edits:
            if source.count(old) != 1:
                found = f"{old!r} occurs {source.count(old)} times in {self.script}"
                raise ValueError(f"stale table: {self.table}, {self.tag}: {found}")
            source = source.replace(old, new)
        return source


@dataclass(frozen=True)
class Mutation(Undoing):
    """One that must be noticed."""

    undone: str  # what the edited script does instead
    tests: str  # what must fail: a test file, and what pytest -k selects in it

    def test_names(self) -> list[str]:
        """The tests of which one must fail, as pytest names them; ValueError if there are none.

        In `this and A or that` words behind an `and` select cases of a test.
        """
        file, _, selection = self.tests.partition(" ")
        wanted = [words.split(" and ")[0] for words in selection.split(" or ")]
        names = [name for name in tests_in(file) if any(word in name for word in wanted)]
        if not names:
            raise ValueError(
                f"{self.table}: no test in {path_of(file)} has {selection} in its name"
            )
        return [f"{path_of(file)}::{name}" for name in names]


@dataclass(frozen=True)
class Ablation(Undoing):
    """One that is worth training. Without edits: training would show nothing."""

    without: str  # what a script without the detail does

    @property
    def name(self) -> str:
        """Of the folder of its runs, and what a user selects it by: the tag, without blanks."""
        return self.tag.replace(" ", "-")


def path_of(file: str) -> str:
    """A test file by its name, from the root: tests/algorithms/test_ppo.py."""
    (path,) = TESTS.glob(f"*/{file}")
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tests_in(file: str) -> list[str]:
    """The test functions in a file of tests/: `test_a`, `TestClass::test_b`."""
    found = []
    for node in ast.parse((ROOT / path_of(file)).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.append(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
            found += [f"{node.name}::{method.name}" for method in methods]
    return [name for name in found if name.rpartition("::")[2].startswith("test_")]


KEYS = {"mutation": ("tag", "undone", "tests"), "ablation": ("tag", "without")}  # of each row


def read_rows(script: str, kind: str) -> list[dict[str, Any]]:
    """The rows of a kind in the table of a script; none if there is no table.

    Raises ValueError if a row lacks something.
    """
    file = TABLES / f"{Path(script).stem}.toml"
    if not file.exists():
        return []
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8")).get(kind, [])
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file.name}: {error}") from error
    for number, row in enumerate(rows, start=1):
        for key in KEYS[kind]:
            if key not in row:
                raise ValueError(f"{file.name}: {kind} {number} lacks `{key}`")
    return rows


def edits_of(row: dict[str, Any]) -> Edits:
    """What a row replaces."""
    return tuple((edit["old"], edit["new"]) for edit in row.get("edits", []))


def read_mutations(script: str) -> list[Mutation]:
    """The mutations in the table of a script."""
    return [
        Mutation(script, row["tag"], edits_of(row), row["undone"], row["tests"])
        for row in read_rows(script, "mutation")
    ]


def own_ablations(script: str) -> dict[str, Ablation]:
    """The ablations in the table of a script, by tag; ValueError if a tag has two."""
    rows = [row for row in read_rows(script, "mutation") if "without" in row]
    found: dict[str, Ablation] = {}
    for row in rows + read_rows(script, "ablation"):
        if row["tag"] in found:
            raise ValueError(f"two ablations of {row['tag']} in the table of {script}")
        found[row["tag"]] = Ablation(script, row["tag"], edits_of(row), row["without"])
    return found


def tagged_lines(source: str) -> dict[str, int]:
    """Line of each tag of a script, from 1; in the order of the details, deviations at the end."""
    lines = {}
    for tag in find_tags(source):
        name = f"{tag.name} {tag.text}" if tag.name == "deviation" else tag.name
        lines[name] = tag.line
    order = [*(name for name in DETAILS if name in lines), *lines]
    return {name: lines[name] for name in order}


def ablations(script: str, source: str) -> dict[str, Ablation]:
    """Ablations of a script by tag, in the order of `tagged_lines`; some tags may have none.

    A detail that the script has from its parent is undone as there, where that fits its source.
    """
    found: dict[str, Ablation] = {}
    ancestor: str | None = script
    while ancestor is not None:
        for tag, ablation in own_ablations(ancestor).items():
            if ancestor == script or ablation.fits(source):
                found.setdefault(tag, ablation)
        ancestor = FAMILY[ancestor].parent
    return {tag: found[tag] for tag in tagged_lines(source) if tag in found}


def sentences(collection: Collection) -> dict[str, list[str]]:
    """By tag: what tests the detail in the first script that has a mutation of it."""
    found: dict[str, list[str]] = {}
    for script in collection.scripts():
        tests: dict[str, list[str]] = {}
        for mutation in read_mutations(script):
            tests.setdefault(mutation.tag, []).extend(mutation.test_names())
        for tag, names in tests.items():
            listed = ", ".join(f"`{name}`" for name in dict.fromkeys(names))
            found.setdefault(tag, [f"Tested by {listed}."])
    return found
