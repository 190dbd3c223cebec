"""Every script on a GPU: `uv run --extra dev --with "jax[cuda12]" pytest -m gpu -n 4`.

The first iteration has the losses of the CPU, with the same random numbers and in full float32.
PPO_TEST_DEVICE=cpu runs these tests without a GPU: then they compare the CPU with itself.
"""

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.command_line import PPO, curve, environment, the_folder
from helpers.in_process import events
from scripts import SCRIPTS

DEVICE = os.environ.get("PPO_TEST_DEVICE", "cuda:0")
HELPERS = Path(command_line.__file__).parent
GPUS = torch.cuda.device_count() if DEVICE != "cpu" else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cpu" and GPUS == 0, reason="there is no GPU with CUDA"),
]
# What an extra installs; the others are for simulators in whose place these tests have toys.
MODULES = {
    "atari": "ale_py",
    "envpool": "envpool",
    "gymnax": "gymnax",
    "jax": "jax",
    "mjx": "mujoco_playground",
    "pettingzoo": "supersuit",
}
FLAGS = "--num-envs 4 --num-steps 32 --num-minibatches 2 --update-epochs 1 --eval-episodes 0"
BATCH = 4 * 32
MORE_FLAGS = {
    "ppo_continuous_action.py": "--env-id Pendulum-v1",
    "ppo_gymnax.py": f"--log-every {BATCH}",
    "ppo_multidiscrete.py": "--env-id levers:LeversLoose-v0",
    "ppo_multidiscrete_mask.py": "--env-id levers:Levers-v0",
}
# Their steps are scatters, of which XLA has had wrong deterministic ones (openxla/xla#31063).
SCATTERS = [
    f"ppo_gymnax.py --env-id {name} {flag}"
    for name in ("Seaquest-MinAtar", "Pong-misc")
    for flag in ("--torch-deterministic", "--no-torch-deterministic")
]
# For what is compared: factors of matrix products are not rounded to TensorFloat-32.
FULL_FLOAT32 = {"NVIDIA_TF32_OVERRIDE": "0", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}


def run(*words: object, cwd: Path, **variables: str) -> None:
    """A Python program that must end well, as a user's does; the GPUs are this process's."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(GPUS))))
    settings = {"CUDA_VISIBLE_DEVICES": gpus, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    settings["XLA_FLAGS"] = ""  # without conftest.py's, which is for compiling on a CPU
    env = environment(cwd, **settings, **variables)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(HELPERS.parent)])
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def skip_without_packages(name: str) -> None:
    """Skip a test of a script that cannot run here."""
    needed = [MODULES[extra] for extra in SCRIPTS[name].extras if extra in MODULES]
    missing = [module for module in needed if not find_spec(module)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    has_cuda = any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    if DEVICE != "cpu" and "jax" in SCRIPTS[name].extras and not has_cuda:
        pytest.skip("JAX is installed without CUDA")


def train(case: str, cwd: Path, device: str, iterations: int, **variables: str) -> Path:
    """Train a script, or go on with the run in `cwd`, until so many iterations; its run folder.

    case: the script and its flags.
    """
    name, *flags = case.split()
    steps = BATCH * iterations
    words = [PPO / name]
    if "jax" not in SCRIPTS[name].extras:  # JAX's random numbers are the same on all devices
        words = [HELPERS / "cpu_random.py", *words]
    if "multigpu" in name:
        processes = GPUS or 2
        steps *= processes
        device = device.partition(":")[0]  # each process chooses its own
        start = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        words = [*start, *words]
    if cwd.exists():
        flags = ["--resume", the_folder(cwd / "runs")]
    else:
        cwd.mkdir()
        flags = [*FLAGS.split(), *MORE_FLAGS.get(name, "").split(), *flags, "--runs-dir", "runs"]
    run(*words, *flags, "--device", device, "--total-timesteps", steps, cwd=cwd, **variables)
    return the_folder(cwd / "runs")


def losses(folder: Path) -> dict[str, list[float]]:
    """What a run has logged about its losses, a number for each iteration; all must be finite."""
    names = [tag for tag in events(folder).Tags()["scalars"] if tag.startswith("losses/")]
    found = {tag: [value for _, value in curve(folder, tag)] for tag in names}
    assert found and all(math.isfinite(x) for values in found.values() for x in values), found
    return found


@pytest.mark.parametrize("case", [*SCRIPTS, *SCATTERS])
def test_first_losses_are_the_cpus_and_a_run_moves_between_devices(case, tmp_path):
    skip_without_packages(case.split()[0])
    on_cpu = losses(train(case, tmp_path / "cpu", "cpu", 1, **FULL_FLOAT32))
    folder = train(case, tmp_path / "gpu", DEVICE, 1, **FULL_FLOAT32)
    assert losses(folder) == {
        tag: pytest.approx(values, rel=1e-3, abs=1e-4) for tag, values in on_cpu.items()
    }
    for iterations, device in ((2, "cpu"), (3, DEVICE)):
        train(case, tmp_path / "gpu", device, iterations)
    assert {len(values) for values in losses(folder).values()} == {3}


@pytest.mark.parametrize("flag", ["--compile", "--bf16", "--no-torch-deterministic"])
def test_flags_that_make_convolutions_faster_train(flag, tmp_path):
    skip_without_packages("ppo_atari.py")
    folder = train(f"ppo_atari.py {flag}", tmp_path / "run", DEVICE, 2)
    assert {len(values) for values in losses(folder).values()} == {2}


def test_robots_move_as_on_the_cpu(tmp_path):
    """With the precision that a GPU has by default; the script raises it for the simulation."""
    skip_without_packages("ppo_continuous_action_mjx.py")
    seen = []
    for device in ("cpu", DEVICE):
        run(HELPERS / "robot_steps.py", device, f"{device}.npy", cwd=tmp_path)
        seen.append(np.load(tmp_path / f"{device}.npy"))
    differences = np.abs(seen[0] - seen[1]).max(axis=-1)  # (steps, robots)
    # Half of the robots: one whose foot meets the ground a moment earlier goes its own way.
    # Rounding alone makes 1e-5; matrix products in TensorFloat-32, emulated on a CPU, make 8e-3.
    assert np.median(differences, axis=1).max() < 1e-3
