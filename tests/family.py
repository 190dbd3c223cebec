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
    extras: tuple[
        str, ...
    ] = ()  # extras of pyproject.toml that its PEP 723 header adds to the base
    without: frozenset[str] = frozenset()  # distributions of the base that it does not need
    requires_python: str | None = None  # None: the same as pyproject.toml

    def may_differ(self, unit: str) -> bool:
        """Whether the unit is this script's own, so that the parent's is not copied over it."""
        return unit in (self.differs or frozenset()) | self.adds | self.removes


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
    "ppo_atari_multigpu.py": Script("ppo_atari.py", (10, 65), extras=("atari",)),
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
    "ppo_procgen.py": Script(
        "ppo_atari.py", (50, 70), extras=("procgen",), requires_python="==3.11.*"
    ),
    "ppo_pettingzoo_ma_atari.py": Script("ppo_atari.py", (32, 50), extras=("pettingzoo",)),
    # Another framework: compared with its parent unit by unit, a line count would mean nothing.
    "ppo_atari_envpool_xla_jax.py": Script(
        "ppo_atari_envpool.py", None, extras=("envpool", "jax"), without=frozenset({"torch"})
    ),
    "ppo_atari_envpool_xla_jax_scan.py": Script(
        "ppo_atari_envpool_xla_jax.py",
        (55, 85),
        extras=("envpool", "jax"),
        without=frozenset({"torch"}),
    ),
}

# Programs beside the scripts, without parent and anatomy: the extras that their headers draw on.
PROGRAMS: dict[str, tuple[str, ...]] = {"evaluate.py": ()}
