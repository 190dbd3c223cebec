"""The scripts stay in sync: what is not recorded as a script's own is byte-identical.

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
ANATOMY = ["imports", "Args", "make_envs", "layer_init", "Agent", "Agent.__init__"]
ANATOMY += ["Agent.get_value", "Agent.get_action", "Agent.get_logprob_entropy_value"]
ANATOMY += ["compute_gae", "ppo_loss", "compute_gradient", "evaluate", "train", "train: setup"]
ANATOMY += ["train: storage", "train: loop", "train: rollout", "train: advantages"]
ANATOMY += ["train: update", "train: log", "check_envs", "plumbing"]


# ------ the scripts of this repository ------
def test_scripts_are_in_sync():
    assert COLLECTION.check() == []


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_anatomy(name: str):
    """Functions, banners and the plumbing line are there, in order."""
    units = by_name(COLLECTION.source(name))
    left_out = set()
    if "rollout" in units:  # a function, which returns what it has stored
        left_out = {"train: storage"}
    if "torch" in FAMILY[name].without:  # Flax's layers take an initializer
        left_out |= {"layer_init"}
    if "train_step" in units:  # which is compiled as a whole: `train` has only what is left
        parts = re.findall(r"^    # -{6} (\w+): ", units["train_step"].text, re.MULTILINE)
        assert parts == ["rollout", "advantages", "update"]
        left_out |= {"train: loop", "train: rollout", "train: advantages", "train: update"}
    anatomy = [unit for unit in ANATOMY if unit not in left_out]
    assert [unit for unit in units if unit in ANATOMY] == anatomy


@pytest.mark.parametrize("name", [name for name, row in FAMILY.items() if row.limits])
def test_line_limits(name: str):
    source = COLLECTION.source(name)
    most_above, most_in_loop = FAMILY[name].limits
    above = source[: source.index(by_name(source)["plumbing"].text)]
    assert sum(bool(line.strip()) for line in split_lines(above)) <= most_above
    loop = iteration_loop(ast.parse(source))
    assert loop.end_lineno - loop.lineno <= most_in_loop


def plumbing(name: str) -> str:
    """All of a script from its plumbing line on."""
    return by_name(COLLECTION.source(name))["plumbing"].text


def test_scripts_of_a_framework_have_one_plumbing():
    blocks: dict[str, dict[str, list[str]]] = {"torch": {}, "jax": {}}
    for name in COLLECTION.scripts():
        framework = "jax" if "import jax" in COLLECTION.source(name) else "torch"
        blocks[framework].setdefault(plumbing(name), []).append(name)
    assert [len(found) for found in blocks.values()] == [1, 1], [*blocks["torch"].values()]


# What the tests of ppo.py's command line say of these holds for the scripts in JAX, too.
SHARED_WITH_JAX = {"refuse", "run_to_resume", "resumed_args", "check_spaces", "start_wandb"}
SHARED_WITH_JAX |= {"Run.on_signal", "Run.show_progress", "Run.finish"}
SHARED_WITH_JAX |= {"Run.upload_films", "signals_wait"}


def functions(name: str) -> dict[str, str]:
    """The text of each function of a script's plumbing, methods as Class.method."""
    text = plumbing(name)
    found = {}
    for node in ast.parse(text).body:
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(part, ast.FunctionDef):
                owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                found[owner + part.name] = ast.get_source_segment(text, part) or ""
    return found


def test_what_jax_does_not_change_of_the_plumbing_is_torchs():
    torch, jax = functions("ppo.py"), functions("ppo_atari_envpool_xla_jax.py")
    same = {name for name in torch.keys() & jax.keys() if torch[name] == jax[name]}
    assert same == SHARED_WITH_JAX


@pytest.mark.parametrize("name", ["ppo.py", "ppo_atari_envpool_xla_jax.py"])
def test_plumbing_keeps_its_style(name: str):
    """docs/contributing.md has the rules: what nobody came to read has to be easy to read."""
    for node in ast.walk(ast.parse(plumbing(name))):
        assert not isinstance(node, ast.NamedExpr), "an assignment inside an expression"
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            assert not isinstance(node.value, ast.Tuple), "several assignments in one"
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_table_is_sound():
    assert sorted([*FAMILY, *PROGRAMS]) == COLLECTION.files()
    order = list(FAMILY)
    for name, row in FAMILY.items():
        if row.parent is None:
            assert name == "ppo.py"
        else:
            assert order.index(row.parent) < order.index(name), "parents come first"
    assert COLLECTION.record().keys() <= FAMILY.keys()


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
        "ppo_new.py": Script("ppo.py", (6, 6)),
    }
    (tmp_path / "ppo").mkdir()
    (tmp_path / "tools").mkdir()
    collection = Collection(tmp_path, rows, ("play.py",))
    collection.path("ppo.py").write_text(PARENT)
    collection.path("ppo_a.py").write_text(CHILD)
    collection.path("ppo_a_b.py").write_text(GRANDCHILD)
    collection.path("play.py").write_text("print('a program')\n")
    collection.accept("ppo_a.py", [])
    collection.accept("ppo_a_b.py", [])
    assert collection.record() == {"ppo_a.py": OWN, "ppo_a_b.py": {"plumbing": "differs"}}
    assert collection.check() == []
    return collection


def edit(collection: Collection, script: str, old: str, new: str) -> None:
    source = collection.source(script)
    assert old in source
    collection.path(script).write_text(source.replace(old, new))


WRAP = "def wrap(env):\n    return env\n\n\nclass Agent:"
LONG = "print(LIMIT)\n    " * 6 + "return -LIMIT"


def advised(problem: str) -> list[list[str]]:
    """Arguments of the commands that a problem says."""
    return [shlex.split(text) for text in re.findall(r"sync\.py (.*?)(?: or python|$)", problem)]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("range(1, 3)", "range(1, 4)", "`train: loop` differs from the parent's: "),
        ("LIMIT = 3\n\n\n", "", "`LIMIT` of the parent is missing: "),
        ("class Agent:", WRAP, "`wrap` is not in the parent: delete it or "),
        ("return -LIMIT", "return LIMIT", "`plumbing` is no longer the script's own (recorded as"),
    ],
)
def test_drift_of_each_kind_is_told_and_can_be_accepted(
    family: Collection, old: str, new: str, problem: str
):
    edit(family, "ppo_a_b.py", old, new)
    [told] = family.check()
    assert problem in told
    assert main(advised(told)[-1], family) == 0
    assert family.check() == []


@pytest.mark.parametrize(("old", "new"), [("range(1, 3)", "range(1, 4)"), ("LIMIT = 3\n\n\n", "")])
def test_drift_can_be_undone(family: Collection, old: str, new: str):
    edit(family, "ppo_a_b.py", old, new)
    [problem] = family.check()
    assert main(advised(problem)[0], family) == 0
    assert family.source("ppo_a_b.py") == GRANDCHILD


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


@pytest.mark.parametrize(
    ("name", "problem"), [("ppo_other", "has no row in"), ("ppo_new", "has no record in")]
)
def test_a_script_that_the_tables_do_not_know_is_told(family: Collection, name: str, problem: str):
    family.path(f"{name}.py").write_text(PARENT)
    [told] = family.check()
    assert told.startswith(f"ppo/{name}.py {problem}")


def test_copy_reaches_all_descendants_that_share_the_unit(family: Collection):
    edit(family, "ppo.py", "return rewards", "return -rewards")
    assert len(family.check()) == 1, "ppo_a.py drifted"
    report = family.copy("compute_gae", "ppo.py")
    assert report == ["ppo/ppo_a.py: `compute_gae` copied", "ppo/ppo_a_b.py: `compute_gae` copied"]
    assert family.check() == []
    assert family.source("ppo_a.py") == CHILD.replace("return rewards", "return -rewards")
    assert family.copy("compute_gae", "ppo.py") == []


def test_copy_stops_where_a_script_has_its_own(family: Collection):
    edit(family, "ppo.py", "self.size = 1", "self.size = 10")
    report = family.copy("Agent.__init__", "ppo.py")
    assert report == ["ppo/ppo_a.py: not touched, `Agent.__init__` is its own"]
    assert family.source("ppo_a.py") == CHILD
    edit(family, "ppo_a.py", "self.size = 2", "self.size = 20")
    family.copy("Agent.__init__", "ppo_a.py")
    assert "self.size = 20" in family.source("ppo_a_b.py")


def test_copy_inserts_a_new_unit_behind_its_predecessor(family: Collection):
    edit(family, "ppo.py", "def train(", "def entropy(x):\n    return x\n\n\ndef train(")
    family.copy("entropy", "ppo.py")
    assert family.check() == []
    source = family.source("ppo_a.py")
    assert source.index("def compute_gae") < source.index("def entropy") < source.index("def train")


@pytest.mark.parametrize(
    ("unit", "problem"), [("LIMIT", "no place for"), ("Agent.value", "`Agent.value` does not fit")]
)
def test_a_copy_that_fits_nowhere_changes_nothing(family: Collection, unit: str, problem: str):
    edit(family, "ppo.py", "LIMIT = 3", "LIMIT = 4")
    edit(family, "ppo.py", "return 0.0", "return 1.0")
    family.path("ppo_a_b.py").write_text("def layer_init(layer):\n    return layer\n")
    with pytest.raises(ValueError, match=problem):
        family.copy(unit, "ppo.py")
    assert family.source("ppo_a.py") == CHILD


def test_accept_takes_the_named_units_only(family: Collection):
    edit(family, "ppo_a_b.py", "return rewards", "return 0")
    edit(family, "ppo_a_b.py", "return obs", "return None")
    family.accept("ppo_a_b.py", ["compute_gae"])
    assert family.record()["ppo_a_b.py"] == {"compute_gae": "differs", "plumbing": "differs"}
    [problem] = family.check()
    assert "`train: end` differs" in problem


def test_a_new_script(family: Collection, capsys: pytest.CaptureFixture[str]):
    """It has a row; `diff` shows what it changes, `accept` without units makes its record."""
    statement = "for name in ('a', 'µ'):"
    source = PARENT.replace("self.size = 1", "self.size = 3").replace("LIMIT = 3\n\n\n", "")
    source = source.replace("class Agent:", f"{statement}\n    print(name)\n\n\nclass Agent:")
    family.path("ppo_new.py").write_text(source)
    assert main(["diff", "ppo", "ppo/ppo_new.py"], family) == 0
    out = capsys.readouterr().out
    assert "-        self.size = 1\n+        self.size = 3\n" in out
    assert "\n`Agent.__init__` differs from the parent's\n`LIMIT` of the parent is missing\n" in out
    assert out.endswith("\n-4/+5 lines\n")

    report = family.copy("compute_gae", "ppo.py")
    assert report[-1] == "ppo/ppo_new.py: not touched, it has no record in tools/own_units.json"
    assert main(["accept", "ppo_new"], family) == 0
    own = {statement: "added", "Agent.__init__": "differs", "LIMIT": "removed"}
    assert family.record()["ppo_new.py"] == own
    assert family.check() == []


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["copy", "gae"], "ppo/ppo.py has no unit `gae`; it has: header, docstring"),
        (["copy", "header"], "every script has its own header"),
        (["copy", "compute_gae", "gae"], "ppo/ppo.py has no unit `gae`; it has: header"),
        (["list", "ppo_gone"], "No such file"),
        (["accept", "ppo"], "benchmark/scripts.py names no parent of ppo.py"),
        (["accept", "ppo_a"], "ppo_a.py has a record: name the units to accept"),
        (["accept", "ppo_a", "train"], "`train` is no unit of ppo_a.py's own"),
    ],
)
def test_bad_input(
    family: Collection, capsys: pytest.CaptureFixture[str], argv: list[str], complaint: str
):
    assert main(argv, family) == 2
    assert complaint in capsys.readouterr().err


def test_list_names_the_units(family: Collection, capsys: pytest.CaptureFixture[str]):
    assert main(["list", "ppo/ppo.py"], family) == 0
    assert capsys.readouterr().out.splitlines() == [unit.name for unit in cut(PARENT)]
