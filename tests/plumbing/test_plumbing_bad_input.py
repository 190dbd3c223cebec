"""Input that cannot work: one clear line, exit code 2, and nothing has been created on disk."""

import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import (
    CLOCKWORK,
    ENVS,
    SCRIPT,
    checkpoint,
    contents,
    curve,
    finished_run,
    run_command,
    the_folder,
)

SHORT = ("--total-timesteps", "1024", "--eval-episodes", "0")


class BoobyTrap:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and with run folders and files that are no good."""
    folder = tmp_path_factory.mktemp("material")
    shutil.copytree(finished_run().folder, folder / "finished")
    good = (folder / "finished/checkpoint.pt").read_bytes()
    state = checkpoint(folder / "finished")
    for name in ("truncated", "random", "trap", "foreign", "list", "other", "newer", "pickle"):
        (folder / name).mkdir()
    (folder / "truncated/checkpoint.pt").write_bytes(good[: len(good) // 2])
    (folder / "random/checkpoint.pt").write_bytes(bytes(range(256)) * 64)
    torch.save({"agent": BoobyTrap(folder / "sprung")}, folder / "trap/checkpoint.pt")
    (folder / "pickle/checkpoint.pt").write_bytes(pickle.dumps(BoobyTrap(folder / "sprung"), 2))
    torch.save({"model_state_dict": state["agent"]}, folder / "foreign/checkpoint.pt")
    torch.save([1, 2, 3], folder / "list/checkpoint.pt")
    torch.save(state | {"script": "ppo_other.py"}, folder / "other/checkpoint.pt")
    unknown = {"args": state["args"] | {"a_flag_of_tomorrow": 1}}
    torch.save(state | unknown, folder / "newer/checkpoint.pt")
    (folder / "file").write_text("not a folder")
    return folder


# Name, arguments after `--total-timesteps 1024 --eval-episodes 0` ("@/" is the material), what the
# line must say (a regular expression, case ignored), changes of the environment.
ROWS: list[tuple[str, str, str, dict[str, str]]] = [
    ("minibatches do not divide", "--num-minibatches 3", "num-minibatches", {}),
    ("less than a batch", "--total-timesteps 511", "total-timesteps.* 512", {}),
    ("no envs", "--num-envs 0", "num-envs", {}),
    ("no minibatches", "--num-minibatches 0", "num-minibatches", {}),
    ("one row in a minibatch", "--num-envs 2 --num-steps 2", "--norm-adv needs two rows", {}),
    ("negative learning rate", "--learning-rate -1", "learning-rate", {}),
    ("learning rate NaN", "--learning-rate nan", "learning-rate", {}),
    ("learning rate's other name", "--lr 1e-3", "--learning-rate", {}),
    ("gamma above 1", "--gamma 1.1", "gamma", {}),
    ("video-every zero", "--video-every 0 --capture-video", "video-every", {}),
    ("seed too large", "--seed 2147483648", "seed", {}),
    ("environment misspelt", "--env-id CartPol-v1", "--env-id CartPol-v1: .*CartPole", {}),
    ("environment's version", "--env-id CartPole-v7", "`v1`", {}),
    ("environment's module", "--env-id no_such:Foo-v0", "'no_such'", {}),
    ("MuJoCo missing", "--env-id Ant-v5", "mujoco", {}),
    ("ALE missing", "--env-id ALE/Pong-v5", "ALE", {}),
    ("continuous actions", "--env-id Pendulum-v1", r"ppo_continuous_action\.py", {}),
    ("continuous, workers", "--env-id Pendulum-v1 --async-envs", "ppo_continuous_action", {}),
    ("several actions", "--env-id clockwork:MultiDiscreteAction-v0", r"ppo_multidiscrete\.py", {}),
    ("actions of no script", "--env-id clockwork:DictAction-v0", r"Dict\(", {}),
    ("actions from 5", "--env-id clockwork:FromFive-v0", "start at 0", {}),
    ("discrete observations", "--env-id CliffWalking-v1", r"Discrete\(48\)", {}),
    ("no CUDA", "--device cuda", "--device cuda", {}),
    ("unknown device", "--device toaster", "--device toaster", {}),
    ("env cannot be filmed", f"--env-id {CLOCKWORK} --capture-video", "rgb_array", {}),
    ("track without login", "--track", "wandb login", {}),
    ("no run folder", "--resume @/nowhere", "@/nowhere", {}),
    ("a file", "--resume @/finished/checkpoint.pt", "@/finished/", {}),
    ("truncated checkpoint", "--resume @/truncated", "@/truncated.* checkpoint", {}),
    ("random checkpoint", "--resume @/random", "@/random.* checkpoint", {}),
    ("booby-trapped checkpoint", "--resume @/trap", "@/trap.* checkpoint", {}),
    ("booby-trapped pickle", "--resume @/pickle", "@/pickle.* checkpoint", {}),
    ("foreign checkpoint", "--resume @/foreign", "@/foreign.* checkpoint", {}),
    ("a list as checkpoint", "--resume @/list", "@/list.* checkpoint", {}),
    ("another script's run", "--resume @/other", r"ppo_other\.py", {}),
    ("a newer script's run", "--resume @/newer", "@/newer.* checkpoint.*'a_flag_of_tomorrow'", {}),
    ("another environment", "--resume @/finished --env-id Acrobot-v1", "--env-id", {}),
    ("unknown flag", "--no-such-flag", "--no-such-flag", {}),
    ("wrong type", "--num-envs four", "--num-envs", {}),
]
TYRO = {"unknown flag", "wrong type"}  # tyro's own messages are boxes of several lines


@pytest.mark.parametrize(
    ("name", "arguments", "message", "changes"),
    ROWS,
    ids=[row[0].replace(" ", "-") for row in ROWS],
)
def test_bad_input_is_refused_in_one_line(
    name: str,
    arguments: str,
    message: str,
    changes: dict[str, str],
    material: Path,
    tmp_path: Path,
) -> None:
    if name == "MuJoCo missing":
        hidden = tmp_path / "hidden"
        hidden.mkdir()
        (hidden / "mujoco.py").write_text("raise ImportError('hidden from this test')")
        changes = {"PYTHONPATH": os.pathsep.join([str(ENVS), str(hidden)])}
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    before = contents(material)
    arguments = arguments.replace("@", str(material))
    cold = "missing" in name  # a warm process has imported it
    done = run_command(*SHORT, *arguments.split(), cwd=cwd, cold=cold, **changes)
    assert done.returncode == 2, done.stderr
    assert re.search(message.replace("@", str(material)), done.stderr, re.IGNORECASE), done.stderr
    assert "Traceback" not in done.stderr
    if name not in TYRO:
        assert done.stderr.count("\n") == 1, done.stderr
        assert len(done.stderr) < 500, "a line that nobody reads to its end"
        assert done.stderr.startswith(f"{SCRIPT.name}: ")
    assert done.stdout == ""
    assert list(cwd.iterdir()) == []
    assert contents(material) == before  # above all: no trap was sprung


MODULES = ["from json import nothing", "import no_such_package", "raise RuntimeError('broken')"]


@pytest.mark.parametrize("mistake", MODULES)
def test_mistake_in_a_module_of_ones_own_shows_a_traceback(mistake: str, tmp_path: Path) -> None:
    (tmp_path / "mistaken.py").write_text(f"{mistake}\n")
    flags, paths = ("--env-id", "mistaken:Env-v0"), {"PYTHONPATH": str(tmp_path)}
    stderr = traceback_of(*flags, cwd=tmp_path / "cwd", script=SCRIPT, **paths)
    assert 'mistaken.py", line 1' in stderr


LINE = "        env = gym.make(args.env_id, **options)\n"
MISTAKES = [
    ("        env = gym.make(args.env_idd)\n", "has no attribute 'env_idd'"),
    ("        import no_such_package\n", "No module named 'no_such_package'"),
    ("        env = gym.make('CartPol-v1')\n", "NameNotFound.*CartPol"),
]


@pytest.mark.parametrize("flags", [(), ("--async-envs",)], ids=["sync", "async"])
@pytest.mark.parametrize(("mistake", "told"), MISTAKES, ids=["name", "import", "environment"])
def test_mistake_in_an_edited_script_shows_a_traceback(
    mistake: str, told: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    source = SCRIPT.read_text()
    assert source.count(LINE) == 1
    script = tmp_path / "my_ppo.py"
    script.write_text(source.replace(LINE, mistake))
    stderr = traceback_of(*flags, cwd=tmp_path / "cwd", script=script)
    assert re.search(told, stderr) and f'"{script}", line ' in stderr


def traceback_of(*args: object, cwd: Path, script: Path, **changes: str) -> str:
    """What Python says of a mistake that is none of the input; nothing has been created."""
    cwd.mkdir()
    done = run_command(*SHORT, *args, cwd=cwd, script=script, **changes)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback"), done.stderr
    assert done.stdout == ""
    assert list(cwd.iterdir()) == []
    return done.stderr


DIVERGING = {
    # Ten episodes of 7 steps take 70 steps of 2 environments: the fifth rollout sees the NaN.
    "reward": (160, "--env-id", "clockwork:NanReward-v0"),
    "observation": (160, "--env-id", "clockwork:NanObservation-v0"),
    "learning rate": (32, "--env-id", CLOCKWORK, "--learning-rate", 1e20),
}


@pytest.mark.parametrize(("step", "args"), [(s, a) for s, *a in DIVERGING.values()], ids=DIVERGING)
def test_diverging_run_ends_and_keeps_the_last_checkpoint(
    step: int, args: list[object], tmp_path: Path
) -> None:
    flags = ("--num-envs", 2, "--num-steps", 16, "--checkpoint-every", 1, "--runs-dir", "runs")
    done = run_command(*SHORT, *flags, *args, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and f"diverged at step {step}" in done.stderr
    folder = the_folder(tmp_path / "runs")
    assert curve(folder, "losses/value_loss")[-1][0] == step  # what happened can be seen
    assert not (folder / "agent.pt").exists()
    if step > 32:
        saved = checkpoint(folder)
        assert saved["global_step"] == step - 32
        assert all(weights.isfinite().all() for weights in saved["agent"].values())
    else:
        assert not (folder / "checkpoint.pt").exists()
