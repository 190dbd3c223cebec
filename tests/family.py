"""The declared-differences table: how each script may differ from the script it was derived from.

A new script needs a complete row, or `pytest tests/test_sync.py` fails. Let `python tests/units.py
row ppo_atari` print what the row would have to be, cross out what does not belong to the variant's
title (and undo it in the script), and paste the rest here.
"""

from dataclasses import dataclass

BANNERS = ("setup", "storage", "rollout", "advantages", "update", "log")


@dataclass(frozen=True)
class Limits:
    """Most lines a script may have: above the plumbing line, in all, and in the iteration loop."""

    above_plumbing: int
    total: int
    loop: int


@dataclass(frozen=True)
class Script:
    """One row of the table; unit names are those that `python tests/units.py list` prints."""

    parent: str | None  # the file whose diff is this file's lesson
    budget: tuple[int, int] | None  # lines removed, lines added at most; None: no line budget
    differs: frozenset[str] | None = None  # units that differ from the parent's; None: not written
    adds: frozenset[str] = frozenset()  # units that the parent does not have
    removes: frozenset[str] = frozenset()  # units of the parent that this file does not have
    limits: Limits | None = None
    loop_above: str = "rollout"  # the banner of `train` that the iteration loop stands above
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
        "Logger.__init__",
        "Logger.checkpoint",
        "Logger.finish",
        "Logger.on_signal",
        "Logger.scalars",
        "backward",
        "check",
        "imports",
        "main guard",
        "ppo_loss",
        "setup_torch",
        "train: end",
        "train: log",
        "train: rollout",
        "train: setup",
        "train: update",
    }
)
SEVERAL_PROCESSES_ADD = frozenset(
    {
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "Logger.agree",
        "RANK",
        "WORLD_SIZE",
        "add_up",
        "backend",
        "earlier_run",
        "from_first",
        "gather",
        "gpus",
        "total",
    }
)

FAMILY: dict[str, Script] = {
    "ppo.py": Script(
        parent=None,
        budget=None,
        differs=frozenset(),
        limits=Limits(above_plumbing=280, total=450, loop=60),
    ),
    # Statistics of observations and rewards that are saved, frozen in evaluation and unaffected by
    # reset rows take 20 lines here; Gymnasium's wrappers would take 4 and do none of that.
    "ppo_continuous_action.py": Script(
        "ppo.py",
        (20, 48),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Agent.get_action",
                "Agent.get_logprob_entropy_value",
                "Args",
                "backward",
                "check",
                "make_envs",
                "train: advantages",
                "train: storage",
                "train: update",
            }
        ),
        adds=frozenset({"update_stats"}),
        extras=("mujoco", "dm_control"),
    ),
    # The policy takes 20 lines; 31 make Gymnasium environments of Gym-µRTS, which is older.
    "ppo_multidiscrete.py": Script(
        "ppo.py",
        (8, 51),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.get_action",
                "Agent.get_logprob_entropy_value",
                "Args",
                "check",
                "imports",
            }
        ),
        adds=frozenset(
            {
                "Agent.cut",
                "MicroRTS",
                "MicroRTS.__init__",
                "MicroRTS.reset",
                "MicroRTS.step",
                'for size in ("4x4", "10x10", "16x16", "24x24"):',
            }
        ),
        extras=("microrts",),
    ),
    # Half of it finds and checks the masks: those that an environment gives are not all alike.
    "ppo_multidiscrete_mask.py": Script(
        "ppo_multidiscrete.py",
        (4, 44),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.cut",
                "backward",
                "check",
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
            }
        ),
        extras=("microrts",),
    ),
    # Of these lines 36 are the two wrappers and `warp`, and -3/+11 make convolutions fast; the rest
    # is -20/+39.
    "ppo_atari.py": Script(
        "ppo.py",
        (23, 86),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Args",
                "check",
                "imports",
                "make_envs",
                "setup_torch",
                "train: advantages",
                "train: rollout",
                "train: setup",
                "train: storage",
            }
        ),
        adds=frozenset(
            {
                "EpisodicLife",
                "EpisodicLife.reset",
                "EpisodicLife.step",
                "StartWith",
                "StartWith.__init__",
                "StartWith.reset",
                "warp",
            }
        ),
        removes=frozenset({"mlp"}),
        extras=("atari",),
    ),
    "ppo_atari_lstm.py": Script(
        "ppo_atari.py",
        (22, 65),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "backward",
                "check",
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
    # Learning in parallel takes -9/+43. Of the rest 19 are the going on after a restart, 14 the
    # choice of GPUs and backend, 12 stop all processes together with what all have seen, and -7/+10
    # let one of them keep the run folder.
    "ppo_atari_multigpu.py": Script(
        "ppo_atari.py",
        (24, 124),
        differs=SEVERAL_PROCESSES_DIFFER,
        adds=SEVERAL_PROCESSES_ADD,
        extras=("atari",),
    ),
    # Of the lines that go, 61 are the parent's wrappers and its make_envs.
    "ppo_atari_envpool.py": Script(
        "ppo_atari.py",
        (73, 65),
        differs=frozenset({"Agent.__init__", "Args", "check", "imports", "make_envs"}),
        adds=frozenset(
            {"EnvPool", "EnvPool.__init__", "EnvPool.close", "EnvPool.reset", "EnvPool.step"}
        ),
        removes=frozenset(
            {
                "EpisodicLife",
                "EpisodicLife.reset",
                "EpisodicLife.step",
                "StartWith",
                "StartWith.__init__",
                "StartWith.reset",
                "warp",
            }
        ),
        extras=("envpool",),
    ),
    # What ppo_atari_multigpu.py has more than its parent, and the threads that step games.
    "ppo_atari_envpool_multigpu.py": Script(
        "ppo_atari_envpool.py",
        (24, 125),
        differs=SEVERAL_PROCESSES_DIFFER,
        adds=SEVERAL_PROCESSES_ADD,
        extras=("envpool",),
    ),
    # Of the lines that go, 61 are the parent's wrappers and its make_envs; of those that come, 54
    # make a vector of Procgen. The rest, -32/+77, is network, rewards, levels and defaults.
    "ppo_procgen.py": Script(
        "ppo_atari.py",
        (93, 131),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Args",
                "Logger.finish",
                "check",
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
                "Procgen.reset",
                "Procgen.step",
                "Residual",
                "Residual.__init__",
                "Residual.forward",
                "update_stats",
            }
        ),
        removes=frozenset(
            {
                "EpisodicLife",
                "EpisodicLife.reset",
                "EpisodicLife.step",
                "StartWith",
                "StartWith.__init__",
                "StartWith.reset",
                "warp",
            }
        ),
        extras=("procgen",),
        requires_python="==3.11.*",
    ),
    # Of the lines that go, 54 are the parent's wrappers; 78 make rows of players of PettingZoo's
    # games. SuperSuit's vector would take a few, but resets in the same step. -8/+9 evaluate by
    # player: returns of self-play sum to zero.
    "ppo_pettingzoo_ma_atari.py": Script(
        "ppo_atari.py",
        (72, 121),
        differs=frozenset(
            {
                "Agent.__init__",
                "Agent.features",
                "Args",
                "Logger.__init__",
                "Logger.checkpoint",
                "Logger.finish",
                "Logger.scalars",
                "check",
                "evaluate",
                "imports",
                "make_envs",
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
            }
        ),
        removes=frozenset(
            {
                "EpisodicLife",
                "EpisodicLife.reset",
                "EpisodicLife.step",
                "StartWith",
                "StartWith.__init__",
                "StartWith.reset",
                "warp",
            }
        ),
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
                "EnvPool.reset",
                "EnvPool.step",
                "Logger.__init__",
                "Logger.checkpoint",
                "Logger.episodes",
                "Logger.finish",
                "Logger.scalars",
                "Logger.write",
                "backward",
                "check",
                "compute_gae",
                "evaluate",
                "imports",
                "layer_init",
                "load",
                "main guard",
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
                "EnvPool.film",
                "Logger.add_event",
                "Logger.histogram",
                "Logger.on_duration",
                "act",
                "assess",
                "flatten",
                "gae_step",
                "named",
                "setup_jax",
                "update",
                "with_arrays",
            }
        ),
        removes=frozenset({"compiled", "setup_torch"}),
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
    "ppo_atari_envpool_xla_jax_scan.py": Script(
        "ppo_atari_envpool_xla_jax.py",
        (55, 85),
        differs=frozenset(
            {
                "compute_gae",
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
        removes=frozenset({"gae_step"}),
        loop_above="log",  # the rest of an iteration is one function, defined above the loop
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
}

# Programs beside the scripts, without parent and anatomy: the extras that their headers draw on.
PROGRAMS: dict[str, tuple[str, ...]] = {"evaluate.py": (), "league.py": ("league", "pettingzoo")}
