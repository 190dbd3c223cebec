"""The scripts stay in sync: what the table in family.py does not declare is byte-identical.

First the real scripts, then each kind of failure on small synthetic ones.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from family import FAMILY, PROGRAMS, Limits, Script
from sync import (
    Collection,
    by_name,
    check_anatomy,
    check_file,
    check_pair,
    cut,
    golden_diff,
    main,
    split_lines,
)

COLLECTION = Collection()


# ------ the scripts of this repository ------
def test_every_file_has_a_complete_row():
    assert COLLECTION.check_table() == []


@pytest.mark.parametrize("name", COLLECTION.files())
def test_script_agrees_with_its_row(name: str):
    assert COLLECTION.check_script(name) == []


@pytest.mark.parametrize("name", COLLECTION.files())
def test_units_tile_the_file(name: str):
    source = COLLECTION.source(name)
    units = cut(source)
    assert "".join(unit.text for unit in units) == source
    assert len({unit.name for unit in units}) == len(units)
    lines = split_lines(source)
    assert all(lines[u.first - 1] == split_lines(u.text)[0] for u in units)


def test_golden_diffs_are_current():
    assert COLLECTION.check_diffs() == []


def test_ppo_is_cut_as_the_anatomy_says():
    names = [unit.name for unit in cut(COLLECTION.source("ppo.py"))]
    shared = [
        "header",
        "docstring",
        "imports",
        "Args",
        "make_envs",
        "check_envs",
        "layer_init",
        "Agent",
    ]
    shared += ["Agent.__init__", "Agent.get_value", "Agent.get_action"]
    shared += [
        "Agent.get_logprob_entropy_value",
        "compute_gae",
        "ppo_loss",
        "backward",
        "evaluate",
        "train",
    ]
    shared += ["plumbing"]
    assert [name for name in names if name in shared] == shared


def plumbing(name: str) -> str:
    """All of a script from its plumbing line on."""
    return by_name(COLLECTION.source(name))["plumbing"].text


def test_scripts_of_a_framework_have_one_plumbing():
    blocks: dict[str, dict[str, list[str]]] = {"torch": {}, "jax": {}}
    for name in COLLECTION.scripts():
        framework = "jax" if "import jax" in COLLECTION.source(name) else "torch"
        blocks[framework].setdefault(plumbing(name), []).append(name)
    assert [len(found) for found in blocks.values()] == [1, 1], [*blocks["torch"].values()]


@pytest.mark.parametrize("name", ["ppo.py", "ppo_atari_envpool_xla_jax.py"])
def test_plumbing_is_calm(name: str):
    """One statement a line, none filled to the brim, every function says what it is for."""
    text = plumbing(name)
    tree = ast.parse(text)
    assert [line for line in text.splitlines() if len(line) > 99] == []
    for node in ast.walk(tree):
        assert not isinstance(node, ast.NamedExpr), "an assignment inside an expression"
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            assert not isinstance(node.value, ast.Tuple), "several assignments in one"
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            assert ast.get_docstring(node), node.name
    assert re.findall(r"__import__|dict\.fromkeys", text) == []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    assert [token.start for token in tokens if token.exact_type == tokenize.SEMI] == []


def test_table_is_sound():
    assert not FAMILY.keys() & set(PROGRAMS)
    order = list(FAMILY)
    for name, row in FAMILY.items():
        if row.parent is None:
            assert name == "ppo.py"
        else:
            assert order.index(row.parent) < order.index(name), "parents come first"


# ------ synthetic scripts ------
PARENT = '''\
# /// script
# dependencies = []
# ///
"""Parent."""

import os
from dataclasses import dataclass

LIMIT = 3


@dataclass
class Args:
    num_envs: int = 4  # environments

    @property
    def batch_size(self) -> int:
        return self.num_envs


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
        return self.size


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

        # ------ advantages ------
        compute_gae(obs)

        # ------ update ------
        layer_init(agent)

        # ------ log ------
        print(iteration)

    return obs


# ====== plumbing: nothing below changes what is learned ======
class Logger:
    def log(self):
        return LIMIT


if __name__ == "__main__":
    train(Args())
'''
CHILD = PARENT.replace('"""Parent."""', '"""Child.\n\nLonger.\n"""').replace(
    "self.size = 1", "self.size = 2  # wider"
)
ROW = Script("ppo.py", (1, 1), differs=frozenset({"Agent.__init__"}))
EXTRA = "def wrap(env):\n    return env\n\n\ndef layer_init"


def test_cut_names_every_kind_of_unit():
    units = cut(PARENT)
    assert [(unit.name, unit.first) for unit in units] == [
        ("header", 1),
        ("docstring", 4),
        ("imports", 6),
        ("LIMIT", 9),
        ("Args", 12),
        ("Args.batch_size", 16),
        ("layer_init", 21),
        ("Agent", 28),
        ("Agent.__init__", 31),
        ("Agent.value", 35),
        ("compute_gae", 41),
        ("train", 45),
        ("train: setup", 47),
        ("train: storage", 50),
        ("train: loop", 53),
        ("train: rollout", 57),
        ("train: advantages", 60),
        ("train: update", 63),
        ("train: log", 66),
        ("train: end", 69),
        ("plumbing", 72),
    ]
    assert "".join(unit.text for unit in units) == PARENT


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1",
        "# only a comment\n",
        "import os\n\n\n# late\n",
        '"""d"""\nimport os\nx = 1\nimport re\n\n\ndef f():\n    pass\n',
        "class A:\n    def f(self):\n        pass\n\n    g = f\n\n    def f(self):\n        pass\n",
        "# ====== plumbing: x ======\n\n# of f\ndef f():\n    pass\r\n",
        "def train(args):\n    for iteration in range(3):\n        pass\n    #\n\n\nx = '''\n#'''",
    ],
)
def test_cut_tiles_odd_files(source: str):
    units = cut(source)
    assert "".join(unit.text for unit in units) == source
    assert len({unit.name for unit in units}) == len(units)


def test_a_declared_difference_is_accepted():
    assert check_pair(PARENT, CHILD, ROW) == []
    assert check_anatomy(CHILD, ROW) == []


@pytest.mark.parametrize(
    ("old", "new", "row", "complaint"),
    [
        ("return rewards", "return  rewards", ROW, "`compute_gae` drifted"),
        ("return rewards", "return rewards  # x", ROW, "`compute_gae` drifted"),
        ("# Comment that", "# A comment that", ROW, "`layer_init` drifted"),
        ("obs.append(frac)", "obs.append(0)", ROW, "`train: rollout` drifted"),
        ("storage: tensors", "storage: arrays", ROW, "`train: storage` drifted"),
        ("range(1, 3)", "range(1, 4)", ROW, "`train: loop` drifted"),
        ("return obs", "return None", ROW, "`train: end` drifted"),
        ("return LIMIT", "return 0", ROW, "`plumbing` drifted"),
        ("self.size = 2  # wider", "self.size = 1", ROW, "`Agent.__init__` is declared to differ"),
        ("def compute_gae", "def gae", ROW, "`compute_gae` of the parent is missing"),
        ("def compute_gae", "def gae", ROW, "`gae` is not in the parent"),
        ("def layer_init", EXTRA, ROW, "`wrap` is not in the parent"),
        ("", "", replace(ROW, adds=frozenset({"wrap"})), "`wrap` is declared as added but"),
        ("", "", replace(ROW, removes=frozenset({"LIMIT"})), "`LIMIT` is declared as removed but"),
        (
            "",
            "",
            replace(ROW, differs=ROW.differs | {"imports"}),
            "`imports` is declared to differ",
        ),
        ("", "", replace(ROW, budget=(0, 1)), "-1/+1 lines, the budget is -0/+1"),
        ("", "", replace(ROW, budget=(1, 0)), "-1/+1 lines, the budget is -1/+0"),
    ],
)
def test_a_failure_of_each_kind(old: str, new: str, row: Script, complaint: str):
    child = CHILD.replace(old, new, 1)
    assert any(complaint in problem for problem in check_pair(PARENT, child, row))


def test_reordered_units_are_found():
    units = by_name(CHILD)
    child = CHILD.replace(units["compute_gae"].text, "")
    child = child.replace("class Agent:", units["compute_gae"].text + "class Agent:")
    assert check_pair(PARENT, child, ROW) == [
        "the units it shares with its parent are in another order",
        "the diff to the parent is -5/+5 lines, the budget is -1/+1",
    ]


def test_added_and_removed_units_can_be_declared():
    child = CHILD.replace("def layer_init", EXTRA).replace("LIMIT = 3\n\n\n", "")
    child = child.replace("return LIMIT", "return 3")
    row = Script(
        "ppo.py",
        (9, 9),
        differs=frozenset({"Agent.__init__", "plumbing", "layer_init"}),
        adds=frozenset({"wrap"}),
        removes=frozenset({"LIMIT"}),
    )
    # The comment above the definition now belongs to `wrap`, so layer_init differs, too.
    assert check_pair(PARENT, child, row) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("    # ------ storage: tensors ------\n", "", "the anatomy is"),
        ("# ------ update ------", "# ------ learn ------", "the anatomy is"),
        ("# ====== plumbing", "# ====== the rest", "the anatomy is"),
        ("for iteration in", "for update in", "the anatomy is"),
    ],
)
def test_broken_anatomy_is_found(old: str, new: str, complaint: str):
    assert old in PARENT
    assert complaint in check_anatomy(PARENT.replace(old, new), ROW)[0]


def test_line_limits():
    fits = Limits(above_plumbing=45, loop=13)
    assert check_anatomy(PARENT, replace(ROW, limits=fits)) == []
    tight = Limits(above_plumbing=44, loop=12)
    assert check_anatomy(PARENT, replace(ROW, limits=tight)) == [
        "45 written lines above the plumbing, at most 44",
        "13 lines in the loop body, at most 12",
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("import ppo_atari", "imports another script"),
        ("from ppo import Agent", "imports another script"),
        ("from .ppo import Agent", "imports another script"),
        ("def f():\n    import ppo as other", "imports another script"),
        ("x = '" + "x" * 95 + "'", "line 1 is over 100 columns"),
    ],
)
def test_imports_and_width(line: str, complaint: str):
    assert complaint in check_file(line + "\n", ["ppo.py", "ppo_atari.py"])[0]


def test_allowed_imports_and_width():
    source = "import os, ppo_other\nfrom torch import ppo\nx = '" + "x" * 94 + "'\n"
    assert check_file(source, ["ppo.py"]) == []


# ------ the programs, on a synthetic collection ------
GRANDCHILD = CHILD.replace("return LIMIT", "return -LIMIT")


@pytest.fixture
def family(tmp_path: Path) -> Collection:
    """ppo.py; ppo_a.py has another Agent.__init__; its child ppo_a_b.py another plumbing."""
    rows = {
        "ppo.py": Script(None, None, differs=frozenset()),
        "ppo_a.py": ROW,
        "ppo_a_b.py": Script("ppo_a.py", (1, 1), differs=frozenset({"plumbing"})),
        "ppo_planned.py": Script("ppo.py", (5, 5)),
    }
    (tmp_path / "ppo").mkdir()
    sources = {"ppo.py": PARENT, "ppo_a.py": CHILD, "ppo_a_b.py": GRANDCHILD}
    for name, source in sources.items():
        (tmp_path / "ppo" / name).write_text(source)
    (tmp_path / "ppo" / "play.py").write_text("print('a program')\n")
    collection = Collection(tmp_path, rows, ("play.py",))
    collection.write_diffs()
    return collection


def edit(collection: Collection, script: str, change: Callable[[str], str]) -> None:
    source = collection.source(script)
    assert change(source) != source
    collection.path(script).write_text(change(source))


def test_synthetic_collection_is_in_sync(family: Collection):
    assert family.check() == []
    assert sorted(path.name for path in (family.root / "docs/diffs").iterdir()) == [
        "ppo_a.diff",
        "ppo_a_b.diff",
    ]


def test_golden_diff_shows_lines_and_unit_but_no_docstring():
    diff = golden_diff("ppo.py", "ppo_a.py", PARENT, CHILD)
    assert diff.splitlines() == [
        "--- ppo/ppo.py",
        "+++ ppo/ppo_a.py",
        "@@ -29,7 +32,7 @@ Agent.__init__",
        '     """Network."""',
        " ",
        "     def __init__(self):",
        "-        self.size = 1",
        "+        self.size = 2  # wider",
        "         # trailing comment of __init__",
        " ",
        "     # above the decorator",
    ]


def test_stale_missing_and_left_over_golden_diffs(family: Collection):
    diffs = family.root / "docs" / "diffs"
    edit(family, "ppo_a.py", lambda s: s.replace("# wider", "# wide"))
    (diffs / "ppo_gone.diff").write_text("")
    stale = [problem.split()[0] for problem in family.check_diffs()]
    assert stale == [f"docs/diffs/{name}.diff" for name in ("ppo_a", "ppo_a_b", "ppo_gone")]
    assert main(["write-diffs"], family) == 0
    assert family.check_diffs() == []
    (diffs / "ppo_a.diff").unlink()
    assert "docs/diffs/ppo_a.diff is stale" in family.check_diffs()[0]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ppo_new.py", "ppo/ppo_new.py has no row"),
        ("ppo_planned.py", "ppo/ppo_planned.py has an incomplete row"),
    ],
)
def test_a_script_needs_a_complete_row(family: Collection, name: str, complaint: str):
    family.path(name).write_text(PARENT)
    assert any(complaint in problem for problem in family.check_table())


def test_a_script_needs_its_parent(family: Collection):
    family.path("ppo_a.py").unlink()
    assert "parent ppo_a.py does not exist" in family.check_table()[0]


def test_check_command_fails_on_a_drifted_unit(
    family: Collection, capsys: pytest.CaptureFixture[str]
):
    assert main(["check"], family) == 0
    edit(family, "ppo_a_b.py", lambda s: s.replace("return rewards", "return 0"))
    assert main(["check"], family) == 1
    assert "ppo/ppo_a_b.py: `compute_gae` drifted" in capsys.readouterr().out


def test_copy_reaches_all_descendants_that_share_the_unit(family: Collection):
    edit(family, "ppo.py", lambda s: s.replace("return rewards", "return -rewards"))
    assert any("ppo/ppo_a.py: `compute_gae` drifted" in problem for problem in family.check())
    report = family.copy("compute_gae", "ppo.py")
    assert report == ["ppo/ppo_a.py: `compute_gae` copied", "ppo/ppo_a_b.py: `compute_gae` copied"]
    family.write_diffs()
    assert family.check() == []
    assert family.source("ppo_a.py") == CHILD.replace("return rewards", "return -rewards")


def test_copy_stops_where_a_script_has_its_own(family: Collection):
    edit(family, "ppo.py", lambda s: s.replace("self.size = 1", "self.size = 10"))
    report = family.copy("Agent.__init__", "ppo.py")
    assert report == ["ppo/ppo_a.py: not touched, `Agent.__init__` is its own"]
    assert family.source("ppo_a.py") == CHILD
    assert family.source("ppo_a_b.py") == GRANDCHILD
    edit(family, "ppo_a.py", lambda s: s.replace("self.size = 2", "self.size = 20"))
    assert family.copy("Agent.__init__", "ppo_a.py") == [
        "ppo/ppo_a_b.py: `Agent.__init__` copied",
    ]
    assert "self.size = 20" in family.source("ppo_a_b.py")


def test_copy_inserts_a_new_unit_behind_its_predecessor(family: Collection):
    new = "def entropy(x):\n    return x\n"
    edit(family, "ppo.py", lambda s: s.replace("def train(", new + "\n\ndef train("))
    family.copy("entropy", "ppo.py")
    family.write_diffs()
    assert family.check() == []
    source = family.source("ppo_a.py")
    assert source.index("def entropy") < source.index("def train(")


def test_copy_to_some(family: Collection):
    edit(family, "ppo.py", lambda s: s.replace("return LIMIT", "return LIMIT + 1"))
    with pytest.raises(ValueError, match=r"not shared by ppo_a_b.py"):
        family.copy("plumbing", "ppo.py", to=["ppo_a.py", "ppo_a_b.py"])
    assert family.source("ppo_a.py") == CHILD, "a refused copy changes nothing"
    assert family.copy("plumbing", "ppo.py", to=["ppo_a.py"]) == ["ppo/ppo_a.py: `plumbing` copied"]
    assert family.copy("plumbing", "ppo.py") == [
        "ppo/ppo_a.py: `plumbing` already equal",
        "ppo/ppo_a_b.py: not touched, `plumbing` is its own",
    ]


def test_copy_waits_for_an_incomplete_row(family: Collection):
    family.path("ppo_planned.py").write_text(PARENT)
    edit(family, "ppo.py", lambda s: s.replace("return rewards", "return 0"))
    report = family.copy("compute_gae", "ppo.py")
    assert report[-1].endswith("not touched, its row in tools/family.py is incomplete")
    assert family.source("ppo_planned.py") == PARENT
    family.copy("compute_gae", "ppo.py", to=["ppo_planned.py"])
    assert family.source("ppo_planned.py") == family.source("ppo.py")


def test_copy_all_brings_everything_up_to_date(family: Collection):
    edit(family, "ppo.py", lambda s: s.replace("return rewards", "return 0"))
    edit(family, "ppo.py", lambda s: s.replace("obs.append(frac)", "obs.append(1)"))
    assert main(["copy", "--all"], family) == 0
    assert main(["write-diffs"], family) == 0
    assert family.check() == []


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["copy", "gae"], "ppo/ppo.py has no unit `gae`; it has: header, docstring"),
        (["copy", "header"], "every script has its own header"),
        (["copy"], "name the units to copy"),
        (["list", "ppo_gone"], "No such file"),
        (["row", "ppo"], "names no parent of ppo.py"),
    ],
)
def test_bad_input(
    family: Collection, capsys: pytest.CaptureFixture[str], argv: list[str], complaint: str
):
    assert main(argv, family) == 2
    assert complaint in capsys.readouterr().err


def test_list_diff_and_row(family: Collection, capsys: pytest.CaptureFixture[str]):
    assert main(["list", "ppo/ppo.py"], family) == 0
    assert "  53-55      3 lines  train: loop\n" in capsys.readouterr().out
    edit(family, "ppo_a.py", lambda s: s.replace("return rewards", "return 0"))
    edit(family, "ppo_a.py", lambda s: s.replace("LIMIT = 3\n\n\n", ""))
    edit(family, "ppo_a.py", lambda s: s.replace("def layer_init", EXTRA))
    assert main(["diff", "ppo", "ppo_a.py"], family) == 0
    out = capsys.readouterr().out
    assert "= Args\n" in out
    assert "~ Agent.__init__ -1/+1\n    -        self.size = 1\n" in out
    assert "~ compute_gae -1/+1  UNDECLARED\n" in out
    assert "- LIMIT -1/+0  UNDECLARED\n" in out
    assert "+ wrap -0/+5  UNDECLARED\n" in out
    assert "budget -1/+1\n" in out
    assert main(["row", "ppo_a"], family) == 0
    assert capsys.readouterr().out.splitlines() == [
        'differs=frozenset(["Agent.__init__", "compute_gae", "layer_init"]),',
        'adds=frozenset(["wrap"]),',
        'removes=frozenset(["LIMIT"]),',
    ]
