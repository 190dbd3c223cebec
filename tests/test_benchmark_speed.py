"""The comparison of speed: what it runs, and how it reads and compares what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import speed_sb3
from helpers.benchmark_runs import BENCHMARK, run_program
from helpers.in_process import load_program, load_script, train

speed = load_program("speed.py")


def test_what_a_script_prints_is_understood(tmp_path, capsys):
    train(load_script("ppo.py"), tmp_path / "run", total_timesteps=1024)
    printed = capsys.readouterr().out
    assert printed.count("steps/s") > 1
    ours = speed.contenders(speed.Args(sb3=False))[0]
    (found,) = re.findall(ours.pattern, printed)
    assert float(found.replace(",", "")) > 0


@pytest.mark.parametrize("script", speed_sb3.COUNTERPARTS)
def test_sb3_trains_with_the_scripts_hyperparameters(script):
    """Its value loss lacks the factor of one half that ours has, so its coefficient has it."""
    ours = load_script(script).Args()
    envs = speed_sb3.make_envs("Pendulum-v1", 1, speed_sb3.COUNTERPARTS[script])
    model = speed_sb3.make_model(envs, 1, speed_sb3.COUNTERPARTS[script])
    assert (model.n_envs, model.n_steps) == (ours.num_envs, ours.num_steps)
    assert model.batch_size * ours.num_minibatches == ours.num_envs * ours.num_steps
    assert (model.n_epochs, model.max_grad_norm) == (ours.update_epochs, ours.max_grad_norm)
    assert (model.gamma, model.gae_lambda) == (ours.gamma, ours.gae_lambda)
    assert (model.ent_coef, 2 * model.vf_coef) == (ours.ent_coef, ours.vf_coef)
    assert model.clip_range(0.5) == model.clip_range_vf(0.5) == ours.clip_coef
    assert model.lr_schedule(0.5) == ours.learning_rate / 2
    envs.close()


def test_sb3_is_run_and_understood():
    assert speed_sb3.COUNTERPARTS.keys() == speed.SB3_ENVS.keys()
    listed = speed.contenders(speed.Args(steps=512))[-1]
    program = listed.command.index(str(BENCHMARK / "speed_sb3.py"))
    done = run_program("speed_sb3.py", *listed.command[program + 1 :])
    (found,) = re.findall(listed.pattern, done.stdout)
    assert float(found) > 0


def test_peers_are_run_from_their_clones_with_their_versions(tmp_path):
    for folder in ("cleanrl", "leanrl"):
        script = tmp_path / folder / "ppo_atari_envpool.py"
        script.parent.mkdir()
        script.touch()
    args = speed.Args(
        script="ppo_atari_envpool.py",
        steps=6000,
        cleanrl=tmp_path,
        leanrl=tmp_path,
        leanrl_python=Path(sys.executable),
    )
    *ours, cleanrl, leanrl = speed.contenders(args)
    assert [contender.name.partition(" ")[2] for contender in ours] == ["", "--compile", "--bf16"]
    flags = ["--no-cuda", "--total-timesteps", "6000"]
    assert cleanrl.command[-4:] == [str(tmp_path / "cleanrl" / args.script), *flags]
    versions = Path(cleanrl.command[cleanrl.command.index("--with-requirements") + 1])
    assert "torch==2.4.1" in versions.read_text().split()
    assert leanrl.command[:2] == [sys.executable, str(tmp_path / "leanrl" / args.script)]
    assert re.findall(cleanrl.pattern, "SPS: 354\n") == ["354"]
    assert re.findall(leanrl.pattern, "speed:  349.5 sps, global_step=1") == ["349.5"]
    assert cleanrl.path == leanrl.path == tmp_path


@pytest.mark.parametrize("peer", [speed.CLEANRL, speed.LEANRL, speed.SB3])
def test_versions_of_a_peer_are_exact(peer):
    lines = (BENCHMARK / "requirements" / peer.requirements).read_text().splitlines()
    versions = [line for line in lines if not line.startswith("#")]
    assert len(versions) > 5 and versions == sorted(versions)
    assert all(re.fullmatch(r"[a-z0-9-]+==[\d.]+", line) for line in versions)


MEASURE = """
import sys, speed
program = "x = bytearray(200 << 20); print('SPS: 7'); print('SPS: 1,234')"
contender = speed.Contender("x", [sys.executable, "-c", program], r"SPS: ([\\d,]+)")
measured = speed.measure(contender, ".", 1)
print(measured.speed, measured.memory)
"""


def test_speed_and_memory_are_those_of_the_process(tmp_path):
    """Measured by a small process as speed.py is one: what it has counts until the child is one."""
    env = {**os.environ, "PYTHONPATH": str(BENCHMARK)}
    words = [sys.executable, "-c", MEASURE]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    found, memory = map(float, done.stdout.split())
    assert found == 1234 and 200 < memory < 300


@pytest.mark.parametrize("program", ["print('SPS: 7'); exit(3)", "print('nothing')"])
def test_contender_that_fails_ends_the_comparison(program, tmp_path, capsys):
    contender = speed.Contender("x", [sys.executable, "-c", program], r"SPS: (\d+)")
    with pytest.raises(SystemExit) as stop:
        speed.measure(contender, str(tmp_path), 1)
    assert stop.value.code == 1 and "x failed, exit code" in capsys.readouterr().err


def test_ratios_are_formed_within_a_round():
    """The machine is half as fast in the second round: ours is still twice as fast as theirs."""
    speeds = {"ppo.py": (2000, 1000, 1800), "ppo.py --compile": (4000, 2000, 3600)}
    speeds["Peer"] = (1000, 500, 900)
    results = {name: [speed.Measurement(x, 800.0) for x in row] for name, row in speeds.items()}
    header, _, ours, _, peer = speed.table(results, 2).splitlines()
    assert header == (
        "|  | steps per second | peak memory, MiB | ppo.py is faster | with --compile |"
    )
    assert ours == "| ppo.py | 1,800 (1,000 to 2,000) | 800 (800 to 800) |  |  |"
    ratios = "2.00 (2.00 to 2.00) times | 4.00 (4.00 to 4.00) times |"
    assert peer == f"| Peer | 900 (500 to 1,000) | 800 (800 to 800) | {ratios}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--rounds", "0"), "--rounds must be at least 1"),
        (("--script", "nothing.py"), "there is no "),
        (("--cleanrl", "nowhere"), "there is no "),
        (("--ppo-python", "no-such-python"), "there is no interpreter no-such-python"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, message):
    done = run_program("speed.py", *flags)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"speed.py: {message}")
    assert done.stderr.count("\n") == 1
