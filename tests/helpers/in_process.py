"""Imports the scripts for tests, trains with them and reads what they have written.

The environment variable PPO_SCRIPT names a file that is imported in place of the script of the same
file name: tests/tools/test_mutations.py runs the tests on edited copies that way.
"""

import copy
import importlib.util
import os
import signal
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from moviepy.video.io.ImageSequenceClip import ImageSequenceClip
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).resolve().parents[2]
# No evaluation and no checkpoint but the last one: what most tests do not need.
QUICK = {"eval_episodes": 0, "checkpoint_every": 0}

torch.set_num_threads(1)  # fastest for networks of this size, and several tests may run at once
torch.cuda.is_available = lambda: False  # what these tests expect are numbers of the CPU


def load_file(path: Path, name: str) -> ModuleType:
    """Imports a file under a name; registered in sys.modules, where torch.compile looks for it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def load_script(name: str) -> ModuleType:
    """Imports ppo/<name>, or the file that stands in for it."""
    override = Path(os.environ.get("PPO_SCRIPT", ""))
    path = override if override.name == name else ROOT / "ppo" / name
    return load_file(path, f"script_{path.stem}")


@cache
def load_program(name: str) -> ModuleType:
    """Imports benchmark/<name>."""
    return load_file(ROOT / "benchmark" / name, f"benchmark_{Path(name).stem}")


@dataclass(frozen=True)
class Run:
    """A finished run of a script's train()."""

    script: ModuleType
    args: Any
    folder: Path

    @property
    def state(self) -> dict[str, Any]:
        return torch.load(self.folder / "agent.pt", weights_only=True)

    def agent(self) -> Any:
        """The trained agent, read back from the run folder."""
        envs = self.script.make_envs(self.args, self.folder)
        agent = self.script.Agent(envs)
        envs.close()
        agent.load_state_dict(self.state["agent"])
        return agent

    def scalars(self) -> dict[str, list[tuple[int, float]]]:
        """(step, value) of every logged point, by name."""
        log = events(self.folder)
        names = log.Tags()["scalars"]
        return {name: [(point.step, point.value) for point in log.Scalars(name)] for name in names}


def flags_shown(folder: Path) -> dict[str, str]:
    """The table of flags that TensorBoard shows of a run, under Text; of a resumed run the last."""
    table = events(folder).Tensors("hyperparameters/text_summary")[-1]
    text = table.tensor_proto.string_val[0].decode()
    head, rule, *rows = text.split("\n")
    assert (head, rule) == ("| flag | value |", "|---|---|")
    cells = [row.strip("| ").split(" | ") for row in rows]
    return dict(cells)


def events(folder: Path) -> EventAccumulator:
    """Everything that TensorBoard shows of a run; what a resumed run purged is left out."""
    return EventAccumulator(str(folder), {"scalars": 0}).Reload()


def train(script: ModuleType, folder: Path, **flags: Any) -> Run:
    """Trains in an empty folder with the flags given over QUICK's and the script's defaults."""
    args = script.Args(**{**QUICK, **flags})
    assert script.train(args, folder, {}) == 0
    return Run(script, args, folder)


def record_calls(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """From now on: the arguments of each call of a function; arrays as they are at that moment."""
    calls: list[tuple[Any, ...]] = []
    function = getattr(owner, name)

    def recording(*arguments: Any, **options: Any) -> Any:
        kinds = (np.ndarray, torch.Tensor, dict)
        calls.append(tuple(copy.deepcopy(x) if isinstance(x, kinds) else x for x in arguments))
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, recording)
    return calls


def record_waiting_signals(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """From now on: which signals wait whenever a film is written; ffmpeg inherits that."""
    waiting: list[set[int]] = []
    write_videofile = ImageSequenceClip.write_videofile

    def recording(*arguments: Any, **options: Any) -> Any:
        waiting.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        return write_videofile(*arguments, **options)

    monkeypatch.setattr(ImageSequenceClip, "write_videofile", recording)
    return waiting


def record_ratios(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """From now on: the probability ratios of each minibatch, new to old, one for each row."""
    ratios: list[torch.Tensor] = []
    ppo_loss = script.ppo_loss

    def recording(newlogprob: torch.Tensor, *arguments: Any) -> Any:
        ratios.append((newlogprob - arguments[2]["logprobs"]).exp().detach())
        return ppo_loss(newlogprob, *arguments)

    monkeypatch.setattr(script, "ppo_loss", recording)
    return ratios


def record_gradients_left(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """From now on: whether there are gradients already at each call of compute_gradient().

    It adds to them: none may be left of an earlier minibatch.
    """
    left: list[bool] = []
    compute_gradient = script.compute_gradient

    def recording(agent: Any, *arguments: Any) -> Any:
        left.append(any(p.grad is not None for p in agent.parameters()))
        return compute_gradient(agent, *arguments)

    monkeypatch.setattr(script, "compute_gradient", recording)
    return left
