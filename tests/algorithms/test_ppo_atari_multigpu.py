"""ppo_atari_multigpu.py: several processes together take the steps that one alone would take."""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.checks import assert_refused, new_agent
from helpers.in_process import load_script, record_calls, train
from helpers.process_group import assert_no_thread_left, group, noting_threads, together
from helpers.strides import watch_strides
from torch import Tensor

pytest.importorskip("ale_py", reason="needs the extra `atari`")
NAME = "ppo_atari_multigpu.py"
FILE = command_line.PPO / NAME
# Two processes of two environments each beside one process of four.
SHORT = {"env_id": "arcade:Short-v0", "num_steps": 24, "update_epochs": 2, "num_minibatches": 2}
SHORT |= {"total_timesteps": 96 * 4, "torch_threads": 1, "learning_rate": 1e-3}


# ------ one gradient ------
def make_agent(module: ModuleType) -> Any:
    images = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    return new_agent(module, images, gym.spaces.Discrete(4))


def rows(count: int) -> dict[str, Tensor]:
    """A rollout's rows with random content."""
    rng = torch.Generator().manual_seed(1)
    batch = {
        "obs": torch.randint(0, 256, (count, 4, 84, 84), dtype=torch.uint8, generator=rng),
        "actions": torch.randint(0, 4, (count,), generator=rng),
        "logprobs": -1.4 + 0.2 * torch.randn(count, generator=rng),
    }
    batch |= {k: torch.randn(count, generator=rng) for k in ("values", "advantages", "returns")}
    return batch


def gradient(module: ModuleType, batch: dict[str, Tensor], **flags: Any) -> dict[str, Tensor]:
    agent = make_agent(module)
    inds = torch.arange(len(batch["values"]))
    stats = module.compute_gradient(agent, batch, inds, module.Args(**flags))
    return stats | {name: p.grad for name, p in agent.named_parameters()}


def share_of_gradient(module: ModuleType, _: Path, batch: dict[str, Tensor], **flags: Any) -> Any:
    part = slice(8 * module.RANK, 8 * module.RANK + 8)
    return gradient(module, {name: x[part] for name, x in batch.items()}, **flags)


@pytest.mark.parametrize("flags", [{"norm_adv": False}, {}, {"max_grad_norm": 0.01}], ids=str)
def test_gradient_is_that_of_the_parent_on_all_rows(flags: dict[str, Any], tmp_path: Path):
    """Statistics, too, on each of the processes."""
    batch = rows(16)
    expected = gradient(load_script("ppo_atari.py"), batch, **flags)
    results = together(NAME, share_of_gradient, tmp_path, batch=batch, **flags)
    assert expected["losses/grad_norm"] > 0.1
    for result in results:
        assert result.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(result[name], value, rtol=1e-4, atol=1e-6, msg=name)


def watched(module: ModuleType, folder: Path, **flags: Any) -> list[bool]:
    right = watch_strides(module)
    learn(module, folder, **flags)
    return right


def test_gradients_lie_in_memory_as_their_weights(tmp_path: Path):
    """Also when they have been added up over the processes."""
    flags = SHORT | {"total_timesteps": 96, "update_epochs": 1}
    assert together(NAME, watched, tmp_path, **flags) == [[True] * 2] * 2


# ------ whole runs ------
def fix_chance(module: ModuleType, ranks: range) -> None:
    """Actions and shuffling of the processes `ranks`, as functions of what was called how often."""
    calls = {"action": 0, "shuffle": 0}

    def get_action(agent: Any, x: Tensor, greedy: bool = False) -> Tensor:
        first, calls["action"] = ranks[0] * 2, calls["action"] + 1
        return (first + torch.arange(len(x)) + calls["action"]) ** 2 // 3 % 4

    def randperm(n: int, device: Any = None) -> Tensor:
        """Each minibatch has rows of all processes, each process's own shuffled by itself."""
        calls["shuffle"] += 1
        each, shares = n // len(ranks), []
        for rank in ranks:
            rng = torch.Generator().manual_seed(100 * calls["shuffle"] + rank)
            mine = torch.randperm(each, generator=rng)
            # Rows are counted through the environments of the process, then through the steps.
            step, env = mine // 2, mine % 2 + 2 * (rank - ranks[0])
            shares.append((step * 2 * len(ranks) + env).chunk(SHORT["num_minibatches"]))
        return torch.cat([part for parts in zip(*shares, strict=True) for part in parts])

    module.Agent.get_action = get_action
    module.torch = SimpleNamespace(**{**vars(torch), "randperm": randperm})


def learn(module: ModuleType, folder: Path, **flags: Any) -> dict[str, Any]:
    """Trains; what is logged, and the weights."""
    if flags.pop("fixed", False):
        fix_chance(module, range(module.RANK, module.RANK + 1))
    args = module.Args(**{"num_envs": 2, "eval_episodes": 0, "checkpoint_every": 0, **flags})
    agents, make = [], module.Agent.__init__

    def remember(agent: Any, *arguments: Any) -> None:
        agents.append(agent)
        make(agent, *arguments)

    module.Agent.__init__ = remember
    code = module.train(args, folder, {})
    return {"code": code, "weights": agents[0].state_dict()}


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Logged points by name, those of a step in one order; speed left out."""
    log = command_line.events(folder)
    names = [name for name in log.Tags()["scalars"] if name != "charts/SPS"]
    return {name: sorted((p.step, p.value) for p in log.Scalars(name)) for name in names}


@pytest.mark.slow("several processes")
@pytest.mark.parametrize("target_kl", [None, 3e-4])
def test_run_equals_the_parents_with_all_environments(
    target_kl: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same games, with the same actions, in the same minibatches: the same weights and curves.

    The KL divergence ends some updates early.
    """
    parent = load_script("ppo_atari.py")
    updates = record_calls(parent, "compute_gradient", monkeypatch)
    monkeypatch.setattr(parent.Agent, "get_action", None)
    monkeypatch.setattr(parent, "torch", torch)
    fix_chance(parent, range(2))
    flags = SHORT | {"target_kl": target_kl}
    (tmp_path / "one").mkdir()
    one = train(parent, tmp_path / "one", num_envs=4, **flags)
    assert len(updates) == 16 if target_kl is None else 8 < len(updates) < 16
    results = together(NAME, learn, tmp_path / "two", fixed=True, **flags)
    expected, found = curves(one.folder), curves(tmp_path / "two")
    assert found.keys() == expected.keys() >= {"charts/episodic_return", "losses/approx_kl"}
    for name, points in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points]
        values = [value for _, value in points]
        assert [v for _, v in found[name]] == pytest.approx(values, rel=1e-3, abs=1e-6), name
    assert len(expected["charts/episodic_return"]) >= 16
    for result in results:
        for name, weight in one.state["agent"].items():
            error = (result["weights"][name] - weight).abs().max()
            assert error < 1e-5, f"{name} differs by {error}"


def test_ranks_play_and_sample_differently_but_have_the_same_weights(tmp_path: Path):
    first, second = together(NAME, spy_on_rollout, tmp_path, **SHORT)
    for name, weight in first["weights"].items():
        assert torch.equal(weight, second["weights"][name])
    assert (first["actions"] != second["actions"]).any() and first["seed"] != second["seed"]


def spy_on_rollout(module: ModuleType, folder: Path, **flags: Any) -> Any:
    """The first iteration of a run."""
    args = module.Args(**{"num_envs": 2, "eval_episodes": 0, **flags, "total_timesteps": 96})
    seen, make_envs, compute_gradient = {}, module.make_envs, module.compute_gradient

    def spy(agent: Any, batch: dict[str, Tensor], *rest: Any) -> Any:
        seen.setdefault("actions", batch["actions"].clone())
        seen["weights"] = agent.state_dict()
        return compute_gradient(agent, batch, *rest)

    def remember(args: Any, videos: Path) -> Any:
        seen["seed"] = args.seed
        return make_envs(args, videos)

    module.compute_gradient, module.make_envs = spy, remember
    module.train(args, folder, {})
    return seen


def checkpoint_at(step: int, module: ModuleType) -> dict[str, Any]:
    """What a run restores, of an agent that has learned nothing."""
    agent = make_agent(module)
    optimizer = torch.optim.Adam(agent.parameters())
    state = {"agent": agent.state_dict(), "optimizer": optimizer.state_dict()}
    return state | {"global_step": step}


# ------ stopping and failing ------
def stall(module: ModuleType, folder: Path, **flags: Any) -> Any:
    """Trains until told to stop; saving takes time. What was saved when the process could leave."""

    def save(state: Any, path: Path) -> None:
        time.sleep(0.5)
        torch.save(state, path)

    module.torch = SimpleNamespace(**{**vars(torch), "save": save})
    flags |= {"total_timesteps": 10**9, "checkpoint_every": 1}
    result = learn(module, folder, **SHORT | flags)
    return result | {"saved": command_line.checkpoint(folder)}


def wait_for_training(folder: Path, processes: list[Any]) -> None:
    def saved() -> bool:
        assert all(process.exitcode is None for process in processes), "ended too early"
        return (folder / "checkpoint.pt").exists()

    command_line.wait_until(saved)


def test_signal_to_one_stops_all_and_saves(tmp_path: Path):
    with group(NAME, stall, tmp_path) as processes:
        wait_for_training(tmp_path, processes)
        os.kill(processes[1].pid, signal.SIGTERM)
        for process in processes:
            process.join(60)
            assert process.exitcode == 0, "does not stop, or fails"
    for rank in range(2):
        result = torch.load(tmp_path / f"result{rank}.pt", weights_only=False)
        assert result["code"] == 128 + signal.SIGTERM
        for name, weight in result["weights"].items():
            assert torch.equal(weight, result["saved"]["agent"][name]), "not what was learned last"


def evaluate_slowly(module: ModuleType, folder: Path) -> dict[str, Any]:
    """Trains; what the process printed, waited for, and whether it is to film.

    The evaluation takes two seconds.
    """
    module.evaluate = lambda *_: time.sleep(2) or {"episodic_return": np.zeros(1)}
    make_envs, new_group = module.make_envs, module.dist.new_group
    seen: dict[str, Any] = {"limits": []}  # how long the processes may wait for each other

    def spy_envs(args: Any, videos: Path) -> Any:
        seen["films"] = args.capture_video
        return make_envs(replace(args, capture_video=False), videos)

    def spy_group(**options: Any) -> Any:
        seen["limits"].append(options["timeout"])
        return new_group(**options)

    module.make_envs, module.dist.new_group = spy_envs, spy_group
    # They have met already.
    module.dist.init_process_group = lambda _, timeout: seen["limits"].append(timeout)
    flags = SHORT | {"total_timesteps": 96, "num_envs": 2, "eval_episodes": 1}
    flags |= {"capture_video": True, "timeout": 77}
    flags["seed"] = 2**31 - 1  # the largest that is allowed; that of the second process is larger
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        assert module.train(module.Args(**flags), folder, {}) == 0
    return seen | {"waited": (folder / "agent.pt").exists(), "printed": stdout.getvalue()}


def test_all_wait_for_the_evaluation_of_the_first(tmp_path: Path):
    """As long as it takes: torchrun on another machine waits for five minutes only."""
    first, second = together(NAME, evaluate_slowly, tmp_path)
    assert "\n4 environments, " in first.pop("printed")  # those of both
    limits = [timedelta(seconds=77), timedelta(days=1)]
    assert first == {"waited": True, "films": True, "limits": limits}
    assert second == {"waited": True, "films": False, "limits": limits, "printed": ""}
    assert json.loads((tmp_path / "args.json").read_text())["processes"] == 2


# ------ torchrun ------
def resume_in_the_first_alone(module: ModuleType, folder: Path) -> tuple[object, str]:
    """As if the second process, on another machine, did not see the run; exit code and message."""
    args = module.Args(**SHORT, num_envs=2)
    checkpoint = checkpoint_at(96, module) if module.RANK == 0 else {}
    stderr = io.StringIO()
    with pytest.raises(SystemExit) as stopped, contextlib.redirect_stderr(stderr):
        module.train(args, folder / "run", checkpoint)
    return stopped.value.code, stderr.getvalue()


def test_run_folder_that_not_all_see_is_refused(tmp_path: Path):
    for code, message in together(NAME, resume_in_the_first_alone, tmp_path):
        assert code == 2
        assert message.endswith("--resume: not all processes see the same run folder\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("processes", "flags", "gpus", "nccl", "devices"),
    [
        (2, {}, 2, True, [0, 1]),
        (2, {}, 1, False, [0, 0]),
        (2, {"backend": "nccl"}, 1, True, [0, 0]),
        (4, {"device_ids": (0, 0, 1, 1)}, 2, False, [0, 0, 1, 1]),
        (2, {"device_ids": (0, 0, 1)}, 2, False, [0, 0]),
        (2, {"device_ids": (3, 1)}, 4, True, [3, 1]),
        (2, {"device_ids": (3, 1)}, 2, True, [1]),  # of a run on another machine
        (2, {"cuda": False}, 2, False, [0, 1]),
        (2, {}, 0, False, []),
    ],
)
def test_gpus_of_the_processes(
    processes: int,
    flags: dict[str, Any],
    gpus: int,
    nccl: bool,
    devices: list[int],
    monkeypatch: pytest.MonkeyPatch,
):
    """Of 0 GPUs: there may be one, and no driver for it. auto is gloo then."""
    module = load_script(NAME)
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus or 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(module, "LOCAL_WORLD_SIZE", processes)
    for rank in range(processes):
        monkeypatch.setattr(module, "LOCAL_RANK", rank)
        assert module.Args(**flags).use_nccl == nccl
    assert chosen == devices


def test_gpus_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: None)
    module = load_script(NAME)
    message = "--device-ids: this machine has 2 GPUs, from number 0"
    assert_refused(module, {"device_ids": (1, 2)}, message, capsys)
    monkeypatch.setattr(module, "LOCAL_WORLD_SIZE", 2)
    assert_refused(module, {"device": "cpu:0"}, "choose GPUs by --device-ids", capsys)


@pytest.mark.slow("torchrun")
@pytest.mark.skipif(sys.platform != "linux", reason="needs a second loopback address")
def test_two_machines_and_a_killed_worker(tmp_path: Path):
    """Two agents of torchrun meet. A worker is killed: both go on from the last checkpoint."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = "--num-envs 1 --num-steps 32 --num-minibatches 2 --update-epochs 1 --torch-threads 1 "
    flags += "--total-timesteps 1280 --checkpoint-every 3 --eval-episodes 0 --runs-dir runs "
    flags += "--resume auto"
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1"]
    words += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=two"]
    words += ["--max-restarts=3"]
    # A store of its own for each start: docs/ppo_atari_multigpu.md says why.
    changes = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} | noting_threads(tmp_path / "threads")
    (cwd := tmp_path / "cwd").mkdir()
    agents = [
        subprocess.Popen(
            [*words, f"--local-addr=127.0.0.{node}", str(FILE), *flags.split()],
            cwd=cwd,
            env=command_line.environment(tmp_path, **changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for node in (1, 2)
    ]
    try:
        folder = command_line.wait_for_checkpoint(cwd / "runs", agents[0], 90)
        (worker,) = command_line.children(agents[1].pid)
        os.kill(worker, signal.SIGKILL)
        lost_after = command_line.checkpoint(folder)["global_step"]
        for agent in agents:
            code, output, _ = command_line.finish(agent, 90)
            assert code == 0, output
    finally:
        for agent in agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
    assert_no_thread_left(tmp_path / "threads")
    assert command_line.the_folder(cwd / "runs") == folder
    saved = command_line.checkpoint(folder, "agent.pt")
    assert saved["global_step"] == 1280
    (part,) = folder.glob("resumed_at_*")
    resumed_at = int(part.name.removeprefix("resumed_at_"))
    assert lost_after <= resumed_at < 1280, "went on from an earlier checkpoint"
    steps = [step for step, _ in command_line.curve(folder, "losses/value_loss")]
    assert steps == list(range(64, 1281, 64)), "each iteration once"
