"""The runner's jobs, in a SLURM cluster that is started on this machine."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import run
import slurm
from helpers import slurm_cluster
from helpers.benchmark_runs import FakeScript, starts, stops
from helpers.command_line import wait_until

pytestmark = pytest.mark.slow("SLURM")
ASKED = ("--launcher", "slurm", "--partition", "gpu", "--hours", "0.5", "--cpus", "1")
# As torchrun does: a run that was told to stop ends well, and the program that started it with 1.
LAUNCHER = """bash -c 'trap "exit 1" TERM; "$0" "$@"'"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def fake(cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeScript:
    monkeypatch.setenv("SLURM_CONF", cluster["SLURM_CONF"])
    return FakeScript(tmp_path)


def jobs(cluster: dict[str, str], form: str = "%i") -> list[str]:
    """What squeue says of each job that has not ended."""
    return slurm_cluster.ask("squeue", "-h", "--array", f"--format={form}", env=cluster).split()


def test_what_an_array_asks_for(tmp_path):
    script = tmp_path / "ppo.py"
    script.touch()
    asked = {"partition": "gpu", "gpus": 1, "cpus": 4, "hours": 0.5, "workers": 2}
    args = run.Args(f"python {script}", ["A-v0", "B-v0"], num_seeds=2, **asked)
    text = slurm.array_script(run.expand(args), args, tmp_path)
    options = set(re.findall("^#SBATCH --(.*)$", text, re.MULTILINE))
    assert options >= {"array=0-3%2", "cpus-per-task=4", "gpus-per-node=1", "partition=gpu"}
    assert options >= {"time=30", "signal=TERM@120", "requeue"}
    assert "\nsrun --cpus-per-task=4 " in text


def test_jobs_run_save_when_their_time_is_over_and_go_on(fake, cluster, tmp_path):
    """Two seeds end at once, two train until SLURM warns them, as it does before the time limit."""
    flags = ("--env-ids", "A-v0", "Slow-v0", "--num-seeds", "2", "--workers", "4")
    launched = f"{LAUNCHER} {sys.executable} {fake.path}"
    submitted = fake.run(*flags, *ASKED, "--plot", str(tmp_path / "out"), command=launched)
    assert submitted.returncode == 0, submitted.stderr
    assert "4 runs are jobs of array" in submitted.stdout and "draws them" in submitted.stdout
    fake.wait_until_running(4)
    slow = [folder for folder in fake.run_folders() if folder.name.startswith("Slow")]
    for job in jobs(cluster, form="%i:%t"):
        if job.endswith(":R"):  # the steps of a job get the signal, as with --signal=TERM@120
            slurm_cluster.ask("scancel", "--signal=TERM", job.removesuffix(":R"), env=cluster)
    wait_until(lambda: all(len(starts(folder)) == 2 for folder in slow), seconds=60)
    assert [stops(folder) for folder in slow] == ["1", "1"]
    wait_until(lambda: len(list(fake.runs_dir.glob("*/agent.pt"))) == 4, seconds=60)
    assert all(starts(folder)[0].endswith("OMP_NUM_THREADS=1") for folder in fake.run_folders())
    assert len(fake.run_folders()) == 4
    logs = [log.read_text() for log in fake.runs_dir.glob("logs/*.log")]  # as of local runs
    assert len(logs) == 4 and all("steps, 1 steps/s" in log for log in logs)
    wait_until(lambda: not jobs(cluster), seconds=60)


def test_a_job_that_the_user_ends_saves_and_does_not_come_back(fake, cluster):
    fake.run("--env-ids", "Slow-v0", "--num-seeds", "1", *ASKED)
    fake.wait_until_running(1)
    slurm_cluster.ask("scancel", *jobs(cluster), env=cluster)
    wait_until(lambda: not jobs(cluster), seconds=60)
    (folder,) = fake.run_folders()
    assert stops(folder) and len(starts(folder)) == 1


def test_a_job_does_not_mix_versions_of_the_script(fake, cluster):
    """The second job waits for the first one, and the script is edited meanwhile."""
    fake.run("--env-ids", "Slow-v0", "--num-seeds", "2", *ASKED)
    fake.wait_until_running(1)
    fake.path.write_text(f"{fake.path.read_text()}# edited\n")
    fake.let_go()
    wait_until(lambda: not jobs(cluster), seconds=60)
    assert len(fake.run_folders()) == 1
    log = fake.runs_dir / "logs" / "Slow-v0__fake__2.log"
    assert f"{fake.path}: FAILED" in log.read_text()


def test_what_slurm_refuses_is_told(fake):
    flags = ("--env-ids", "A-v0", "--launcher", "slurm", "--partition", "nowhere")
    result = fake.run(*flags)
    assert result.returncode == 2 and "invalid partition" in result.stderr
    assert not fake.run_folders()
