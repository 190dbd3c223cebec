"""Whether a script computes the same numbers as CleanRL's script of that name.

    uv run benchmark/same_numbers.py ppo.py --cleanrl ~/cleanrl
    uv run benchmark/same_numbers.py ppo_atari_lstm.py --cleanrl ~/cleanrl

Both train for some iterations, a rollout and its gradient steps each, and after every one all the
weights of one are compared with those of the other. CleanRL's file is run as it is. What differs
on purpose is undone by the edits in tests/mutations/, and both have the same environments (ours),
first weights and random numbers. In continuous control neither normalizes: CleanRL leaves that to
its environments.

They compute in double precision: a difference in the algorithm shows in the first digits, one of
rounding in the sixteenth. Where states are continuous, rounding errors grow with every iteration,
until episodes differ. So the first two iterations must agree, and later a jump from below 1e-12 to
above 1e-6 in one iteration is a fault; slower growth is not judged. In HalfCheetah-v4 rounding
itself may grow that fast, and the answer be "other numbers".

Exit codes: 0 the same numbers, 1 other numbers or a program failed, 2 bad input.
"""

import importlib
import multiprocessing
import os
import runpy
import sys
import tempfile
import types
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from common import fail, read_args
from edits import ablations
from numpy.typing import NDArray as Array
from torch import Tensor, nn, optim

ROOT = Path(__file__).resolve().parents[1]
BOOTSTRAP = "deviation truncated episodes bootstrapped"
NORMALIZATION = ("continuous-6", "continuous-7", "continuous-8", "continuous-9")
UNDONE = {  # by script: what is undone before it is compared
    "ppo.py": (BOOTSTRAP,),
    "ppo_continuous_action.py": (BOOTSTRAP, *NORMALIZATION),
    "ppo_atari.py": (BOOTSTRAP,),
    "ppo_atari_lstm.py": (BOOTSTRAP,),
    "ppo_atari_envpool.py": (BOOTSTRAP,),
}
IN_DOUBLE_PRECISION = (("float32", "float64"), (".float()", ".double()"))
# Where the script's own default is an environment in which rounding grows at once.
ENV_IDS = {"ppo_continuous_action.py": "Hopper-v4"}
# Differences, of the way that the weights have come.
SAME = 1e-9  # so little is called the same
ROUNDING = 1e-12  # directly after less than this ...
JUMP = 1e-6  # ... more than this is a fault


@dataclass
class Args:
    script: Annotated[str, tyro.conf.Positional]  # of ppo/; CleanRL's has the same name
    cleanrl: Path  # clone of CleanRL
    iterations: int = 5  # of each, at least 2: the first one has the full learning rate
    env_id: str | None = None  # environment of both; by default the script's own, or Hopper-v4
    seed: int = 1  # of both


class Enough(BaseException):
    """All iterations are recorded; ends the program that is recorded."""


class Recorder(optim.Adam):
    """Adam, which keeps the weights before the first iteration and after each.

    The random numbers begin anew when it is made: until then the programs have drawn different ones
    for their networks.
    """

    steps_per_iteration: int
    iterations: int
    seed: int
    history: list[Array]  # of arrays of all weights

    def __init__(self, params: Any, **options: Any):
        # Of both programs in the same order: one has critic and actor where the other has actor and
        # critic, and one has a row of numbers where the other has a matrix of one row.
        self.weights = sorted(params, key=lambda weight: tuple(weight.squeeze().shape))
        options["fused"] = False  # another order of the same operations
        super().__init__(self.weights, **options)
        self.steps = 0
        self.record()
        torch.manual_seed(self.seed)

    def record(self) -> None:
        """Keeps all weights as one array."""
        flat = [weight.detach().flatten() for weight in self.weights]
        self.history.append(torch.cat(flat).numpy())

    def step(self, closure: Any = None) -> Any:
        """A gradient step; raises Enough after the last one."""
        result = super().step(closure)
        self.steps += 1
        if self.steps % self.steps_per_iteration == 0:
            self.record()
        if len(self.history) > self.iterations:
            raise Enough
        return result


# What torch has under the names that stand for something else while a program is recorded.
torch_orthogonal = nn.init.orthogonal_
torch_from_numpy = torch.from_numpy


def orthogonal(weight: Tensor, gain: float = 1.0) -> Tensor:
    """Orthogonal weights that depend on shape and gain, and not on what was drawn before."""
    generator = torch.Generator().manual_seed(sum(weight.shape))
    return torch_orthogonal(weight, gain, generator=generator)


def double(array: Array) -> Tensor:
    """A tensor on the memory of an array, of single precision a copy in double precision."""
    tensor = torch_from_numpy(array)
    return tensor.double() if tensor.dtype == torch.float32 else tensor


def categorical_sample(policy: torch.distributions.Categorical, *_: Any) -> Tensor:
    """A sample, from the random numbers that our scripts draw for one: the Gumbel-max trick."""
    gumbel = -torch.empty_like(policy.logits).exponential_().log()
    return (policy.logits + gumbel).argmax(-1)


def normal_sample(policy: torch.distributions.Normal, *_: Any) -> Tensor:
    """A sample, from the random numbers that our scripts draw for one."""
    return policy.mean + policy.stddev * torch.randn_like(policy.mean)


def shuffle(indices: Array) -> None:
    """Another order, from the random numbers that our scripts draw for one."""
    indices[:] = torch.randperm(len(indices)).numpy()


class WithoutInfos(gym.vector.VectorWrapper):
    """Environments that tell of no finished episode: CleanRL would only log it."""

    def step(self, actions: Array) -> Any:
        *result, infos = self.env.step(actions)
        return (*result, {name: x for name, x in infos.items() if name == "final_obs"})


class OldVector:
    """Environments as EnvPool offered them to gym: four results, of which one tells any end."""

    def __init__(self, envs: Any):
        self.envs = envs
        self.action_space = envs.single_action_space
        self.observation_space = envs.single_observation_space

    def reset(self) -> Array:
        return self.envs.reset(self.envs.args.seed)[0]

    def step(self, actions: Array) -> tuple[Array, Array, Array, dict[str, Array]]:
        obs, rewards, terminated, truncated, _ = self.envs.step(actions)
        nobody = np.zeros(len(rewards), np.int32)  # has ended a game: CleanRL would only log that
        infos = {"reward": rewards, "terminated": nobody, "lives": nobody + 1}
        return obs, rewards, terminated | truncated, infos


class OldWrapper:
    """What CleanRL's EnvPool script needs of gym.Wrapper."""

    def __init__(self, env: Any):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **options: Any) -> Any:
        return self.env.reset(**options)

    def step(self, actions: Array) -> Any:
        return self.env.step(actions)


class StandIn(types.ModuleType):
    """A module in place of one that is not installed; what it does not have is `object`."""

    def __init__(self, name: str, **contents: Any):
        super().__init__(name)
        vars(self).update(contents)
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def replace(*replacements: tuple[Any, str, Any]) -> None:
    """Puts something else in the place of what an owner has under a name, in this process."""
    for owner, name, other in replacements:
        setattr(owner, name, other)


def options(args: Args) -> dict[str, Any]:
    """The flags that both programs have."""
    env_id = args.env_id or ENV_IDS.get(args.script)
    return {"seed": args.seed} | ({} if env_id is None else {"env_id": env_id})


def serve_cleanrl(script: Any, args: Args) -> None:
    """Gives CleanRL's script the environments of ours, and the random numbers that ours draws."""
    envs = script.make_envs(script.Args(**options(args)), Path())
    if hasattr(script, "envpool"):
        StandIn("envpool", make=lambda *_, **__: OldVector(envs))
        StandIn("gym", Wrapper=OldWrapper, spaces=gym.spaces)
    else:
        # A call makes none of the environments that it is given.
        replace((gym.vector, "SyncVectorEnv", lambda *_, **__: WithoutInfos(envs)))
        StandIn("cleanrl_utils")
        StandIn("cleanrl_utils.atari_wrappers")
    replace(
        (torch.distributions.Categorical, "sample", categorical_sample),
        (torch.distributions.Normal, "sample", normal_sample),
        (np.random, "shuffle", shuffle),
    )


def record(program: Path, ours: Path, args: Args, out: Path) -> None:
    """Runs a program and writes its weights to `out`: (iterations + 1, weights).

    program: CleanRL's script or `ours`. What it prints goes to a file beside `out`.
    """
    with open(out.with_suffix(".log"), "w") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    sys.path.insert(0, str(ours.parent))
    script = importlib.import_module(ours.stem)
    defaults = script.Args()
    if program != ours:
        serve_cleanrl(script, args)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    replace((torch, "from_numpy", double), (nn.init, "orthogonal_", orthogonal))
    Recorder.steps_per_iteration = defaults.update_epochs * defaults.num_minibatches
    Recorder.iterations = args.iterations
    Recorder.seed = args.seed
    Recorder.history = []
    replace((optim, "Adam", Recorder))
    os.chdir(out.parent)  # run folders are made there
    flags = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options(args).items()]
    sys.argv = [str(program), "--no-cuda", *chain.from_iterable(flags)]
    try:
        runpy.run_path(str(program), run_name="__main__")
    except Enough:
        np.save(out, np.array(Recorder.history))


def recorded(program: Path, ours: Path, args: Args, out: Path) -> Array:
    """What `record` writes, in a process of its own; ends the program if that fails."""
    fork = multiprocessing.get_context("fork")  # torch need not be imported again
    process = fork.Process(target=record, args=(program, ours, args, out))
    process.start()
    process.join()
    if not out.exists():
        print(out.with_suffix(".log").read_text(), file=sys.stderr)
        print(f"error: {program} ended before iteration {args.iterations}", file=sys.stderr)
        raise SystemExit(1)
    return np.load(out)


def comparable(source: str, script: str) -> str:
    """The source of our script in double precision, without what differs on purpose."""
    known = ablations(script, source)
    for tag in UNDONE[script]:
        source = known[tag].apply(source)
    for single, twice in IN_DOUBLE_PRECISION:
        if single not in source:
            raise ValueError(f"{script} has no {single} that could become {twice}")
        source = source.replace(single, twice)
    return source


def verdict(first: float, relative: Array) -> tuple[str, bool]:
    """What the differences say, and whether they may be rounding alone.

    first: between the weights before the first iteration; relative: after each, (iterations,).
    """
    if first != 0 or not (relative[:2] < SAME).all():
        return "other numbers", False
    jumps = (relative[:-1] < ROUNDING) & ~(relative[1:] <= JUMP)  # NaN is one, too
    if jumps.any():
        return f"other numbers from iteration {jumps.argmax() + 2} on", False
    same = int((relative < SAME).cumprod().sum())
    agree = f"the same numbers for {same} of {len(relative)} iterations"
    if same < len(relative):
        agree += "; what differs later may be rounding that has grown"
    return agree, True


def main() -> int:
    """Compares the two and tells; the exit code."""
    args = read_args(Args, __doc__)
    if args.script not in UNDONE:
        fail(f"there is no comparison of {args.script}; there are {', '.join(UNDONE)}")
    theirs = args.cleanrl.resolve() / "cleanrl" / args.script
    if not theirs.is_file():
        fail(f"there is no {theirs}")
    if args.iterations < 2:
        fail("--iterations starts at 2")
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(folder) / args.script
        source = (ROOT / "ppo" / args.script).read_text()
        ours.write_text(comparable(source, args.script))
        their_weights = recorded(theirs, ours, args, Path(folder) / "theirs.npy")
        own_weights = recorded(ours, ours, args, Path(folder) / "ours.npy")
    way = np.linalg.norm(their_weights - their_weights[0], axis=1)[1:]
    first, *apart = np.linalg.norm(own_weights - their_weights, axis=1)
    relative = np.array(apart) / way
    print("iteration  way of the weights  difference, of the way")
    for iteration, numbers in enumerate(zip(way, relative, strict=True), start=1):
        print("{:9}  {:18.4f}  {:22.0e}".format(iteration, *numbers))
    text, same = verdict(first, relative)
    print(f"{args.script}, {own_weights.shape[1]:,} weights: {text}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
