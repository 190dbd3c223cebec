"""The runner's jobs, in a SLURM cluster that is started on this machine."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import slurm_cluster
from helpers.benchmark_runs import FakeScript, starts, stops
from helpers.command_line import wait_until

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
def fake(cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeScript:
    monkeypatch.setenv("SLURM_CONF", cluster["SLURM_CONF"])
    return FakeScript(tmp_path)


def jobs(cluster: dict[str, str], form: str = "%i") -> list[str]:
    """What squeue says of each job that has not ended."""
    return slurm_cluster.ask("squeue", "-h", "--array", f"--format={form}", env=cluster).split()


def test_jobs_run_save_when_their_time_is_over_and_go_on(fake, cluster, tmp_path):
    """Two seeds end at once, two train until SLURM warns them, as it does before the time limit."""
    flags = ("--env-ids", "A-v0", "Slow-v0", "--num-seeds", "2", "--workers", "4")
    asked = ("--launcher", "slurm", "--partition", "gpu", "--hours", "0.5", "--cpus", "1")
    submitted = fake.run(*flags, *asked, "--plot", str(tmp_path / "out"))
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
    assert all(starts(folder)[0].endswith("OMP=1") for folder in fake.run_folders())
    assert len(fake.run_folders()) == 4
    logs = [log.read_text() for log in fake.runs_dir.glob("logs/*.log")]  # as of local runs
    assert len(logs) == 4 and all("steps, 1 steps/s" in log for log in logs)
    wait_until(lambda: not jobs(cluster), seconds=60)


def test_what_slurm_refuses_is_told(fake):
    flags = ("--env-ids", "A-v0", "--launcher", "slurm", "--partition", "nowhere")
    result = fake.run(*flags)
    assert result.returncode == 2 and "invalid partition" in result.stderr
    assert not fake.run_folders()
