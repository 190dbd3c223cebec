"""Reads the table of mutations, edits scripts by it, and runs tests on the edited copies."""

import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.warm_processes import context

TESTS = Path(__file__).resolve().parents[1]
TABLES = TESTS / "mutations"  # a file for each script


@dataclass(frozen=True)
class Mutation:
    """A way to undo a detail of a script."""

    script: str  # its file name
    tag: str  # the tag that stands in the script's comment; of a deviation with its text
    undone: str  # what the edited script does instead
    tests: str  # what must fail: a test file, and what pytest -k selects in it
    edits: tuple[tuple[str, str], ...]  # old text, new text

    def apply(self, source: str) -> str:
        """The edited source; ValueError if an old text does not occur exactly once."""
        for old, new in self.edits:
            if source.count(old) != 1:
                found = f"{old!r} occurs {source.count(old)} times in {self.script}"
                table = f"tests/mutations/{Path(self.script).stem}.toml"
                raise ValueError(f"stale table: {table}, {self.tag}: {found}")
            source = source.replace(old, new)
        return source


def read_table(script: str) -> list[Mutation]:
    """The mutations of a script; none if it has no table."""
    file = TABLES / f"{Path(script).stem}.toml"
    if not file.exists():
        return []
    return [
        Mutation(
            script=script,
            tag=row["tag"],
            undone=row["undone"],
            tests=row["tests"],
            edits=tuple((edit["old"], edit["new"]) for edit in row["edits"]),
        )
        for row in tomllib.loads(file.read_text())["mutation"]
    ]


def run_pytest(script: Path, output: Path, selection: list[str]) -> None:
    """Body of a process: runs selected tests with `script` in place of the script of that name."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]  # those of the pytest that has started this process
    os.environ["PPO_SCRIPT"] = str(script)
    os.environ["COLUMNS"] = "300"  # the reason of a failure is cut off at the terminal's width
    os.chdir(TESTS.parent)
    files = sorted({f"tests/{item.split(' ', 1)[0]}" for item in selection})
    names = " or ".join(sorted(item.split(" ", 1)[1] for item in selection))
    # No plugins, and no search for garbage at the end: those would take longer than the tests.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    options += ["-o", "addopts="]  # pyproject.toml asks for xdist
    sys.exit(pytest.main([*options, *files, "-k", names]))


def run_tests(script: Path, selection: set[str]) -> tuple[int | None, str]:
    """Exit code and output of pytest on an edited script; no code if it did not end in time.

    selection: of each test file what pytest -k selects, as `Mutation.tests` names it.
    """
    output = script.with_suffix(".log")
    process = context().Process(target=run_pytest, args=(script, output, sorted(selection)))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        process.join()
        return None, output.read_text()
    return process.exitcode, output.read_text()
