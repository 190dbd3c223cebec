"""The cost of growing work: what is turned, what is edited, what is measured."""

import csv

import pytest
import torch
from helpers.benchmark_runs import run_program
from helpers.in_process import ROOT, load_file, load_program

scaling = load_program("scaling.py")
SOURCE = (ROOT / "ppo" / "ppo.py").read_text()


def test_another_width_is_all_that_differs(tmp_path):
    assert scaling.with_width(SOURCE, scaling.DEFAULT_WIDTH) == SOURCE
    (tmp_path / "ppo.py").write_text(scaling.with_width(SOURCE, 32))
    script = load_file(tmp_path / "ppo.py", "edited_ppo")
    layers = [layer for layer in script.mlp(4, 2, std=1.0) if isinstance(layer, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [(32, 4), (32, 32), (2, 32)]


@pytest.mark.parametrize(
    "source", [SOURCE.replace("64", "65"), SOURCE.replace("def mlp", "def net")]
)
def test_a_script_without_that_width_is_refused(source):
    with pytest.raises(ValueError):
        scaling.with_width(source, 32)


def test_each_knob_is_turned_alone():
    script = scaling.load(scaling.PPO)
    args = scaling.Args(steps=1)
    default = script.Args()
    envs = scaling.flags(args, "num_envs", 16, script)
    assert (envs.num_envs, envs.num_steps) == (16, default.num_steps)
    assert envs.total_timesteps == 5 * 16 * default.num_steps
    steps = scaling.flags(args, "num_steps", 32, script)
    assert (steps.num_envs, steps.num_steps) == (default.num_envs, 32)
    assert scaling.flags(scaling.Args(steps=9999), "width", 16, script).total_timesteps == 9999
    assert scaling.VALUES["width"].count(scaling.DEFAULT_WIDTH) == 1


def test_every_setting_is_measured_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "VALUES", {"num_steps": (8,), "width": (16,)})
    out = tmp_path / "scaling.csv"
    flags = ("--knobs", "num_steps", "width", "--rounds", "1", "--steps", "1", "--out", str(out))
    assert run_program("scaling.py", *flags).returncode is None
    rows = list(csv.DictReader(out.open()))
    assert [(row["knob"], row["value"], row["round"]) for row in rows] == [
        ("num_steps", "8", "1"),
        ("width", "16", "1"),
    ]
    assert all(int(row["steps_per_second"]) > 0 for row in rows)
    assert all(100 < int(row["memory_mib"]) < 5000 for row in rows)


def test_a_run_that_fails_ends_the_program(capfd):
    args = scaling.Args(env_id="NoSuchEnvironment-v0")
    with pytest.raises(SystemExit) as stop:
        scaling.measure(args, "num_envs", 1, 1)
    assert stop.value.code == 1
    assert capfd.readouterr().err.endswith("num_envs 1 failed, exit code 1\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--rounds", "0"), "--rounds and --steps must be at least 1"),
        (("--steps", "0"), "--rounds and --steps must be at least 1"),
        (("--knobs",), "--rounds and --steps must be at least 1, and one of --knobs"),
        (("--out", "nowhere/x.csv"), "--out: there is no folder nowhere"),
        (("--out", "."), "--out: . is a folder, and not a CSV file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, message):
    done = run_program("scaling.py", *flags)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Nope-v1", "Environment `Nope` doesn't exist"),
        ("CartPole-v9", "Environment version `v9`"),
        ("Pendulum-v1", "Pendulum-v1 has the action space Box"),
    ],
)
def test_an_environment_that_ppo_does_not_play_is_refused_in_its_words(env_id, message):
    done = run_program("scaling.py", "--env-id", env_id)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("ppo.py: ") and message in done.stderr
    assert done.stderr.count("\n") == 1
