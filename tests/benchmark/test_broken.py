"""Scripts that are broken on purpose: the edits, the curves and the page that shows them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.benchmark_runs import run_program
from helpers.in_process import load_program
from sync import ROOT
from torch.utils.tensorboard import SummaryWriter

broken = load_program("broken.py")
HEALTHY, FAULTS = broken.read_table()
RESULTS = ROOT / "docs" / "results"
PAGE = (ROOT / "docs" / "debugging.md").read_text()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_edits_the_script_as_it_is_now(name: str):
    fault = FAULTS[name]
    source = (ROOT / "ppo" / fault.script).read_text()
    edited = fault.apply(source)
    assert edited != source
    compile(edited, fault.script, "exec")


def test_an_edit_that_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(broken, "SCRIPTS", tmp_path)
    (tmp_path / "ppo.py").write_text("nothing that is known")
    done = run_program("broken.py", "--faults", "no-step", "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: stale table: benchmark/broken.toml, no-step: ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--faults", "none"], "error: --faults: none is none of learning-rate"),
        (["--workers", "0"], "error: --workers must be at least 1"),
        (["--runs-dir", __file__], "error: --runs-dir: "),
        (["--out", __file__], "error: --out: "),
        (["--redraw", "--out", "nowhere"], "error: --redraw: there is no nowhere/broken.csv"),
    ],
)
def test_bad_input(flags: list[str], message: str):
    done = run_program("broken.py", *flags)
    assert done.returncode == 2 and done.stderr.startswith(message)


def arguments(folder: Path, **more: object) -> "broken.Args":
    return broken.Args(runs_dir=folder / "runs", out=folder / "out", **more)


def finish(task: "broken.Task", scale: float) -> None:
    """Leaves behind what a run of 1,000 steps would: every metric is scale times the step."""
    folder = task.runs_dir / f"{task.env_id}__ppo__1__20261120-120000"
    folder.mkdir(parents=True)
    facts = {"script": task.script.name, "argv": list(task.argv)}
    facts["args"] = {"total_timesteps": 1000}
    (folder / "args.json").write_text(json.dumps(facts))
    (folder / "agent.pt").touch()
    with SummaryWriter(str(folder)) as writer:
        for step in range(5, 1001, 5):
            for metric in broken.METRICS:
                if step > 10 or metric != broken.RETURN:  # no episode has ended before
                    writer.add_scalar(metric, scale * step, step)


def test_runs_of_a_fault_and_of_the_script_as_it_is(tmp_path: Path):
    args = arguments(tmp_path, faults=("no-step",), seed=7, command="python3 -u")
    healthy, fault = broken.make_tasks(args, *broken.chosen(args))
    assert healthy.script == ROOT / "ppo" / "ppo.py"
    assert fault.script == tmp_path / "runs" / "no-step" / "ppo.py"
    assert FAULTS["no-step"].edits[0][1] in fault.script.read_text()
    for task in (healthy, fault):
        words = " ".join(task.command)
        assert words.startswith(f"python3 -u {task.script} --no-cuda --eval-episodes 0 ")
        assert words.endswith(f"--env-id CartPole-v1 --seed 7 --runs-dir {task.runs_dir}")


def test_finished_runs_are_drawn_and_not_repeated(tmp_path: Path):
    args = arguments(tmp_path, faults=("no-step",))
    for task, scale in zip(broken.make_tasks(args, *broken.chosen(args)), (1, 1000), strict=True):
        finish(task, scale)
    flags = ["--runs-dir", str(args.runs_dir), "--out", str(args.out), "--faults", "no-step"]
    done = run_program("broken.py", *flags)
    assert done.returncode == 0, done.stderr
    names = ["broken.csv", "broken_healthy.md", "broken_no-step.png"]
    assert sorted(path.name for path in args.out.iterdir()) == names

    curves = broken.read_csv(args.out / "broken.csv")
    assert list(curves) == ["cartpole", "no-step"]
    np.testing.assert_allclose(curves["cartpole"]["step"], 10 * np.arange(1, 101))
    means = 10 * np.arange(1, 101) - 2.5  # of the points 5 and 10, 15 and 20, ...
    np.testing.assert_allclose(curves["no-step"]["losses/entropy"], 1000 * means, rtol=1e-3)
    assert np.isnan(curves["cartpole"][broken.RETURN][0])

    picture = (args.out / names[2]).read_bytes()
    again = run_program("broken.py", "--redraw", *flags)
    assert again.returncode == 0, again.stderr
    assert (args.out / names[2]).read_bytes() == picture


def test_ranges_leave_the_beginning_and_outliers_out():
    x = np.arange(1.0, 101.0)
    curves = {"step": x, **{metric: np.where(x <= 10, 1e6, x) for metric in broken.LOSSES}}
    curves["losses/entropy"] = np.where(x == 50, np.nan, curves["losses/entropy"])
    found = broken.ranges(curves)
    assert found["losses/value_loss"] == pytest.approx((15.45, 95.55))
    assert 15 < found["losses/entropy"][0] < 16


# ------ what is committed ------


def test_committed_curves_are_of_this_table():
    curves = broken.read_csv(RESULTS / "broken.csv")
    assert set(curves) == {*HEALTHY, *FAULTS}
    table = broken.ranges_table(list(HEALTHY.values()), curves)
    assert (RESULTS / "broken_healthy.md").read_text() == f"{table}\n"


@pytest.mark.parametrize("name", FAULTS)
def test_the_page_shows_a_fault(name: str):
    assert re.search(rf"!\[[^\]]{{20,}}\]\(results/broken_{name}\.png\)", PAGE), "with its alt text"
    assert (RESULTS / f"broken_{name}.png").stat().st_size < 100_000


def test_the_page_names_every_metric_of_the_scripts():
    metrics = set()
    for script in ("ppo.py", "ppo_continuous_action.py"):
        source = (ROOT / "ppo" / script).read_text()
        metrics |= set(re.findall(r'"((?:charts|losses)/\w+)"', source))
    assert len(metrics) > 10
    assert [metric for metric in sorted(metrics) if f"`{metric}`" not in PAGE] == []


def test_the_program_that_plays_at_random(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    seen, rewards, lengths = capsys.readouterr().out.splitlines()
    assert seen.startswith("observations [-") and lengths.startswith("lengths ")
    mean = float(rewards.removeprefix("rewards 1.0 to 1.0 returns ").partition(" ")[0])
    assert 15 < mean < 30
