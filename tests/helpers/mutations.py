"""Runs tests on edited copies of the scripts."""

import multiprocessing
import os
import sys
from pathlib import Path

import pytest
from helpers.warm_processes import context
from mutations import path_of

TESTS = Path(__file__).resolve().parents[1]


def run_pytest(script: Path, output: Path, selection: list[str]) -> None:
    """Body of a process: runs selected tests with `script` in place of the script of that name."""
    multiprocessing.set_start_method(None, force=True)  # the system's default again
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]  # those of the pytest that has started this process
    os.environ["PPO_SCRIPT"] = str(script)
    os.environ["COLUMNS"] = "300"  # the reason of a failure is cut off at the terminal's width
    os.chdir(TESTS.parent)
    modules = {item.split(" ", 1)[0] for item in selection}
    files = sorted(path_of(name) for name in modules)
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
    process.join(600)  # more than any takes; it ends those that hang
    if process.is_alive():
        process.kill()
        process.join()
        return None, output.read_text()
    return process.exitcode, output.read_text()
