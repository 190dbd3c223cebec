"""The scripts' PEP 723 headers and pyproject.toml declare the same dependencies."""

import ast
import sys
from datetime import datetime
from pathlib import Path

import pytest
from helpers.metadata import PYPROJECT, ROOT, header
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from scripts import PROGRAMS
from scripts import SCRIPTS as FAMILY
from sync import Collection

COLLECTION = Collection()
PROJECT = PYPROJECT["project"]
SCRIPTS = [f"ppo/{name}" for name in COLLECTION.scripts()]
# Extras that the other programs draw on; they need not use all of them.
OTHERS = {f"ppo/{name}": extras for name, extras in PROGRAMS.items()}
OTHERS = {path: extras for path, extras in OTHERS.items() if (ROOT / path).exists()}
PEER = "benchmark/speed_sb3.py"  # runs with the versions of benchmark/requirements/sb3.txt
# Distributions whose module has another name.
MODULES = {"opencv-python": "cv2", "pillow": "PIL", "procgen-mirror": "procgen"}
MODULES |= {"playground": "mujoco_playground"}


def requirements(lines: list[str]) -> set[str]:
    """Requirements in one spelling, so that order and blanks do not count."""
    return {str(Requirement(line)) for line in lines}


def allowed(extras: tuple[str, ...], without: frozenset[str] = frozenset()) -> set[str]:
    """Requirements of pyproject.toml's base, less some distributions, and of the extras."""
    base = {r for r in requirements(PROJECT["dependencies"]) if Requirement(r).name not in without}
    optional = PROJECT["optional-dependencies"]
    return base.union(*(requirements(optional[extra]) for extra in extras))


@pytest.mark.parametrize("path", SCRIPTS)
def test_script_declares_its_extras(path: str):
    row = FAMILY[path.removeprefix("ppo/")]
    assert requirements(header(path)["dependencies"]) == allowed(row.extras, row.without)


@pytest.mark.parametrize("path", OTHERS)
def test_program_declares_what_pyproject_declares(path: str):
    assert requirements(header(path)["dependencies"]) <= allowed(OTHERS[path])


@pytest.mark.parametrize("path", [*SCRIPTS, *OTHERS])
def test_python_versions_agree(path: str):
    row = FAMILY.get(path.removeprefix("ppo/"))
    wanted = (row and row.requires_python) or PROJECT["requires-python"]
    assert SpecifierSet(header(path)["requires-python"]) == SpecifierSet(wanted)


@pytest.mark.parametrize("path", [*SCRIPTS, *OTHERS])
def test_the_day_is_pinned(path: str):
    day = header(path)["tool"]["uv"]["exclude-newer"]
    assert datetime.fromisoformat(day).tzinfo is not None
    assert day == PYPROJECT["tool"]["uv"]["exclude-newer"], "one day for all"


def imports(path: str) -> set[str]:
    """The modules that a file imports and Python does not bring."""
    imported = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import"
            imported.add((node.module or "").partition(".")[0])
    return imported - set(sys.stdlib_module_names)


def modules(lines: list[str]) -> set[str]:
    """The modules that requirements bring."""
    names = [canonicalize_name(Requirement(line).name) for line in lines]
    return {MODULES.get(name, name.replace("-", "_")) for name in names}


@pytest.mark.parametrize("path", [*SCRIPTS, *OTHERS])
def test_every_import_is_declared(path: str):
    beside = {Path(program).stem for program in OTHERS if path in OTHERS}  # league.py's evaluate
    assert imports(path) - beside <= modules(header(path)["dependencies"])


def test_imports_of_the_peer_are_declared():
    lines = (ROOT / "benchmark" / "requirements" / "sb3.txt").read_text().splitlines()
    assert imports(PEER) <= modules([line for line in lines if not line.startswith("#")])
