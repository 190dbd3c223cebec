"""Input that cannot work: one line that names it, exit code 2, and nothing is created."""

import shlex
from pathlib import Path

import pytest
from helpers.benchmark_runs import BENCHMARK, run_program
from helpers.fake_runs import make_group

PPO = BENCHMARK.parent / "ppo" / "ppo.py"
RUN = f"--command 'python {PPO}' --env-ids A-v0"
TUNE = f"--command 'python {PPO}' --target-scores A-v0=0:10 --space lr=0.1,0.2"
# Program, arguments, what the line names. a, b and c are groups of runs, mixed is of two scripts.
ROWS = [
    ("compare.py", "A=a", "two groups"),
    ("compare.py", "A=a B=c", "no environment"),
    ("compare.py", "A=a B=b --steps 500", "--steps 500"),
    ("compare.py", "A=a B=b --steps 5", "A: a run of X-v0 has no score after 5 steps"),
    ("compare.py", "A=a A=b", "two groups are called A"),
    ("plot.py", "--runs-dir mixed", "other.py, ppo.py"),
    ("plot.py", "--runs-dir a --beside B=b B=a", "two groups are called B"),
    ("same_numbers.py", "ppo.py --cleanrl . --iterations 1", "--iterations starts at 2"),
    ("run.py", f"{RUN} A-v0", "names an environment twice"),
    ("run.py", f"{RUN} --env-flags 'A-v0=--gamma 0' 'A-v0=--seed 1'", "names A-v0 twice"),
    ("run.py", f"{RUN} --command 'python {PPO} --seed 3'", "must not contain --seed"),
    ("run.py", f"{RUN} --command 'python {PPO} --num-seeds=2'", "each seed is a run"),
    ("run.py", f'{RUN} --command "python \'{PPO}"', "--command: No closing quotation"),
    ("ablation.py", f"{RUN} --details core-99", "there is no core-99 among: "),
    ("ablation.py", f"{RUN} --edits {BENCHMARK / 'broken.toml'}", "no-reward-scaling: "),
    ("speed.py", "--vary gamma=0.9,0.9", "not of the form"),
    ("rerun.py", "ppo_atari_multigpu/BreakoutNoFrameskip-v4", "give --python"),
    ("tune.py", f"{TUNE} --target-scores A-v0=5:5", "are equal"),
    ("tune.py", f"{TUNE} --command 'python {PPO} --seed 3'", "must not contain --seed"),
]


@pytest.mark.parametrize(("program", "arguments", "named"), ROWS, ids=str)
def test_bad_input_is_one_line_and_exit_code_2(
    program: str, arguments: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for group, env_id in (("a", "X-v0"), ("b", "X-v0"), ("c", "Y-v0"), ("mixed", "X-v0")):
        make_group(tmp_path / group, {env_id: [1.0]})
    make_group(tmp_path / "mixed", {"X-v0": [1.0]}, name="other")
    (tmp_path / "cleanrl").mkdir()
    (tmp_path / "cleanrl" / "ppo.py").touch()
    before = set(tmp_path.iterdir())
    done = run_program(program, *shlex.split(arguments))
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ") and named in line
    assert set(tmp_path.iterdir()) == before
