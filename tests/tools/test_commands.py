"""Every flag in a command on the pages is one that its program has; no program is run."""

import ast
import re
import shlex
from functools import cache

import pytest
from helpers.metadata import PYPROJECT
from sync import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", "tests/README.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))
PAGES = [page for page in PAGES if not page.startswith("docs/results/")]  # as they were measured
BLOCK = re.compile(r"^ *```bash\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`((?:\w+=\S+ )?(?:uv run|python|benchmark/)[^`]*)`(?!`)")
PROGRAM = re.compile(r"(?:ppo|benchmark)/\w+\.(?:py|sh)")
END = {"&&", "||", ";", "|", "&", "done", "done;"}  # of a command


@cache
def flags_of(program: str) -> set[str]:
    """The flags of a program's class Args; of a shell script those of the runner it calls."""
    text = (ROOT / program).read_text()
    if program.endswith(".sh"):
        return flags_of(re.findall(r"benchmark/\w+\.py", text)[0])
    (args,) = [n for n in ast.parse(text).body if getattr(n, "name", "") == "Args"]
    names = [node.target.id for node in args.body if isinstance(node, ast.AnnAssign)]
    flags = {f"--{name.replace('_', '-')}" for name in names}
    flags |= set(re.findall(r'"(--[a-z-]+)"', ast.unparse(args).replace("'", '"')))  # other names
    if any("run" in ast.unparse(base) for base in args.bases):  # as the runner's
        flags |= flags_of("benchmark/run.py")
    return flags | {flag.replace("--", "--no-", 1) for flag in flags} | {"--help"}


def problems_of(words: list[str]) -> list[str]:
    """What is wrong with the words of a command line, and of those that it quotes."""
    problems = []
    program = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--extra":
            if following not in PYPROJECT["project"]["optional-dependencies"]:
                problems.append(f"no extra {following}")
        elif PROGRAM.fullmatch(word):
            program = word if (ROOT / word).is_file() else ""
            if not program:
                problems.append(f"no program {word}")
        elif word.startswith("tests/") and not (ROOT / word).exists():
            problems.append(f"no {word}")
        elif word in END:
            program = ""
        elif " " in word and PROGRAM.search(word):
            problems += problems_of(shlex.split(word))
        elif program and word.startswith("--"):
            flag = word.partition("=")[0].replace("_", "-")
            if flag not in flags_of(program):
                problems.append(f"{program} has no flag {flag}")
    return problems


def commands_of(page: str) -> list[str]:
    """Command lines in blocks and within sentences."""
    text = (ROOT / page).read_text()
    blocks = "\n".join(BLOCK.findall(text)).replace("\\\n", " ")
    sentences = [" ".join(command.split()) for command in INLINE.findall(BLOCK.sub("", text))]
    return [*blocks.splitlines(), *sentences]


def check_line(line: str) -> list[str]:
    """What is wrong with a command line. Quotes that go on in the next line are not looked into."""
    try:
        return problems_of(shlex.split(line.replace(";", " ; "), comments=True))
    except ValueError:
        return []


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
def test_commands_of_a_page_have_flags_that_exist(page: str):
    assert [problem for line in commands_of(page) for problem in check_line(line)] == []


@pytest.mark.parametrize("script", sorted(path.name for path in ROOT.glob("benchmark/*.sh")))
def test_shell_scripts_have_flags_that_exist(script: str):
    text = (ROOT / "benchmark" / script).read_text().replace("\\\n", " ")
    assert [problem for line in text.splitlines() for problem in check_line(line)] == []


def test_what_does_not_exist_is_noticed():
    line = "uv run --extra gone ppo/ppo.py --learning-rat 1; benchmark/ppo.sh --worker 2; "
    line += "python ppo/gone.py --flag; pytest tests/gone.py; "
    line += "uv run benchmark/run.py --command 'uv run ppo/ppo.py --no-such' --env-ids A"
    assert check_line(line) == [
        "no extra gone",
        "ppo/ppo.py has no flag --learning-rat",
        "benchmark/ppo.sh has no flag --worker",
        "no program ppo/gone.py",
        "no tests/gone.py",
        "ppo/ppo.py has no flag --no-such",
    ]
    assert check_line("uv run ppo/ppo.py --no-anneal-lr && uv run ppo/evaluate.py --greedy") == []
