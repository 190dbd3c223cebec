"""What benchmark/ablation.py runs, and what it makes of the runs."""

import dataclasses
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import slurm
from edits import own_ablations
from effects import Effect, read_effects, write_effects
from helpers.benchmark_runs import BENCHMARK, FAKE_TRAINING, FakeScript, run_program
from helpers.in_process import ROOT, load_program
from runs import DIVERGED, UNFINISHED, Found, Provenance, Run, RunKey

ablation = load_program("ablation.py")
RESULTS = ROOT / "docs" / "results"
# Lines of ppo.py in which details are undone, for a script that only pretends to train.
TAGGED_LINES = """
TEXTS = ("eps=1e-5",)  # [core-3] Adam epsilon
TEXTS = ("clip_grad_norm_(params, args.max_grad_norm)",)  # [core-11] global gradient clipping
TEXTS = ("no such statistics",)  # [core-12] debug variables
TEXTS = 'next_values * ~terminated'  # [deviation] truncated episodes bootstrapped
"""
BOOTSTRAPPED = "deviation-truncated-episodes-bootstrapped"


class Fake(FakeScript):
    """A ppo.py that learns nothing, and the runs that the program makes of it."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path = self.path.rename(folder / "ppo.py")
        self.path.write_text(FAKE_TRAINING.read_text() + TAGGED_LINES)

    def run_ablation(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """The program in this process, until it ends."""
        return run_program("ablation.py", *self.arguments("--num-seeds", "1", *flags))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


# ------ what is run ------
def test_slurm_draws_also_if_runs_have_failed(fake, monkeypatch):
    """Runs that diverge without a detail fail, and are a result."""
    submitted: list[str] = []
    monkeypatch.setattr(slurm.shutil, "which", lambda _: "sbatch")
    monkeypatch.setattr(slurm, "sbatch", lambda *words: submitted.extend(words) or "7")
    done = fake.run_ablation("--env-ids", "A-v0", "--launcher", "slurm")
    assert done.returncode == 0, done.stderr
    assert "--dependency=afterany:7" in submitted and "job 7 draws them\n" in done.stdout


def test_one_detail_is_undone_at_a_time(fake):
    done = fake.run_ablation("--env-ids", "A-v0", "B-v0", "--num-seeds", "2", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "note: core-12 is not trained: nothing but curves" in done.stderr
    listed = [line.split() for line in done.stdout.splitlines()]
    variants = ("ppo", f"ppo_{BOOTSTRAPPED}", "ppo_core-3", "ppo_core-11")
    assert {(Path(words[1]).stem, words[3], words[5]) for words in listed} == {
        (variant, env_id, seed)
        for seed in ("1", "2")
        for variant in variants
        for env_id in ("A-v0", "B-v0")
    }
    assert [words[5] for words in listed] == ["1"] * 8 + ["2"] * 8, "first seeds come first"
    copy = (fake.runs_dir / "scripts" / "ppo_core-3.py").read_text()
    assert copy == fake.path.read_text().replace("eps=1e-5", "eps=1e-8")


@pytest.mark.parametrize(
    ("details", "variants"),
    [
        (["core-3"], ["ppo", "ppo_core-3"]),
        (["core"], ["ppo", "ppo_core-3", "ppo_core-11"]),
        (["deviation", "core-11"], ["ppo", "ppo_core-11", f"ppo_{BOOTSTRAPPED}"]),
    ],
)
def test_details_are_chosen_by_tag_or_group(fake, details, variants):
    done = fake.run_ablation("--env-ids", "A-v0", "--dry-run", "--details", *details)
    assert [Path(line.split()[1]).stem for line in done.stdout.splitlines()] == variants


@pytest.mark.slow("trains")
def test_from_training_to_results(tmp_path):
    """With a mistake; a detail is left out by an edit of another table."""
    script, name, table = ROOT / "ppo" / "ppo.py", "no-step", BENCHMARK / "broken.toml"
    flags = ["--details", name, "--edits", str(table)]
    command = f"{sys.executable} {script} --no-cuda --eval-episodes 0 --total-timesteps 2048"
    words = ["--command", command, "--env-ids", "CartPole-v1", "--num-seeds", "1", *flags]
    words += ["--workers", "2", "--runs-dir", str(tmp_path / "runs"), "--plot", str(tmp_path)]
    done = run_program("ablation.py", *words)
    assert done.returncode == 0, done.stderr
    copies = list((tmp_path / "runs").glob(f"CartPole-v1__ppo_{name}__*/ppo_{name}.py"))
    assert len(copies) == 1
    edit = ablation.read_ablations(table)[name]
    assert copies[0].read_text() == edit.apply(script.read_text())

    (effect,) = read_effects(tmp_path / "ablation_ppo.csv")
    assert (effect.tag, effect.env_id) == (name, "CartPole-v1")
    assert (effect.runs, effect.baseline_runs, effect.diverged) == (1, 1, 0)
    rows = pd.read_csv(tmp_path / "ablation_ppo_scores.csv")
    assert list(rows["variant"]) == ["baseline", name]
    assert set(rows["script"]) == {"ppo.py"} and rows["script_hash"].nunique() == 2
    means = rows.groupby("variant")["training_mean"].mean()
    assert means[name] - means["baseline"] == pytest.approx(effect.difference, abs=0.01)
    assert f"{name} CartPole-v1" in done.stdout
    assert (tmp_path / "ablation_ppo.png").read_bytes().startswith(b"\x89PNG")

    before = (tmp_path / "ablation_ppo_scores.csv").read_bytes()
    again = run_program("ablation.py", *words, "--redraw")
    assert again.returncode == 0 and "done" not in again.stdout
    assert (tmp_path / "ablation_ppo_scores.csv").read_bytes() == before


# ------ numbers ------
def a_run(seed: int, score: float, env_id: str = "A-v0", script: str = "ppo.py") -> Run:
    """A run of 100 steps with this score from its first step on."""
    return Run(
        folder=Path("x"),
        script=script,
        env_id=env_id,
        seed=seed,
        settings={"total_timesteps": 100},
        provenance=Provenance(),
        steps=np.array([1]),
        minutes=np.zeros(1),
        scores=np.array([score]),
        total_steps=100,
        total_minutes=0.0,
    )


def some_runs(*scores: float) -> list[Run]:
    return [a_run(seed, score) for seed, score in enumerate(scores, start=1)]


def test_a_score_is_the_mean_of_the_learning_curve():
    """By hand: the curve is 2 until step 50, 4 until step 75, then 6; at 200 points."""
    curve = {"steps": np.array([25, 50, 75]), "scores": np.array([2.0, 6.0, 10.0])}
    one = dataclasses.replace(a_run(1, 0.0), **curve, minutes=np.zeros(3))
    assert one.training_mean == (99 * 2 + 50 * 4 + 51 * 6) / 200


@pytest.mark.parametrize(
    ("scores", "diverged", "missing", "text"),
    [
        ((500.0, 400.0, 450.0), 0, 0, "the same scores"),
        ((500.0, 450.0, 400.0), 0, 0, "0 (-25 to +25)"),
        ((450.0,), 0, 0, "0 (no interval)"),
        ((360.0, 350.0), 1, 0, "1 of 3 diverged"),
        ((), 3, 0, "3 of 3 diverged"),
        ((500.0, 400.0), 0, 1, "not finished"),
        ((), 0, 3, "not finished"),
    ],
)
def test_what_is_said_of_few_or_equal_runs(scores, diverged, missing, text):
    """The baseline learns from 0 to 450: an interval of 113 points is 25 percent of that."""
    baseline = some_runs(500.0, 400.0, 450.0)
    effect = ablation.effect_of("core-3", "A-v0", some_runs(*scores), baseline, diverged, missing)
    assert ablation.text_of(dataclasses.replace(effect, start=0.0)) == text
    assert math.isnan(effect.difference) == (diverged > 0 or missing > 0)
    nothing_learned = dataclasses.replace(effect, start=450.0)
    assert math.isnan(nothing_learned.share(1.0)) and nothing_learned.lost == 0


def test_runs_that_diverged_are_counted(capsys):
    """Those of the baseline are none, and without it an environment says nothing."""
    runs = [a_run(1, 2.0), a_run(2, 3.0), a_run(1, 1.0, script="ppo_core-3.py")]
    runs[0].provenance = Provenance(script_hash="of an older version")
    found = Found({RunKey(one.script, one.env_id, one.seed): one for one in runs})
    found.left_out[RunKey("ppo_core-3.py", "A-v0", 2)] = DIVERGED
    found.left_out[RunKey("ppo.py", "B-v0", 1)] = UNFINISHED
    tasks = []
    for variant, script in (("baseline", "ppo.py"), ("core-3", "ppo_core-3.py")):
        for env_id, seed in (("A-v0", 1), ("A-v0", 2), ("B-v0", 1)):
            task = ablation.run.Task(variant, env_id, seed, (), Path(), Path(script), b"")
            tasks.append(task)
    results = ablation.read_results(tasks, found)
    assert results.diverged == {("core-3", "A-v0"): 1}
    assert results.missing == {("baseline", "B-v0"): 1, ("core-3", "B-v0"): 1}
    wanted = [own_ablations("ppo.py")["core-3"]]
    (effect,) = ablation.measure(["A-v0", "B-v0"], wanted, results)
    assert (effect.env_id, effect.runs, effect.diverged) == ("A-v0", 2, 1)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "warning: baseline A-v0 seed 1 was run with another version of the script"
    assert told[1].startswith("warning: B-v0 is left out")
    results.diverged = Counter({("baseline", "A-v0"): 1})
    (effect,) = ablation.measure(["A-v0"], wanted, results)
    assert math.isnan(effect.difference)  # those that are left are no fair sample


def an_effect(tag: str, difference: float) -> Effect:
    """Of a script that learns from 50.5 to 100.5."""
    limits = {"low": difference - 5, "high": difference + 5, "p": 0.01}
    numbers = {"score": 100.5 + difference, "baseline": 100.5, "start": 50.5}
    return Effect(tag, "A-v0", 3, 0, baseline_runs=3, difference=difference, **numbers, **limits)


def test_details_are_sorted_by_what_is_lost_without_them():
    effects = [an_effect("core-3", -10.0), an_effect("core-4", 20.0), an_effect("core-5", -75.0)]
    assert ablation.by_importance(effects) == ["core-5", "core-3", "core-4"]
    assert [effect.lost for effect in effects] == [0.2, -0.4, 1.5]


def test_effects_are_read_as_they_were_written(tmp_path):
    nan = {"difference": math.nan, "low": math.nan, "high": math.nan, "p": math.nan}
    effects = [
        an_effect("core-3", -10.0),
        dataclasses.replace(an_effect("core-4", 0.0), same=True),
        dataclasses.replace(an_effect("core-5", 0.0), score=math.nan, runs=0, **nan),
    ]
    write_effects(effects, tmp_path / "x.csv")
    assert repr(read_effects(tmp_path / "x.csv")) == repr(effects)
    assert read_effects(tmp_path / "nowhere.csv") == []
