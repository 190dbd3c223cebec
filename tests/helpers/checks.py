"""Checks that the tests of several scripts share."""

import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.in_process import Run, record_calls, record_ratios, train
from torch import Tensor, nn


def new_agent(script: ModuleType, observations: gym.Space[Any], actions: gym.Space[Any]) -> Any:
    """An agent of the script for these spaces, always with the same weights."""
    torch.manual_seed(0)
    spaces = {"single_observation_space": observations, "single_action_space": actions}
    return script.Agent(SimpleNamespace(**spaces))


def assert_orthogonal(weights: Iterable[Tensor], stds: list[float]) -> None:
    """The rows or columns of each weight, whichever are fewer, are orthogonal and of length std."""
    for weight, std in zip(weights, stds, strict=True):
        rows = weight.detach().flatten(1)
        gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        torch.testing.assert_close(gram / std**2, torch.eye(len(gram)), rtol=0, atol=1e-4)


def input_of(network: nn.Module) -> list[Tensor]:
    """What the network is given from now on."""
    seen: list[Tensor] = []
    network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    return seen


def assert_bf16_rounds(agent: Any, images: Tensor) -> None:
    """With --bf16 the features are as exact as 8 binary digits, and float32 again."""
    exact = agent.features(images)
    agent.bf16 = True
    rounded = agent.features(images)
    assert rounded.dtype == exact.dtype == torch.float32
    error = (rounded - exact).norm() / exact.norm()
    assert 1e-4 < error < 3e-2


def assert_first_ratio_is_1(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, **flags: Any
) -> Run:
    """In the first minibatch of each rollout, new and old policy are the same; in the last not."""
    ratios = record_ratios(script, monkeypatch)
    run = train(script, folder, **flags)
    updates = run.args.update_epochs * run.args.num_minibatches
    assert len(ratios) == updates * run.args.num_iterations
    for first, last in zip(ratios[::updates], ratios[updates - 1 :: updates], strict=True):
        torch.testing.assert_close(first, torch.ones_like(first), rtol=0, atol=1e-5)
        assert (last - 1).abs().max() > 1e-4
    return run


def assert_next_values_are_the_next_rows(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, **flags: Any
) -> None:
    """Across rollouts as well, as the weights stay; not where an episode is truncated."""
    calls = record_calls(script, "compute_gae", monkeypatch)
    train(script, folder, **flags, learning_rate=0)
    columns = zip(*(call[1:5] for call in calls), strict=True)
    values, next_values, _, truncated = (np.concatenate(parts) for parts in columns)
    same = np.isclose(next_values[:-1], values[1:], rtol=1e-4, atol=1e-5)
    assert len(calls) > 1 and same[~truncated[:-1]].all()
    assert np.ptp(values) > 1e-3


def assert_same_weights(run: Run, other: Run) -> None:
    """To the last bit."""
    torch.testing.assert_close(other.state["agent"], run.state["agent"], rtol=0, atol=0)


def assert_compiled_is_the_same(script: ModuleType, folder: Path, **flags: Any) -> None:
    """With --compile the same is learned and logged, but for rounding."""
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    eager, compiled = (train(script, folder / str(i), **flags, compile=bool(i)) for i in range(2))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > graphs, "nothing was compiled"
    ours, theirs = (dict(run.scalars()) for run in (eager, compiled))
    for logged in (ours, theirs):
        del logged["charts/SPS"]
    close = {"rtol": 1e-3, "atol": 1e-4, "msg": str}
    torch.testing.assert_close(compiled.state["agent"], eager.state["agent"], **close)
    assert theirs.keys() == ours.keys()
    for name, points in ours.items():
        torch.testing.assert_close(torch.tensor(theirs[name]), torch.tensor(points), **close)


def assert_envpool_is_asked(envs: Any, **more: Any) -> None:
    """For games as openai/baselines has them."""
    wanted = {"noop_max": 30, "frame_skip": 4, "episodic_life": True, "use_fire_reset": True}
    wanted |= {"img_height": 84, "img_width": 84, "gray_scale": True, "stack_num": 4}
    wanted |= {"reward_clip": True, "repeat_action_probability": 0.0, **more}
    config = envs.pool.spec.config._asdict()
    assert {name: config[name] for name in wanted} == wanted


def assert_refused(
    script: ModuleType, flags: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """check() ends the program with exit code 2 and one line that matches `message`."""
    with pytest.raises(SystemExit) as stopped:
        script.check(script.Args(**{"cuda": False, **flags}))
    shown = capsys.readouterr()
    # Simulators may print lines of their own, above all when they are imported.
    lines = [line for line in shown.err.splitlines() if line.startswith(f"{script.SCRIPT.name}: ")]
    assert stopped.value.code == 2 and len(lines) == 1
    assert re.search(message, lines[0]), shown.err
