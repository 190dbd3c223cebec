"""The benchmark runner, driven with a script that only pretends to train."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import run
from common import Signals, kill_all
from helpers.benchmark_runs import FakeScript, starts, stops, write_returns
from helpers.command_line import children, finish, wait_until


@pytest.fixture
def fake(tmp_path: Path) -> FakeScript:
    return FakeScript(tmp_path)


def test_runs_every_environment_with_every_seed_once(fake, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    flags = ("--env-ids", "A-v0", "ns/B-v0", "--num-seeds", "2", "--start-seed", "5")
    dry = fake.run(*flags, "--dry-run", "--runs-dir=~/mine")
    assert dry.returncode == 0 and dry.stdout.count("--env-id") == 4 and not fake.run_folders()
    assert dry.stdout.count(f"--runs-dir {Path.home()}/mine") == 4

    first = fake.run(*flags, "--workers", "2")
    assert first.returncode == 0, first.stderr
    assert "4 runs: 4 done, 0 failed" in first.stdout
    done = r"^done     A-v0 seed 5, \d:\d\d:\d\d, evaluation: return 7\.0 ± 0\.5$"
    assert re.search(done, first.stdout, re.MULTILINE)
    folders = fake.run_folders()
    share = "PJRT_NPROC=3 XLA_PYTHON_CLIENT_PREALLOCATE=false OMP_NUM_THREADS=3"
    assert sorted(starts(folder)[0] for folder in folders) == sorted(
        f"--env-id {env_id} --seed {seed} --runs-dir {fake.runs_dir} --resume auto {share}"
        for env_id in ("A-v0", "ns/B-v0")
        for seed in (5, 6)
    )
    assert (fake.runs_dir / "logs" / "ns-B-v0__fake__5.log").exists()

    again = fake.run(*flags)
    assert again.returncode == 0 and again.stdout.count("is finished") == 4
    assert fake.run_folders() == folders and all(len(starts(folder)) == 1 for folder in folders)


def test_flags_of_one_environment_are_handed_to_its_runs(fake):
    more = ("--env-flags", "A-v0=--learning-rate 0.5", "C-v0=--learning-rate 1")
    result = fake.run("--env-ids", "A-v0", "B-v0", "--num-seeds", "1", *more)
    assert result.returncode == 0 and "note: no runs of C-v0" in result.stderr
    with_flags, without = (starts(folder)[0] for folder in fake.run_folders())
    assert with_flags.startswith("--learning-rate 0.5 --env-id A-v0")
    assert without.startswith("--env-id B-v0")


def test_failing_run_is_loud_and_the_others_go_on(fake):
    result = fake.run("--env-ids", "Fail-v0", "Dies-v0", "A-v0", "--num-seeds", "2")
    assert result.returncode == 1
    assert "6 runs: 2 done, 4 failed" in result.stdout
    assert "FAILED   Fail-v0 seed 1: exit code 1; " in result.stderr
    assert "Dies-v0 seed 1: exit code -9" in result.stderr
    assert result.stderr.count("  | line 49\n  | RuntimeError: the loss is not finite") == 1
    assert "line 20\n" not in result.stderr, "only the tail of the log"
    assert result.stderr.count("RuntimeError") == 2, "a traceback is shown once, not for each seed"
    assert result.stderr.splitlines()[-1].startswith("failed: ")


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
    again = fake.run(*flags)
    assert again.returncode == 0 and "3 done" in again.stdout, again.stderr
    assert len(fake.run_folders()) == 3
    for folder in cut_off:
        _, second = starts(folder)
        assert second.endswith("OMP_NUM_THREADS=3"), "the user's choice"


@pytest.mark.parametrize("heard", [True, False])
def test_second_signal_kills_and_a_killed_run_is_resumed(fake, heard):
    """heard: whether anybody reads what is printed; Ctrl-C in `| tee log` ends tee as well."""
    flags = ("--env-ids", "Deaf-v0", "--num-seeds", "1")
    process = fake.start(*flags)
    assert process.stdout is not None
    fake.wait_until_running(1)
    if heard:
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().startswith("stopping")
        process.send_signal(signal.SIGINT)
        assert finish(process)[0] == 130
    else:
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    assert "1 done" in fake.run(*flags).stdout
    (folder,) = fake.run_folders()
    assert len(starts(folder)) == 2


def test_a_run_that_a_killed_runner_has_left_is_waited_for(fake):
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "1")
    process = fake.start(*flags)
    fake.wait_until_running(1)
    process.kill()
    finish(process)
    letting_go = threading.Timer(1.5, fake.let_go)
    letting_go.start()
    again = fake.run(*flags)
    letting_go.join()
    assert again.returncode == 0 and "is finished" in again.stdout
    (folder,) = fake.run_folders()
    assert len(starts(folder)) == 1


def test_a_script_that_is_edited_meanwhile_is_not_mixed(fake):
    process = fake.start("--env-ids", "Slow-v0", "--num-seeds", "2")
    fake.wait_until_running(1)
    fake.path.write_text(f"{fake.path.read_text()}# edited\n")
    fake.let_go()
    code, output, errors = finish(process)
    assert code == 1 and "1 done, 1 failed" in output
    assert "has been edited since the runner started" in errors


def test_a_run_that_cannot_begin_has_failed(tmp_path):
    """An exception would end the loop that waits for Ctrl-C."""
    (tmp_path / "logs").touch()  # should be a folder
    log = tmp_path / "logs" / "x.log"
    task = run.Task("", "A-v0", 1, ("true",), log, Path(__file__), Path(__file__).read_bytes())
    result = run.run_task(task, run.Children(workers=1))
    assert result.outcome == "failed" and "FileExistsError" in result.reason
    run.Progress([task]).report(task, result)


def test_a_kill_reaches_what_has_left_the_group():
    """As torchrun's workers do."""
    code = "import subprocess; subprocess.run(['sleep', '60'], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: children(process.pid))
    (worker,) = children(process.pid)
    kill_all(process.pid)
    process.wait(10)
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


@pytest.mark.parametrize("ignored", [True, False], ids=["nohup", "terminal"])
def test_the_loss_of_the_terminal_stops_unless_it_is_ignored(ignored):
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    signals = Signals()
    signal.raise_signal(signal.SIGHUP)
    assert signals.demand() == (None if ignored else "save")
    assert signals.demand() is None
    signals.receive(signal.SIGINT, None)
    signals.receive(signal.SIGHUP, None)
    assert len(signals.received) == (1 if ignored else 2), "a terminal that goes is no second"


@pytest.mark.parametrize("failed", [[], ["Fail-v0"]], ids=["all", "but-one"])
def test_finished_runs_are_drawn(failed, fake, tmp_path):
    """By plot.py, also if others have failed."""
    write_returns(tmp_path / "events-None", 7.0)
    flags = ("--env-ids", "A-v0", *failed, "--num-seeds", "1", "--plot", str(tmp_path / "out"))
    done = fake.run(*flags)
    assert done.returncode == len(failed), done.stderr
    assert (tmp_path / "out" / "fake.png").exists()
