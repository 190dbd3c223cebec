"""The run folder, --resume, and runs that are stopped: politely, twice, or by kill -9."""

import filecmp
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import (
    CLOCKWORK,
    LIMIT,
    SCRIPT,
    Process,
    checkpoint,
    children,
    curve,
    finish,
    finished_run,
    interrupted_run,
    parents,
    resume_command,
    run_command,
    start_command,
    the_folder,
    wait_for_checkpoint,
    wait_for_training,
    wait_until,
)
from helpers.in_process import flags_shown, load_script, train

# 16 environment steps in an iteration, which takes a few milliseconds.
TINY = ("--num-envs", 2, "--num-steps", 8, "--eval-episodes", 0)
ENDLESS = ("--total-timesteps", 100_000_000, "--runs-dir", "runs")


def file_names(folder: Path) -> set[str]:
    """Names of the files in a run folder, event files as `events`."""
    return {re.sub(r"events\.out\.tfevents.*", "events", file.name) for file in folder.iterdir()}


def assert_curves_are_whole(folder: Path) -> None:
    """What TensorBoard shows of a run that was stopped and resumed: as if it never had been."""
    saved = checkpoint(folder)
    args = saved["args"]
    batch = args["num_envs"] * args["num_steps"]
    rates = curve(folder, "charts/learning_rate")
    assert [step for step, _ in rates] == list(range(batch, saved["global_step"] + 1, batch))
    total = args["total_timesteps"] // batch
    expected = [args["learning_rate"] * (1 - i / total) for i in range(len(rates))]
    assert [rate for _, rate in rates] == pytest.approx(expected)
    # As many as were played: twice logged or lost ones would shift what the checkpoint remembers.
    for column, tag in enumerate(("charts/episodic_return", "charts/episodic_length")):
        points = curve(folder, tag)
        assert [step for step, _ in points] == sorted(step for step, _ in points)
        recent = [episode[column] for episode in saved["recent"]]
        assert [value for _, value in points[-100:]] == pytest.approx(recent)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A copy of a finished run."""
    folder = finished_run().folder
    return Path(shutil.copytree(folder, tmp_path / "copies" / folder.name))


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A copy of a run that Ctrl-C has stopped."""
    folder = interrupted_run()[0].folder
    return Path(shutil.copytree(folder, tmp_path / "copies" / folder.name))


# ------ the run folder ------
def test_folder_of_a_finished_run() -> None:
    folder = finished_run().folder
    expected = {"args.json", SCRIPT.name, "checkpoint.pt", "agent.pt", "events", ".lock"}
    assert file_names(folder) == expected
    assert re.fullmatch(rf"CartPole-v1__{SCRIPT.stem}__3__\d{{8}}-\d{{6}}-\d+", folder.name)
    assert filecmp.cmp(folder / SCRIPT.name, SCRIPT, shallow=False)
    assert filecmp.cmp(folder / "agent.pt", folder / "checkpoint.pt", shallow=False)
    saved = checkpoint(folder)
    assert saved["global_step"] == 2048
    assert flags_shown(folder) == {name: str(value) for name, value in saved["args"].items()}
    assert_curves_are_whole(folder)


def test_args_json_says_how_the_run_was_made() -> None:
    folder = finished_run().folder
    about = json.loads((folder / "args.json").read_text())
    assert about["script"] == SCRIPT.name
    assert about["argv"][:2] == ["--total-timesteps", "2048"]
    assert about["args"] == checkpoint(folder)["args"]
    assert about["versions"]["python"] == sys.version
    assert about["versions"]["torch"] == torch.__version__.split("+")[0]
    assert about["hardware"] == f"{os.cpu_count()} CPUs, cpu"
    assert about["processes"] == 1


def test_a_home_folder_that_the_shell_has_left_is_found(tmp_path: Path) -> None:
    flags = ("--runs-dir=~/runs", "--total-timesteps", 512, "--eval-episodes", 0)
    assert run_command(*flags, cwd=tmp_path, HOME=str(tmp_path)).returncode == 0
    assert (the_folder(tmp_path / "runs") / "agent.pt").exists()


# ------ stopping ------
def test_interrupted_run_is_saved_and_not_finished() -> None:
    run, code = interrupted_run()
    assert code == 130
    assert "Traceback" not in run.stderr
    assert f"--resume runs/{run.folder.name}" in run.stderr
    assert file_names(run.folder) == {"args.json", SCRIPT.name, "checkpoint.pt", "events", ".lock"}
    assert 0 < checkpoint(run.folder)["global_step"] < 65536
    assert_curves_are_whole(run.folder)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_to_the_process_group_saves_and_leaves_no_process(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """As a terminal sends Ctrl-C, and a batch system SIGTERM: to every process of the run.

    One of them has written a film.
    """
    flags = ("--checkpoint-every", 0, "--async-envs", "--capture-video")
    process = start_command(*ENDLESS, *flags, cwd=tmp_path)
    folder = wait_for_training(tmp_path / "runs", process)
    wait_until(lambda: list(folder.glob("videos/*/*.mp4")))
    workers = children(process.pid)
    assert len(workers) >= 4
    os.killpg(process.pid, number)
    returncode, _, stderr = finish(process)
    assert returncode == code, stderr
    *_, stopping, saved = stderr.strip().splitlines()  # after what Gymnasium says of films
    assert stopping.startswith("stopping") and saved.startswith("saved"), stderr
    assert checkpoint(folder)["global_step"] > 0
    assert not (folder / "agent.pt").exists()
    wait_until(lambda: not workers & parents().keys(), 5)


def test_ctrl_c_that_also_ends_tee_saves_the_run(tmp_path: Path) -> None:
    """`uv run ppo/ppo.py 2>&1 | tee log`: nobody reads any more what the run prints."""
    process = start_command(*ENDLESS, "--checkpoint-every", 0, cwd=tmp_path, cold=True)
    folder = wait_for_training(tmp_path / "runs", process)
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    process.wait(LIMIT)
    assert checkpoint(folder)["global_step"] > 0


def test_sigterm_that_comes_twice_saves_the_run(tmp_path: Path) -> None:
    """A batch system sends it to all processes, and `uv run` and torchrun pass theirs on."""
    flags = ("--num-steps", 1024, "--num-minibatches", 16, "--checkpoint-every", 0)
    process = start_command(*ENDLESS, *flags, cwd=tmp_path)
    folder = wait_for_training(tmp_path / "runs", process)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in process.output("stderr"))
    process.send_signal(signal.SIGTERM)
    returncode, _, stderr = finish(process)
    assert returncode == 143 and stderr.count("stopping") == 1, stderr
    assert checkpoint(folder)["global_step"] > 0


def test_sigterm_while_the_environments_start_is_not_lost(tmp_path: Path) -> None:
    flags = ("--env-id", "clockwork:SlowStart-v0", *TINY, "--checkpoint-every", 0)
    process = start_command(*ENDLESS, *flags, cwd=tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("starts-*"))) == 2)  # the first is of the check
    process.send_signal(signal.SIGTERM)
    returncode, _, stderr = finish(process)
    assert returncode == 143, stderr
    assert checkpoint(the_folder(tmp_path / "runs"))["global_step"] == 16


def test_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    # An iteration of this run takes minutes.
    process = start_command(*ENDLESS, "--num-steps", 500_000, "--async-envs", cwd=tmp_path)
    folder = wait_for_training(tmp_path / "runs", process)
    time.sleep(0.5)
    workers = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    wait_until(lambda: "another Ctrl-C" in process.output("stderr"))
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process, 10)[0] == -signal.SIGINT
    assert not (folder / "checkpoint.pt").exists()
    wait_until(lambda: not workers & parents().keys(), 5)


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
def test_ctrl_c_during_the_evaluation_ends_at_once(resumed: bool, finished: Path) -> None:
    """There is nothing to be saved any more; the run can be resumed, and evaluates again."""
    flags = ("--eval-episodes", 1_000_000, "--async-envs")
    folder = finished if resumed else finished.parent / "runs"
    flags += ("--resume", folder) if resumed else ("--runs-dir", folder, "--total-timesteps", 512)
    process = start_command(*flags, cwd=finished.parent)
    if not resumed:
        folder = wait_for_checkpoint(folder, process)
    wait_until(lambda: not (folder / "agent.pt").exists())  # all of its environments have started
    wait_until(lambda: not children(process.pid))  # training is over
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process, 30)[0] == 130
    assert not (folder / "agent.pt").exists()
    flags = ("--eval-episodes", 1, "--capture-video")
    assert "evaluation" in resume_command(folder, *flags, cwd=finished.parent).stdout
    assert len(list(folder.glob("videos/evaluation-*/*.mp4"))) == 1  # none of the next reset
    assert_curves_are_whole(folder)


@pytest.mark.parametrize(("every", "steps"), [(0, [80]), (2, [32, 64, 80])])
def test_checkpoints_are_written_every_so_many_iterations(
    every: int, steps: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And at the end."""
    written, save = [], torch.save

    def spy(state: dict[str, Any], file: Path) -> None:
        written.append(state["global_step"])
        save(state, file)

    monkeypatch.setattr(torch, "save", spy)
    flags = {"num_envs": 2, "num_steps": 8, "total_timesteps": 80, "eval_episodes": 0}
    train(load_script("ppo.py"), tmp_path, **flags, checkpoint_every=every)
    assert written == steps


def wait_for_another_checkpoint(folder: Path, written: int, process: Process) -> None:
    """written: when the last one was, in nanoseconds."""
    file = folder / "checkpoint.pt"
    wait_until(lambda: process.poll() is not None or file.stat().st_mtime_ns != written)
    assert process.poll() is None, finish(process)


def test_kill_9_at_any_moment_leaves_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    """Every iteration takes milliseconds and writes a checkpoint: most kills hit a write."""
    moment = random.Random(4)
    args = ("--env-id", "CartPole-v1", *TINY, "--checkpoint-every", 1)
    process = start_command(*ENDLESS, *args, "--no-anneal-lr", cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    last = 0
    for _ in range(3):
        time.sleep(moment.uniform(0.1, 1))
        process.kill()
        finish(process)
        step = checkpoint(folder)["global_step"]
        assert step >= last, "a resumed run went back"
        written, last = (folder / "checkpoint.pt").stat().st_mtime_ns, step
        process = start_command("--resume", folder, cwd=tmp_path)
        wait_for_another_checkpoint(folder, written, process)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143
    saved = checkpoint(folder)["global_step"]
    steps = [step for step, _ in curve(folder, "charts/learning_rate")]
    assert steps == list(range(16, saved + 1, 16))
    assert saved > last


def test_an_error_with_workers_ends_the_run(tmp_path: Path) -> None:
    """They ignore SIGTERM, which is how Python would end them."""
    edited = tmp_path / "ppo.py"
    source = SCRIPT.read_text()
    line = "    done = terminated | truncated\n"
    assert source.count(line) == 1
    edited.write_text(source.replace(line, "    raise ValueError('a mistake')\n"))
    flags = (*TINY, "--async-envs", "--runs-dir", "runs")
    process = start_command(*flags, cwd=tmp_path, script=edited)
    returncode, _, stderr = finish(process)
    assert returncode == 1
    assert "ValueError: a mistake" in stderr
    with pytest.raises(ProcessLookupError):  # no process of its group is left
        os.killpg(process.pid, 0)


# ------ a folder that others write, a full disk ------
def test_run_that_another_process_writes_is_refused(tmp_path: Path) -> None:
    process = start_command(*ENDLESS, "--checkpoint-every", 1, cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    done = run_command("--resume", folder, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"{SCRIPT.name}: {folder}: another process is writing this run\n"
    process.kill()
    finish(process)
    step = checkpoint(folder)["global_step"] + 512
    resume_command(folder, "--total-timesteps", step, "--eval-episodes", 0, cwd=tmp_path)


def test_full_disk_leaves_the_last_checkpoint(interrupted: Path) -> None:
    """The next one goes to a device that is always full."""
    (interrupted / "checkpoint.tmp").symlink_to("/dev/full")
    last = (interrupted / "checkpoint.pt").read_bytes()
    done = run_command("--resume", interrupted, cwd=interrupted)
    assert done.returncode == 1
    assert (interrupted / "checkpoint.pt").read_bytes() == last


# ------ resuming ------
def test_resumed_run_goes_on_where_it_was(interrupted: Path) -> None:
    before = checkpoint(interrupted)
    run = resume_command(interrupted, "--eval-episodes", 1, cwd=interrupted)
    after = checkpoint(interrupted)
    assert before["global_step"] < after["global_step"] == 65536
    assert after["optimizer"]["state"][0]["step"] == 65536 // 512 * 16  # Adam's, of both parts
    part = interrupted / f"resumed_at_{before['global_step']}"
    facts = json.loads((part / "args.json").read_text())
    assert (facts["args"]["eval_episodes"], facts["args"]["resume"]) == (1, str(interrupted))
    assert flags_shown(interrupted)["eval_episodes"] == "1"
    assert filecmp.cmp(part / SCRIPT.name, SCRIPT, shallow=False)
    assert (interrupted / "agent.pt").exists() and run.stderr == ""
    assert_curves_are_whole(interrupted)  # learning rate, returns, no step logged twice or missing


def test_events_after_the_checkpoint_are_purged(tmp_path: Path) -> None:
    """As after kill -9: those steps are logged again, here with another learning rate."""
    script = load_script("ppo.py")
    train(script, tmp_path, total_timesteps=1024, anneal_lr=False, learning_rate=0.003)
    halves = [script.load_checkpoint(tmp_path / "checkpoint.pt") for _ in range(2)]
    flags = {"total_timesteps": 2048, "eval_episodes": 0, "anneal_lr": False}
    for half, rate in zip(halves, (0.002, 0.001), strict=True):
        time.sleep(1)  # TensorBoard orders event files by the seconds in their names
        assert script.train(script.Args(**flags, learning_rate=rate), tmp_path, half) == 0
    steps, rates = zip(*curve(tmp_path, "charts/learning_rate"), strict=True)
    assert steps == (512, 1024, 1536, 2048)
    assert rates == pytest.approx([0.003, 0.003, 0.001, 0.001])
    logged = [step for step, _ in curve(tmp_path, "charts/episodic_return")]
    assert logged == sorted(logged)


def test_finished_run_goes_on_with_more_timesteps(finished: Path) -> None:
    process = start_command("--resume", finished, "--total-timesteps", 10_000_000, cwd=finished)
    wait_until(lambda: process.poll() or not (finished / "agent.pt").exists(), 30)
    process.send_signal(signal.SIGTERM)
    code, told, _ = finish(process)
    assert code == 143
    assert "learning rate" in told
    assert not (finished / "agent.pt").exists()  # it is not finished any more
    step = checkpoint(finished)["global_step"] + 1024
    resume_command(finished, "--total-timesteps", step, "--eval-episodes", 0, cwd=finished)
    assert checkpoint(finished, "agent.pt")["global_step"] == step


def test_flags_are_those_of_the_run_unless_they_are_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = load_script("ppo.py")
    trained = script.Args(torch_threads=7, seed=3, gamma=0.9)
    words = ["--resume", "folder", "--gamma", "0.8", "--torch-threads", "2"]
    monkeypatch.setattr(sys, "argv", ["ppo.py", *words])
    resumed = script.resumed_args(script.tyro.cli(script.Args), trained)
    assert resumed == script.Args(torch_threads=2, seed=3, gamma=0.8, resume="folder")


# ------ --resume auto ------
def test_resume_auto_goes_on_with_the_run_that_was_stopped(tmp_path: Path) -> None:
    """The very same command again and again, as a batch system gives it."""
    args = ("--env-id", CLOCKWORK, "--total-timesteps", 1600, *TINY)
    args += ("--runs-dir", "runs", "--resume", "auto")
    process = start_command(*args, cwd=tmp_path)
    folder = wait_for_training(tmp_path / "runs", process)
    process.send_signal(signal.SIGTERM)
    code, told, _ = finish(process)
    assert code == 143
    assert "a new run begins" in told
    assert checkpoint(folder)["global_step"] < 1600
    assert run_command(*args, cwd=tmp_path).returncode == 0
    assert checkpoint(folder, "agent.pt")["global_step"] == 1600
    assert_curves_are_whole(folder)
    assert f"{folder.name} is finished" in run_command(*args, cwd=tmp_path).stdout
    assert list((tmp_path / "runs").iterdir()) == [folder]


def test_resume_auto_knows_the_last_unfinished_run_of_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = load_script("ppo.py")
    words = ["--seed", "3", "--runs-dir", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["ppo.py", *words, "--resume=auto"])
    args = script.Args(runs_dir=str(tmp_path / "runs"), seed=3, resume="auto")
    assert script.run_to_resume(args) is None  # there is not even a folder of runs

    def make_run(name: str, *files: str, **changes: Any) -> str:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        about = {"script": SCRIPT.name, "argv": words} | changes
        (folder / "args.json").write_text(json.dumps(about))
        shutil.copy(SCRIPT, folder)
        for file in files:
            (folder / file).touch()
        return str(folder)

    make_run("CartPole-v1__ppo__3__2004", "checkpoint.pt", argv=[*words, "--gamma", "0.9"])
    edited = make_run("CartPole-v1__ppo__3__2005", "checkpoint.pt")
    Path(edited, SCRIPT.name).write_text("another version")
    make_run("CartPole-v1__ppo__3__2006")  # killed before its first checkpoint
    other = tmp_path / "runs/another_program/args.json"
    other.parent.mkdir()
    other.write_text("[]")
    scripts = tmp_path / "runs/scripts"  # as benchmark/ablation.py makes it
    scripts.mkdir()
    shutil.copy(SCRIPT, scripts)
    assert script.run_to_resume(args) is None
    make_run("CartPole-v1__ppo__3__2001", "checkpoint.pt")
    again = ["--resume", "auto", *words]  # it began like this
    last = make_run("CartPole-v1__ppo__3__2002", "checkpoint.pt", argv=again)
    assert script.run_to_resume(args) == last
    Path(last, "diverged").touch()
    with pytest.raises(SystemExit, match="1"):
        script.run_to_resume(args)
    make_run("CartPole-v1__ppo__3__2003", "checkpoint.pt", "agent.pt")
    with pytest.raises(SystemExit, match="0"):
        script.run_to_resume(args)
