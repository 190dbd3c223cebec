"""ppo_atari_envpool_multigpu.py: what ppo_atari_multigpu.py is proven to do, with EnvPool's games.

All that the processes do together is the same text in both scripts. So the proofs that two of them
take the step of one hold here as well (test_ppo_atari_multigpu.py); what is new is how games are
shared out.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.process_group import assert_no_thread_left, noting_threads, together
from sync import Collection, by_name

envpool = pytest.importorskip("envpool", reason="needs the extra `envpool`")
NAME = "ppo_atari_envpool_multigpu.py"
FILE = command_line.PPO / NAME
SHORT = {"num_envs": 2, "num_steps": 128, "total_timesteps": 1024, "num_minibatches": 2}
SHORT |= {"update_epochs": 1, "torch_threads": 1, "env_threads": 1}


def test_processes_do_together_what_they_do_in_ppo_atari_multigpu():
    """What games, flags and imports do not concern is the same text."""
    scripts = (NAME, "ppo_atari_multigpu.py")
    ours, theirs = (by_name(Collection().source(script)) for script in scripts)
    shared = ["all_reduce", "all_gather", "all_gather_object", "ppo_loss", "compute_gradient"]
    shared += ["Args.__post_init__", "Args.gpus", "Args.use_nccl"]
    shared += ["train: setup", "train: update", "train: log", "train: end"]
    for name in shared:
        assert ours[name].text == theirs[name].text, name


def learn(module: ModuleType, folder: Path) -> dict[str, Any]:
    """Trains; the pools that were made, the scores of the games that ended, and the weights."""
    pools, scores, agents = [], [], []
    make, step, init = envpool.make, module.EnvPool.step, module.Agent.__init__

    def spy_make(*args: Any, **options: Any) -> Any:
        pools.append({name: options[name] for name in ("seed", "num_envs", "num_threads")})
        return make(*args, **options)

    def spy_step(envs: Any, actions: np.ndarray) -> Any:
        answer = step(envs, actions)
        if "final_info" in answer[4]:
            final_info = answer[4]["final_info"]
            scores.extend(final_info["episode"]["r"][final_info["_episode"]])
        return answer

    def remember(agent: Any, *arguments: Any) -> None:
        agents.append(agent)
        init(agent, *arguments)

    module.envpool.make, module.EnvPool.step, module.Agent.__init__ = spy_make, spy_step, remember
    args = module.Args(**SHORT, eval_episodes=0, checkpoint_every=0, seed=7)
    assert module.train(args, folder, {}) == 0
    return {"pools": pools, "scores": scores, "weights": agents[0].state_dict()}


def test_processes_share_the_games_and_the_gradient(tmp_path: Path):
    first, second = together(NAME, learn, tmp_path)
    one = {"num_envs": 2, "num_threads": 1}
    assert first["pools"][0] == one | {"seed": 7} and second["pools"][0] == one | {"seed": 9}
    for name, weight in first["weights"].items():
        assert torch.equal(weight, second["weights"][name]), name
    logged = command_line.curve(tmp_path, "charts/episodic_return")
    played = first["scores"] + second["scores"]
    assert sorted(score for _, score in logged) == sorted(played)
    assert first["scores"] and second["scores"]
    steps = [step for step, _ in command_line.curve(tmp_path, "losses/value_loss")]
    assert steps == [512, 1024], "steps of both"


@pytest.mark.slow("torchrun")
def test_torchrun(tmp_path: Path):
    """By the documented command; the cores are split among the processes."""
    flags = "--local-num-envs 2 --num-steps 16 --num-minibatches 2 --update-epochs 1 "
    flags += "--total-timesteps 128 --eval-episodes 1 --runs-dir runs"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*words, str(FILE), *flags.split()],
        cwd=tmp_path,
        env=command_line.environment(tmp_path, **noting_threads(tmp_path / "threads")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert_no_thread_left(tmp_path / "threads")
    folder = command_line.the_folder(tmp_path / "runs")
    saved = command_line.checkpoint(folder, "agent.pt")
    assert saved["global_step"] == 128
    half = max(len(os.sched_getaffinity(0)) // 2, 1)
    assert saved["args"]["env_threads"] == saved["args"]["torch_threads"] == half
