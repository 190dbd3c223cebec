"""The runner's jobs, in a SLURM cluster that is started on this machine."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import slurm
from helpers import slurm_cluster
from helpers.benchmark_runs import BENCHMARK, FakeScript, starts, stops
from helpers.command_line import finish

pytestmark = pytest.mark.slow("SLURM")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        environment, why = {}, ""
        for _ in range(2):  # somebody else may have taken a port in the meantime
            try:
                folder = tmp_path_factory.mktemp("slurm")
                environment = stack.enter_context(slurm_cluster.cluster(folder))
                break
            except RuntimeError as error:
                why = str(error)
        if not environment:
            pytest.skip(why)
        yield environment


@pytest.fixture
def in_slurm(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The flag for it; this process and those that it starts find the cluster."""
    monkeypatch.setenv("SLURM_CONF", cluster["SLURM_CONF"])
    return ("--launcher", "slurm")


@pytest.fixture
def fake(tmp_path: Path) -> FakeScript:
    return FakeScript(tmp_path)


def test_a_job_is_not_lost_when_slurm_gives_no_answer(monkeypatch):
    answers = [None, {"7_0": "R"}, {}]
    monkeypatch.setattr(slurm, "listed_jobs", lambda _: answers.pop(0))
    jobs = {"task": SimpleNamespace(job_id="7_0")}
    queue = slurm.Queue(jobs)
    found = []
    for _ in range(3):
        queue.look(jobs, pause=-1)
        found.append((queue.running(jobs), list(queue.missing)))
    assert found == [([], []), (["task"], []), ([], ["task"])]


def test_list_is_run_from_another_folder_and_failures_are_loud(fake, in_slurm, monkeypatch):
    """The program is started beside the script, with relative paths, not in the repository."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    flags = ("--env-ids", "A-v0", "Fail-v0", "--num-seeds", "1", "--workers", "2", *in_slurm)
    asked = ("--partition", "gpu", "--gpus", "1", "--cpus", "2", "--hours", "0.5")
    relative = ("--command", f"{sys.executable} fake.py", "--runs-dir", "runs")
    words = [sys.executable, str(BENCHMARK / "run.py"), *relative, *flags, *asked]
    first = subprocess.run(words, cwd=fake.folder, capture_output=True, text=True, timeout=60)
    assert first.returncode == 1, first.stderr
    assert "2 runs: 1 done, 0 skipped, 1 failed" in first.stdout
    assert "FAILED   Fail-v0 seed 1: exit code 1" in first.stderr
    assert "  | line 49\n  | RuntimeError: the loss is not finite" in first.stderr
    (script,) = (fake.runs_dir / "logs" / "slurm").glob("*_submission.sh")
    wanted = {"array": "0-1%2", "partition": "gpu", "gpus-per-node": 1, "cpus-per-task": 2}
    for flag, value in (wanted | {"time": 30}).items():
        assert f"#SBATCH --{flag}={value}\n" in script.read_text()
    names = {folder.name.split("__")[0] for folder in fake.run_folders()}
    assert len(fake.run_folders()) == 2 and names == {"A-v0", "Fail-v0"}
    assert all(starts(folder)[0].endswith("OMP=2") for folder in fake.run_folders())

    fake.let_go()
    again = fake.run(*flags)
    assert again.returncode == 0, again.stderr
    assert "1 done, 1 skipped, 0 failed" in again.stdout and len(fake.run_folders()) == 2
    assert "2 skipped" in fake.run(*flags).stdout


def test_runs_that_are_stopped_save_and_are_resumed(fake, in_slurm):
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "3", "--workers", "2", *in_slurm)
    process = fake.start(*flags)
    fake.wait_until_running(2)
    process.send_signal(signal.SIGINT)
    code, output, _ = finish(process)
    assert code == 130
    assert "the same command again goes on" in output and "3 stopped" in output
    cut_off = fake.run_folders()
    assert [stops(folder) for folder in cut_off] == ["1", "1"]
    fake.let_go()
    again = fake.run(*flags)
    assert again.returncode == 0 and "3 done" in again.stdout, again.stderr
    assert all(starts(folder)[1].startswith(f"--resume {folder}") for folder in cut_off)


def test_run_that_reaches_the_time_limit_goes_on_in_another_job(fake, in_slurm, cluster):
    """SLURM warns all processes of a job some time before. Only ours may take notice."""
    process = fake.start("--env-ids", "Slow-v0", "--num-seeds", "1", *in_slurm)
    fake.wait_until_running(1)
    job = slurm_cluster.ask("squeue", "--noheader", "--format=%i", env=cluster).strip()
    slurm_cluster.ask("scancel", "--signal=USR2", job, env=cluster)
    code, output, errors = finish(process)
    assert code == 0 and "1 done" in output, errors
    (folder,) = fake.run_folders()
    assert stops(folder) == "1"
    assert len(starts(folder)) == 2 and starts(folder)[1].startswith(f"--resume {folder}")


def test_job_without_a_result_is_a_failure(fake, in_slurm, cluster, monkeypatch):
    """As when a machine of the cluster is gone."""
    monkeypatch.setattr(slurm, "ASK", 0.5)
    monkeypatch.setattr(slurm, "LOST", 0.5)

    def kill() -> None:
        fake.wait_until_running(1)
        its_name = f"submitit.core._submit {fake.folder}"
        for pid in slurm_cluster.ask("pgrep", "-f", its_name, env=cluster).split():
            os.kill(int(pid), signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    result = fake.run("--env-ids", "Slow-v0", "--num-seeds", "1", *in_slurm)
    killing.join()
    fake.let_go()
    assert result.returncode == 1 and "ended without a result" in result.stderr, result.stderr


@pytest.mark.parametrize("flags", [("--partition", "nowhere"), ("--gpus", "7")])
def test_what_slurm_refuses_is_told_and_exit_code_2(fake, in_slurm, flags):
    result = fake.run("--env-ids", "A-v0", *in_slurm, *flags)
    assert result.returncode == 2 and not fake.run_folders()
    assert result.stderr.splitlines()[-1].startswith("error: sbatch: ")


def test_without_slurm_it_is_said(fake, monkeypatch):
    monkeypatch.setenv("PATH", "")
    result = fake.run("--env-ids", "A-v0", "--launcher", "slurm")
    assert result.returncode == 2 and "there is no sbatch on this machine" in result.stderr


def test_runs_of_this_machine_do_without_submitit(fake):
    """It takes a while to import."""
    words = [sys.executable, "-X", "importtime", str(BENCHMARK / "run.py"), "--dry-run"]
    words += fake.arguments("--env-ids", "A-v0")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "tasks" in done.stderr and "submitit" not in done.stderr
