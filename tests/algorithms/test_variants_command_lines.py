"""The variants as their users run them, to the end and with mistakes; ppo.py: tests/plumbing/."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from helpers import command_line
from helpers.checks import assert_refused
from helpers.in_process import load_script
from helpers.metadata import PYPROJECT, header

NEEDS = {  # the package without which a script cannot be imported
    "ppo_atari.py": "ale_py",
    "ppo_atari_lstm.py": "ale_py",
    "ppo_atari_multigpu.py": "ale_py",
    "ppo_atari_envpool.py": "envpool",
    "ppo_atari_envpool_multigpu.py": "envpool",
    "ppo_pettingzoo_ma_atari.py": "supersuit",
    "ppo_atari_envpool_xla_jax.py": "jax",
    "ppo_gymnax.py": "gymnax",
    "ppo_continuous_action_mjx.py": "mujoco_playground",
}


def skip_without(package: str | None) -> None:
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")


# ------ a run that is resumed and played ------
# Script, flags, films of one evaluated game (None: it cannot be filmed).
RUNS: list[tuple[str, str, int | None]] = [
    (
        "ppo_continuous_action.py",
        "--env-id continuous:Walk-v0 --num-envs 2 --num-minibatches 2",
        None,
    ),
    ("ppo_multidiscrete.py", "--env-id levers:LeversLoose-v0", None),
    ("ppo_multidiscrete_mask.py", "--env-id levers:Levers-v0", None),
    ("ppo_atari.py", "--num-envs 2", 1),  # of the game, not of each life
    ("ppo_atari_lstm.py", "--num-envs 2 --num-minibatches 2", 1),
    ("ppo_atari_multigpu.py", "--local-num-envs 2", 1),
    ("ppo_atari_envpool.py", "--num-envs 2", 1),
    ("ppo_procgen.py", "--num-envs 2 --num-levels 5", 2),  # of both sets of levels
    # Of the game, not of each player.
    (
        "ppo_pettingzoo_ma_atari.py",
        "--env-id space_invaders_v2 --num-envs 4 --keep-checkpoints",
        1,
    ),
]


@pytest.mark.slow("command line")
@pytest.mark.parametrize(("name", "flags", "films"), RUNS, ids=[name for name, *_ in RUNS])
def test_run_is_resumed_and_played(name: str, flags: str, films: int | None, tmp_path: Path):
    skip_without(NEEDS.get(name))
    words = [*flags.split(), "--num-steps", "16", "--torch-threads", "1", "--eval-episodes", "0"]
    options = {"cwd": tmp_path, "script": command_line.PPO / name}
    folder = command_line.assert_resumed_and_played(*words, **options, film=films is not None)
    assert len(list(folder.glob("videos/*/*.mp4"))) == (films or 0)
    if "--keep-checkpoints" in flags:
        kept = sorted(int(file.stem[11:]) for file in folder.glob("checkpoint-*.pt"))
        assert kept == [0, 64, 128]
    stats = command_line.checkpoint(folder, "agent.pt")["agent"]
    for which in {"obs_stats", "return_stats"} & stats.keys():
        assert stats[which][0, 0] == 128  # rows of the training, before and after


# ------ mistakes ------
# Script, flags, what the line must say.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("ppo_continuous_action.py", {"env_id": "CartPole-v1"}, r"Discrete\(2\): ppo\.py is for it"),
    ("ppo_continuous_action.py", {"env_id": "continuous:WholeNumbers-v0"}, "Box of whole numbers"),
    ("ppo_continuous_action.py", {"rpo_alpha": float("nan")}, "--rpo-alpha starts at 0"),
    ("ppo_multidiscrete.py", {"env_id": "CartPole-v1"}, r"Discrete\(2\): ppo\.py is for it"),
    ("ppo_multidiscrete.py", {"env_id": "MicrortsMining5x5F9-v0"}, "MicrortsMining"),
    (
        "ppo_multidiscrete_mask.py",
        {"env_id": "levers:LeversNone-v0"},
        "has no mask with a value for each choice",
    ),
    (
        "ppo_multidiscrete_mask.py",
        {"env_id": "levers:LeversShort-v0"},
        "has no mask with a value for each choice",
    ),
    ("ppo_atari.py", {"env_id": "CartPole-v1"}, r"CartPole-v1 is not an Atari game, see ppo\.py"),
    ("ppo_atari.py", {"env_id": "BreakotNoFrameskip-v4"}, "Breakout"),
    ("ppo_atari.py", {"env_id": "ALE/Backgammon-v5"}, "no button that does nothing"),
    (
        "ppo_atari_lstm.py",
        {"num_envs": 6, "num_minibatches": 4},
        "--num-minibatches must divide --num-envs",
    ),
    ("ppo_atari_multigpu.py", {"timeout": 0}, "--timeout must be at least 1"),
    ("ppo_atari_multigpu.py", {"backend": "nccl"}, "--backend nccl needs a GPU for each process"),
    ("ppo_atari_envpool.py", {"env_id": "CartPole-v1"}, "is not an Atari game, see ppo"),
    ("ppo_atari_envpool.py", {"env_id": "PongNoFrameskip-v4"}, "no PongNoFrameskip-v4.*Breakout-"),
    ("ppo_atari_envpool.py", {"env_threads": 0}, "--env-threads must be at least 1"),
    ("ppo_atari_envpool_multigpu.py", {"timeout": 0}, "--timeout must be at least 1"),
    ("ppo_procgen.py", {"env_id": "starpilt"}, "starpilt.* the games are bigfish, coinrun"),
    ("ppo_procgen.py", {"num_levels": -1}, "levels are numbered from 0"),
    ("ppo_procgen.py", {"start_level": 5}, "--start-level needs --num-levels"),
    ("ppo_procgen.py", {"num_levels": 10, "start_level": 2**31 - 10}, "levels are numbered from 0"),
    ("ppo_procgen.py", {"env_threads": 0}, "--env-threads must be at least 1"),
    (
        "ppo_pettingzoo_ma_atari.py",
        {"env_id": "pong_v9"},
        "no pong_v9; it has basketball_pong_v3, ",
    ),
    (
        "ppo_pettingzoo_ma_atari.py",
        {"env_id": "quadrapong_v4", "num_envs": 6},
        "must be a multiple of the game's 4 players",
    ),
    ("ppo_atari_envpool_xla_jax.py", {"env_id": "CartPole-v1"}, r"no.* Atari game, see ppo\.py"),
    ("ppo_atari_envpool_xla_jax.py", {"env_id": "Brekout-v5"}, "no Brekout-v5; .*Breakout-v5"),
    ("ppo_atari_envpool_xla_jax.py", {"env_threads": 0}, "--env-threads must be at least 1"),
    ("ppo_atari_envpool_xla_jax.py", {"num_minibatches": 3}, "--num-minibatches must divide"),
    ("ppo_atari_envpool_xla_jax.py", {"device": "cuda"}, "--device cuda: .*cuda"),
    ("ppo_atari_envpool_xla_jax.py", {"seed": 2**31}, "--seed must be from 0 to"),
    ("ppo_atari_envpool_xla_jax.py", {"learning_rate": float("nan")}, "--learning-rate must be"),
    ("ppo_gymnax.py", {"env_id": "Pendulum-v1"}, "action space Box.*: ppo_continuous_action"),
    ("ppo_gymnax.py", {"env_id": "FrozenLake-misc"}, "observation space Discrete.* must be a Box"),
    ("ppo_gymnax.py", {"env_id": "CartPole-v2"}, "no CartPole-v2; it has .*CartPole-v1"),
    ("ppo_gymnax.py", {"num_seeds": 0}, "--num-seeds and --log-every must be"),
    ("ppo_gymnax.py", {"log_every": 0}, "--num-seeds and --log-every must be"),
    (
        "ppo_gymnax.py",
        {"env_id": "DiscountingChain-bsuite", "capture_video": True},
        "cannot render rgb_array",
    ),
    ("ppo_continuous_action_mjx.py", {"env_id": "CartpoleBalence"}, "it has .*CartpoleBalance, "),
    ("ppo_continuous_action_mjx.py", {"env_id": "robots:Dril"}, "has no Dril; it has .*Drill"),
]


@pytest.mark.filterwarnings("ignore:.*Overriding environment")  # by the second of two scripts
@pytest.mark.parametrize(("name", "flags", "message"), REFUSED, ids=str)
def test_bad_input_is_refused_in_one_line(
    name: str, flags: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
):
    skip_without(NEEDS.get(name))
    assert_refused(load_script(name), flags, message, capsys)


# ------ packages that ask for what nobody has any more ------
@pytest.mark.parametrize(
    "name", ["ppo_multidiscrete.py", "ppo_multidiscrete_mask.py", "ppo_procgen.py"]
)
def test_headers_and_pyproject_tell_uv_the_same(name: str):
    """Procgen and gym-microrts ask for the Gym of 2021; metadata that leave it out stand twice."""
    told = header(f"ppo/{name}")["tool"]["uv"]["dependency-metadata"]
    assert told
    assert all(entry in PYPROJECT["tool"]["uv"]["dependency-metadata"] for entry in told)
