"""The declared-differences table: how each script may differ from the script it was derived from.

A new script needs a complete row, or `pytest tests/test_sync.py` fails. Let `python tools/sync.py
row ppo_atari` print what the row would have to be, cross out what does not belong to the variant's
title (and undo it in the script), and paste the rest here.
"""

from dataclasses import dataclass

BANNERS = ("setup", "storage", "rollout", "advantages", "update", "log")


@dataclass(frozen=True)
class Limits:
    """Most lines a script may have.

    above_plumbing: lines that are not blank, above the plumbing line.
    loop: lines of the loop over iterations, which is to fit a screen.
    """

    above_plumbing: int
    loop: int


@dataclass(frozen=True)
class Script:
    """One row of the table; unit names are those that `python tools/sync.py list` prints."""

    parent: str | None  # the file whose diff is this file's lesson
    budget: tuple[int, int] | None  # lines removed, lines added at most; None: no line budget
    differs: frozenset[str] | None = None  # units that differ from the parent's; None: not written
    adds: frozenset[str] = frozenset()  # units that the parent does not have
    removes: frozenset[str] = frozenset()  # units of the parent that this file does not have
    limits: Limits | None = None
    extras: tuple[
        str, ...
    ] = ()  # extras of pyproject.toml that its PEP 723 header adds to the base
    without: frozenset[str] = frozenset()  # distributions of the base that it does not need
    requires_python: str | None = None  # None: the same as pyproject.toml

    def may_differ(self, unit: str) -> bool:
        """Whether the unit is this script's own, so that the parent's is not copied over it."""
        return unit in (self.differs or frozenset()) | self.adds | self.removes


# What learning in several processes changes, whatever it is derived from.
SEVERAL_PROCESSES_DIFFER = frozenset(
    {
        "Args",
        "backward",
        "check_envs",
        "imports",
        "ppo_loss",
        "train: end",
        "train: log",
        "train: rollout",
        "train: setup",
        "train: update",
    }
)
SEVERAL_PROCESSES_ADD = frozenset(
    {
        "CPUS",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "RANK",
        "WORLD_SIZE",
        "add_up",
        "backend",
        "device_of_process",
        "gather",
        "gpus",
        "total",
    }
)
# The wrappers of ppo_atari.py, which simulators of their own do without.
WRAPPERS = frozenset(
    {
        "EpisodicLife",
        "EpisodicLife.reset",
        "EpisodicLife.step",
        "FireReset",
        "FireReset.reset",
        "NoopReset",
        "NoopReset.reset",
        "warp",
    }
)

# The design aims at smaller diffs: continuous 20/40, multidiscrete 10/50, mask 6/30, atari 22/65,
# lstm 14/45, multigpu 12/60, envpool 75/65, procgen 70/90, pettingzoo 60/80, scan 45/75. One
# statement a line, and evaluation and checks that stand above the plumbing, made them longer; each
# script's reason stands at its row.
FAMILY: dict[str, Script] = {
    "ppo.py": Script(
        parent=None,
        budget=None,
        differs=frozenset(),
        limits=Limits(above_plumbing=280, loop=60),
    ),
    # Statistics of observations and rewards that are saved, frozen in evaluation and unaffected by
    # reset rows take 24 lines here; Gymnasium's wrappers would take 4 and do none of that. RPO
    # takes 5 and dm_control 4.
    "ppo_continuous_action.py": Script(
        "ppo.py",
        (21, 57),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Agent.get_action",
                "Agent.get_logprob_entropy_value",
                "Args",
                "backward",
                "check_envs",
                "make_envs",
                "train: advantages",
                "train: storage",
                "train: update",
            }
        ),
        adds=frozenset({"update_stats"}),
        extras=("mujoco", "dm_control"),
    ),
    # The policy takes 20 lines; the others make Gymnasium environments of Gym-µRTS, which is older.
    "ppo_multidiscrete.py": Script(
        "ppo.py",
        (8, 68),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.get_action",
                "Agent.get_logprob_entropy_value",
                "Args",
                "check_envs",
                "imports",
            }
        ),
        adds=frozenset(
            {
                "Agent.by_component",
                "MicroRTS",
                "MicroRTS.__init__",
                "MicroRTS.reset",
                "MicroRTS.step",
                'for size in ("4x4", "10x10", "16x16", "24x24"):',
            }
        ),
        extras=("microrts",),
    ),
    # 52 lines find and check the masks: those that an environment gives are not all alike. The mask
    # is an argument wherever it is used; as an attribute of the agent it would be hidden.
    "ppo_multidiscrete_mask.py": Script(
        "ppo_multidiscrete.py",
        (13, 75),
        differs=frozenset(
            {
                "Agent.by_component",
                "Agent.get_action",
                "Agent.get_logprob_entropy_value",
                "backward",
                "check_envs",
                "evaluate",
                "make_envs",
                "train: advantages",
                "train: rollout",
                "train: storage",
            }
        ),
        adds=frozenset(
            {
                "ActionMask",
                "ActionMask.reset",
                "ActionMask.step",
                "ActionMask.with_mask",
                "MicroRTS.action_mask",
                "NoMask",
            }
        ),
        extras=("microrts",),
    ),
    # Of these lines 53 are the three wrappers and `warp`, a class for each detail, and 16 make
    # convolutions fast.
    "ppo_atari.py": Script(
        "ppo.py",
        (23, 109),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Args",
                "check_envs",
                "imports",
                "make_envs",
                "train: advantages",
                "train: rollout",
                "train: setup",
                "train: storage",
            }
        ),
        adds=(WRAPPERS | {"keep_memory"}),
        removes=frozenset({"mlp"}),
        extras=("atari",),
    ),
    # The state has to be carried through rollout, update and evaluation; 16 lines run the LSTM.
    "ppo_atari_lstm.py": Script(
        "ppo_atari.py",
        (16, 63),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "backward",
                "check_envs",
                "evaluate",
                "imports",
                "make_envs",
                "train: advantages",
                "train: rollout",
                "train: storage",
                "train: update",
            }
        ),
        extras=("atari",),
    ),
    # Learning in parallel takes -10/+50; the rest chooses GPUs, backend, threads, and checks flags.
    "ppo_atari_multigpu.py": Script(
        "ppo_atari.py",
        (15, 102),
        differs=SEVERAL_PROCESSES_DIFFER,
        adds=SEVERAL_PROCESSES_ADD,
        extras=("atari",),
    ),
    # Of the lines that go, 74 are the parent's wrappers and its make_envs.
    "ppo_atari_envpool.py": Script(
        "ppo_atari.py",
        (81, 79),
        differs=frozenset({"Agent.__init__", "Args", "check_envs", "imports", "make_envs"}),
        adds=frozenset(
            {
                "EnvPool",
                "EnvPool.__init__",
                "EnvPool.close",
                "EnvPool.film",
                "EnvPool.reset",
                "EnvPool.step",
            }
        ),
        removes=WRAPPERS,
        extras=("envpool",),
    ),
    # What ppo_atari_multigpu.py has more than its parent, and the threads that step games.
    "ppo_atari_envpool_multigpu.py": Script(
        "ppo_atari_envpool.py",
        (16, 103),
        differs=SEVERAL_PROCESSES_DIFFER,
        adds=SEVERAL_PROCESSES_ADD,
        extras=("envpool",),
    ),
    # Of the lines that go, 74 are the parent's wrappers and its make_envs; of those that come, 85
    # make a vector of Procgen and check its levels. The rest is network, rewards and defaults.
    "ppo_procgen.py": Script(
        "ppo_atari.py",
        (110, 161),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Args",
                "check_envs",
                "evaluate",
                "imports",
                "make_envs",
                "train: advantages",
                "train: storage",
            }
        ),
        adds=frozenset(
            {
                "Procgen",
                "Procgen.__init__",
                "Procgen.close",
                "Procgen.film",
                "Procgen.reset",
                "Procgen.step",
                "Residual",
                "Residual.__init__",
                "Residual.forward",
                "import_procgen",
                "play",
                "update_stats",
            }
        ),
        removes=WRAPPERS,
        extras=("procgen",),
        requires_python="==3.11.*",
    ),
    # Of the lines that go, 57 are the parent's wrappers; 88 make rows of players of PettingZoo's
    # games. SuperSuit's vector would take a few, but resets in the same step.
    "ppo_pettingzoo_ma_atari.py": Script(
        "ppo_atari.py",
        (80, 137),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Args",
                "check_envs",
                "evaluate",
                "imports",
                "make_envs",
                "train: log",
                "train: rollout",
                "train: setup",
            }
        ),
        adds=frozenset(
            {
                "Game",
                "Game.__init__",
                "Game.render",
                "Game.reset",
                "Game.step",
                "Players",
                "Players.__init__",
                "Players.reset",
                "Players.show",
                "Players.step",
                "keep_weights",
            }
        ),
        removes=WRAPPERS,
        extras=("pettingzoo",),
    ),
    # Another framework: compared with its parent unit by unit, a line count would mean nothing.
    "ppo_atari_envpool_xla_jax.py": Script(
        "ppo_atari_envpool.py",
        None,
        differs=frozenset(
            {
                "Agent",
                "Agent.__init__",
                "Agent.features",
                "Agent.get_action",
                "Agent.get_logprob_entropy_value",
                "Agent.get_value",
                "Args",
                "EnvPool",
                "EnvPool.__init__",
                "EnvPool.film",
                "EnvPool.reset",
                "EnvPool.step",
                "backward",
                "compute_gae",
                "evaluate",
                "imports",
                "layer_init",
                "plumbing",
                "ppo_loss",
                "train: advantages",
                "train: end",
                "train: log",
                "train: loop",
                "train: rollout",
                "train: setup",
                "train: storage",
                "train: update",
            }
        ),
        adds=frozenset(
            {
                "CPUS",
                "act",
                "flatten",
                "gae_step",
                "get_logprobs_values",
                "gradient_step",
                "rollout",
                "update_ppo",
            }
        ),
        removes=frozenset({"keep_memory"}),
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
    "ppo_atari_envpool_xla_jax_scan.py": Script(
        "ppo_atari_envpool_xla_jax.py",
        (26, 43),
        differs=frozenset({"act", "compute_gae", "gradient_step", "rollout", "update_ppo"}),
        removes=frozenset({"gae_step"}),
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
}

# Programs beside the scripts, without parent and anatomy: the extras that their headers draw on.
PROGRAMS: dict[str, tuple[str, ...]] = {"evaluate.py": (), "league.py": ("league", "pettingzoo")}
