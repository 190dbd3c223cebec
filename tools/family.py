"""The table of the scripts: the parent of each, how large its diff may be, and what it needs.

Which units a script does not share with its parent stands in tools/own_units.json, which
`python tools/sync.py accept` writes. A new script needs a row here first, then its record there.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """One row of the table."""

    parent: str | None  # the file whose diff is this file's lesson
    # Lines removed, lines added at most; None: the parent is too far away for a diff of lines.
    budget: tuple[int, int] | None
    extras: tuple[str, ...] = ()  # of pyproject.toml, that its PEP 723 header adds to the base
    without: frozenset[str] = frozenset()  # distributions of the base that it does not need
    requires_python: str | None = None  # None: the same as pyproject.toml
    # Most written lines above the plumbing, most lines of the loop, which is to fit a screen.
    limits: tuple[int, int] | None = None


# A budget is the size of the diff as it is. It is raised on purpose, with what the lines are for.
FAMILY: dict[str, Script] = {
    "ppo.py": Script(None, None, limits=(315, 70)),
    # Statistics of observations and rewards that are saved and frozen in evaluation take 26 lines;
    # Gymnasium's wrappers would take 4 and be in no checkpoint. RPO takes 4, dm_control 4, and 10
    # refuse films without a screen and actions that are whole numbers.
    "ppo_continuous_action.py": Script("ppo.py", (24, 88), extras=("mujoco", "dm_control")),
    # The policy takes 20 lines; the others make Gymnasium environments of Gym-µRTS, which is older.
    "ppo_multidiscrete.py": Script("ppo.py", (8, 62), extras=("microrts",)),
    # 40 lines find and check the masks: those that an environment gives are not all alike.
    "ppo_multidiscrete_mask.py": Script("ppo_multidiscrete.py", (13, 63), extras=("microrts",)),
    # 53 of these lines are the three wrappers and `warp`, a class for each detail; 19 make
    # convolutions fast. Policy and value get the features of the network that they share, wherever
    # ppo.py's get observations.
    "ppo_atari.py": Script("ppo.py", (34, 128), extras=("atari",)),
    # The state has to be carried through rollout, update and evaluation; 16 lines run the LSTM.
    "ppo_atari_lstm.py": Script("ppo_atari.py", (19, 61), extras=("atari",)),
    # Learning in parallel takes 50 lines; the rest chooses GPUs, backend, threads, checks flags.
    "ppo_atari_multigpu.py": Script("ppo_atari.py", (10, 99), extras=("atari",)),
    # Of the lines that go, 74 are the parent's wrappers and its make_envs.
    "ppo_atari_envpool.py": Script("ppo_atari.py", (94, 79), extras=("envpool",)),
    # What ppo_atari_multigpu.py has more than its parent, and the threads that step games.
    "ppo_atari_envpool_multigpu.py": Script("ppo_atari_envpool.py", (11, 100), extras=("envpool",)),
    # Of the lines that go, 74 are the parent's wrappers and its make_envs; of those that come, 85
    # make a vector of Procgen and check its levels. The rest is network, rewards and defaults.
    "ppo_procgen.py": Script(
        "ppo_atari.py", (125, 158), extras=("procgen",), requires_python="==3.11.*"
    ),
    # Of the lines that go, 57 are the parent's wrappers; 88 make rows of players of PettingZoo's
    # games: SuperSuit's vector knows no players who are out.
    "ppo_pettingzoo_ma_atari.py": Script("ppo_atari.py", (85, 143), extras=("pettingzoo",)),
    # Another framework: a diff of lines would mean nothing.
    "ppo_atari_envpool_xla_jax.py": Script(
        "ppo_atari_envpool.py", None, extras=("envpool", "jax"), without=frozenset({"torch"})
    ),
    # compute_gae, which is NumPy's in the parent, takes -18/+20; update_ppo's loops take +14.
    "ppo_atari_envpool_xla_jax_scan.py": Script(
        "ppo_atari_envpool_xla_jax.py",
        (41, 51),
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
    # An iteration moves from `train` into a function, and there are several seeds.
    "ppo_gymnax.py": Script(
        "ppo_atari_envpool_xla_jax_scan.py",
        None,
        extras=("gymnax", "jax"),
        without=frozenset({"torch"}),
    ),
    # Robots instead of EnvPool's games, and the agent of ppo_continuous_action.py.
    "ppo_continuous_action_mjx.py": Script(
        "ppo_atari_envpool_xla_jax_scan.py",
        None,
        extras=("jax", "mjx"),
        without=frozenset({"torch"}),
    ),
}

# Programs beside the scripts, without parent and anatomy: the extras that their headers draw on.
PROGRAMS: dict[str, tuple[str, ...]] = {"evaluate.py": (), "league.py": ("league", "pettingzoo")}
