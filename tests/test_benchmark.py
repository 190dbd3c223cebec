"""The benchmark runner, driven with a tiny training script, and the plots of synthetic runs."""

import contextlib
import csv
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from helpers import slurm_cluster
from helpers.command_line import finished_run
from helpers.in_process import load_program
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

BENCHMARK = Path(__file__).parent.parent / "benchmark"

# Keeps the contract of a run folder. Environment ids that start with Fail fail, Slow ones train
# until they are stopped, Dishonest ones exit with 0 but leave no agent. A resumed run finishes.
FAKE = """
import argparse, json, os, signal, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
for flag in ("--env-id", "--seed", "--runs-dir", "--resume", "--learning-rate"):
    parser.add_argument(flag)
args = parser.parse_args()
codes = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda n, f: codes.append(128 + n))
if args.resume:
    folder = Path(args.resume)
    args.env_id = json.loads((folder / "args.json").read_text())["args"]["env_id"]
else:
    env_name = args.env_id.replace("/", "-")
    folder = Path(args.runs_dir) / f"{env_name}__fake__{args.seed}__{time.time_ns()}"
    folder.mkdir(parents=True)
    facts = {"script": "fake.py", "argv": sys.argv[1:], "args": {"env_id": args.env_id}}
    (folder / "args.json").write_text(json.dumps(facts))
    (folder / "fake.py").write_bytes(Path(__file__).read_bytes())
(folder / "checkpoint.pt").touch()
threads = os.environ.get("OMP_NUM_THREADS", "unset")
with open(folder / "starts.txt", "a") as file:
    print(*sys.argv[1:], f"OMP={threads}", file=file)
print(" 42%  42.0 steps  1.00 steps/s  00:58 left, return 7.0, length 7", flush=True)
if args.env_id.startswith("Fail"):
    print("\\n".join(f"line {n}" for n in range(50)))
    sys.exit("RuntimeError: the loss is not finite")
if args.env_id.startswith("Slow") and not args.resume:
    started = time.time()
    while not codes and time.time() - started < 20:
        time.sleep(0.01)
    time.sleep(0.1)  # for a second signal, which would kill a real run
    (folder / "signals.txt").write_text(f"{len(codes)}")
    sys.exit(codes[0] if codes else 1)
if not args.env_id.startswith("Dishonest"):
    (folder / "agent.pt").touch()
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    path = tmp_path / "fake.py"
    path.write_text(FAKE)
    return path


def runner(fake: Path, *flags: str, command: str = "") -> list[str]:
    command = command or f"{sys.executable} {fake}"
    runs_dir = str(fake.parent / "runs")
    words = [sys.executable, str(BENCHMARK / "run.py"), "--command", command, *flags]
    return words if "--runs-dir" in flags else [*words, "--runs-dir", runs_dir]


def run_command(fake: Path, *flags: str, command: str = "") -> subprocess.CompletedProcess[str]:
    words = runner(fake, *flags, command=command)
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def folders(fake: Path) -> list[Path]:
    return sorted(path.parent for path in (fake.parent / "runs").glob("*/args.json"))


def starts(folder: Path) -> list[str]:
    return (folder / "starts.txt").read_text().splitlines()


def wait_until_running(fake: Path, count: int) -> None:
    deadline = time.monotonic() + 20
    while sum((folder / "starts.txt").exists() for folder in folders(fake)) < count:
        assert time.monotonic() < deadline, "the runs do not start"
        time.sleep(0.02)


def test_runs_every_environment_with_every_seed_once(fake, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    flags = ("--env-ids", "A-v0", "ns/B-v0", "--num-seeds", "2", "--start-seed", "5")
    env_ids = ["A-v0", "ns/B-v0"]
    dry = run_command(fake, *flags, "--dry-run")
    assert dry.returncode == 0 and len(dry.stdout.splitlines()) == 4 and not folders(fake)

    first = run_command(fake, *flags, "--workers", "2")
    assert first.returncode == 0, first.stderr
    assert "4 runs: 4 done, 0 skipped, 0 failed" in first.stdout
    runs_dir = fake.parent / "runs"
    assert sorted(starts(folder)[0] for folder in folders(fake)) == sorted(
        f"--env-id {env_id} --seed {seed} --runs-dir {runs_dir} OMP=1"
        for env_id in env_ids
        for seed in (5, 6)
    )
    logs = sorted(path.name for path in (runs_dir / "logs").iterdir())
    assert logs == ["A-v0__5.log", "A-v0__6.log", "ns-B-v0__5.log", "ns-B-v0__6.log"]

    again = run_command(fake, *flags, "--runs-dir", f"{runs_dir}/")
    assert again.returncode == 0 and "0 done, 4 skipped, 0 failed" in again.stdout
    assert len(folders(fake)) == 4 and all(len(starts(folder)) == 1 for folder in folders(fake))

    other = run_command(fake, *flags, command=f"{sys.executable} {fake} --learning-rate 0.1")
    assert "4 done, 0 skipped" in other.stdout and len(folders(fake)) == 8
    alone = [starts(folder)[0] for folder in folders(fake) if "--learn" in starts(folder)[0]]
    assert len(alone) == 4 and all(line.endswith("OMP=unset") for line in alone)


def test_workers_share_the_cpus(fake, monkeypatch):
    module = load_program("run.py")
    monkeypatch.setattr(module.os, "cpu_count", lambda: 14)
    for workers, threads in ((1, None), (4, 3), (20, 1)):
        args = module.Args(command=f"python {fake}", env_ids=["A-v0"], workers=workers)
        assert {task.threads for task in module.expand(args)} == {threads}


def test_failing_run_is_loud_and_the_others_go_on(fake):
    result = run_command(fake, "--env-ids", "Fail-v0", "Dishonest-v0", "A-v0", "--num-seeds", "1")
    assert result.returncode == 1
    assert "1 done, 0 skipped, 2 failed" in result.stdout
    assert "FAILED   Fail-v0 seed 1: exit code 1" in result.stderr
    assert "  | line 49\n  | RuntimeError: the loss is not finite" in result.stderr
    assert "line 20\n" not in result.stderr, "only the tail of the log"
    assert "Dishonest-v0 seed 1: exit code 0, but no finished run folder" in result.stderr


@pytest.mark.parametrize(("signum", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_runs_save_and_are_resumed(fake, signum, exit_code, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "3", "--workers", "2")
    process = subprocess.Popen(runner(fake, *flags), stdout=subprocess.PIPE, text=True)
    wait_until_running(fake, 2)
    process.send_signal(signum)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == exit_code
    assert "the same command again goes on" in output and "3 stopped" in output
    cut_off = folders(fake)
    assert len(cut_off) == 2, "the third run must not start"
    assert [(folder / "signals.txt").read_text() for folder in cut_off] == ["1", "1"]

    # The third one is started afresh: let it end by itself.
    fake.write_text(FAKE.replace('startswith("Slow")', 'startswith("Never")'))
    again = run_command(fake, *flags)
    assert again.returncode == 0 and "3 done" in again.stdout, again.stderr
    assert "was made by a different fake.py" in again.stderr
    for folder in cut_off:
        first, second = starts(folder)
        assert "--env-id Slow-v0" in first
        assert second == f"--resume {folder} OMP=3", "the user's choice stays"
        argv = json.loads((folder / "args.json").read_text())["argv"]
        assert argv[:2] == ["--env-id", "Slow-v0"]
    assert len(folders(fake)) == 3
    assert "0 done, 3 skipped" in run_command(fake, *flags).stdout


def test_second_signal_kills_and_a_killed_run_is_resumed(fake):
    fake.write_text(FAKE.replace("while not codes and", "while"))  # deaf to signals
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "1")
    process = subprocess.Popen(runner(fake, *flags), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    wait_until_running(fake, 1)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().startswith("stopping")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130
    again = run_command(fake, *flags)
    assert "1 done" in again.stdout and len(folders(fake)) == 1


def test_signal_during_the_answer_to_the_first_is_not_lost(fake, monkeypatch):
    fake.write_text(FAKE.replace("while not codes and", "while"))  # deaf to signals
    module = load_program("run.py")
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest keeps its own handlers
    signals = module.Signals()

    def say(progress: object, text: str, error: bool = False) -> None:
        signals.received.extend([signal.SIGINT] * text.startswith("stopping"))

    def press() -> None:
        wait_until_running(fake, 1)
        signals.received.append(signal.SIGINT)

    monkeypatch.setattr(module, "Signals", lambda: signals)
    monkeypatch.setattr(module.Progress, "say", say)
    words = runner(fake, "--env-ids", "Slow-v0", "--num-seeds", "1")
    monkeypatch.setattr(sys, "argv", words[1:])
    threading.Thread(target=press).start()
    assert module.main() == 130 and len(signals.received) == 2
    assert not list(fake.parent.glob("runs/*/signals.txt")), "killed, not left to its end"


def test_run_of_another_process_is_left_alone(fake):
    log = fake.parent / "runs" / "logs" / "A-v0__1.log"
    log.parent.mkdir(parents=True)
    with open(log, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = run_command(fake, "--env-ids", "A-v0", "--num-seeds", "1")
    assert result.returncode == 1 and "already running" in result.stderr and not folders(fake)


@pytest.mark.parametrize(
    ("flags", "command", "message"),
    [
        (("--env-ids", "A-v0", "--workers", "0"), "", "--workers must be at least 1"),
        (("--env-ids", "A-v0", "--num-seeds", "0"), "", "--num-seeds must be at least 1"),
        (("--env-ids", "A-v0", "--start-seed", "-1"), "", "--start-seed must not be negative"),
        (("--env-ids",), "", "--env-ids is empty"),
        (("--env-ids", "A-v0", "A-v0"), "", "twice"),
        (("--env-ids", "A-v0"), "python nowhere.py", "there is no file nowhere.py"),
        (("--env-ids", "A-v0"), "python", "names no .py script"),
        (("--env-ids", "A-v0"), "python 'fake.py", "No closing quotation"),
        (("--env-ids", "A-v0"), "no-such-program FAKE", "cannot run no-such-program"),
        (("--env-ids", "A-v0"), "python FAKE --seed=3", "must not contain --seed"),
        (("--env-ids", "A-v0", "--runs-dir", "FAKE"), "", "is not a folder"),
        (("--env-ids", "A-v0", "--gpus", "1"), "", "--hours need --launcher slurm"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(fake, flags, command, message, monkeypatch, capsys):
    module = load_program("run.py")
    words = runner(
        fake,
        *(flag.replace("FAKE", str(fake)) for flag in flags),
        command=command.replace("FAKE", str(fake)).replace("python", sys.executable),
    )
    monkeypatch.setattr(sys, "argv", words[1:])
    with pytest.raises(SystemExit) as stop:
        module.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert list(fake.parent.iterdir()) == [fake], "nothing is created"


@pytest.mark.parametrize("script", sorted(path.name for path in BENCHMARK.glob("*.sh")))
def test_dry_run_of_a_benchmark_lists_its_runs_and_draws_nothing(script, tmp_path):
    stand_in = tmp_path / "uv"  # uv run benchmark/run.py ...: with this Python
    stand_in.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} "$@"\n')
    stand_in.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["bash", str(BENCHMARK / script), "--num-seeds", "1", "--dry-run"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    assert re.fullmatch(r"(uv run .*ppo/\w+\.py .*--env-id \S+ --seed 1 .*\n)+", done.stdout)
    chosen = subprocess.run(
        [*words, "--env-ids", "A-v0"], env=env, capture_output=True, text=True, timeout=60
    )
    variants = 2 if "multidiscrete" in script else 1
    assert chosen.stdout.count("--env-id A-v0 ") == chosen.stdout.count("\n") == variants


def test_settings_ignore_where_a_run_is_kept():
    settings = load_program("run.py").settings
    argv = ["--runs-dir=a", "--gamma", "0.9", "--resume", "b", "--runs_dir", "c", "--seed", "1"]
    assert settings(argv) == ["--gamma", "0.9", "--seed", "1"]


def test_runs_of_another_number_of_processes_are_other_runs(fake):
    module = load_program("run.py")
    folder = fake.parent / "runs" / "A-v0__fake__1__x"
    folder.mkdir(parents=True)
    (folder / "agent.pt").touch()
    facts = {"script": "fake.py", "argv": ["--env-id", "A-v0", "--seed", "1"]}

    def found(command: str) -> bool:
        args = module.Args(command=command, env_ids=["A-v0"], runs_dir=fake.parent / "runs")
        return module.find_run(module.expand(args)[0])[1]

    two, four = (f"torchrun --nnodes=1 --nproc_per_node={n} {fake}" for n in (2, 4))
    (folder / "args.json").write_text(json.dumps(facts))
    assert found(f"python {fake}") and not found(two)
    (folder / "args.json").write_text(json.dumps(facts | {"processes": "2"}))
    assert found(two) and not found(four) and not found(f"python {fake}")
    assert found(f"torchrun --nproc-per-node 2 {fake}")
    assert found(f"torchrun --nnodes 1:2 --nproc-per-node gpu {fake}"), "not known beforehand"


def test_what_a_script_prints_is_understood(fake):
    """The runner reads how far a run is, the comparison of speed how fast it was."""
    printed = finished_run().stdout
    module = load_program("run.py")
    args = module.Args(f"python {fake}", env_ids=["A-v0"], runs_dir=fake.parent / "runs")
    (task,) = module.expand(args)[:1]
    task.log.parent.mkdir(parents=True)
    for shown, lines in (("  0%", 2), ("100%", None)):
        task.log.write_text("$ python ppo.py\n" + "\n".join(printed.splitlines()[:lines]))
        assert module.percent(task) == shown
    speed = load_program("speed.py")
    ours = speed.contenders(speed.Args(sb3=False))[0]
    assert printed.count("steps/s") > 1
    (found,) = re.findall(ours.pattern, printed)
    assert float(found.replace(",", "")) > 0


# ------ SLURM ------
@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        try:
            environment = stack.enter_context(
                slurm_cluster.cluster(tmp_path_factory.mktemp("slurm"))
            )
        except RuntimeError as error:
            pytest.skip(str(error))
        yield environment


@pytest.fixture
def in_slurm(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The flag for it; the processes that are started find the cluster."""
    monkeypatch.setenv("SLURM_CONF", cluster["SLURM_CONF"])
    return ("--launcher", "slurm")


def test_slurm_runs_the_list_and_failures_are_loud(fake, in_slurm, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    flags = ("--env-ids", "A-v0", "Fail-v0", "--num-seeds", "2", "--workers", "3", *in_slurm)
    first = run_command(
        fake, *flags, "--partition", "gpu", "--gpus", "1", "--cpus", "2", "--hours", "0.5"
    )
    assert first.returncode == 1, first.stderr
    assert "4 runs: 2 done, 0 skipped, 2 failed" in first.stdout
    assert "FAILED   Fail-v0 seed 1: exit code 1" in first.stderr
    assert "  | line 49\n  | RuntimeError: the loss is not finite" in first.stderr
    (asked,) = (fake.parent / "runs" / "logs" / "slurm").glob("*_submission.sh")
    wanted = {"array": "0-3%3", "partition": "gpu", "gpus-per-node": 1, "cpus-per-task": 2}
    for flag, value in (wanted | {"time": 30}).items():
        assert f"#SBATCH --{flag}={value}\n" in asked.read_text()
    names = {folder.name.split("__")[0] for folder in folders(fake)}
    assert len(folders(fake)) == 4 and names == {"A-v0", "Fail-v0"}
    assert all(starts(folder)[0].endswith("OMP=2") for folder in folders(fake))

    fake.write_text(FAKE.replace('startswith("Fail")', 'startswith("Never")'))
    again = run_command(fake, *flags)
    assert again.returncode == 0, again.stderr
    assert "2 done, 2 skipped, 0 failed" in again.stdout and len(folders(fake)) == 4
    assert "4 skipped" in run_command(fake, *flags).stdout


def test_slurm_runs_that_are_stopped_save_and_are_resumed(fake, in_slurm):
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "3", "--workers", "2", *in_slurm)
    process = subprocess.Popen(runner(fake, *flags), stdout=subprocess.PIPE, text=True)
    wait_until_running(fake, 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command again goes on" in output and "3 stopped" in output
    assert [(folder / "signals.txt").read_text() for folder in folders(fake)] == ["1", "1"]
    cut_off = folders(fake)
    fake.write_text(FAKE.replace('startswith("Slow")', 'startswith("Never")'))
    again = run_command(fake, *flags)
    assert again.returncode == 0 and "3 done" in again.stdout, again.stderr
    assert all(starts(folder)[1].startswith(f"--resume {folder}") for folder in cut_off)


def test_slurm_run_that_reaches_the_time_limit_goes_on_in_another_job(fake, in_slurm, cluster):
    """SLURM warns all processes of a job some time before. Only ours may take notice."""
    flags = ("--env-ids", "Slow-v0", "--num-seeds", "1", *in_slurm)
    process = subprocess.Popen(runner(fake, *flags), stdout=subprocess.PIPE, text=True)
    wait_until_running(fake, 1)
    job = slurm_cluster.ask("squeue", "--noheader", "--format=%i", env=cluster).strip()
    slurm_cluster.ask("scancel", "--signal=USR2", job, env=cluster)
    output, _ = process.communicate(timeout=50)
    assert process.returncode == 0 and "1 done" in output
    (folder,) = folders(fake)
    assert (folder / "signals.txt").read_text() == "1"
    assert len(starts(folder)) == 2 and starts(folder)[1].startswith(f"--resume {folder}")


IMPATIENT = """
import importlib.util, sys
import cloudpickle
spec = importlib.util.spec_from_file_location("impatient", sys.argv.pop(1))
module = sys.modules["impatient"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
cloudpickle.register_pickle_by_value(module)  # as of a program, which this is not here
module.LOST = 1
sys.exit(module.main())
"""


def test_slurm_job_without_a_result_is_a_failure(fake, in_slurm, cluster):
    """As when a machine of the cluster is gone."""
    _, program, *flags = runner(fake, "--env-ids", "Slow-v0", "--num-seeds", "1", *in_slurm)
    command = [sys.executable, "-c", IMPATIENT, program, *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until_running(fake, 1)
    its_name = f"submitit.core._submit {fake.parent}"
    for pid in slurm_cluster.ask("pgrep", "-f", its_name, env=cluster).split():
        os.kill(int(pid), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "ended without a result" in errors, errors


@pytest.mark.parametrize("flags", [("--partition", "nowhere"), ("--gpus", "7")])
def test_what_slurm_refuses_is_told_and_exit_code_2(fake, in_slurm, flags):
    result = run_command(fake, "--env-ids", "A-v0", *in_slurm, *flags)
    assert result.returncode == 2 and not folders(fake) and "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: sbatch: ")


def test_without_slurm_it_is_said(fake, monkeypatch):
    monkeypatch.setenv("PATH", "")
    result = run_command(fake, "--env-ids", "A-v0", "--launcher", "slurm")
    assert result.returncode == 2 and "there is no sbatch on this machine" in result.stderr


# ------ plots ------


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    return load_program("plot.py")


NOON = 1_790_000_000.0  # some wall-clock time


def make_run(
    runs_dir: Path,
    env_id: str,
    seed: int,
    parts: list[dict],
    finished: bool = True,
    name: str = "ppo",
    ended: str = "20261120-120000",
    tag: str = "charts/episodic_return",
) -> Path:
    """A run folder with one event file for each part: start (s), purge_step, episodes, last step.

    An episode is (step, seconds since the part's start, return).
    """
    folder = runs_dir / f"{env_id}__{name}__{seed}__{ended}"
    folder.mkdir(parents=True)
    facts = {
        "script": f"{name.partition('-')[0]}.py",
        "argv": ["--env-id", env_id, "--seed", str(seed)],
        "args": {"env_id": env_id, "seed": seed, "gamma": 0.99},
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "hardware": "cpu",
    }
    (folder / "args.json").write_text(json.dumps(facts))
    (folder / "checkpoint.pt").touch()
    if finished:
        (folder / "agent.pt").touch()
    for number, part in enumerate(parts):
        begin = NOON + part["start"]
        with pytest.MonkeyPatch.context() as patch:  # the file's first event has the time of day
            patch.setattr(time, "time", lambda begin=begin: begin)
            writer = SummaryWriter(
                str(folder), purge_step=part.get("purge_step"), filename_suffix=f".{number}"
            )
        for step, seconds, value in part["episodes"]:
            writer.add_scalar(tag, value, step, walltime=begin + seconds)
        step, seconds = part["last"]
        writer.add_scalar("charts/SPS", 100.0, step, walltime=begin + seconds)
        writer.close()
    return folder


def episodes(values: np.ndarray, step: int = 10) -> list[tuple[int, float, float]]:
    return [(step * (i + 1), 0.6 * (i + 1), float(value)) for i, value in enumerate(values)]


def test_writes_curves_scores_table_and_picture(plot, tmp_path, monkeypatch, capsys):
    runs_dir, out = tmp_path / "runs", tmp_path / "out"
    last = (5000, 300.0)
    values = {seed: np.r_[np.full(400, 20.0), np.arange(100) + 100.0 * seed] for seed in (1, 2, 3)}
    for seed, returns in values.items():
        part = {"start": 0, "episodes": episodes(returns), "last": last}
        make_run(runs_dir, "CartPole-v1", seed, [part])
    part = {"start": 0, "episodes": episodes(np.full(7, -5.0), step=700), "last": last}
    make_run(runs_dir, "Own-v0", 1, [part])
    make_run(runs_dir, "Own-v0", 2, [part], finished=False)
    (runs_dir / "logs").mkdir()

    argv = ["plot.py", "--runs-dir", str(runs_dir), "--out", str(out), "--name", "results"]
    monkeypatch.setattr(sys, "argv", argv)
    assert plot.main() == 0
    warnings = capsys.readouterr().err
    assert "Own-v0__ppo__2__20261120-120000 is left out: not finished" in warnings

    with open(out / "results_scores.csv") as file:
        scores = list(csv.DictReader(file))
    assert [(row["env_id"], row["seed"], float(row["score"])) for row in scores] == [
        ("CartPole-v1", "1", 149.5),
        ("CartPole-v1", "2", 249.5),
        ("CartPole-v1", "3", 349.5),
        ("Own-v0", "1", -5.0),
    ]
    assert scores[0]["steps"] == "5000" and scores[0]["minutes"] == "5.00"

    with open(out / "results.csv") as file:
        points = list(csv.DictReader(file))
    curve = [row for row in points if row["env_id"] == "CartPole-v1" and row["seed"] == "2"]
    assert len(curve) == 200
    assert {row["env_id"] for row in points} == {"CartPole-v1", "Own-v0"}
    middle = next(row for row in curve if row["global_step"] == "4500")  # 450 episodes
    assert float(middle["return"]) == pytest.approx(values[2][350:450].mean(), abs=0.01)
    assert float(middle["minutes"]) == pytest.approx(4.5, abs=0.001)
    own = [row for row in points if row["env_id"] == "Own-v0"]
    assert all(int(row["global_step"]) >= 700 for row in own), "no point before the first episode"

    table = (out / "results.md").read_text()
    assert "| environment | `ppo.py` | CleanRL | openai/baselines | steps | minutes |" in table
    assert "| CartPole-v1 | 249.50 ± 100.00 (3 seeds) | 490.04 ± 6.12 (after 500k steps) |" in table
    assert "| Own-v0 | -5.00 (1 seed) | - | - | 5k | 5.0 |" in table
    assert "Ours were made with python 3.11.7 torch 2.13.0 on cpu." in table
    assert "Left out, not finished: Own-v0 seed 2." in table
    assert "Fewer than 100 episodes, all of them counted: Own-v0 seed 1 (7)." in table
    assert "docs/rl-algorithms/ppo" in table

    picture = (out / "results.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and 10_000 < len(picture) < 150_000
    assert picture[25] == 3, "with a palette: a full benchmark stays below 150 kB"


def test_other_programs_runs_are_shown_beside(plot, tmp_path, monkeypatch):
    """At the steps of ours, wherever they ended; folders that are no runs are passed over."""
    ours, theirs, out = tmp_path / "runs", tmp_path / "theirs", tmp_path / "out"
    part = {"start": 0, "episodes": episodes(np.full(300, 7.0)), "last": (3000, 180.0)}
    make_run(ours, "CartPole-v1", 1, [part])
    for seed, steps in ((1, 6000), (2, 2000)):
        part = {"start": 0, "episodes": episodes(np.arange(steps // 10)), "last": (steps, 360.0)}
        (make_run(theirs, "CartPole-v1", seed, [part]) / "args.json").unlink()
    (theirs / "notes").mkdir()
    argv = ["plot.py", "--runs-dir", str(ours), "--out", str(out), "--beside", f"Peer={theirs}"]
    monkeypatch.setattr(sys, "argv", argv)
    assert plot.main() == 0
    table = (out / "ppo.md").read_text()
    header = "| environment | `ppo.py` | Peer, run beside it | CleanRL | openai/baselines | steps |"
    assert header in table
    assert "| CartPole-v1 | 7.00 (1 seed) | 199.50 ± 70.71 (2 seeds) |" in table  # 249.5, 149.5
    assert "CartPole-v1__ppo__2__20261120-120000 ended after 2,000 steps." in table
    with open(out / "ppo_peer.csv") as file:
        points = [row for row in csv.DictReader(file) if row["seed"] == "1"]
    assert (points[99]["global_step"], points[99]["return"]) == ("3000", "249.50")


def test_lengths_of_self_play_are_called_so_and_stand_beside_lengths(plot, tmp_path, monkeypatch):
    ours, theirs, out = tmp_path / "runs", tmp_path / "theirs", tmp_path / "out"
    part = {"start": 0, "episodes": episodes(np.full(200, 1300.0)), "last": (2000, 180.0)}
    facts = {"name": "ppo_pettingzoo_ma_atari", "tag": "charts/episodic_length-player0"}
    make_run(ours, "pong_v3", 1, [part], **facts)
    part["episodes"] = episodes(np.full(200, 1200.0))
    make_run(theirs, "pong_v3", 1, [part], tag=facts["tag"])
    make_run(ours, "pong_v3", 2, [part], finished=False, name="ppo")  # another script's
    silent = {"start": 0, "episodes": [], "last": (100, 9.0)}
    make_run(ours, "CartPole-v1", 3, [silent], name="ppo")
    argv = ["plot.py", "--runs-dir", str(ours), "--out", str(out), "--beside", f"Peer={theirs}"]
    monkeypatch.setattr(sys, "argv", argv)
    assert plot.main() == 0
    table = (out / "ppo_pettingzoo_ma_atari.md").read_text()
    assert "| pong_v3 | 1300.00 (1 seed) | 1200.00 (1 seed) |" in table
    assert "mean length of its last" in table and "eft out" not in table
    for name in ("ppo_pettingzoo_ma_atari", "ppo_pettingzoo_ma_atari_peer"):
        header, row, *_ = (out / f"{name}.csv").read_text().splitlines()
        assert header.endswith(",minutes,length") and row.endswith("00.00")


def test_the_newest_of_several_runs_counts(plot, tmp_path, capsys):
    part = {"start": 0, "episodes": episodes(np.full(9, 1.0)), "last": (90, 9.0)}
    make_run(tmp_path, "A-v0", 1, [part], name="ppo-zz", ended="20260101-120000")
    newest = make_run(tmp_path, "A-v0", 1, [part], name="ppo-a", ended="20260901-120000")
    make_run(tmp_path, "A-v0", 1, [part], name="ppo-m", ended="20260501-120000")
    assert [run.folder for run in plot.read_runs(tmp_path)[0]["A-v0"]] == [newest]
    assert "zz__1__20260101-120000 is left out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Peer", "a peer whose name takes half of the picture's width"])
def test_legend_is_as_wide_as_the_picture_at_most(plot, name, tmp_path, monkeypatch):
    part = {"start": 0, "episodes": episodes(np.full(20, 9.0)), "last": (400_000, 60.0)}
    run = make_run(tmp_path / "runs", "CartPole-v1", 1, [part])
    argv = ["plot.py", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    argv += ["--beside", f"{name}={run.parent}"]
    monkeypatch.setattr(sys, "argv", argv)
    assert plot.main() == 0
    with plot.Image.open(tmp_path / "out" / "ppo.png") as picture:
        dark = np.array(picture.convert("L")) < 200
    legend = np.flatnonzero(dark[-45:].any(0))  # its columns; the axes' labels are above
    assert len(legend)
    assert legend[0] > 3 and legend[-1] < dark.shape[1] - 3


@pytest.mark.parametrize(("steps", "drawn"), [(5000, []), (400_000, [490.04, 497.54])])
def test_scores_of_much_longer_runs_are_not_drawn(plot, steps, drawn, tmp_path, monkeypatch):
    """The published runs did 500,000 steps: 490.04 in CleanRL, 497.54 in baselines."""
    part = {"start": 0, "episodes": episodes(np.full(20, 9.0)), "last": (steps, 60.0)}
    make_run(tmp_path / "runs", "CartPole-v1", 1, [part])
    argv = ["plot.py", "--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", argv)
    found, axhline = set(), plot.plt.Axes.axhline

    def spy(axes, y, **options):
        found.add(y)
        return axhline(axes, y, **options)

    monkeypatch.setattr(plot.plt.Axes, "axhline", spy)
    assert plot.main() == 0
    assert sorted(found) == drawn
    assert "497.54" in (tmp_path / "out" / "ppo.md").read_text()


def test_resumed_run_drops_superseded_episodes_and_the_pause(plot, tmp_path):
    first = {
        "start": 0,
        "episodes": [(100, 60.0, 1.0), (200, 120.0, 2.0), (300, 180.0, 3.0)],
        "last": (300, 180.0),
    }
    second = {  # an hour later, from the checkpoint at step 200
        "start": 3600,
        "purge_step": 201,
        "episodes": [(290, 60.0, 30.0), (390, 120.0, 40.0)],
        "last": (400, 180.0),
    }
    folder = make_run(tmp_path, "CartPole-v1", 1, [first, second])
    found, last_step, total_minutes = plot.read_events(folder)
    assert [(step, value) for step, _, value in found] == [(100, 1), (200, 2), (290, 30), (390, 40)]
    assert [minutes for _, minutes, _ in found] == pytest.approx([1, 2, 4, 5])
    assert last_step == 400 and total_minutes == pytest.approx(6)
    second["episodes"], second["last"] = [(230, 30.0, 30.0)], (240, 60.0)  # ends before the first
    shorter = make_run(tmp_path / "shorter", "CartPole-v1", 1, [first, second])
    assert plot.read_events(shorter)[1] == 240

    accumulator = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    expected = [(e.step, e.value) for e in accumulator.Scalars("charts/episodic_return")]
    assert [(step, value) for step, _, value in found] == expected


def test_rolling_mean_and_held_values(plot):
    x = np.random.default_rng(0).normal(size=250)
    expected = [x[max(0, i - 99) : i + 1].mean() for i in range(250)]
    assert np.allclose(plot.rolling_mean(x), expected)
    held = plot.value_at(np.array([0, 1, 2.5, 9]), np.array([1, 2, 3]), np.array([10, 20, 30]))
    assert np.array_equal(held, [np.nan, 10, 20, 30], equal_nan=True)


def test_confidence_is_students_interval(plot):
    mean, half = plot.confidence(np.array([[1.0], [2.0], [3.0]]))
    assert mean[0] == 2 and half[0] == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5)


@pytest.mark.parametrize("case", ["no folder", "no finished run", "two scripts", "beside"])
def test_plot_rejects_bad_input(plot, case, tmp_path, monkeypatch, capsys):
    part = {"start": 0, "episodes": [(100, 60.0, 1.0)], "last": (100, 60.0)}
    runs_dir = tmp_path / "runs"
    if case != "no folder":
        folder = make_run(runs_dir, "A-v0", 1, [part], finished=case != "no finished run")
    if case == "two scripts":
        make_run(runs_dir, "A-v0", 2, [part])
        facts = (folder / "args.json").read_text().replace("ppo.py", "ppo_atari.py")
        (folder / "args.json").write_text(facts)
    out = tmp_path / "out"
    argv = ["plot.py", "--runs-dir", str(runs_dir), "--out", str(out)]
    argv += ["--beside", "Peer"] if case == "beside" else []
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as stop:
        plot.main()
    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert stop.value.code == 2 and len(errors) == 1 and not out.exists()
