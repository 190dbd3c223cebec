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
    for name in (
        "empty",
        "truncated",
        "random",
        "trap",
        "foreign",
        "list",
        "other",
        "newer",
        "pickle",
    ):
        (folder / name).mkdir()
    (folder / "truncated/checkpoint.pt").write_bytes(good[: len(good) // 2])
    (folder / "random/checkpoint.pt").write_bytes(bytes(range(256)) * 64)
    torch.save({"agent": BoobyTrap(folder / "sprung")}, folder / "trap/checkpoint.pt")
    (folder / "pickle/checkpoint.pt").write_bytes(pickle.dumps(BoobyTrap(folder / "sprung")))
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
    ("no envs", "--num-envs 0", "envs", {}),
    ("no steps", "--num-steps 0", "steps", {}),
    ("no minibatches", "--num-minibatches 0", "minibatches", {}),
    ("one row in a minibatch", "--num-envs 2 --num-steps 2", "--norm-adv needs two rows", {}),
    ("no epochs", "--update-epochs 0", "epochs", {}),
    ("negative learning rate", "--learning-rate -1", "learning-rate|learning rate|step size", {}),
    ("learning rate NaN", "--learning-rate nan", "learning-rate|learning rate|step size", {}),
    ("gamma above 1", "--gamma 1.1", "gamma", {}),
    ("lambda above 1", "--gae-lambda 1.5", "gae-lambda", {}),
    ("clip range zero", "--clip-coef 0", "clip", {}),
    ("gradient norm negative", "--max-grad-norm -1", "max-grad-norm", {}),
    ("checkpoint-every negative", "--checkpoint-every -1", "checkpoint-every", {}),
    ("eval-episodes negative", "--eval-episodes -1", "eval-episodes", {}),
    ("video-every zero", "--video-every 0 --capture-video", "video-every", {}),
    ("no threads", "--torch-threads 0", "thread", {}),
    ("entropy NaN", "--ent-coef nan", "ent-coef", {}),
    ("divergence NaN", "--target-kl nan", "target-kl", {}),
    ("divergence negative", "--target-kl -1", "target-kl", {}),
    ("seed negative", "--seed -1", "seed", {}),
    ("seed too large", "--seed 2147483648", r"seed must be below 2\*\*31", {}),
    ("name too long", f"--exp-name {'x' * 101}", "exp-name has more than 100 characters", {}),
    ("environment misspelt", "--env-id CartPol-v1", r"nearest: CartPole-v1, .*docs/index\.md", {}),
    ("environment's version", "--env-id CartPole-v7", "nearest: CartPole-v1", {}),
    ("environment without version", "--env-id Lunarlander", "nearest: LunarLander-v3", {}),
    ("environment's module", "--env-id no_such:Foo-v0", r"'no_such'; .*PYTHONPATH", {}),
    ("MuJoCo missing", "--env-id Ant-v5", r"not installed.*; docs/index\.md has the script", {}),
    ("ALE missing", "--env-id ALE/Pong-v5", r"package for ALE\?; docs/index\.md", {}),
    ("continuous actions", "--env-id Pendulum-v1", r"ppo_continuous_action\.py", {}),
    ("continuous, workers", "--env-id Pendulum-v1 --async-envs", "ppo_continuous_action", {}),
    ("several actions", "--env-id clockwork:MultiDiscreteAction-v0", r"ppo_multidiscrete\.py", {}),
    ("actions of no script", "--env-id clockwork:DictAction-v0", r"in Dict\(.*docs/", {}),
    ("discrete observations", "--env-id CliffWalking-v1", r"Discrete\(48\).*own-env", {}),
    ("dict observations", "--env-id clockwork:DictObservation-v0", r"Dict\(", {}),
    ("no CUDA", "--device cuda", "--device cuda", {}),
    ("no MPS", "--device mps", "--device mps", {}),
    ("unknown device", "--device toaster", "--device toaster", {}),
    ("env cannot be filmed", f"--env-id {CLOCKWORK} --capture-video", "rgb_array", {}),
    ("runs-dir unwritable", "--runs-dir @/file/runs", "runs-dir|@/file", {}),
    ("runs-dir is a file", "--runs-dir @/file", "runs-dir|@/file", {}),
    ("track without login", "--track", "wandb login", {}),
    ("online without login", "--track", "wandb login", {"WANDB_MODE": "online"}),
    ("compile without g++", "--compile", r"g\+\+", {"PATH": ""}),
    ("empty run folder", "--resume=", "--resume needs", {}),
    ("no run folder", "--resume @/nowhere", "there is no @/nowhere", {}),
    ("no checkpoint", "--resume @/empty", "there is no @/empty", {}),
    ("a file", "--resume @/finished/checkpoint.pt", "there is no @/finished/.*run folder", {}),
    ("truncated checkpoint", "--resume @/truncated", "@/truncated.* checkpoint", {}),
    ("random checkpoint", "--resume @/random", "@/random.* checkpoint", {}),
    ("booby-trapped checkpoint", "--resume @/trap", "@/trap.* checkpoint", {}),
    ("booby-trapped pickle", "--resume @/pickle", "@/pickle.* checkpoint", {}),
    ("foreign checkpoint", "--resume @/foreign", "@/foreign.* checkpoint", {}),
    ("a list as checkpoint", "--resume @/list", "@/list.* checkpoint", {}),
    ("another script's run", "--resume @/other", r"ppo_other\.py", {}),
    ("a newer script's run", "--resume @/newer", "@/newer.* checkpoint.*'a_flag_of_tomorrow'", {}),
    ("another environment", "--resume @/finished --env-id Acrobot-v1", "--env-id", {}),
    ("another batch size", "--resume @/finished --num-envs 8", "num-envs|batch", {}),
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
    if name == "no MPS" and torch.backends.mps.is_available():
        pytest.skip("MPS is here")
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


def test_mistake_in_a_module_of_ones_own_shows_a_traceback(tmp_path: Path) -> None:
    """Also where a name cannot be imported, which Gymnasium says of versions that it gave away."""
    (tmp_path / "mistaken.py").write_text("from json import nothing\n")
    flags, paths = ("--env-id", "mistaken:Env-v0"), {"PYTHONPATH": str(tmp_path)}
    stderr = traceback_of(*flags, cwd=tmp_path / "cwd", script=SCRIPT, **paths)
    assert 'mistaken.py", line 1' in stderr and "cannot import name 'nothing'" in stderr


@pytest.mark.parametrize("flags", [(), ("--async-envs",)], ids=["sync", "async"])
def test_mistake_in_an_edited_script_shows_a_traceback(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    source = SCRIPT.read_text()
    line = "env = gym.wrappers.RecordEpisodeStatistics(env)"
    assert source.count(line) == 1
    script = tmp_path / "my_ppo.py"
    script.write_text(source.replace(line, "env = RecordEpisodeStatistics(env)"))
    stderr = traceback_of(*flags, cwd=tmp_path / "cwd", script=script)
    assert "NameError: name 'RecordEpisodeStatistics' is not defined" in stderr
    assert f'"{script}", line ' in stderr


def test_environment_that_breaks_shows_a_traceback(tmp_path: Path) -> None:
    stderr = traceback_of("--env-id", "clockwork:Broken-v0", cwd=tmp_path / "cwd", script=SCRIPT)
    assert "RuntimeError: the simulator\nis not licensed" in stderr


def traceback_of(*args: object, cwd: Path, script: Path, **changes: str) -> str:
    """What Python says of a mistake that is none of the input; nothing has been created."""
    cwd.mkdir()
    done = run_command(*SHORT, *args, cwd=cwd, script=script, **changes)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback"), done.stderr
    assert done.stdout == ""
    assert list(cwd.iterdir()) == []
    return done.stderr


def diverge(cwd: Path, *args: object) -> tuple[str, dict[str, Any]]:
    """The only line on stderr and the checkpoint of a run that must end by itself, with code 1."""
    done = run_command(
        *("--total-timesteps", 3200, "--num-envs", 2, "--num-steps", 16, "--checkpoint-every", 1),
        *("--runs-dir", "runs", "--eval-episodes", 0, *args),
        cwd=cwd,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    folder = the_folder(cwd / "runs")
    assert not (folder / "agent.pt").exists()
    return done.stderr, checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "step"), [("NanReward-v0", 160), ("NanObservation-v0", 160)], ids=["reward", "obs"]
)
def test_nan_from_an_environment_stops_the_run(name: str, step: int, tmp_path: Path) -> None:
    # Nine episodes of 8 steps fit into 72 steps of 2 environments, the fifth rollout sees the NaN.
    line, saved = diverge(tmp_path, "--env-id", f"clockwork:{name}")
    assert f"step {step}" in line
    assert saved["global_step"] == step - 32
    assert all(weights.isfinite().all() for weights in saved["agent"].values())
    assert torch.tensor(saved["recent"]).isfinite().all()


@pytest.mark.parametrize(
    "args",
    [
        ("--learning-rate", 1e20),
        # One gradient step in an iteration: its loss is finite, what it leaves behind is not.
        ("--learning-rate", 1e39, "--num-minibatches", 1, "--update-epochs", 1),
    ],
    ids=["loss", "weights"],
)
def test_diverging_run_keeps_the_last_good_checkpoint(
    args: tuple[object, ...], tmp_path: Path
) -> None:
    line, saved = diverge(tmp_path, "--env-id", CLOCKWORK, *args)
    assert "diverged at step" in line
    assert all(weights.isfinite().all() for weights in saved["agent"].values())


def test_versions_that_gymnasium_has_given_away_are_refused(tmp_path: Path) -> None:
    """Gymnasium warns of them before it says where they are now."""
    done = run_command("--env-id", "HalfCheetah-v2", *SHORT, cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{SCRIPT.name}: --env-id HalfCheetah-v2: ")
    assert "gymnasium-robotics" in last
