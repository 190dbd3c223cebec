"""The run folder, --resume, and runs that are stopped: politely, twice, or by kill -9."""

import errno
import filecmp
import json
import logging
import os
import random
import re
import shutil
import signal
import stat
import sys
import time
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.command_line import (
    CLOCKWORK,
    SCRIPT,
    CommandRun,
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
    train_command,
    wait_for_checkpoint,
    wait_until,
)
from helpers.in_process import flags_shown, load_script
from helpers.in_process import train as train_here

# 16 environment steps in an iteration, which takes a few milliseconds.
TINY = ("--num-envs", 2, "--num-steps", 8, "--eval-episodes", 0)
ENDLESS = ("--total-timesteps", 100_000_000, "--runs-dir", "runs")


def contents(folder: Path) -> set[str]:
    """Names of the files in a run folder, event files as `events`."""
    return {re.sub(r"events\.out\.tfevents.*", "events", file.name) for file in folder.iterdir()}


def same(a: Any, b: Any) -> bool:
    """Whether two nested structures hold the same bits."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


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


# ------ the run folder ------


def test_folder_of_a_finished_run() -> None:
    run = finished_run()
    expected = {"args.json", SCRIPT.name, "checkpoint.pt", "agent.pt", "events"}
    assert contents(run.folder) == expected
    assert re.fullmatch(rf"CartPole-v1__{SCRIPT.stem}__3__\d{{8}}-\d{{6}}(-\d+)?", run.folder.name)
    assert filecmp.cmp(run.folder / SCRIPT.name, SCRIPT, shallow=False)
    saved = checkpoint(run.folder)
    assert saved["global_step"] == 2048
    assert same(saved, checkpoint(run.folder, "agent.pt"))
    assert_curves_are_whole(run.folder)


def test_versions_of_loaded_simulators_are_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "gymnax", SimpleNamespace())  # which has no __version__
    monkeypatch.setitem(sys.modules, "procgen", SimpleNamespace())  # of no package here
    monkeypatch.delitem(sys.modules, "envpool", raising=False)
    script = load_script("ppo.py")
    script.describe_run(script.Args(device="cpu"), tmp_path)
    about = json.loads((tmp_path / "args.json").read_text())
    assert about["versions"]["gymnax"] == metadata.version("gymnax")
    assert about["versions"]["procgen"] == "?"
    assert "envpool" not in about["versions"]
    assert about["hardware"] == f"{os.cpu_count()} CPUs, cpu"


def test_args_json_says_how_the_run_was_made() -> None:
    folder = finished_run().folder
    about = json.loads((folder / "args.json").read_text())
    assert about["script"] == SCRIPT.name
    assert about["argv"][:6] == ["--total-timesteps", "2048", "--eval-episodes", "2", "--seed", "3"]
    assert about["args"] == checkpoint(folder)["args"]
    assert about["args"]["total_timesteps"] == 2048
    assert about["versions"]["python"] == sys.version
    assert {"torch", "gymnasium", "numpy"} < about["versions"].keys()
    assert "cpu" in about["hardware"].lower()
    assert about["processes"] == 1


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    """Two runs, for which the clock's seconds stand still."""
    program = tmp_path / "standing.py"
    program.write_text(
        "import datetime, runpy, time\n"
        "class Standing(datetime.datetime):\n"
        "    @classmethod\n"
        "    def now(cls, tz=None):\n"
        "        return super().now(tz).replace(2001, 2, 3, 4, 5, 6)\n"
        "datetime.datetime, strftime = Standing, time.strftime\n"
        "time.strftime = lambda form, *_: strftime(form, time.gmtime(981173106))\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    args = ("--env-id", "CartPole-v1", "--total-timesteps", 16, *TINY, "--runs-dir", "runs")
    for _ in range(2):
        done = run_command(*args, cwd=tmp_path, script=program)
        assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert folder.name.startswith(f"CartPole-v1__{SCRIPT.stem}__1__20010203-040506")
        assert (folder / "agent.pt").exists()


# ------ stopping ------


def test_interrupted_run_is_saved_and_not_finished() -> None:
    run, code = interrupted_run()
    assert code == 130
    assert "Traceback" not in run.stderr
    assert f"saved; --resume runs/{run.folder.name} goes on" in run.stdout
    assert contents(run.folder) == {"args.json", SCRIPT.name, "checkpoint.pt", "events"}
    saved = checkpoint(run.folder)
    assert 0 < saved["global_step"] < 65536
    assert saved["global_step"] == saved["iteration"] * 512
    assert_curves_are_whole(run.folder)


@pytest.mark.parametrize(
    ("number", "code", "flags"),
    [
        (signal.SIGTERM, 143, ()),
        (signal.SIGINT, 130, ("--async-envs",)),
        (signal.SIGTERM, 143, ("--async-envs",)),
    ],
)
def test_signal_to_the_process_group_saves_and_leaves_no_process(
    number: signal.Signals, code: int, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """As a terminal sends Ctrl-C, and a batch system SIGTERM: to every process of the run."""
    process = start_command(*ENDLESS, "--checkpoint-every", 1_000_000, *flags, cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    time.sleep(0.5)
    workers = children(process.pid)
    assert len(workers) >= (4 if flags else 0)
    os.killpg(process.pid, number)
    returncode, _, stderr = finish(process)
    assert returncode == code, stderr
    assert "Traceback" not in stderr
    assert stderr.strip().count("\n") == 0, stderr
    assert checkpoint(folder)["global_step"] > 0
    assert not (folder / "agent.pt").exists()
    wait_until(lambda: not workers & parents().keys(), 5)


@pytest.mark.parametrize("flags", [(), ("--async-envs",)], ids=["sync", "async"])
def test_second_ctrl_c_ends_at_once(flags: tuple[str, ...], tmp_path: Path) -> None:
    # An iteration of this run takes minutes.
    process = start_command(*ENDLESS, "--num-steps", 500_000, *flags, cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    time.sleep(1)
    workers = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    line = ""
    while "stop" not in line:
        line = process.stderr.readline()
        assert line, "no word about the first Ctrl-C"
    os.killpg(process.pid, signal.SIGINT)
    returncode, _, stderr = finish(process, 10)
    assert returncode in (130, -signal.SIGINT)
    assert flags or "Traceback" not in stderr  # Gymnasium's workers say that they lost their pipe
    assert checkpoint(folder)["global_step"] == 0
    wait_until(lambda: not workers & parents().keys(), 5)


@pytest.mark.parametrize("flags", [(), ("--async-envs",)], ids=["sync", "async"])
def test_ctrl_c_during_the_evaluation_ends_at_once(flags: tuple[str, ...], tmp_path: Path) -> None:
    """There is nothing to be saved any more; the run can be resumed, and evaluates again."""
    args = ("--total-timesteps", 512, "--eval-episodes", 1_000_000, "--runs-dir", "runs")
    process = start_command(*args, *flags, cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    assert process.stdout is not None
    line = ""
    while not line.startswith("evaluation ("):
        line = process.stdout.readline()
        assert line, "no evaluation"
    # While a worker is made, Ctrl-C is ignored, so that the worker ignores it, too.
    wait_until(lambda: len(children(process.pid)) == len(flags))
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    returncode, _, stderr = finish(process, 10)
    assert returncode == 130
    assert flags or stderr == ""  # Gymnasium's worker says that it lost its pipe
    assert not (folder / "agent.pt").exists()
    assert "evaluation: return" in resume_command(folder, "--eval-episodes", 1, cwd=tmp_path).stdout


def test_a_finished_run_that_is_resumed_says_so_and_keeps_its_films(tmp_path: Path) -> None:
    before = finished_run()
    folder = tmp_path / before.folder.name
    shutil.copytree(before.folder, folder)
    flags = ("--eval-episodes", 1, "--capture-video", "--async-envs")
    told = resume_command(folder, *flags, cwd=tmp_path)
    assert "all 2,048 steps are done; a larger --total-timesteps goes on" in told.stdout
    assert "Overwriting" not in told.stderr
    time.sleep(1)  # films are told apart by the second
    assert "Overwriting" not in resume_command(folder, *flags, cwd=tmp_path).stderr
    assert len(list(folder.glob("videos/evaluation-*/*.mp4"))) == 2
    resume_command(folder, "--eval-episodes", 0, "--capture-video", cwd=tmp_path)
    assert len(list(folder.glob("videos/evaluation-*/*.mp4"))) == 2


def test_kill_9_leaves_no_workers(tmp_path: Path) -> None:
    process = start_command(*ENDLESS, "--async-envs", cwd=tmp_path)
    wait_for_checkpoint(tmp_path / "runs", process)
    workers = wait_until(lambda: len(found := children(process.pid)) >= 4 and found)
    process.kill()
    finish(process)
    wait_until(lambda: not workers & parents().keys(), 10)


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
        while (folder / "checkpoint.pt").stat().st_mtime_ns == written and process.poll() is None:
            time.sleep(0.02)  # a resumed run writes its checkpoint at once
        assert process.poll() is None, finish(process)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143
    rates = curve(folder, "charts/learning_rate")
    saved = checkpoint(folder)
    assert [step for step, _ in rates] == list(range(16, saved["global_step"] + 1, 16))
    assert saved["global_step"] > last
    assert {path.name for path in folder.glob("*.tmp")} <= {"checkpoint.tmp"}


# ------ a folder that others write, a full disk, nobody who reads ------
def test_a_home_folder_that_the_shell_has_left_is_found(tmp_path: Path) -> None:
    """As in --runs-dir=~/runs; the next command finds the run there, too."""
    home = {"cwd": tmp_path, "HOME": str(tmp_path)}
    flags = ("--runs-dir=~/runs", "--total-timesteps", 512, "--eval-episodes", 0)
    assert run_command(*flags, **home).returncode == 0
    folder = the_folder(tmp_path / "runs")
    flags = (f"--resume=~/runs/{folder.name}", "--total-timesteps", 1024)
    assert run_command(*flags, **home).returncode == 0
    assert checkpoint(folder)["global_step"] == 1024


def test_run_that_another_process_writes_is_refused(tmp_path: Path) -> None:
    process = start_command(*ENDLESS, cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    done = run_command("--resume", folder, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"{SCRIPT.name}: {folder}: another process is writing this run\n"
    assert done.stdout == ""
    process.kill()
    finish(process)
    step = checkpoint(folder)["global_step"] + 512
    resume_command(folder, "--total-timesteps", step, "--eval-episodes", 0, cwd=tmp_path)


def test_checkpoints_are_written_aside_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A write that fails halfway leaves the last one whole; what is not renamed is not written."""
    script, save, written = load_script("ppo.py"), torch.save, []

    def spy(state: Any, file: Any) -> None:
        written.append(Path(file.name).name)
        if len(written) == 3:
            file.write(b"half of it")
            raise OSError(errno.EIO, "failed")
        save(state, file)

    monkeypatch.setattr(torch, "save", spy)
    args = script.Args(total_timesteps=4096, checkpoint_every=1, eval_episodes=0)
    with pytest.raises(OSError, match="failed"):
        script.train(args, tmp_path, {})
    assert written == ["checkpoint.tmp"] * 3
    assert script.load_checkpoint(tmp_path / "checkpoint.pt")["iteration"] == 1


def test_full_disk_ends_the_run_with_a_line(tmp_path: Path) -> None:
    """The next checkpoint goes to a device that is always full; the last one stays."""
    before, _ = interrupted_run()
    folder = tmp_path / before.folder.name
    shutil.copytree(before.folder, folder)
    (folder / "checkpoint.tmp").symlink_to("/dev/full")
    last = (folder / "checkpoint.pt").read_bytes()
    done = run_command("--resume", folder, cwd=tmp_path)
    assert done.returncode == 1
    told = f"the disk is full; when there is space, --resume {folder} goes on\n"
    assert done.stderr == f"{SCRIPT.name}: {told}"
    assert (folder / "checkpoint.pt").read_bytes() == last
    (folder / "checkpoint.tmp").unlink()
    resume_command(folder, "--eval-episodes", 0, cwd=tmp_path)


def test_full_disk_that_the_events_meet_first_ends_the_run_with_a_line(tmp_path: Path) -> None:
    """TensorBoard's thread fails first; what it would print about that is not printed."""
    process = start_command(*ENDLESS, cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    (events,) = folder.glob("events*")
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    full.replace(events)  # in one step: TensorBoard would make a file that is missing anew
    assert process.wait(60) == 1
    told = f"the disk is full; when there is space, --resume runs/{folder.name} goes on\n"
    assert process.stderr is not None
    assert process.stderr.read() == f"{SCRIPT.name}: {told}"


def test_a_quota_that_is_used_up_is_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    """TensorBoard's thread says nothing of it, as main does."""
    script = load_script("ppo.py")
    for number in (errno.ENOSPC, errno.EDQUOT):
        script.report_thread(SimpleNamespace(exc_value=OSError(number, "no more")))
    assert capsys.readouterr().err == ""


def test_a_run_of_a_read_only_script_can_be_resumed_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run's copy of the script must not be read-only, too: the next one takes its place."""
    script = load_script("ppo.py")
    mine = Path(shutil.copy(SCRIPT, tmp_path))
    mine.chmod(0o444)
    monkeypatch.setattr(script, "SCRIPT", mine)
    script.describe_run(script.Args(), tmp_path / "run")
    assert (tmp_path / "run" / mine.name).stat().st_mode & stat.S_IWUSR


def test_run_whose_output_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    """As with `python ppo.py | head -1`."""
    process = start_command("--num-envs", 1, *ENDLESS, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("run folder: ")
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_ctrl_c_that_also_ends_the_reader_saves(tmp_path: Path) -> None:
    """As with `python ppo.py 2>&1 | tee log`: Ctrl-C ends `tee` before the iteration is over."""
    flags = (*ENDLESS, "--checkpoint-every", 1_000_000)
    process = start_command(*flags, cwd=tmp_path, cold=True)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    time.sleep(0.5)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert checkpoint(folder)["global_step"] > 0


@pytest.mark.slow("a command that fails")
def test_an_error_with_workers_ends_the_run(tmp_path: Path) -> None:
    """They ignore SIGTERM, which is how Python would end them."""
    edited = tmp_path / "ppo.py"
    source = SCRIPT.read_text()
    line = "    # At a truncation values[1:]"
    assert source.count(line) == 1
    edited.write_text(source.replace(line, f"    raise ValueError('a mistake')\n{line}"))
    flags = (*TINY, "--async-envs", "--runs-dir", "runs")
    process = start_command(*flags, cwd=tmp_path, script=edited)
    returncode, _, stderr = finish(process)
    assert returncode == 1
    assert "ValueError: a mistake" in stderr
    with pytest.raises(ProcessLookupError):  # no process of its group is left
        os.killpg(process.pid, 0)


def test_signal_after_the_last_iteration_ends_the_run(tmp_path: Path) -> None:
    """It may come while the last checkpoint is written: then nothing is evaluated any more."""
    script = load_script("ppo.py")
    run = script.Run(script.Args(), tmp_path, {})
    run.on_signal(signal.SIGTERM, None)
    with pytest.raises(SystemExit) as ended:
        run.start_evaluation()
    assert ended.value.code == 143
    run.writer.close()


def test_agent_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """agent.pt says that a run is finished; the disk may be full when it is written."""
    script = load_script("ppo.py")
    run = script.Run(script.Args(), tmp_path, {})
    (tmp_path / "checkpoint.pt").write_bytes(b"12345678")

    def copy_half(source: Path, target: Path) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:4])
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(script.shutil, "copy", copy_half)
        with pytest.raises(OSError, match="no space"):
            run.finish({})
    assert not (tmp_path / "agent.pt").exists()
    run.finish({})
    assert (tmp_path / "agent.pt").read_bytes() == b"12345678"


def test_signals_reach_a_process_without_workers() -> None:
    """Environments may take long to be made, and Ctrl-C has to work meanwhile."""
    script = load_script("ppo.py")
    before = signal.getsignal(signal.SIGINT)
    with script.signals_ignored(False):
        assert signal.getsignal(signal.SIGINT) is before
    with script.signals_ignored(True):
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is before


# ------ resuming ------


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], CommandRun]:
    """The interrupted run's checkpoint, and a copy of that run resumed to its end."""
    before, _ = interrupted_run()
    cwd = tmp_path_factory.mktemp("resumed")
    folder = cwd / before.folder.name
    shutil.copytree(before.folder, folder)
    return checkpoint(before.folder), resume_command(folder, "--eval-episodes", 1, cwd=cwd)


def test_resumed_run_goes_on_where_it_was(resumed: tuple[dict[str, Any], CommandRun]) -> None:
    before, run = resumed
    after = checkpoint(run.folder)
    assert before["global_step"] < after["global_step"] == 65536
    part = f"resumed_at_{before['global_step']}"
    assert contents(run.folder) >= {"agent.pt", "args.json", SCRIPT.name, part}
    assert run.stderr == ""  # the same version of the script
    facts = json.loads((run.folder / part / "args.json").read_text())
    assert (facts["args"]["eval_episodes"], facts["args"]["resume"]) == (1, str(run.folder))
    assert filecmp.cmp(run.folder / part / SCRIPT.name, SCRIPT, shallow=False)
    assert_curves_are_whole(run.folder)  # learning rate, returns, no step logged twice or missing
    assert len(after["recent"]) == 100
    # The very first line of progress counts from where the run was, not from nothing.
    percent = int(re.search(r"(\d+)%", run.stdout)[1])  # type: ignore[index]
    assert percent >= 100 * before["global_step"] // 65536


def test_run_of_another_version_of_the_script_is_resumed_with_a_warning(tmp_path: Path) -> None:
    """Its weights may fit a network that is not the one they were trained in."""
    folder = tmp_path / "run"
    shutil.copytree(finished_run().folder, folder)
    same = run_command("--resume", folder, cwd=tmp_path)
    assert (same.returncode, same.stderr) == (0, "")
    begun_by = folder / SCRIPT.name
    begun_by.write_text(begun_by.read_text().replace("nn.Tanh()", "nn.ReLU()"))
    other = run_command("--resume", folder, cwd=tmp_path)
    assert other.returncode == 0
    assert other.stderr == f"{SCRIPT.name}: another version began this run, {begun_by}\n"


def test_events_after_the_checkpoint_are_purged(tmp_path: Path) -> None:
    """A checkpoint older than the last events, as after kill -9: those steps are logged again."""
    before, _ = interrupted_run()
    folder = tmp_path / before.folder.name
    shutil.copytree(before.folder, folder)
    state = checkpoint(folder)
    assert state["iteration"] > 2, "stopped too early for this test"
    back = state["iteration"] - 2
    torch.save(state | {"iteration": back, "global_step": back * 512}, folder / "checkpoint.pt")
    process = start_command("--resume", folder, "--checkpoint-every", 1, cwd=tmp_path)
    wait_until(lambda: checkpoint(folder)["iteration"] > back)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    steps = [step for step, _ in curve(folder, "charts/learning_rate")]
    assert steps == list(range(512, checkpoint(folder)["global_step"] + 1, 512))
    logged = [step for step, _ in curve(folder, "charts/episodic_return")]
    assert logged == sorted(logged)


def test_tensorboard_shows_the_flags(tmp_path: Path) -> None:
    """Those of the newest part of the run."""
    before = finished_run()
    folder = Path(shutil.copytree(before.folder, tmp_path / "run"))
    args = checkpoint(folder)["args"]
    assert flags_shown(folder) == {name: str(value) for name, value in args.items()}
    resume_command(folder, "--eval-episodes", 3, cwd=tmp_path)
    assert flags_shown(folder)["eval_episodes"] == "3"


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    before = finished_run()
    folder = tmp_path / before.folder.name
    shutil.copytree(before.folder, folder)
    run = resume_command(folder, cwd=tmp_path)
    assert same(checkpoint(folder, "agent.pt")["agent"], checkpoint(before.folder)["agent"])
    assert checkpoint(folder)["global_step"] == 2048
    assert "evaluation" in run.stdout
    assert_curves_are_whole(folder)


def test_finished_run_goes_on_with_more_timesteps(tmp_path: Path) -> None:
    before = finished_run()
    folder = tmp_path / before.folder.name
    shutil.copytree(before.folder, folder)
    process = start_command("--resume", folder, "--total-timesteps", 10_000_000, cwd=tmp_path)
    wait_until(lambda: process.poll() or not (folder / "agent.pt").exists(), 30)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143
    assert not (folder / "agent.pt").exists()  # it is not finished any more
    step = checkpoint(folder)["global_step"]
    resume_command(folder, "--total-timesteps", step + 1024, cwd=tmp_path)
    assert checkpoint(folder, "agent.pt")["global_step"] == step + 1024
    steps = [point for point, _ in curve(folder, "charts/learning_rate")]
    assert steps == list(range(512, step + 1025, 512))


@pytest.mark.slow("command line")
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path: Path) -> None:
    """With episodes that end where the rollout does: what resuming cannot restore is an episode."""
    args = ("--env-id", CLOCKWORK, "--total-timesteps", 3200, *TINY)
    (tmp_path / "whole").mkdir()
    whole = train_command(*args, cwd=tmp_path / "whole")
    process = start_command(*args, "--checkpoint-every", 5, "--runs-dir", "runs", cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    wait_until(lambda: checkpoint(folder)["iteration"] > 0)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    stopped = checkpoint(folder)
    assert 0 < stopped["iteration"] < 200
    resume_command(folder, cwd=tmp_path)
    first, second = checkpoint(whole.folder, "agent.pt"), checkpoint(folder, "agent.pt")
    assert not same(stopped["agent"], second["agent"])
    for part in ("agent", "optimizer", "rng", "recent", "iteration", "global_step"):
        assert same(first[part], second[part]), part
    tags = ("charts/episodic_return", "losses/value_loss", "losses/policy_loss", "losses/entropy")
    for tag in tags:
        assert curve(whole.folder, tag) == curve(folder, tag), tag


@pytest.mark.parametrize("available", [False, True], ids=["no driver", "driver"])
def test_random_state_of_gpus_is_kept_where_they_are_used(
    available: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A GPU may be counted that cannot be used. A run of eight may be resumed with one."""
    script = load_script("ppo.py")
    state, given = torch.zeros(16, dtype=torch.uint8), []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state] * 8)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.extend)
    run = train_here(script, tmp_path, total_timesteps=512, cuda=False)
    saved = script.load_checkpoint(tmp_path / "checkpoint.pt")
    assert len(saved["rng"]) == (9 if available else 1)
    assert script.train(replace(run.args, total_timesteps=1024), tmp_path, saved) == 0
    assert len(given) == available


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_only_for_the_cpu_is_compiled_to_cpp(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For CUDA it would need the CUDA toolkit, for MPS there is no such wrapper."""
    asked: list[dict] = []
    monkeypatch.setattr(torch, "compile", lambda function, options: asked.append(options))
    load_script("ppo.py").compiled(print, torch.device(device))
    assert asked == [{"cpp_wrapper": device == "cpu"}]


@pytest.mark.parametrize("deterministic", [True, False])
def test_cudnn_tries_algorithms_where_they_may_differ(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deterministic", "benchmark"):  # neither is as it will be; given back afterwards
        now = deterministic == (name == "benchmark")
        monkeypatch.setattr(torch.backends.cudnn, name, now)
    script = load_script("ppo.py")
    script.setup_torch(script.Args(torch_deterministic=deterministic))
    chosen = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    assert chosen == (deterministic, not deterministic)


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_compiled_for_cuda_multiplies_in_tensorfloat(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda function, options: function)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    load_script("ppo.py").compiled(print, torch.device(device))
    assert asked == (["high"] if device == "cuda" else [])


def test_cuda_toolkit_without_a_gpu_is_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the toolkit is installed without a GPU, torch's compiler would warn of it."""
    from torch.utils import cpp_extension

    monkeypatch.setenv("CUDA_HOME", "/toolkit")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "compile", lambda function, options: function)
    monkeypatch.setattr(cpp_extension.logger, "propagate", True)
    cpp_extension.logger.setLevel(logging.WARNING)
    caplog.clear()
    load_script("ppo.py").compiled(print, torch.device("cpu"))
    assert cpp_extension._find_cuda_home() == "/toolkit"
    assert not caplog.records


def test_every_process_of_a_launcher_keeps_its_own_run(tmp_path: Path) -> None:
    flags = ("--total-timesteps", 512, "--eval-episodes", 0)
    for rank in ("0", "1"):
        done = run_command(*flags, cwd=tmp_path, RANK=rank, WORLD_SIZE="2")
        assert done.returncode == 0, done.stderr
        folder = tmp_path / done.stdout.splitlines()[0].removeprefix("run folder: ")
        assert folder.is_dir() and (folder / "agent.pt").exists()
    assert len(list(tmp_path.glob("runs/*/agent.pt"))) == 2


def test_run_of_a_gpu_is_resumed_without_one(tmp_path: Path) -> None:
    """Its checkpoint holds the random state of each GPU, for which there is no place here, and its
    flags name one."""
    before, _ = interrupted_run()
    folder = tmp_path / before.folder.name
    shutil.copytree(before.folder, folder)
    state = checkpoint(folder)
    state["rng"].append(torch.zeros(16, dtype=torch.uint8))
    state["args"]["device"] = "cuda:1"
    torch.save(state, folder / "checkpoint.pt")
    step = state["global_step"] + 512
    resume_command(folder, "--total-timesteps", step, cwd=tmp_path)
    after = checkpoint(folder, "agent.pt")
    assert after["global_step"] == step
    assert after["args"]["device"] == "auto"


@pytest.mark.parametrize("threads", [None, 2])
def test_flags_of_the_machine_are_not_taken_from_a_checkpoint(
    threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the command line or the defaults; all others are the run's own."""
    script = load_script("ppo.py")
    before = script.Args(torch_threads=7, device="cuda:1", cuda=False, seed=3, gamma=0.9)
    flags = ["--resume", "folder", "--gamma", "0.8"]
    flags += ["--torch-threads", str(threads)] if threads else []
    monkeypatch.setattr(sys, "argv", ["ppo.py", *flags])
    state = {"args": before, "iteration": 2, "global_step": 1024}
    given = script.tyro.cli(script.Args)
    after = script.resumed(given, state)
    assert after == script.Args(torch_threads=threads or 1, seed=3, gamma=0.8, resume="folder")


# ------ --resume auto ------


def test_resume_auto_goes_on_with_the_run_that_was_stopped(tmp_path: Path) -> None:
    """The very same command until it has ended, as a batch system gives it again and again."""
    args = ("--env-id", CLOCKWORK, "--total-timesteps", 3200, *TINY)
    args += ("--runs-dir", "runs", "--resume", "auto")
    process = start_command(*args, cwd=tmp_path)
    folder = wait_for_checkpoint(tmp_path / "runs", process)
    process.send_signal(signal.SIGTERM)
    code, told, _ = finish(process)
    assert code == 143
    assert told.startswith("no unfinished run with these flags in runs: a new one\n")
    stopped = checkpoint(folder)["global_step"]
    assert stopped < 3200
    again = run_command(*args, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert list((tmp_path / "runs").iterdir()) == [folder]
    assert again.stdout.startswith(f"run folder: {folder.relative_to(tmp_path)}\n")
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]
    assert checkpoint(folder, "agent.pt")["global_step"] == 3200
    steps = [step for step, _ in curve(folder, "charts/learning_rate")]
    assert steps == list(range(16, 3201, 16))


def test_a_run_that_was_moved_is_resumed_where_its_runs_dir_cannot_be(tmp_path: Path) -> None:
    before = finished_run()
    folder = tmp_path / before.folder.name
    shutil.copytree(before.folder, folder)
    state = checkpoint(folder)
    state["args"]["runs_dir"] = str(tmp_path / "file" / "runs")
    (tmp_path / "file").touch()  # no folder can be made in it, whoever tries
    torch.save(state, folder / "checkpoint.pt")
    assert "evaluation" in resume_command(folder, cwd=tmp_path).stdout
    refused = run_command("--runs-dir", tmp_path / "file" / "runs", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--runs-dir" in refused.stderr
    assert "is not a folder that can be written to" in refused.stderr


def test_resume_auto_knows_the_last_unfinished_run_of_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = load_script("ppo.py")
    args = script.Args(runs_dir=str(tmp_path / "runs"), seed=3, resume="auto", torch_threads=2)
    as_started: dict[str, Any] = {
        "runs_dir": "elsewhere",
        "resume": None,
        "torch_threads": 1,
        "capture_video": True,
    }
    same_flags = asdict(replace(args, **as_started))
    assert script.unfinished_run(args) is None  # there is not even a folder of runs

    def make_run(name: str, *files: str, **changes: Any) -> str:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        about = {"script": "ppo.py", "args": same_flags} | changes
        (folder / "args.json").write_text(json.dumps(about))
        for file in files:
            (folder / file).touch()
        return str(folder)

    make_run("CartPole-v1__ppo__3__2003", "checkpoint.pt", "agent.pt")  # finished
    make_run("CartPole-v1__ppo__3__2004", "checkpoint.pt", args=same_flags | {"gamma": 0.9})
    make_run("CartPole-v1__ppo__3__2005", "checkpoint.pt", script="ppo_atari.py")
    make_run("CartPole-v1__ppo__3__2006")  # killed before its first checkpoint
    cut_off = Path(make_run("CartPole-v1__ppo__3__2007", "checkpoint.pt"))
    (cut_off / "args.json").write_text('{"script": "ppo.py", "ar')
    foreign = Path(make_run("CartPole-v1__ppo__3__2008", "checkpoint.pt"))
    (foreign / "args.json").write_text("[]")
    assert script.unfinished_run(args) is None
    make_run("CartPole-v1__ppo__3__2001", "checkpoint.pt")
    last = make_run("CartPole-v1__ppo__3__2002", "checkpoint.pt")
    assert script.unfinished_run(args) == last
