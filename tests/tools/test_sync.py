"""The scripts stay in sync: what no note calls a script's own is byte-identical.

First the real scripts, then each kind of failure on small synthetic ones.
"""

import ast
import re
import shlex
from pathlib import Path

import pytest
from scripts import PROGRAMS, Script
from scripts import SCRIPTS as FAMILY
from sync import Collection, by_name, compare, cut, golden_diff, iteration_loop, main, split_lines

COLLECTION = Collection()


# ------ the scripts of this repository ------
@pytest.mark.parametrize("name", [name for name, row in FAMILY.items() if row.limits])
def test_line_limits(name: str):
    source = COLLECTION.source(name)
    most_above, most_in_loop = FAMILY[name].limits
    above = source[: source.index(by_name(source)["plumbing"].text)]
    assert sum(bool(line.strip()) for line in split_lines(above)) <= most_above
    loop = iteration_loop(ast.parse(source))
    assert loop.end_lineno - loop.lineno <= most_in_loop


# What the tests of ppo.py's command line say of these holds for the scripts in JAX, too.
SHARED_WITH_JAX = {"refuse", "run_to_resume", "resumed_args", "check_spaces", "start_wandb"}
SHARED_WITH_JAX |= {"Run.on_signal", "Run.show_progress", "Run.finish"}
SHARED_WITH_JAX |= {"Run.upload_films", "hold_signals", "signals_wait"}


def test_what_jax_does_not_change_of_the_plumbing_is_torchs():
    torch, jax = [
        # Without its first line the plumbing is cut into units like any other code.
        {unit.name: unit.code for unit in cut(by_name(source)["plumbing"].text.partition("\n")[2])}
        for source in map(COLLECTION.source, ("ppo.py", "ppo_atari_envpool_xla_jax.py"))
    ]
    assert {name for name in SHARED_WITH_JAX if torch[name] != jax[name]} == set()


def test_table_is_sound():
    assert sorted([*FAMILY, *PROGRAMS]) == COLLECTION.files()
    order = list(FAMILY)
    for name, row in FAMILY.items():
        if row.parent is None:
            assert name == "ppo.py"
        else:
            assert order.index(row.parent) < order.index(name), "parents come first"


# ------ cutting and comparing, on synthetic scripts ------
PARENT = '''\
# /// script
# dependencies = []
# ///
"""Parent."""

import os
import sys

LIMIT = 3


# Comment that belongs to layer_init.


def layer_init(layer):
    return layer


class Agent:
    """Network."""

    def __init__(self):
        self.size = 1
        # trailing comment of __init__

    # above the decorator
    @property
    def value(self):
        return 0.0


def compute_gae(rewards):
    return rewards


def train(args):
    """Train."""
    # ------ setup ------
    agent = Agent()

    # ------ storage: tensors ------
    obs = [os.sep]

    # why the loop starts at 1
    for iteration in range(1, 3):
        frac = iteration

        # ------ rollout: act ------
        obs.append(frac)

        # ------ log ------
        print(iteration)

    return obs


# ====== plumbing: nothing below changes what is learned ======
def log():
    return LIMIT


if __name__ == "__main__":
    train(sys.argv)
'''
CHILD = PARENT.replace('"""Parent."""', '"""Child.\n\nLonger.\n"""')
CHILD = CHILD.replace("self.size = 1", "self.size = 2  # wider")
GRANDCHILD = CHILD.replace("return LIMIT", "return -LIMIT")
OWN = {"Agent.__init__": "differs"}  # of CHILD


def test_cut_names_every_kind_of_unit():
    units = cut(PARENT)
    assert [(unit.name, unit.text.partition("\n")[0].strip()) for unit in units] == [
        ("header", "# /// script"),
        ("docstring", '"""Parent."""'),
        ("imports", "import os"),
        ("LIMIT", "LIMIT = 3"),
        ("layer_init", "# Comment that belongs to layer_init."),
        ("Agent", "class Agent:"),
        ("Agent.__init__", "def __init__(self):"),
        ("Agent.value", "# above the decorator"),
        ("compute_gae", "def compute_gae(rewards):"),
        ("train", "def train(args):"),
        ("train: setup", "# ------ setup ------"),
        ("train: storage", "# ------ storage: tensors ------"),
        ("train: loop", "# why the loop starts at 1"),
        ("train: rollout", "# ------ rollout: act ------"),
        ("train: log", "# ------ log ------"),
        ("train: end", "return obs"),
        ("plumbing", "# ====== plumbing: nothing below changes what is learned ======"),
    ]


ODD = [
    "import os\n\n\n# late\n",
    '"""d"""\nimport os\nx = 1\nimport re\n\n\ndef f():\n    pass\n',
    "class A:\n    def f(self):\n        pass\n\n    g = f\n\n    def f(self):\n        pass\n",
    "# ====== plumbing: x ======\n\n# of f\ndef f():\n    pass\r\n",
    "def train(args):\n    for iteration in range(3):\n        pass\n    #\n\n\nx = '''\n#'''",
]


@pytest.mark.parametrize("source", [*map(COLLECTION.source, COLLECTION.files()), *ODD], ids=len)
def test_units_tile_the_file(source: str):
    units, lines = cut(source), split_lines(source)
    assert "".join(unit.text for unit in units) == source
    assert len({unit.name for unit in units}) == len(units)
    assert all(lines[unit.first - 1] == split_lines(unit.text)[0] for unit in units)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("# dependencies = []", "# dependencies = ['x']", {}),
        ("return rewards", "return  rewards", {"compute_gae": "differs"}),
        ("# Comment that", "# A comment that", {"layer_init": "differs"}),
        ("storage: tensors", "storage: arrays", {"train: storage": "differs"}),
        ("return obs", "return None", {"train: end": "differs"}),
        ("def compute_gae", "def gae", {"compute_gae": "removed", "gae": "added"}),
        ("LIMIT = 3\n\n\n", "", {"LIMIT": "removed"}),
    ],
)
def test_compare_finds_the_units_that_are_not_shared(old: str, new: str, found: dict[str, str]):
    assert old in CHILD
    assert compare(PARENT, CHILD.replace(old, new, 1)) == OWN | found


def test_golden_diff_shows_lines_and_unit_but_no_docstring():
    names, hunk = golden_diff("ppo.py", "ppo_a.py", PARENT, CHILD).split("@@ -", 1)
    assert names == "--- ppo/ppo.py\n+++ ppo/ppo_a.py\n"
    heading, *lines = split_lines(hunk)
    found = re.fullmatch(r"(\d+),(\d+) \+(\d+),(\d+) @@ Agent.__init__\n", heading)
    a, a_count, b, b_count = map(int, found.groups())
    assert [line for line in lines if line[0] != " "] == [
        "-        self.size = 1\n",
        "+        self.size = 2  # wider\n",
    ]
    parent_lines = [line[1:] for line in lines if line[0] != "+"]
    child_lines = [line[1:] for line in lines if line[0] != "-"]
    assert split_lines(PARENT)[a - 1 : a - 1 + a_count] == parent_lines
    assert split_lines(CHILD)[b - 1 : b - 1 + b_count] == child_lines


# ------ the programs, on a synthetic collection ------
@pytest.fixture
def family(tmp_path: Path) -> Collection:
    """ppo.py; ppo_a.py has another Agent.__init__; its child ppo_a_b.py another plumbing."""
    rows = {
        "ppo.py": Script(None, None),
        "ppo_a.py": Script("ppo.py", (6, 6)),
        "ppo_a_b.py": Script("ppo_a.py", (6, 6)),
    }
    (tmp_path / "ppo").mkdir()
    (tmp_path / "docs/notes").mkdir(parents=True)
    collection = Collection(tmp_path, rows, ("play.py",))
    collection.path("ppo.py").write_text(PARENT)
    collection.path("ppo_a.py").write_text(CHILD)
    collection.path("ppo_a_b.py").write_text(GRANDCHILD)
    collection.path("play.py").write_text("print('a program')\n")
    add_note(collection, "ppo_a", "Agent.__init__")
    add_note(collection, "ppo_a_b", "plumbing")
    assert collection.check() == []
    return collection


def add_note(collection: Collection, script: str, heading: str, text: str = "Why.") -> None:
    path = collection.root / "docs" / "notes" / f"{script}.md"
    old = path.read_text() if path.exists() else ""
    path.write_text(f"{old}## {heading}\n{text}\n\n", encoding="utf-8")


def edit(collection: Collection, script: str, old: str, new: str) -> None:
    source = collection.source(script)
    assert old in source
    collection.path(script).write_text(source.replace(old, new))


WRAP = "def wrap(env):\n    return env\n\n\nclass Agent:"
LONG = "print(LIMIT)\n    " * 6 + "return -LIMIT"


@pytest.mark.parametrize(
    ("old", "new", "unit", "problem"),
    [
        ("range(1, 3)", "range(1, 4)", "train: loop", "differs from the parent's: python "),
        ("LIMIT = 3\n\n\n", "", "LIMIT", "of the parent is missing: python "),
        ("class Agent:", WRAP, "wrap", "is not in the parent: delete it or "),
    ],
)
def test_drift_of_each_kind_is_told_and_a_note_makes_it_the_scripts_own(
    family: Collection, old: str, new: str, unit: str, problem: str
):
    edit(family, "ppo_a_b.py", old, new)
    [told] = family.check()
    assert told.startswith(f"ppo/ppo_a_b.py: `{unit}` {problem}")
    assert told.endswith(f" or write a note `## {unit}` in docs/notes/ppo_a_b.md")
    add_note(family, "ppo_a_b", unit)
    assert family.check() == []


@pytest.mark.parametrize(("old", "new"), [("range(1, 3)", "range(1, 4)"), ("LIMIT = 3\n\n\n", "")])
def test_drift_can_be_undone(family: Collection, old: str, new: str):
    edit(family, "ppo_a_b.py", old, new)
    [problem] = family.check()
    [command] = re.findall(r"sync\.py (.*) or write", problem)
    assert main(shlex.split(command), family) == 0
    assert family.source("ppo_a_b.py") == GRANDCHILD


def test_a_note_on_a_unit_that_does_not_differ_is_told(family: Collection):
    edit(family, "ppo_a_b.py", "return -LIMIT", "return LIMIT")
    told = "docs/notes/ppo_a_b.md: `plumbing` does not differ from the parent's"
    assert family.check() == [f"ppo/ppo_a_b.py: {told}"]


CLASS = "class Wrap:\n    def reset(self):\n        return 0\n\n\nclass Agent:"


def test_a_heading_names_several_units_or_a_new_class_with_its_methods(family: Collection):
    edit(family, "ppo_a_b.py", "class Agent:", CLASS)
    edit(family, "ppo_a_b.py", "range(1, 3)", "range(1, 4)")
    edit(family, "ppo_a_b.py", '"""Network."""', '"""Network, wider."""')
    edit(family, "ppo_a_b.py", "return 0.0", "return 1.0")
    add_note(family, "ppo_a_b", "Wrap + train: loop")
    add_note(family, "ppo_a_b", "Agent")
    [told] = family.check()
    assert told.startswith("ppo/ppo_a_b.py: `Agent.value` differs"), "an old class's methods count"
    edit(family, "ppo_a.py", "return 0.0", "return 1.0")
    report = family.copy("Agent.value", "ppo_a.py")
    assert report == [] and family.source("ppo_a_b.py").count("return 1.0") == 1


def test_an_empty_note_is_none(family: Collection):
    edit(family, "ppo_a_b.py", "return rewards", "return 0")
    add_note(family, "ppo_a_b", "compute_gae", text="")
    [told] = family.check()
    assert "`compute_gae` differs" in told


def test_a_diff_over_budget_is_found(family: Collection):
    edit(family, "ppo_a_b.py", "return -LIMIT", LONG)
    [problem] = family.check()
    told = "ppo/ppo_a_b.py: the diff to the parent is -1/+7 lines, the budget is -6/+6: shorten it"
    assert problem.startswith(told)


def test_reordered_units_are_found(family: Collection):
    unit = by_name(CHILD)["compute_gae"].text
    edit(family, "ppo_a_b.py", unit, "")
    edit(family, "ppo_a_b.py", "class Agent:", f"{unit}class Agent:")
    problem = "the units it shares with its parent are in another order"
    assert family.check() == [f"ppo/ppo_a_b.py: {problem}"]


def test_a_script_that_the_table_does_not_know_is_told(family: Collection):
    family.path("ppo_other.py").write_text(PARENT)
    assert family.check() == ["ppo/ppo_other.py has no row in benchmark/scripts.py"]


def test_copy_reaches_all_descendants_that_share_the_unit(family: Collection):
    edit(family, "ppo.py", "return rewards", "return -rewards")
    assert len(family.check()) == 1, "ppo_a.py drifted"
    report = family.copy("compute_gae", "ppo.py")
    assert report == ["ppo/ppo_a.py: `compute_gae` copied", "ppo/ppo_a_b.py: `compute_gae` copied"]
    assert family.check() == []
    assert family.source("ppo_a.py") == CHILD.replace("return rewards", "return -rewards")
    assert family.copy("compute_gae", "ppo.py") == []
