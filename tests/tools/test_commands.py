"""Every command on the pages is one that its program understands; no program is run."""

import argparse
import ast
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import tyro
from helpers.metadata import PYPROJECT
from sync import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", "tests/README.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))
BLOCK = re.compile(r"^( *)```bash\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`((?:\w+=\S+ )?(?:uv run|python|benchmark/)[^`]*)`(?!`)")
PLACEHOLDER = re.compile(r"<[\w ]+>")  # <run>: for the shell the name of a file to read
LAUNCHERS = ("uv", "python", "python3", "torchrun", "taskset", "srun")
PROGRAM = re.compile(r"(ppo|benchmark|tools)/\w+\.(py|sh)")
# Bash without programs: what it would start is noted, a word a line, with a line after the last.
NOTE = """
command_not_found_handle() { printf '%s\\n' "$@" '' >> "$NOTED"; }
exec() { "$@"; exit; }
"""
for path in sorted(ROOT.glob("benchmark/*.sh")):  # files are not looked up: they become functions
    NOTE += f'benchmark/{path.name}() {{ command_not_found_handle benchmark/{path.name} "$@"; }}\n'
needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")


def started(text: str, folder: Path, *args: str) -> list[list[str]]:
    """The words of each command that a shell script starts when it is called with `args`.

    The shell itself puts variables, loops and quotes in, in an empty folder.
    """
    noted = folder / "noted.txt"
    noted.write_text("")
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", f"{NOTE}{text}\nexit 0", "script", *args],
        cwd=folder,
        env={"PATH": os.devnull, "HOME": str(folder), "NOTED": str(noted)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"no shell script: {done.stderr}"
    commands = noted.read_text().split("\n\n")
    return [command.splitlines() for command in commands if command]


def source_of_arguments(path: str) -> tuple[str, ast.Module]:
    """The file in which a program's class Args is written, itself or a part of it, and its code."""
    tree = ast.parse((ROOT / path).read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and "Args" in [alias.name for alias in node.names]:
            return source_of_arguments(str(Path(path).with_name(f"{node.module}.py")))
    return path, tree


@cache
def arguments(program: str) -> type:
    """The class Args of a program, without its other packages: those of JAX would take seconds."""
    path, tree = source_of_arguments(program)
    place = next(i for i, node in enumerate(tree.body) if getattr(node, "name", "") == "Args")
    flags = tree.body[place]
    assert isinstance(flags, ast.ClassDef)
    flags.body = [node for node in flags.body if not isinstance(node, ast.FunctionDef)]
    names = {node.id for node in ast.walk(flags) if isinstance(node, ast.Name)}
    light = {*sys.stdlib_module_names, *names, "tyro", "run"}

    def is_needed(node: ast.stmt) -> bool:
        if isinstance(node, ast.Import):
            return node.names[0].name in light
        if isinstance(node, ast.ImportFrom):
            return node.module in light
        return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names

    tree.body = [node for node in tree.body[:place] if is_needed(node)] + [flags]
    module = ModuleType(f"arguments_{Path(path).stem}")
    module.__file__ = str(ROOT / path)
    sys.modules[module.__name__] = module  # where tyro looks for the names of types
    exec(compile(tree, path, "exec"), vars(module))
    return module.Args


class Parsed(Exception):
    """Ends a program behind its command line."""


def parse_tool(path: str, flags: list[str]) -> None:
    """Lets a program of argparse read its flags, and no more."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser, words: list[str]) -> None:
        parse_args(parser, words)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Parsed):
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        importlib.import_module(Path(path).stem).main(flags)


def check_flags(path: str, flags: list[str], folder: Path) -> int:
    """Lets a program read its flags, and the programs that it starts theirs; how many did.

    Raises SystemExit(2) where one of them would.
    """
    if path.startswith("tools/"):
        parse_tool(path, flags)
        return 1
    if path.endswith(".sh"):
        commands = started((ROOT / path).read_text(), folder, *flags)
        assert any("benchmark/" in word for words in commands for word in words), path
        return sum(check_words(words, folder) for words in commands)
    args = tyro.cli(arguments(path), args=flags)
    if not hasattr(args, "env_flags"):
        return 1
    command = shlex.split(args.command)
    for text in args.env_flags:
        check_words([*command, *shlex.split(text.partition("=")[2])], folder)
    following = shlex.split(getattr(args, "then", None) or "")
    return 1 + check_words(command, folder) + check_words(following, folder)


def check_words(words: list[str], folder: Path) -> int:
    """Checks the words of a command if it runs a program of this repository."""
    if not words or not (words[0] in LAUNCHERS or PROGRAM.fullmatch(words[0])):
        return 0
    extras = [words[i + 1] for i, word in enumerate(words) if word == "--extra"]
    unknown = set(extras) - PYPROJECT["project"]["optional-dependencies"].keys()
    assert not unknown, f"no such extra: {unknown}"
    place = next((i for i, word in enumerate(words) if PROGRAM.fullmatch(word)), None)
    if place is None:
        return 0
    assert (ROOT / words[place]).is_file(), f"no such program: {words[place]}"
    return check_flags(words[place], words[place + 1 :], folder)


def check_text(text: str, folder: Path) -> int:
    """Checks what a page tells the reader to type; how often a program read its flags."""
    commands = started(PLACEHOLDER.sub("NAME", text), folder)
    return sum(check_words(words, folder) for words in commands)


def commands_of(page: str) -> list[str]:
    """Blocks of commands, and commands within sentences."""
    text = (ROOT / page).read_text()
    blocks = [textwrap.dedent(match[2]) for match in BLOCK.finditer(text)]
    sentences = BLOCK.sub("", text)
    return blocks + [" ".join(command.split()) for command in INLINE.findall(sentences)]


@needs_bash
@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
def test_commands_of_a_page_are_understood(page: str, tmp_path: Path):
    for text in commands_of(page):
        try:
            check_text(text, tmp_path)
        except SystemExit as stop:
            assert not stop.code, f"{page}: not understood, see stderr:\n{text}"


def test_pages_have_commands():
    assert len(PAGES) > 20
    assert sum(len(commands_of(page)) for page in PAGES) > 60


@needs_bash
@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("uv run ppo/ppo.py --seed 2 --no-anneal-lr  # a comment", 1),
        ("WANDB_MODE=offline uv run ppo/ppo.py --track && pip install x", 1),
        ("for seed in 1 2 3; do uv run ppo/ppo.py --seed $seed; done", 3),
        ("uv run --extra atari torchrun --nnodes=1 \\\n    ppo/ppo_atari_multigpu.py --seed 2", 1),
        ("uv run ppo/evaluate.py runs/<run> --greedy", 1),
        ("PYTHON=python3 benchmark/gpu.sh check --scripts ppo.py", 1),
        ("benchmark/ppo.sh --workers 2", 2),  # the runner, and the script that it runs
        ("python tools/sync.py copy compute_gae", 1),
        ("cp ppo/ppo.py mine.py", 0),
        ("uv run mine.py --no-such-flag", 0),
    ],
)
def test_programs_of_a_text_are_found(text: str, programs: int, tmp_path: Path):
    assert check_text(text, tmp_path) == programs


@needs_bash
@pytest.mark.parametrize(
    "text",
    [
        "uv run ppo/ppo.py --learning-rat 1e-3",
        "python ppo/ppo.py --num-envs many",
        "flags='--sed 1'; uv run ppo/ppo_atari_envpool_xla_jax.py $flags",
        "for seed in 1 2; do uv run ppo/evaluate.py runs/<run> --episode $seed; done",
        "benchmark/ppo.sh --worker 2",
        "benchmark/gpu.sh look",
        "benchmark/ablation.sh ppo --detail core-3",
        'uv run benchmark/run.py --command "uv run ppo/ppo.py --no-such" --env-ids A-v0',
        'uv run benchmark/run.py --command "uv run ppo/ppo.py" --env-ids A --env-flags A=--no-such',
        "python tools/sync.py hand-on compute_gae",
    ],
)
def test_a_flag_that_does_not_exist_is_noticed(text: str, tmp_path: Path):
    with pytest.raises(SystemExit) as stop:
        check_text(text, tmp_path)
    assert stop.value.code == 2


@needs_bash
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uv run ppo/gone.py", "no such program: ppo/gone.py"),
        ("uv run ppo/ppo.py --exp-name 'not closed", "no shell script: .*looking for matching"),
        ("uv run --extra gone torchrun ppo/ppo_atari_multigpu.py", "no such extra: {'gone'}"),
    ],
)
def test_what_is_no_command_is_noticed(text: str, message: str, tmp_path: Path):
    with pytest.raises(AssertionError, match=message):
        check_text(text, tmp_path)
