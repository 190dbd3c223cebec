"""gpu.sh and gpu.py, on the CPU: what they run, how they judge it, and what they write."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.benchmark_runs import BENCHMARK
from helpers.command_line import PPO, environment
from helpers.in_process import load_program
from helpers.warm_processes import WarmCommand
from sync import Collection

gpu = load_program("gpu.py")
speed = gpu.speed
FACTS = {"Python": "3.11", "torch": "2.15", "GPU": "none"}
CPU = gpu.Machine(FACTS, 0, ())


def warm(command: list[str], folder: Any, variables: Any, limit: float) -> Any:
    """What speed.run_command does with a Python program, in a process that has imported torch."""
    process = WarmCommand(command[1:], Path(folder), environment(Path(folder)))
    stdout, stderr = process.communicate(timeout=min(limit, 60))
    return speed.Ended(process.wait(), stdout + stderr, 100.0, False)


@pytest.fixture
def run_gpu(tmp_path, monkeypatch, capsys):
    """A function that runs gpu.py with flags; its exit code, table and rows, and what it printed.

    machine: what the interpreter of the scripts finds.
    """
    monkeypatch.setattr(speed, "run_command", warm)

    def run(*flags: str, machine: Any = CPU) -> tuple[int, str, list[dict[str, str]]]:
        handler = signal.getsignal(signal.SIGTERM)
        monkeypatch.setattr(gpu, "probe", lambda python: machine)
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", ["gpu.py", *flags, "--out", str(out)])
        try:
            code = gpu.main()
        finally:
            signal.signal(signal.SIGTERM, handler)
        table = (out / f"{flags[0]}.md").read_text()
        assert table in capsys.readouterr().out
        with open(out / f"{flags[0]}.csv", newline="") as file:
            return code, table, list(csv.DictReader(file))

    return run


def outcomes(rows: list[dict[str, str]]) -> dict[str, str]:
    """How the runs went, by name."""
    return {row["run"]: row["outcome"] for row in rows}


# ------ check ------
def test_a_script_is_trained_and_filmed_and_one_without_its_package_skipped(run_gpu, tmp_path):
    scripts = ("--scripts", "ppo.py", "ppo_procgen.py")
    machine = gpu.Machine(FACTS, 0, ("procgen",))
    flags = ("--plain", "--steps", "1024")
    code, table, rows = run_gpu("check", *scripts, *flags, machine=machine)
    assert code == 0
    wanted = {"ppo.py": "ok", "evaluate.py, ppo.py": "ok", "ppo_procgen.py": "skipped"}
    assert outcomes(rows) == wanted
    trained, played, skipped = rows
    assert (trained["steps"], trained["device"], trained["torch"]) == ("1024", "cpu", "2.15")
    assert float(trained["speed"]) > 0
    assert trained["note"] == "finite metrics, too few steps to learn"
    assert played["note"].startswith("episode 1: return ") and played["note"].endswith("; 1 film")
    assert skipped["note"] == "skipped: no module procgen"
    assert table.startswith("# gpu.sh check: 2 ok, 0 FAILED, 1 skipped\n")
    assert "| ppo_procgen.py | skipped | skipped: no module procgen |" in table
    assert "Python 3.11, torch 2.15, GPU none." in table
    log = next((tmp_path / "out").glob("check-*/00-ppo/log.txt")).read_text()
    assert log.count("\n$ ") == 1 and "--device cpu --total-timesteps 1024" in log


def test_a_script_that_crashes_is_a_row_and_exit_code_1(run_gpu, tmp_path):
    source = (PPO / "ppo.py").read_text()
    place = "    stats = []\n"
    assert source.count(place) == 1
    (tmp_path / "ppo.py").write_text(source.replace(place, "    raise RuntimeError('no | luck')\n"))
    flags = ("--scripts", str(tmp_path / "ppo.py"), "--plain", "--steps", "1024")
    code, table, rows = run_gpu("check", *flags)
    assert code == 1 and outcomes(rows) == {"ppo.py": "FAILED"}
    assert rows[0]["note"] == "exit code 1; RuntimeError: no | luck"
    assert "| ppo.py | FAILED | exit code 1; RuntimeError: no \\| luck | cpu |" in table


def test_a_run_goes_on_on_another_device(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "run_command", warm)
    args = gpu.Args("check", steps=3072)
    (job,) = (j for j in gpu.jobs_of("ppo.py", PPO / "ppo.py", args, CPU) if len(j.devices) > 1)
    job = gpu.replace(job, folder=tmp_path)
    row, folder = gpu.train(job, sys.executable, {}, lambda: 60.0)
    assert row.run == "ppo.py resumed" and row.device == "cpu, cpu, cpu"
    assert json.loads((folder / "args.json").read_text())["args"]["total_timesteps"] == 1024
    assert len(gpu.scalars_of(folder)["losses/value_loss"]) == 6, "of all three sessions"
    assert (tmp_path / "log.txt").read_text().count(f"--resume {folder}\n") == 2


def test_without_time_nothing_is_run(run_gpu):
    code, _, rows = run_gpu("check", "--scripts", "ppo.py", "--plain", "--minutes", "0.001")
    assert code == 1 and [row["note"] for row in rows] == ["not run: no time was left"]


def test_nothing_run_is_no_success(run_gpu):
    machine = gpu.Machine(FACTS, 0, ("torch",))
    code, _, rows = run_gpu("check", "--scripts", "ppo.py", machine=machine)
    assert code == 1 and outcomes(rows) == {"all": "FAILED", "ppo.py": "skipped"}


def test_every_script_is_in_the_table():
    assert sorted(gpu.SCRIPTS) == sorted(Collection().scripts())


@pytest.mark.parametrize(("gpus", "backend"), [(0, "gloo"), (1, "gloo"), (2, "nccl")])
def test_flags_of_each_script(gpus, backend):
    machine = gpu.Machine(FACTS, gpus, ())
    args = gpu.Args("check")
    jobs = {name: [*gpu.jobs_of(name, PPO / name, args, machine)] for name in gpu.SCRIPTS}
    device = "cuda" if gpus else "cpu"
    for name, listed in jobs.items():
        assert listed[0].play and listed[0].devices == (device,)
        assert (listed[0].steps == 50_000) or not gpus
        for flag in ("--compile", "--bf16"):
            has_flag = f"{flag[2:]}: bool" in (PPO / name).read_text()
            assert sum(flag in job.flags for job in listed) == has_flag
    for name in ("ppo_atari_multigpu.py", "ppo_atari_envpool_multigpu.py"):
        one, two, *others = jobs[name]
        assert {job.processes for job in (one, *others)} == {1} and two.processes == 2
        assert two.flags[two.flags.index("--backend") + 1] == backend
        assert "--nproc_per_node=2" in gpu.command_of(two, "python")
    resumed = [job for job in jobs["ppo_atari_lstm.py"] if len(job.devices) > 1]
    assert [job.devices for job in resumed] == [("cpu", device, "cpu")]


def curve(metric: str, *values: float) -> dict[str, list[float]]:
    """Metrics of a run, one of them with these values."""
    return {"losses/value_loss": [1.0], metric: list(values)}


def test_what_counts_as_learning():
    rises = gpu.Criterion("m/x", 2.0, points=2, steps=100)
    falls = gpu.Criterion("m/x", -2.0, points=2, steps=100)
    assert gpu.judge(curve("m/x", 1, 1, 9, 2, 4), (rises,), 100) == "learns: x 1 to 3, wanted +2"
    assert gpu.judge(curve("m/x", 3, 3, 1, 1), (falls,), 100) == "learns: x 3 to 1, wanted -2"
    assert "too few steps" in gpu.judge(curve("m/x", 1, 1, 1, 1), (rises,), 99)
    for broken, why in (
        (curve("m/x", 1, 1, 2.9, 2.9), "does not learn: x 1 to 2.9"),
        (curve("m/x", 3, 3, 1, 1), "does not learn"),
        (curve("m/x", 1, 1, 3), "x was logged 3 times, not 4"),
        (curve("m/x", 1, 1, math.nan, 9, 9), "m/x is not finite"),
        ({"m/x": [1, 1, 9, 9]}, "it logged no losses"),
    ):
        with pytest.raises(gpu.Trouble, match=why):
            gpu.judge(broken, (rises,), 100)


def test_the_line_that_tells_why():
    traceback = "Traceback:\n  File x\nValueError: bad\n"
    assert gpu.reason(traceback + "torch.ChildFailedError: \n=====\nhost : x\n") == (
        "ValueError: bad"
    )
    assert gpu.reason("a\nppo.py: --device cuda: no\n") == "ppo.py: --device cuda: no"
    assert gpu.reason("killed\n\n---\n") == "killed"
    assert gpu.reason("") == "it printed nothing"


# ------ speed ------
def test_speeds_beside_a_peer_and_one_that_fails(run_gpu, tmp_path):
    for script, body in (
        ("cleanrl/ppo.py", "print('SPS: 10')"),
        ("leanrl/ppo_torchcompile.py", "raise OSError('gone')"),
    ):
        (tmp_path / script).parent.mkdir()
        (tmp_path / script).write_text(body)
    flags = ("--scripts", "ppo.py", "--plain", "--steps", "2048")
    for peer in ("cleanrl", "leanrl"):
        flags += (f"--{peer}", str(tmp_path), f"--{peer}-python", sys.executable)
    code, _, rows = run_gpu("speed", *flags)
    assert code == 1
    ours, cleanrl, leanrl = rows
    assert ours["run"] == "ppo.py"
    assert (cleanrl["run"], cleanrl["speed"], cleanrl["steps"]) == (
        "CleanRL ppo.py",
        "10.0",
        "2048",
    )
    times = float(ours["speed"]) / 10
    assert cleanrl["note"] == f"ppo.py is {times:.2f} times as fast"
    assert (leanrl["outcome"], leanrl["note"]) == ("FAILED", "exit code 1; OSError: gone")


def test_numbers_of_environments(monkeypatch):
    measured = []

    def note(contender, threads, machine, limit):
        measured.append((contender, threads))
        return gpu.Row(contender.name, "ok", "", speed=1.0)

    monkeypatch.setattr(gpu, "time_one", note)
    name = "ppo_atari_envpool_xla_jax.py"
    machine = gpu.Machine(FACTS, 1, ())
    gpu.measure({name: PPO / name}, gpu.Args("speed"), machine, lambda: 1.0)
    names = [contender.name.removeprefix(name).strip() for contender, _ in measured]
    counts = [8, 16, 32, 64, 128, 256, 512]
    assert names == ["", "--bf16", *(f"--num-envs {n}" for n in counts)]
    command = measured[-1][0].command
    assert "--compile" not in command and command.count("--device") == 1
    assert command[-4:] == ["--num-envs", "512", "--total-timesteps", str(3 * 128 * 512)]
    assert "--env-threads" in command and "--torch-threads" not in command


def test_a_command_ends_at_its_limit(tmp_path):
    words = ["sh", "-c", "echo here; exec sleep 60"]  # sh begins at once, also on a busy machine
    started = time.monotonic()
    ended = speed.run_command(words, tmp_path, dict(os.environ), 0.5)
    assert (ended.late, ended.printed, ended.exit_code) == (True, "here\n", -signal.SIGTERM)
    assert time.monotonic() - started < 30 and not speed.RUNNING


# ------ both ------
def test_the_probe_finds_versions_and_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["-c", "csv", "no_such_module"])
    jax = SimpleNamespace(__version__="0.10", default_backend=lambda: "gpu")
    monkeypatch.setitem(sys.modules, "jax", jax)  # importing it takes seconds
    exec(gpu.PROBE, {})
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["missing"] == ["no_such_module"]
    assert found["facts"]["Python"] == sys.version.split()[0]
    assert found["facts"]["jax"] == "0.10 on gpu"
    assert {"torch", "CUDA", "cuDNN", "GPU"} <= found["facts"].keys()


def test_the_answer_of_an_interpreter_is_read(tmp_path, capsys):
    python = tmp_path / "python"
    answer = {"facts": {"torch": "2", "CUDA": None}, "gpus": 2, "missing": ["jax"]}
    python.write_text(f"#!/bin/sh\necho warning\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    machine = gpu.probe(str(python))
    assert (machine.gpus, machine.missing, machine.device) == (2, ("jax",), "cuda")
    assert machine.facts["CUDA"] == "none" and machine.facts["driver"]
    python.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SystemExit) as stop:
        gpu.probe(str(python))
    assert stop.value.code == 2 and "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--python", "no-such-python"), "there is no interpreter no-such-python"),
        (("--scripts", "nothing.py"), "--scripts: nothing.py is none of"),
        (("--scripts", "nowhere/ppo.py"), "--scripts: nowhere/ppo.py is none of"),
        (("--cleanrl", "nowhere"), "--cleanrl: there is no folder nowhere"),
        (("--steps", "0"), "--steps, --minutes"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, message, run_gpu, capsys):
    with pytest.raises(SystemExit) as stop:
        run_gpu("check", *flags)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith(f"gpu.py: {message}")
    assert error.count("\n") == 1


@pytest.fixture
def commands(tmp_path):
    """A folder for the PATH: what gpu.sh needs, and a python3 that says how it was called."""
    for name in ("bash", "dirname", "env"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        (tmp_path / name).symlink_to(found.stdout.strip())
    for name in ("python3", "mine"):
        stub(tmp_path / name)
    return tmp_path


def stub(path: Path) -> None:
    """A command that prints its name and its arguments."""
    path.write_text(f'#!/bin/sh\necho {path.name} "$@"\n')
    path.chmod(0o755)


def test_the_shell_script_finds_an_interpreter(commands):
    def called(**variables: str) -> str:
        command = ["bash", str(BENCHMARK / "gpu.sh"), "check", "--plain"]
        variables["PATH"] = str(commands)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    program = "benchmark/gpu.py check --plain"
    assert called() == f"python3 {program}"
    stub(commands / "uv")
    assert called(PYTHON="mine") == f"mine {program}"
    packages = tomllib.loads((BENCHMARK.parent / "pyproject.toml").read_text())["project"]
    no_scripts = {"benchmark", "dev", "docs", "league", "microrts", "procgen"}
    needed = "".join(
        f" --extra {name}"
        for name in sorted(packages["optional-dependencies"])
        if name not in no_scripts
    )
    uname = commands / "uname"
    for machine, more in (("Darwin arm64", ""), ("Linux x86_64", " --extra procgen")):
        uname.write_text(f"#!/bin/sh\necho {machine}\n")
        uname.chmod(0o755)
        assert called() == f"uv run{needed}{more} python {program}"
    needed += " --extra procgen"
    stub(commands / "java")
    assert called() == f"uv run{needed} --extra microrts python {program}"
    stub(commands / "nvidia-smi")
    assert called().endswith(f" --with jax[cuda12] python {program}")
