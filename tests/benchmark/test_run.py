"""The benchmark runner, driven with a script that only pretends to train."""

import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from console import Signals, clock, percent
from helpers.benchmark_runs import BENCHMARK, FakeScript, run_program, starts, stops
from helpers.command_line import children, finish, parents, wait_until
from helpers.in_process import load_program, load_script, train
from tasks import Children, descendants, diverged, kill_all, reason, settings


@pytest.fixture
def fake(tmp_path: Path) -> FakeScript:
    return FakeScript(tmp_path)


def stand_in(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell script that is found under this name before all others."""
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_runs_every_environment_with_every_seed_once(fake, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(2)))
    flags = ("--env-ids", "A-v0", "ns/B-v0", "--num-seeds", "2", "--start-seed", "5")
    dry = fake.run(*flags, "--dry-run")
    assert dry.returncode == 0 and len(dry.stdout.splitlines()) == 4 and not fake.run_folders()

    first = fake.run(*flags, "--workers", "2")
    assert first.returncode == 0, first.stderr
    assert "4 runs: 4 done, 0 skipped, 0 failed" in first.stdout
    folders = fake.run_folders()
    assert sorted(starts(folder)[0] for folder in folders) == sorted(
        f"--env-id {env_id} --seed {seed} --runs-dir {fake.runs_dir} OMP=1"
        for env_id in ("A-v0", "ns/B-v0")
        for seed in (5, 6)
    )
    logs = sorted(path.name for path in (fake.runs_dir / "logs").iterdir())
    names = ("A-v0__fake__5", "A-v0__fake__6", "ns-B-v0__fake__5", "ns-B-v0__fake__6")
    assert logs == [f"{name}.log" for name in names]

    again = fake.run(*flags, "--runs-dir", f"{fake.runs_dir}/")
    assert again.returncode == 0 and "0 done, 4 skipped, 0 failed" in again.stdout
    assert fake.run_folders() == folders
    assert all(len(starts(folder)) == 1 for folder in folders)
    assert fake.run(*flags, "--dry-run").stdout.count("# finished: ") == 4

    other = fake.run(*flags, command=f"{sys.executable} {fake.path} --learning-rate 0.1")
    assert "4 done, 0 skipped" in other.stdout and len(fake.run_folders()) == 8
    alone = [starts(folder)[0] for folder in set(fake.run_folders()) - set(folders)]
    assert all("--learning-rate 0.1" in line and line.endswith("OMP=unset") for line in alone)


def test_workers_share_the_cpus(fake, monkeypatch):
    module = load_program("run.py")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(14)))
    for workers, threads in ((1, None), (4, 3), (20, 1)):
        args = module.Args(command=f"python {fake.path}", env_ids=["A-v0"], workers=workers)
        assert {task.threads for task in module.expand(args)} == {threads}


def test_flags_of_one_environment_are_part_of_its_runs(fake):
    """They are told apart from runs without them, found again and handed to no others."""
    flags = ("--env-ids", "A-v0", "Slow-v0", "--num-seeds", "1", "--workers", "2")
    more = ("--env-flags", "Slow-v0=--learning-rate 0.5")
    process = fake.start(*flags, *more)
    fake.wait_until_running(2)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 143
    slow, plain = sorted(fake.run_folders(), key=lambda folder: "A-v0" in folder.name)
    wanted = f"--env-id Slow-v0 --seed 1 --runs-dir {fake.runs_dir} OMP="
    assert starts(slow)[0].startswith(f"--learning-rate 0.5 {wanted}")
    assert "--learning-rate" not in starts(plain)[0]

    resumed = fake.run(*flags, *more)
    assert resumed.returncode == 0 and len(fake.run_folders()) == 2
    assert starts(slow)[1].startswith(f"--learning-rate 0.5 --resume {slow}")
    assert "2 skipped" in fake.run(*flags, *more).stdout

    fake.let_go()
    assert "1 done, 1 skipped" in fake.run(*flags).stdout, "of Slow-v0 without the flags"
    narrowed = fake.run(*flags, *more, "--env-ids", "A-v0")
    assert "1 runs: 0 done, 1 skipped" in narrowed.stdout
    assert "note: no runs of Slow-v0: its --env-flags are not used" in narrowed.stderr


def test_failing_run_is_loud_and_the_others_go_on(fake):
    result = fake.run("--env-ids", "Fail-v0", "Dishonest-v0", "A-v0", "--num-seeds", "1")
    assert result.returncode == 1
    assert "1 done, 0 skipped, 2 failed" in result.stdout
    assert result.stderr.count("FAILED   Fail-v0 seed 1: exit code 1; ") == 1
    assert result.stderr.count("FAILED") == 2
    assert result.stderr.endswith("\nfailed: Fail-v0 seed 1, Dishonest-v0 seed 1\n")
    assert "  | line 49\n  | RuntimeError: the loss is not finite" in result.stderr
    assert "line 20\n" not in result.stderr, "only the tail of the log"
    assert "Dishonest-v0 seed 1: exit code 0, but no finished run folder" in result.stderr


@pytest.mark.parametrize(("signum", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_runs_save_and_are_resumed(fake, signum, exit_code, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "3", "--workers", "2")
    process = fake.start(*flags)
    fake.wait_until_running(2)
    process.send_signal(signum)
    code, output, _ = finish(process)
    assert code == exit_code
    assert "the same command again goes on" in output and "3 stopped" in output
    cut_off = fake.run_folders()
    assert len(cut_off) == 2, "the third run must not start"
    assert [stops(folder) for folder in cut_off] == ["1", "1"]

    fake.let_go()  # the third one is started afresh
    fake.path.write_text(f"{fake.path.read_text()}# edited\n")
    refused = fake.run(*flags)
    assert refused.returncode == 2 and "--keep-old" in refused.stderr
    assert len(fake.run_folders()) == 2, "nothing is mixed unasked"
    again = fake.run(*flags, "--keep-old")
    assert again.returncode == 0 and "3 done" in again.stdout, again.stderr
    assert again.stderr.count("was made by a different fake.py") == 2
    for folder in cut_off:
        first, second = starts(folder)
        assert "--env-id Slow-v0" in first
        assert second == f"--resume {folder} OMP=3", "the user's choice stays"
        argv = json.loads((folder / "args.json").read_text())["argv"]
        assert argv[:2] == ["--env-id", "Slow-v0"]
    assert len(fake.run_folders()) == 3
    assert "0 done, 3 skipped" in fake.run(*flags, "--keep-old").stdout


def test_a_run_whose_time_is_over_saves_or_is_killed_and_goes_on_later(fake, monkeypatch):
    monkeypatch.setattr(load_program("run.py"), "GRACE", 2.0)
    flags = ("--env-ids", "Slow-v0", "Deaf-v0", "A-v0", "--num-seeds", "1", "--workers", "3")
    ended = fake.run(*flags, "--minutes", "0.1")
    assert ended.returncode == 1
    assert "1 done, 0 skipped, 2 failed" in ended.stdout
    for env_id in ("Slow-v0", "Deaf-v0"):
        assert f"FAILED   {env_id} seed 1: stopped after 0.1 minutes; " in ended.stderr
    (slow,) = [folder for folder in fake.run_folders() if folder.name.startswith("Slow")]
    assert stops(slow) == "1", "told once, to save"
    again = fake.run(*flags)
    assert again.returncode == 0 and "2 done, 1 skipped" in again.stdout
    assert len(starts(slow)) == 2 and len(fake.run_folders()) == 3


def test_a_signal_does_not_keep_a_run_whose_time_is_over_from_saving(fake, monkeypatch):
    """Two signals would: the second means not even to save."""
    module = load_program("run.py")
    args = module.Args(command=f"python {fake.path}", env_ids=["A-v0", "B-v0"], num_seeds=1)
    told: list[tuple[str, int, bool]] = []

    def stop(children: object, signum: int, kill: bool = False) -> None:
        (env_id,) = [task.env_id for task, own in runs.children.items() if own is children]
        told.append((env_id, signum, kill))

    monkeypatch.setattr(module.Children, "stop", stop)
    long, short = tasks = module.expand(args)
    runs = module.LocalRuns(tasks, minutes=1)
    now = time.monotonic()
    runs.end_overdue(tasks, {long: now - 61, short: now - 30})
    runs.stop(signal.SIGTERM, kill=False)
    assert told == [("A-v0", signal.SIGINT, False), ("B-v0", signal.SIGTERM, False)]
    runs.stop(signal.SIGTERM, kill=True)
    assert told[2:] == [("A-v0", signal.SIGTERM, True), ("B-v0", signal.SIGTERM, True)]


def test_a_run_that_is_killed_from_outside_is_told_and_the_others_go_on(fake):
    process = fake.start("--env-ids", "Slow-v0", "A-v0", "--num-seeds", "1")
    fake.wait_until_running(1)
    (run,) = children(process.pid)
    os.kill(run, signal.SIGKILL)
    code, output, errors = finish(process)
    assert code == 1 and "1 done, 0 skipped, 1 failed" in output
    assert "FAILED   Slow-v0 seed 1: exit code -9: SIGKILL; " in errors


@pytest.mark.parametrize(
    ("exit_code", "told"),
    [
        (1, "exit code 1"),
        (-9, "exit code -9: SIGKILL"),
        (137, "exit code 137: SIGKILL"),  # by uv or a shell
        (-77, "exit code -77"),
        (255, "exit code 255"),
    ],
)
def test_the_reason_names_a_signal(exit_code, told):
    assert reason(exit_code) == told


def test_second_signal_kills_and_a_killed_run_is_resumed(fake):
    flags = ("--env-ids", "Deaf-v0", "--num-seeds", "1")
    process = fake.start(*flags)
    assert process.stdout is not None
    fake.wait_until_running(1)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().startswith("stopping")
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    assert "1 done" in fake.run(*flags).stdout
    (folder,) = fake.run_folders()
    assert len(starts(folder)) == 2


def test_signal_during_the_answer_to_the_first_is_not_lost(fake, monkeypatch):
    module = load_program("run.py")
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest keeps its own handlers
    signals = module.Signals()

    def say(progress: object, text: str, error: bool = False) -> None:
        signals.received.extend([signal.SIGINT] * text.startswith("stopping"))

    def press() -> None:
        fake.wait_until_running(1)
        signals.received.append(signal.SIGINT)

    monkeypatch.setattr(module, "Signals", lambda: signals)
    monkeypatch.setattr(module.Progress, "say", say)
    pressing = threading.Thread(target=press)
    pressing.start()
    assert fake.run("--env-ids", "Deaf-v0", "--num-seeds", "1").returncode == 130
    pressing.join()
    assert len(signals.received) == 2
    (folder,) = fake.run_folders()
    assert not (folder / "agent.pt").exists(), "killed, not left to its end"


def test_a_run_that_a_killed_runner_has_left_is_waited_for(fake, tmp_path):
    """At the end of the queue; then it is found finished, and what follows the runs is done."""
    flags = ("--env-ids", "Slow-v0", "A-v0", "--num-seeds", "1", "--then", f"touch {tmp_path}/then")
    process = fake.start(*flags)
    fake.wait_until_running(1)
    process.kill()
    finish(process)

    def let_go_after_the_other() -> None:
        wait_until(lambda: list(fake.runs_dir.glob("A-v0__*/agent.pt")))
        fake.let_go()

    letting_go = threading.Thread(target=let_go_after_the_other)
    letting_go.start()
    again = fake.run(*flags)
    letting_go.join()
    assert again.returncode == 0 and again.stderr == ""
    assert "2 runs: 1 done, 1 skipped, 0 failed" in again.stdout
    waiting = f"waiting  Slow-v0 seed 1: another process has {fake.runs_dir}/logs/Slow-v0__fake__1"
    assert again.stdout.count("waiting") == 1 and waiting in again.stdout
    order = [again.stdout.index(text) for text in ("waiting  Slow", "done     A", "skipped  Slow")]
    assert order == sorted(order)
    assert all(len(starts(folder)) == 1 for folder in fake.run_folders())
    assert (tmp_path / "then").exists()


def test_a_runner_that_waits_for_another_process_can_be_stopped(fake):
    log = fake.runs_dir / "logs" / "A-v0__fake__1.log"
    log.parent.mkdir(parents=True)
    with open(log, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = fake.start("--env-ids", "A-v0", "--num-seeds", "1")
        assert process.stdout is not None
        assert process.stdout.readline().startswith("waiting")
        process.send_signal(signal.SIGINT)
        code, output, errors = finish(process)
    assert code == 130 and "0 failed, 1 stopped" in output and errors == ""
    assert not fake.run_folders()


def test_runners_with_other_names_share_a_folder(fake):
    """Each run has a log of its own, and another run does not change how it ended."""
    command = f"{sys.executable} {fake.path} --exp-name=mine"
    process = fake.start("--env-ids", "Slow-v0", "--num-seeds", "1")
    fake.wait_until_running(1)

    def let_go_of_both() -> None:
        fake.wait_until_running(2)
        fake.let_go()

    letting_go = threading.Thread(target=let_go_of_both)
    letting_go.start()
    other = fake.run("--env-ids", "Slow-v0", "--num-seeds", "1", command=command)
    letting_go.join()
    assert other.returncode == 0 and "waiting" not in other.stdout and "1 done" in other.stdout
    assert finish(process)[0] == 0
    logs = sorted(path.name for path in (fake.runs_dir / "logs").iterdir())
    assert logs == ["Slow-v0__fake__1.log", "Slow-v0__mine__1.log"]


def test_a_kill_reaches_what_has_left_the_group(tmp_path):
    """As torchrun's processes do, each of which has a session of its own."""
    note = tmp_path / "pid"
    program = f"""
import pathlib, subprocess
worker = subprocess.Popen(["sleep", "60"], start_new_session=True)
pathlib.Path("{note}").write_text(str(worker.pid))
worker.wait()
"""
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    worker_pid = int(wait_until(lambda: note.exists() and note.read_text()))
    assert descendants(process.pid) == [worker_pid]
    kill_all(process.pid)
    assert process.wait(10) == -signal.SIGKILL
    wait_until(lambda: worker_pid not in parents(), 10)


def test_what_torchrun_says_of_its_script_is_understood(fake, tmp_path, monkeypatch):
    """It fails with exit code 1 whatever the reason was."""
    report = "  exitcode  : -15 (pid: 1)\nRoot Cause (first observed failure):\n  exitcode  : 2"
    stand_in(tmp_path / "bin", "torchrun", f"echo '{report}'; exit 1", monkeypatch)
    flags = ("--env-ids", "A-v0", "--num-seeds", "2")
    ended = fake.run(*flags, command=f"torchrun --nproc_per_node=2 {fake.path}")
    assert ended.returncode == 1
    assert "FAILED   A-v0 seed 1: exit code 2; " in ended.stderr
    assert "left out A-v0 seed 2: A-v0 seed 1 had exit code 2" in ended.stderr


def test_a_run_goes_on_after_a_resume_that_wrote_no_flags(fake):
    """As on a full disk: what was learned before that is not lost."""
    flags = ("--env-ids", "Fail-v0", "--num-seeds", "1")
    assert fake.run(*flags).returncode == 1
    (folder,) = fake.run_folders()
    (folder / "resumed_at_10").mkdir()
    (folder / "resumed_at_10" / "args.json").touch()
    fake.let_go()
    assert fake.run(*flags).returncode == 0
    assert fake.run_folders() == [folder] and len(starts(folder)) == 2


@pytest.mark.parametrize("nohup", [False, True])
def test_without_a_reader_runs_are_stopped_as_without_a_terminal(nohup, fake):
    """With nohup they go on."""
    flags = ("--env-ids", "A-v0", "Slow-v0", "--num-seeds", "1")
    process = fake.start(*flags, before=("nohup",) if nohup else ())
    assert process.stdout is not None
    process.stdout.close()
    if nohup:
        fake.wait_until_running(2)
        fake.let_go()
        assert process.wait(30) == 0
        return
    assert process.wait(30) == 128 + signal.SIGHUP
    assert [stops(folder) for folder in fake.run_folders() if "Slow" in folder.name] in ([], ["1"])


def test_a_terminal_that_goes_after_ctrl_c_kills_nothing():
    """`| tee log` ends with Ctrl-C, and the next line that is printed finds no reader."""
    signals = Signals()
    try:
        signal.raise_signal(signal.SIGINT)
        assert signals.demand() == "save"
        signal.raise_signal(signal.SIGHUP)
        assert signals.demand() is None
        signal.raise_signal(signal.SIGINT)
        assert signals.demand() == "kill"
    finally:
        signals.release()


def test_a_run_that_diverged_is_told_by_its_own_log(fake):
    """Also where a run of another name came after it, and in folders of earlier versions."""
    for name in ("div", "fine"):
        command = f"{sys.executable} {fake.path} --exp-name {name}"
        assert fake.run("--env-ids", "A-v0", "--num-seeds", "1", command=command).returncode == 0
    logs = fake.runs_dir / "logs"
    folder, other = fake.run_folders()
    log = logs / "A-v0__div__1.log"
    torchrun = "ppo.py FAILED\n" * 1000  # it has the last word, a long one
    log.write_text(f"{log.read_text()}ppo.py: diverged at step 42: nan\n{torchrun}")
    assert diverged(folder) and not diverged(other)
    log = log.rename(logs / "A-v0__1.log")
    assert diverged(folder), "as it was called before"
    log.write_text(f"{log.read_text()}$ python fake.py --gamma 0.9\nrun folder: another\n")
    assert not diverged(folder), "the log of a run with other flags by now"


def test_the_log_has_the_name_of_the_run_folder(fake):
    module = load_program("run.py")

    def log(command: str) -> str:
        args = module.Args(command=command, env_ids=["ns:a/B-v0"], num_seeds=1)
        return module.expand(args)[0].log.name

    assert log(f"python {fake.path}") == "ns-a-B-v0__fake__1.log"
    assert log(f"python {fake.path} --exp-name a --gamma 0.9 --exp-name b") == "ns-a-B-v0__b__1.log"


def test_a_script_that_is_edited_meanwhile_is_not_mixed(fake):
    """The runs that have begun end; the others are left out, unless the edit is undone."""
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "4", "--workers", "2")
    source = fake.path.read_text()
    process = fake.start(*flags)
    fake.wait_until_running(2)
    fake.path.write_text(f"{source}# edited\n")
    fake.let_go()
    code, output, errors = finish(process)
    assert code == 1 and "4 runs: 2 done, 0 skipped, 0 failed, 2 left out" in output
    for seed in (3, 4):
        assert f"left out Slow-v0 seed {seed}: {fake.path} has been edited meanwhile\n" in errors
    assert len(fake.run_folders()) == 2
    fake.path.write_text(source)
    again = fake.run(*flags)
    assert again.returncode == 0 and "2 done, 2 skipped" in again.stdout


def test_an_edit_meanwhile_is_accepted_with_keep_old(fake):
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "2", "--keep-old")
    process = fake.start(*flags)
    fake.wait_until_running(1)
    fake.path.write_text(f"{fake.path.read_text()}# edited\n")
    fake.let_go()
    code, output, _ = finish(process)
    assert code == 0 and "2 runs: 2 done" in output


def test_an_environment_whose_flags_are_refused_is_tried_once(fake):
    """Other environments go on, and a finished run is skipped as ever."""
    flags = ("--env-ids", "A-v0", "B-v0", "--num-seeds", "3")
    refused = ("--env-flags", "A-v0=--learning-rate Refuse")
    result = fake.run(*flags, *refused)
    assert result.returncode == 1
    assert "6 runs: 3 done, 0 skipped, 1 failed, 2 left out" in result.stdout
    assert "FAILED   A-v0 seed 1: exit code 2; " in result.stderr
    for seed in (2, 3):
        assert f"left out A-v0 seed {seed}: A-v0 seed 1 had exit code 2\n" in result.stderr
    (folder,) = fake.runs_dir.glob("B-v0__fake__2__*")
    facts = json.loads((folder / "args.json").read_text())
    facts["argv"][:2] = ["--learning-rate", "Refuse", "--env-id", "A-v0"]
    (folder / "args.json").write_text(json.dumps(facts))
    again = fake.run(*flags, *refused)
    assert "6 runs: 1 done, 3 skipped, 1 failed, 1 left out" in again.stdout


# ------ after the runs ------


def test_finished_runs_are_drawn_and_gone_on_with(fake, tmp_path, monkeypatch):
    """Once, when all are finished, in that order; --dry-run only says so."""
    noted = tmp_path / "noted.txt"
    stand_in(tmp_path / "bin", "uv", f'echo "uv $@" >> {noted}', monkeypatch)
    monkeypatch.setattr(load_program("run.py"), "python_that_draws", lambda: ["uv", "run"])
    then = f"echo {{env_id}} {{runs_dir}} >> {noted}"
    flags = ("--num-seeds", "1", "--plot", str(tmp_path / "out"), "--then", then)
    dry = fake.run("--env-ids", "A-v0", "ns/B-v0", *flags, "--dry-run")
    commands = dry.stdout.splitlines()[2:]
    plot = Path(load_program("run.py").__file__).with_name("plot.py")
    drawing = f"uv run {plot} --runs-dir {fake.runs_dir} --out {tmp_path / 'out'}"
    following = [f"echo {name} {fake.runs_dir} >> {noted}" for name in ("A-v0", "ns-B-v0")]
    assert commands == [drawing, *following] and not noted.exists()

    failed = fake.run("--env-ids", "A-v0", "Fail-v0", *flags)
    assert failed.returncode == 1 and not noted.exists()
    assert fake.run("--env-ids", "A-v0", "ns/B-v0", *flags).returncode == 0
    lines = [drawing, f"A-v0 {fake.runs_dir}", f"ns-B-v0 {fake.runs_dir}"]
    assert noted.read_text().splitlines() == lines


def test_a_suite_is_drawn_as_one(fake, tmp_path):
    flags = ("--env-ids", "A-v0", "--num-seeds", "1", "--dry-run", "--suite", "all of it")
    out = str(tmp_path / "out")
    listed = fake.run(*flags, "--plot", out).stdout.splitlines()
    words = ["--runs-dir", str(fake.runs_dir), "--out", out, "--name", "all of it"]
    assert shlex.split(listed[-1]) == [sys.executable, str(BENCHMARK / "suite.py"), *words]
    refused = fake.run(*flags)
    assert refused.returncode == 2 and "--suite needs --plot" in refused.stderr


def test_uv_draws_only_where_this_python_lacks_the_packages(tmp_path, monkeypatch, capsys):
    module = load_program("run.py")
    stand_in(tmp_path / "bin", "uv", "", monkeypatch)
    args = module.Args(command="python ppo/ppo.py", env_ids=["A-v0"], plot=tmp_path)

    def drawn_by() -> list[str]:
        (command,) = module.closing_commands(args)
        words = shlex.split(command)
        return words[: words.index(str(BENCHMARK / "plot.py"))]

    assert drawn_by() == [sys.executable]
    find_spec = module.importlib.util.find_spec
    there = {"matplotlib", "tensorboard"}
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda name: find_spec(name) if name in there else None
    )
    assert drawn_by() == ["uv", "run"]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as stop:
        drawn_by()
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("error: --plot needs pillow, scipy; install them")


def test_a_suite_is_drawn_with_what_a_plot_needs(tmp_path, monkeypatch):
    module = load_program("run.py")
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda name: name in module.DRAWN_WITH or None
    )
    args = module.Args("python ppo/ppo.py", env_ids=["A-v0"], plot=tmp_path, suite="all")
    (command,) = module.closing_commands(args)
    assert shlex.split(command)[:2] == [sys.executable, str(BENCHMARK / "suite.py")]


def test_runs_with_other_flags_in_the_same_folder_are_told(fake):
    assert fake.run("--env-ids", "A-v0", "B-v0", "--num-seeds", "2").stderr == ""
    assert fake.run("--env-ids", "A-v0", "--num-seeds", "3").stderr == "", "one seed more"
    flags = ("--env-flags", "A-v0=--learning-rate 0.5", "--env-ids", "A-v0", "--num-seeds", "1")
    mixed = fake.run(*flags)
    assert mixed.returncode == 0
    assert mixed.stderr.count("\n") == 1
    assert f"note: {fake.runs_dir} also has 3 runs with other flags" in mixed.stderr
    back = fake.run("--env-ids", "A-v0", "--num-seeds", "1", "--dry-run").stderr
    assert re.search(r"also has 1 run with other flags \(A-v0__fake__1__\d+\);", back)


def test_runs_of_another_version_with_other_seeds_are_told(fake):
    """Those of the same seeds are refused, with other flags they are told as such."""
    assert fake.run("--env-ids", "A-v0", "B-v0", "--num-seeds", "2").returncode == 0
    resumed = next(
        folder for folder in fake.run_folders() if folder.name.startswith("A-v0__fake__2")
    )
    fake.path.write_text(f"{fake.path.read_text()}# edited\n")
    more = fake.run("--env-ids", "A-v0", "--num-seeds", "1", "--start-seed", "3")
    assert more.returncode == 0
    assert more.stderr.count("\n") == 1
    assert "also has 2 runs of another fake.py (A-v0__fake__1__" in more.stderr
    (resumed / "resumed_at_500").mkdir()
    facts = json.dumps({"argv": ["--resume", str(resumed), "--learning-rate", "0.5"]})
    (resumed / "resumed_at_500/args.json").write_text(facts)
    both = fake.run("--env-ids", "A-v0", "--num-seeds", "1", "--start-seed", "4").stderr
    assert both.count("\n") == 1
    assert "1 run with other flags (A-v0__fake__2__" in both
    assert " and 1 run of another fake.py (A-v0__fake__1__" in both
    kept = fake.run("--env-ids", "A-v0", "--num-seeds", "1", "--keep-old", "--dry-run").stderr
    assert "was made by a different fake.py" in kept
    assert "another fake.py" not in kept


def test_a_finished_run_is_told_with_its_score(fake):
    done = fake.run("--env-ids", "A-v0", "--num-seeds", "1")
    assert re.search(r"^done     A-v0 seed 1, 0:00:0\d, return 7.0 ± 0.5$", done.stdout, re.M)


def test_what_fails_after_the_runs_is_told(fake, tmp_path):
    flags = ("--num-seeds", "1", "--then", f"touch {tmp_path}/{{env_id}} && exit 3")
    result = fake.run("--env-ids", "A-v0", "B-v0", *flags)
    assert result.returncode == 1 and "2 done" in result.stdout
    assert "exit 3: exit code 3" in result.stderr
    assert (tmp_path / "A-v0").exists() and not (tmp_path / "B-v0").exists()


@pytest.mark.parametrize(("signum", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_follows_the_runs_is_stopped(fake, tmp_path, signum, exit_code):
    """The command is told, and the one of the next environment is not begun."""
    then = f"touch {tmp_path}/{{env_id}}; sleep 60; touch {tmp_path}/slept"
    process = fake.start("--env-ids", "A-v0", "B-v0", "--num-seeds", "1", "--then", then)
    wait_until(lambda: (tmp_path / "A-v0").exists())
    process.send_signal(signum)
    code, output, errors = finish(process)
    assert code == exit_code and "the same command again goes on" in output and errors == ""
    assert not (tmp_path / "B-v0").exists() and not (tmp_path / "slept").exists()


def test_a_signal_while_a_command_starts_is_passed_on(monkeypatch):
    """It comes before the command's start has returned."""
    console = load_program("console.py")
    signals = console.Signals()

    def start(*args: object, **options: Any) -> subprocess.Popen[bytes]:
        process = begin(*args, **options)
        signals.received.append(signal.SIGINT)
        return process

    begin = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    try:
        assert signals.run("sleep 60") == 128 + signal.SIGINT
    finally:
        signals.release()


def test_a_signal_while_the_last_run_ends_is_not_lost(fake, tmp_path, monkeypatch):
    module = load_program("run.py")
    last_words = module.Progress.conclude

    def conclude(progress: object, received: list[int]) -> int:
        received.append(signal.SIGTERM)
        return last_words(progress, received)

    monkeypatch.setattr(module.Progress, "conclude", conclude)
    flags = ("--env-ids", "A-v0", "--num-seeds", "1")
    assert fake.run(*flags, "--then", f"touch {tmp_path}/noted").returncode == 143
    assert not (tmp_path / "noted").exists()
    assert fake.run(*flags).returncode == 0, "nothing was left to do"


# ------ input and output ------


@pytest.mark.parametrize(
    ("flags", "command", "message"),
    [
        ("--env-ids A-v0 --workers 0", "", "--workers must be at least 1"),
        ("--env-ids A-v0 --minutes 0", "", "--minutes must be above 0"),
        ("--env-ids A-v0 --minutes 9 --launcher slurm", "", "--minutes is for runs on this"),
        ("--env-ids A-v0 --num-seeds 0", "", "--num-seeds must be at least 1"),
        ("--env-ids A-v0 --start-seed -1", "", "--start-seed must not be negative"),
        ("--env-ids", "", "--env-ids is empty"),
        ("--env-ids A-v0 A-v0", "", "twice"),
        ("--env-ids A-v0", "python nowhere.py", "there is no file nowhere.py"),
        ("--env-ids A-v0", "python", "names no .py script"),
        ("--env-ids A-v0", "python 'fake.py", "No closing quotation"),
        ("--env-ids A-v0", "no-such-program FAKE", "cannot run no-such-program"),
        ("--env-ids A-v0", "python FAKE --seed=3", "must not contain --seed"),
        ("--env-ids A-v0 --env-flags A-v0", "", "is not of the form"),
        ("--env-ids A-v0 --env-flags A-v0=--a A-v0=--b", "", "names A-v0 twice"),
        ("--env-ids A-v0 --env-flags 'A-v0=--runs_dir x'", "", "must not contain --runs-dir"),
        ("--env-ids A-v0", "python FAKE --num_seeds 5", "must not contain --num-seeds"),
        ("--env-ids A-v0 --runs-dir FAKE", "", "--runs-dir: "),
        ("--env-ids A-v0 --plot FAKE/results", "", "--plot: "),
        ("--env-ids A-v0 --plot x --suite a/b", "", "--suite: 'a/b' is not the name of a file"),
        ("--env-ids A-v0 --gpus 1", "", "--hours need --launcher slurm"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(fake, flags, command, message):
    words = shlex.split(flags.replace("FAKE", str(fake.path)))
    command = command.replace("FAKE", str(fake.path)).replace("python", sys.executable)
    refused = fake.run(*words, command=command)
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.startswith("error: ") and message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert list(fake.folder.iterdir()) == [fake.path], "nothing is created"


@pytest.mark.parametrize(
    "name",
    [
        "ablation",
        "ablation_plot",
        "broken",
        "charts",
        "compare",
        "plot",
        "rerun",
        "run",
        "scaling",
        "speed",
        "suite",
        "tune",
    ],
)
def test_help_has_an_example_and_the_exit_codes(name):
    shown = " ".join(run_program(f"{name}.py", "--help").stdout.split())
    assert f"uv run benchmark/{name}.py" in shown and "Exit codes: 0 " in shown


def test_a_run_that_has_just_ended_need_not_be_killed():
    """Its process is gone before anybody has noted that."""
    children = Children()
    process = children.start(["true"])
    process.wait()
    children.stop(signal.SIGINT, kill=True)
    assert process in children.processes and children.wait(process) == 0


def test_settings_ignore_where_a_run_is_kept():
    argv = ["--runs-dir=a", "--gamma", "0.9", "--resume", "b", "--runs_dir", "c", "--seed", "1"]
    assert settings(argv) == ["--gamma", "0.9", "--seed", "1"]


def test_runs_of_another_number_of_processes_are_other_runs(fake):
    module = load_program("run.py")
    folder = fake.runs_dir / "A-v0__fake__1__x"
    folder.mkdir(parents=True)
    (folder / "agent.pt").touch()
    facts = {"script": "fake.py", "argv": ["--env-id", "A-v0", "--seed", "1"]}

    def found(command: str) -> bool:
        args = module.Args(command=command, env_ids=["A-v0"], runs_dir=fake.runs_dir)
        return module.find_run(module.expand(args)[0])[1]

    path = fake.path
    two, four = (f"torchrun --nnodes=1 --nproc_per_node={n} {path}" for n in (2, 4))
    (folder / "args.json").write_text(json.dumps(facts))
    assert found(f"python {path}") and not found(two)
    (folder / "args.json").write_text(json.dumps(facts | {"processes": "2"}))
    assert found(two) and not found(four) and not found(f"python {path}")
    assert found(f"torchrun --nproc-per-node 2 {path}")
    assert found(f"torchrun --nnodes 1:2 --nproc-per-node gpu {path}"), "not known beforehand"


def test_a_run_that_was_resumed_with_other_flags_is_another_run(fake):
    module = load_program("run.py")
    folder = fake.runs_dir / "A-v0__fake__1__x"
    resumed = folder / "resumed_at_1000"
    resumed.mkdir(parents=True)
    (folder / "agent.pt").touch()
    facts = {"script": "fake.py", "argv": ["--gamma", "0.9", "--env-id", "A-v0", "--seed", "1"]}
    (folder / "args.json").write_text(json.dumps(facts))

    def found(*resumed_with: str) -> bool:
        part = {"argv": [*resumed_with, "--resume", str(folder)]}
        (resumed / "args.json").write_text(json.dumps(part))
        command = f"python {fake.path} --gamma 0.9"
        args = module.Args(command=command, env_ids=["A-v0"], runs_dir=fake.runs_dir)
        return module.find_run(module.expand(args)[0])[1]

    assert found(), "by hand, with the flags it had"
    assert found("--gamma", "0.9"), "as the runner does it"
    assert not found("--total-timesteps", "2000000")


def test_what_a_script_prints_is_understood(fake, tmp_path, capsys):
    """The runner reads how far a run is."""
    train(load_script("ppo.py"), tmp_path / "run", total_timesteps=1024)
    printed = capsys.readouterr().out
    module = load_program("run.py")
    args = module.Args(f"python {fake.path}", env_ids=["A-v0"], runs_dir=fake.runs_dir)
    task = module.expand(args)[0]
    task.log.parent.mkdir(parents=True)
    for shown, lines in (("starting", 2), ("100%", None)):
        task.log.write_text("$ python ppo.py\n" + "\n".join(printed.splitlines()[:lines]))
        assert percent(task) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0:00:00"),
        (59.4, "0:00:59"),
        (59.7, "0:01:00"),
        (3599.6, "1:00:00"),
        (3723, "1:02:03"),
        (360_000, "100:00:00"),
    ],
)
def test_clock_rounds_to_seconds_first(seconds, shown):
    assert clock(seconds) == shown
