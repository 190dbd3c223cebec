"""benchmark/speed.py: what it runs, what it measures, and what its tables say."""

import re
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import speed
from helpers import command_line, processes
from helpers.benchmark_runs import run_program
from helpers.in_process import load_program
from sync import Collection

# Uses the CPU for a start and for its steps, and is as slow as these are.
BUSY = """
import sys, time
class Args:
    num_envs: int = 4
    num_steps: int = 1
steps = int(sys.argv[sys.argv.index("--total-timesteps") + 1])
while time.process_time() < 0.3 + steps / {rate}:
    pass
"""


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    """A folder with what looks like clones of CleanRL and LeanRL."""
    for folder, name in (("cleanrl", "ppo.py"), ("leanrl", "ppo_atari_envpool_torchcompile.py")):
        (tmp_path / folder / folder).mkdir(parents=True)
        (tmp_path / folder / folder / name).touch()
    return tmp_path


def test_start_and_first_iterations_count_for_nobody(tmp_path):
    script = tmp_path / "busy.py"
    script.write_text(BUSY.format(rate=2000))
    program = speed.Program("busy", [sys.executable, str(script)])
    found, memory = speed.measure(program, speed.Args(steps=2048))
    assert found == pytest.approx(2000, rel=0.2) and memory > 1


def test_a_score_that_is_not_reached_counts_as_infinitely_late(monkeypatch, capsys):
    nan = float("nan")
    seconds = {1: 100.0, 2: nan, 3: nan}
    warm = []  # what has been run once, untimed
    monkeypatch.setattr(speed, "measure", lambda program, _: warm.append(program.name))
    monkeypatch.setattr(
        speed, "time_to_score", lambda _, seed, __: {"seconds": seconds[seed], "steps": nan}
    )
    args = speed.Args(until=475, rounds=3)
    speed.compare_times(args, [speed.Program("mostly not", [])])
    assert capsys.readouterr().out.split()[-3:] == ["not", "inf", "inf"]
    assert warm == ["mostly not"]


def test_a_program_without_the_return_has_no_time(tmp_path, capsys):
    script = tmp_path / "lengths.py"
    script.write_text(
        "from torch.utils.tensorboard import SummaryWriter\n"
        "SummaryWriter('runs').add_scalar('charts/episodic_length', 3, 1)\n"
    )
    with pytest.raises(SystemExit):
        program = speed.Program("x", [sys.executable, str(script)])
        speed.time_to_score(program, 1, speed.Args(until=475))
    assert "x logs no charts/episodic_return" in capsys.readouterr().err


def test_a_program_that_fails_ends_it_with_what_it_printed(tmp_path, capfd):
    program = speed.Program("x", [sys.executable, "-c", "raise SystemExit('no such game')"])
    with pytest.raises(SystemExit) as stop:
        speed.measure(program, speed.Args(steps=512))
    assert stop.value.code == 1 and "no such game" in capfd.readouterr().err


def test_sigterm_ends_what_is_being_measured(tmp_path):
    words = ("--plain", "--no-sb3", "--steps", "100000000", "--ppo-python", sys.executable)
    started = processes.start([sys.executable, speed.__file__, *words], tmp_path)
    measured = command_line.wait_until(lambda: command_line.children(started.pid))
    time.sleep(0.5)  # until Popen has returned
    started.terminate()
    assert started.wait(30) == 143
    command_line.wait_until(lambda: not measured & command_line.parents().keys(), seconds=5)


def test_all_train_the_same_environment(clones):
    args = speed.Args(cleanrl=clones / "cleanrl", threads=3)
    ours, compiled, cleanrl, sb3 = speed.programs(args)
    assert [ours.name, compiled.name, cleanrl.name, sb3.name] == [
        "ppo.py",
        "ppo.py --compile",
        "CleanRL ppo.py",
        "SB3 PPO",
    ]
    for program in (ours, compiled, cleanrl, sb3):
        assert program.command[program.command.index("--env-id") + 1] == "CartPole-v1"
    assert "--torch-threads" in ours.command and "3" in ours.command


def test_all_train_on_the_same_device():
    for cuda, ours, sb3 in ((True, "--cuda", "cuda"), (False, "--no-cuda", "cpu")):
        first, *_, last = speed.programs(speed.Args(cuda=cuda))
        assert ours in first.command
        assert (first.command[-2:] == ["--device", "cuda"]) == cuda
        assert last.command[last.command.index("--device") + 1] == sb3


@pytest.mark.parametrize("script", Collection().scripts())
def test_two_rollouts_of_a_script_are_the_short_run(script, monkeypatch):
    """Also where the flag of the environments has an alias, and with --vary."""
    asked = []

    def train(_program: speed.Program, more: list[str], *_: object) -> speed.Ended:
        asked.append(int(more[1]))
        return speed.Ended(0.0, wall=len(asked), cpu=len(asked), memory=1.0)

    monkeypatch.setattr(speed, "train", train)
    for program in speed.programs(speed.Args(script=script, vary="num_steps=3,5")):
        speed.measure(program, speed.Args(script=script))
    source = (speed.PPO / script).read_text()
    (num_envs,) = re.findall(r"^    num_envs: .* = (\d+)  # ", source, re.MULTILINE)
    assert asked[::2] == [2 * 3 * int(num_envs), 2 * 5 * int(num_envs)]


def test_games_have_their_fast_variants(clones):
    args = speed.Args(script="ppo_atari_envpool.py", leanrl=clones / "leanrl")
    names = [program.name.partition(" ")[2] for program in speed.programs(args)]
    assert names == ["", "--compile", "--bf16", "ppo_atari_envpool_torchcompile.py --compile"]


def test_ratios_are_formed_within_a_round():
    """The machine is half as fast in the second round; the ratio is not."""
    rows = [
        {"round": number, "program": name, "steps_per_second": rate * pace, "memory_mib": 9}
        for number, pace in ((1, 1.0), (2, 0.5), (3, 0.8))
        for name, rate in (("ours", 300), ("theirs", 100))
    ]
    table = speed.speed_table(pd.DataFrame(rows), "theirs").set_index("program")
    assert table.loc["ours", ["ratio", "ratio_low", "ratio_high"]].tolist() == pytest.approx(
        [3] * 3
    )
    assert table.loc["ours", "steps_per_second"] == 240
    assert table.loc["theirs", "low"] == 50


def test_the_script_is_measured_with_each_value_of_a_flag(tmp_path, monkeypatch):
    (tmp_path / "ppo.py").write_text(BUSY.format(rate=2000))
    monkeypatch.setattr(load_program("speed.py"), "PPO", tmp_path)
    words = ("--vary", "num_envs=1,8", "--steps", "800", "--rounds", "1")
    out = tmp_path / "scaling.csv"
    done = run_program("speed.py", *words, "--ppo-python", sys.executable, "--out", str(out))
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(out).set_index("program")
    assert list(table.index) == ["ppo.py --num-envs 1", "ppo.py --num-envs 8"]
    assert table.steps_per_second.tolist() == pytest.approx([2000, 2000], rel=0.2)


def test_time_until_a_score_counts_from_the_start_of_the_process(tmp_path):
    """A hundred random episodes of CartPole have a mean of about 20."""
    words = ("--plain", "--no-sb3", "--rounds", "1", "--steps", "8192", "--until", "10")
    out = tmp_path / "solved.csv"
    flags = ("--ppo-python", sys.executable, "--out", str(out))
    assert run_program("speed.py", *words, *flags).returncode == 0
    (row,) = pd.read_csv(out).itertuples()
    assert row.seconds > 1 and 1000 < row.steps < 8192
