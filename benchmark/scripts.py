"""The table of the scripts, from which tables and tests are made.

The headings of docs/notes/<script>.md name the units that a script does not share with its parent;
its class Args has its flags and their defaults.
"""

import ast
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Script:
    """One row of the table."""

    parent: str | None  # the file whose diff is this file's lesson
    # Lines removed, lines added at most; None: the parent is too far away for a diff of lines.
    budget: tuple[int, int] | None
    about: str = ""  # what it is about, in Markdown
    column: str = ""  # of the matrix of details
    extras: tuple[str, ...] = ()  # of pyproject.toml, that its PEP 723 header adds to the base
    without: frozenset[str] = frozenset()  # distributions of the base that it does not need
    requires_python: str | None = None  # None: the same as pyproject.toml
    # Most written lines above the plumbing, most lines of the loop, which is to fit a screen.
    limits: tuple[int, int] | None = None
    speed: str | None = None  # file in docs/results/ with its speed beside CleanRL's
    shown: str | None = None  # the environment whose score stands in the first table
    metric: str = "charts/episodic_return"  # what its score is the mean of


# A budget is the size of the diff as it is. It is raised on purpose, with what the lines are for.
SCRIPTS: dict[str, Script] = {
    "ppo.py": Script(
        None,
        None,
        about="classic control: vector observations, discrete actions",
        column="classic",
        limits=(315, 70),
        speed="speed.csv",
        shown="CartPole-v1",
    ),
    # Statistics of observations and rewards that are saved and frozen in evaluation take 26 lines;
    # Gymnasium's wrappers would take 4 and be in no checkpoint. RPO takes 4, dm_control 4, and 10
    # refuse films without a screen and actions that are whole numbers, 3 infinite observations.
    "ppo_continuous_action.py": Script(
        "ppo.py",
        (25, 94),
        about="continuous actions: MuJoCo, Box2D, dm_control",
        column="continuous",
        extras=("mujoco", "dm_control"),
        speed="speed_continuous.csv",
        shown="HalfCheetah-v4",
    ),
    # The policy takes 20 lines; the others make Gymnasium environments of Gym-µRTS, which is older.
    "ppo_multidiscrete.py": Script(
        "ppo.py",
        (8, 62),
        about="several discrete actions at a time: Gym-µRTS and others",
        column="multi-discrete",
        extras=("microrts",),
    ),
    # 40 lines find and check the masks: those that an environment gives are not all alike.
    "ppo_multidiscrete_mask.py": Script(
        "ppo_multidiscrete.py",
        (13, 64),
        about="invalid actions masked",
        column="multi-discrete",
        extras=("microrts",),
    ),
    # 53 of these lines are the three wrappers and `warp`, a class for each detail; 19 make
    # convolutions fast. Policy and value get the features of the network that they share, wherever
    # ppo.py's get observations.
    "ppo_atari.py": Script(
        "ppo.py",
        (34, 128),
        about="Atari games",
        column="Atari",
        extras=("atari",),
        speed="speed_atari.csv",
        shown="BreakoutNoFrameskip-v4",
    ),
    # The state has to be carried through rollout, update and evaluation; 16 lines run the LSTM.
    "ppo_atari_lstm.py": Script(
        "ppo_atari.py",
        (19, 62),
        about="a recurrent policy that sees one frame",
        column="Atari",
        extras=("atari",),
        speed="speed_atari_lstm.csv",
    ),
    # Learning in parallel takes 50 lines; the rest chooses GPUs, backend, threads, checks flags.
    "ppo_atari_multigpu.py": Script(
        "ppo_atari.py",
        (10, 108),
        about="several GPUs or machines",
        column="Atari",
        extras=("atari",),
    ),
    # Of the lines that go, 74 are the parent's wrappers and its make_envs.
    "ppo_atari_envpool.py": Script(
        "ppo_atari.py",
        (95, 80),
        about="Atari games in EnvPool, a fast engine in C++",
        column="EnvPool",
        extras=("envpool",),
        speed="speed_atari_envpool.csv",
        shown="Breakout-v5",
    ),
    # What ppo_atari_multigpu.py has more than its parent, and the threads that step games.
    "ppo_atari_envpool_multigpu.py": Script(
        "ppo_atari_envpool.py",
        (11, 109),
        about="EnvPool on several GPUs or machines",
        column="EnvPool",
        extras=("envpool",),
    ),
    # Of the lines that go, 74 are the parent's wrappers and its make_envs; of those that come, 85
    # make a vector of Procgen and check its levels. The rest is network, rewards and defaults.
    "ppo_procgen.py": Script(
        "ppo_atari.py",
        (126, 157),
        about="Procgen: games with procedurally generated levels",
        column="Procgen",
        extras=("procgen",),
        requires_python="==3.11.*",
    ),
    # Of the lines that go, 57 are the parent's wrappers; 88 make rows of players of PettingZoo's
    # games: SuperSuit's vector knows no players who are out.
    "ppo_pettingzoo_ma_atari.py": Script(
        "ppo_atari.py",
        (87, 148),
        about="Atari games of two and four players by self-play",
        column="PettingZoo",
        extras=("pettingzoo",),
        metric="charts/episodic_length-player0",
    ),
    # Another framework: a diff of lines would mean nothing.
    "ppo_atari_envpool_xla_jax.py": Script(
        "ppo_atari_envpool.py",
        None,
        about="Atari in JAX: EnvPool steps inside compiled code (XLA)",
        column="JAX",
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
    # compute_gae, which is NumPy's in the parent, takes -18/+20; update_ppo's loops take +14.
    "ppo_atari_envpool_xla_jax_scan.py": Script(
        "ppo_atari_envpool_xla_jax.py",
        (41, 50),
        about="the same with `jax.lax.scan`",
        column="JAX",
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
    # An iteration moves from `train` into a function, and there are several seeds.
    "ppo_gymnax.py": Script(
        "ppo_atari_envpool_xla_jax_scan.py",
        None,
        about="the whole training as one compiled function, on environments in JAX (gymnax)",
        column="on the device",
        extras=("gymnax", "jax"),
        without=frozenset({"torch"}),
        shown="Breakout-MinAtar",
    ),
    # Robots instead of EnvPool's games, and the agent of ppo_continuous_action.py.
    "ppo_continuous_action_mjx.py": Script(
        "ppo_atari_envpool_xla_jax_scan.py",
        None,
        about="robots simulated in JAX (MuJoCo Playground)",
        column="on the device",
        extras=("jax", "mjx"),
        without=frozenset({"torch"}),
    ),
}

# Programs beside the scripts, without parent and anatomy: the extras that their headers draw on.
PROGRAMS: dict[str, tuple[str, ...]] = {"evaluate.py": (), "league.py": ("league", "pettingzoo")}


def defaults(source: str) -> dict[str, ast.expr]:
    """The defaults in the class Args of a script's source, by field.

    Raises SyntaxError for a source that is not Python, ValueError if it has no such class.
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Args":
            assigned = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            return {ast.unparse(part.target): part.value for part in assigned if part.value}
    raise ValueError("no class Args")


def default_of(source: str, field: str) -> Any:
    """The default of a field of Args, a literal; KeyError if there is no such field."""
    return ast.literal_eval(defaults(source)[field])
