"""Input that cannot work: one clear line, exit code 2, and nothing has been created on disk."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from helpers.command_line import (
    CLOCKWORK,
    SCRIPT,
    BoobyTrap,
    checkpoint,
    contents,
    curve,
    finished_run,
    run_command,
    the_folder,
)
from helpers.in_process import load_script

SHORT = ("--total-timesteps", "1024", "--eval-episodes", "0")


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and with checkpoints that are no good."""
    folder = tmp_path_factory.mktemp("material")
    shutil.copytree(finished_run().folder, folder / "finished")
    state = checkpoint(folder / "finished")
    bad = {
        "trap": {"agent": BoobyTrap(folder / "sprung")},
        "foreign": {"model_state_dict": state["agent"]},
        "other": {"script": "ppo_other.py", "args": {"a_flag_of_theirs": 1}},
        "newer": state | {"args": state["args"] | {"a_flag_of_tomorrow": 1}},
    }
    for name, saved in bad.items():
        (folder / name).mkdir()
        torch.save(saved, folder / name / "checkpoint.pt")
    (folder / "truncated").mkdir()
    good = (folder / "finished/checkpoint.pt").read_bytes()
    (folder / "truncated/checkpoint.pt").write_bytes(good[: len(good) // 2])
    return folder


# Arguments after `--total-timesteps 1024 --eval-episodes 0` ("@/" is the material) by name, and
# what the line must say (a regular expression).
ROWS = {
    "minibatches do not divide": ("--num-minibatches 3", "num-minibatches"),
    "less than a batch": ("--total-timesteps 511", "total-timesteps.* 512"),
    "no envs": ("--num-envs 0", "num-envs"),
    "lambda above 1": ("--gae-lambda 1.1", "gae-lambda"),
    "clipping below 0": ("--clip-coef -0.1", "clip-coef"),
    "norm below 0": ("--max-grad-norm -1", "max-grad-norm"),
    "one row in a minibatch": ("--num-envs 2 --num-steps 2", "--norm-adv needs two rows"),
    "learning rate NaN": ("--learning-rate nan", "learning-rate"),
    "video-every zero": ("--video-every 0 --capture-video", "video-every"),
    "seed too large": ("--seed 2147483648", "seed"),
    "environment misspelt": ("--env-id CartPol-v1", "--env-id CartPol-v1: .*CartPole"),
    "MuJoCo missing": ("--env-id Ant-v5", "MuJoCo"),
    "continuous actions": ("--env-id Pendulum-v1", "ppo_continuous_action.py"),
    "several actions": ("--env-id clockwork:MultiDiscreteAction-v0", "ppo_multidiscrete.py"),
    "actions of no script": ("--env-id clockwork:DictAction-v0", r"Dict\("),
    "actions from 5": ("--env-id clockwork:FromFive-v0", "start at 0"),
    "discrete observations": ("--env-id CliffWalking-v1", r"Discrete\(48\)"),
    "no such device": ("--device toaster", "--device toaster"),
    "env cannot be filmed": (f"--env-id {CLOCKWORK} --capture-video", "rgb_array"),
    "no run folder": ("--resume @/nowhere", "@/nowhere"),
    "truncated checkpoint": ("--resume @/truncated", "@/truncated.* checkpoint"),
    "booby-trapped checkpoint": ("--resume @/trap", "@/trap.* checkpoint"),
    "foreign checkpoint": ("--resume @/foreign", "@/foreign.* checkpoint"),
    "another script's run": ("--resume @/other", "ppo_other.py"),
    "a newer script's run": ("--resume @/newer", "@/newer.* checkpoint.*'a_flag_of_tomorrow'"),
    "another environment": ("--resume @/finished --env-id Acrobot-v1", "--env-id"),
}


@pytest.mark.parametrize(
    ("arguments", "message"), ROWS.values(), ids=[name.replace(" ", "-") for name in ROWS]
)
def test_bad_input_is_refused_in_one_line(
    arguments: str,
    message: str,
    material: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = contents(material)
    words = arguments.replace("@", str(material)).split()
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, *SHORT, *words])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)  # that another test has imported
    with pytest.raises(SystemExit, match="2"):
        load_script(SCRIPT.name).main()
    told = capfd.readouterr()
    assert re.search(message.replace("@", str(material)), told.err), told.err
    assert told.err.count("\n") == 1 and len(told.err) < 500, told.err
    assert told.err.startswith(f"{SCRIPT.name}: ") and told.out == ""
    assert list(tmp_path.iterdir()) == []
    assert contents(material) == before  # above all: no trap was sprung


LINE = "        env = gym.make(args.env_id, **options)\n"
MISTAKES = {
    "name": ("        env = gym.make(args.env_idd)\n", "has no attribute 'env_idd'"),
    "import": ("        import no_such_package\n", "No module named 'no_such_package'"),
    "environment": ("        env = gym.make('CartPol-v1')\n", "NameNotFound.*CartPol"),
}


@pytest.mark.parametrize(("mistake", "told"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_in_an_edited_script_shows_a_traceback(
    mistake: str, told: str, tmp_path: Path
) -> None:
    source = SCRIPT.read_text()
    assert source.count(LINE) == 1
    script = tmp_path / "my_ppo.py"
    script.write_text(source.replace(LINE, mistake))
    (tmp_path / "cwd").mkdir()
    done = run_command(*SHORT, "--async-envs", cwd=tmp_path / "cwd", script=script)
    assert done.returncode == 1 and done.stderr.startswith("Traceback"), done.stderr
    assert re.search(told, done.stderr) and f'"{script}", line ' in done.stderr
    assert list((tmp_path / "cwd").iterdir()) == []


@pytest.mark.parametrize("what", ["Reward", "Observation"])
def test_diverging_run_ends_and_keeps_the_last_checkpoint(what: str, tmp_path: Path) -> None:
    """Ten episodes of 7 steps take 70 steps of 2 environments: the fifth rollout sees the NaN."""
    flags = ("--num-envs", 2, "--num-steps", 16, "--checkpoint-every", 1, "--runs-dir", "runs")
    done = run_command(*SHORT, *flags, "--env-id", f"clockwork:Nan{what}-v0", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "diverged at step 160" in done.stderr
    folder = the_folder(tmp_path / "runs")
    assert curve(folder, "losses/value_loss")[-1][0] == 160  # what happened can be seen
    assert not (folder / "agent.pt").exists()
    saved = checkpoint(folder)
    assert saved["global_step"] == 128
    assert all(weights.isfinite().all() for weights in saved["agent"].values())
    # With other random numbers it might survive: it is resumed only by name.
    flags = (*SHORT, *flags, "--env-id", f"clockwork:Nan{what}-v0")
    again = run_command(*flags, "--resume", "auto", cwd=tmp_path)
    assert again.returncode == 1 and f"{folder.name} has diverged" in again.stderr
    flags = (*flags, "--total-timesteps", 160, "--resume", folder)
    assert run_command(*flags, cwd=tmp_path).returncode == 0
    assert not (folder / "diverged").exists()
