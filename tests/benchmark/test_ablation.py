"""What benchmark/ablation.py runs, and what ablation_plot.py makes of the runs."""

import csv
import dataclasses
import json
import math
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import ablations as results
import pytest
import runs as run_folders
import stats as intervals
from ablations import Effect, read_effects, table, write_effects
from details import DETAILS, NOT_IMPLEMENTED
from family import Script
from helpers.benchmark_runs import FAKE_TRAINING, run_program
from helpers.in_process import load_program
from scipy import stats
from sync import ROOT, Collection
from torch.utils.tensorboard import SummaryWriter
from undo import ablations, own_ablations

plot = load_program("ablation_plot.py")
# Lines of ppo.py in which details are undone, for a script that only pretends to train.
TAGGED_LINES = """
TEXTS = ("eps=1e-5",)  # [core-3] Adam epsilon
TEXTS = ("clip_grad_norm_(params, args.max_grad_norm)",)  # [core-11] global gradient clipping
TEXTS = ("no such statistics",)  # [core-12] debug variables
TEXTS = ("no such edit",)  # [core-14] of nobody
"""
SHORT = ("--env-ids", "A-v0", "--num-seeds", "1")


class FakeScript:
    """A ppo.py that learns nothing, and the runs that the program makes of it."""

    def __init__(self, folder: Path):
        self.path = folder / "ppo.py"
        text = FAKE_TRAINING.read_text()
        last_words = "ppo.py: diverged at step 42: the loss is not finite"
        text = text.replace("RuntimeError: the loss is not finite", last_words)
        self.path.write_text(text + TAGGED_LINES)
        self.runs_dir = folder / "runs"

    def run(self, *flags: str, script: Path | None = None) -> subprocess.CompletedProcess[str]:
        """The program in this process, until it ends."""
        command = f"{sys.executable} {script or self.path}"
        words = ["--command", command, "--runs-dir", str(self.runs_dir), *flags]
        return run_program("ablation.py", *words)

    def folders(self, variant: str = "*") -> list[Path]:
        """The run folders of a variant."""
        return sorted(file.parent for file in self.runs_dir.glob(f"{variant}/*/args.json"))


@pytest.fixture
def fake(tmp_path: Path) -> FakeScript:
    return FakeScript(tmp_path)


# ------ what is run ------


def test_one_detail_is_undone_at_a_time(fake):
    flags = ("--env-ids", "A-v0", "B-v0", "--num-seeds", "2")
    dry = fake.run(*flags, "--dry-run")
    assert dry.returncode == 0 and not fake.runs_dir.exists()
    assert "note: no ablation is written for core-14" in dry.stderr
    assert "note: core-12 is not trained: nothing but curves" in dry.stderr
    listed = [shlex.split(line) for line in dry.stdout.splitlines()]
    order = [(Path(words[1]).parent.name, words[3], words[5]) for words in listed]
    assert order == [
        (variant, env_id, seed)
        for seed in ("1", "2")
        for variant in ("baseline", "core-3", "core-11")
        for env_id in ("A-v0", "B-v0")
    ]

    done = fake.run(*flags, "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "done     core-11 B-v0 seed 2" in done.stdout
    assert "12 runs: 12 done, 0 skipped, 0 failed" in done.stdout
    source = fake.path.read_text()
    edits = {
        "baseline": ("", ""),
        "core-3": ("1e-5", "1e-8"),
        "core-11": ("args.max_grad", "np.inf"),
    }
    for variant, (old, new) in edits.items():
        folders = fake.folders(variant)
        assert len(folders) == 4
        wanted = source if variant == "baseline" else own_ablations("ppo.py")[variant].apply(source)
        assert old in source and new in wanted
        assert {(folder / "ppo.py").read_text() for folder in folders} == {wanted}
    assert "0 done, 12 skipped" in fake.run(*flags).stdout


def test_details_are_chosen_by_tag_or_group(fake):
    tagged = "T = 'next_values * ~terminated'"
    tagged += "  # [deviation] truncated episodes bootstrapped\n"
    fake.path.write_text(f"{fake.path.read_text()}{tagged}")

    def variants(*details: str) -> list[str]:
        listed = fake.run(*SHORT, "--dry-run", "--details", *details).stdout.splitlines()
        return [Path(line.split()[1]).parent.name for line in listed]

    assert variants("core-3") == ["baseline", "core-3"]
    assert variants("core") == ["baseline", "core-3", "core-11"]
    bootstrap = "deviation-truncated-episodes-bootstrapped"
    assert variants("deviation", "core-11") == ["baseline", "core-11", bootstrap]
    assert variants(bootstrap) == ["baseline", bootstrap]


def test_a_run_that_diverged_is_a_result(fake):
    flags = ("--env-ids", "A-v0", "Fail-v0", "--num-seeds", "1", "--details", "core-3")
    first = fake.run(*flags, "--then", "echo after {env_id}")
    assert first.returncode == 0 and "2 done, 0 skipped, 2 failed" in first.stdout
    assert "FAILED   core-3 Fail-v0 seed 1: exit code 1" in first.stderr
    again = fake.run(*flags)
    assert again.returncode == 0 and "2 runs: 0 done, 2 skipped" in again.stdout
    assert "diverged core-3 Fail-v0 seed 1" in again.stdout
    flags_changed = fake.run(*flags, "--env-flags", "Fail-v0=--learning-rate 0.1")
    assert "2 skipped, 2 failed" in flags_changed.stdout, "with other flags it may go well"

    text = fake.path.read_text().replace("diverged at step", "ended by a mistake at step")
    fake.path.write_text(text)
    other = fake.run(*flags, "--runs-dir", str(fake.runs_dir / "other"))
    assert other.returncode == 1, "a mistake is none"


def test_runs_of_another_text_are_not_mixed_with_these_unasked(fake):
    flags = (*SHORT, "--details", "core-3")
    assert fake.run(*flags).returncode == 0
    copies = [fake.runs_dir / variant / "ppo.py" for variant in ("baseline", "core-3")]
    before = [copy.read_text() for copy in copies]
    fake.path.write_text(f"{fake.path.read_text()}# edited\n")
    refused = fake.run(*flags)
    (folder,) = fake.folders("baseline")
    ways = "choose another --runs-dir, or keep such runs with --keep-old"
    assert refused.returncode == 2
    last = refused.stderr.splitlines()[-1]
    assert last == f"error: {folder} was made by a different ppo.py: {ways}"
    assert [copy.read_text() for copy in copies] == before, "nothing was touched"
    kept = fake.run(*flags, "--keep-old")
    assert kept.returncode == 0 and "0 done, 2 skipped" in kept.stdout
    assert kept.stderr.count("was made by a different ppo.py") == 2


def test_when_all_is_done_it_is_drawn(fake, tmp_path):
    done = fake.run(*SHORT, "--dry-run", "--plot", str(tmp_path / "out"))
    program = ROOT / "benchmark" / "ablation_plot.py"
    folders = f"--runs-dir {fake.runs_dir} --out {tmp_path / 'out'}"
    assert done.stdout.splitlines()[-1].endswith(f"{program} {folders}")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--details", "core-1"), "--details: core-1 is none of those of ppo.py: core-3 core-11"),
        (("--details", "cor"), "--details: cor is none of those of ppo.py"),
        (("--num-seeds", "0"), "--num-seeds must be at least 1"),
        (("--workers", "0"), "--workers must be at least 1"),
        (("--env-ids",), "--env-ids is empty"),
        (("--env-flags", "A-v0"), "--env-flags: A-v0 is not of the form"),
        (("--command", "python nowhere.py"), "--command: there is no file nowhere.py"),
        (("--command", "python"), "--command names no .py script"),
        (("--command", f"python {FAKE_TRAINING}"), "fake_training.py is not called like one"),
        (("--plot", str(FAKE_TRAINING)), "is not a folder"),
    ],
)
def test_bad_input(fake, flags, message):
    done = fake.run(*SHORT, *flags)
    assert done.returncode == 2 and not fake.runs_dir.exists()
    assert done.stderr.splitlines()[-1].startswith("error: ") and message in done.stderr


def test_an_edit_that_does_not_fit_is_bad_input(fake):
    fake.path.write_text(fake.path.read_text().replace("eps=1e-5", "eps=1e-4"))
    done = fake.run(*SHORT)
    assert done.returncode == 2 and not fake.runs_dir.exists()
    message = "stale table: tests/mutations/ppo.toml, core-3: 'eps=1e-5' occurs 0 times in ppo.py"
    assert done.stderr.splitlines()[-1] == f"error: {message}"


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A function that runs ablation.sh with flags; `uv run` is this Python."""
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} "$@"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", str(ROOT / "benchmark" / "ablation.sh"), *flags]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run


def test_the_shell_script_trains_both_scripts(shell, tmp_path):
    done = shell("--num-seeds", "1", "--dry-run", "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    runs = [line for line in done.stdout.splitlines() if "--env-id " in line]
    assert len(runs) == 3 * (14 + 12)  # the script as it is, and without each detail
    lander = [line for line in runs if "--env-id LunarLander-v3" in line]
    assert len(lander) == 14 and all("--gamma 0.999" in line for line in lander)
    assert done.stdout.count(f"ablation_plot.py --runs-dir {tmp_path}/runs ") == 2
    text = (ROOT / "benchmark" / "ablation.sh").read_text()
    folders = re.findall(r"--runs-dir (\S+)", text)
    assert len(folders) == len(set(folders)) == 2


def test_its_example_of_some_details_writes_elsewhere():
    text = (ROOT / "benchmark" / "ablation.sh").read_text()
    partial = [line for line in text.splitlines() if line.startswith("# ") and "--details" in line]
    assert partial and all(line.endswith(" --plot results") for line in partial)


def test_flags_of_the_shell_script_go_to_the_runner(shell, tmp_path):
    flags = ("--env-ids", "Acrobot-v1", "--num-seeds", "2", "--details", "core-3", "--dry-run")
    flags += ("--runs-dir", str(tmp_path / "runs"))
    runs = shell("ppo", *flags).stdout.splitlines()[:-1]
    assert len(runs) == 2 * 2 and all("--env-id Acrobot-v1" in line for line in runs)
    assert (
        shell("ppo_atari").stderr == "error: ppo_atari is neither ppo nor ppo_continuous_action\n"
    )


# ------ effects ------


def test_difference_of_means_by_hand():
    """Variances of 2 each: standard error sqrt(2), 2 degrees of freedom, t = 4.3027."""
    scores, baseline = plot.np.array([0.0, 2.0]), plot.np.array([10.0, 12.0])
    difference, low, high = intervals.welch(scores, baseline)
    assert difference == -10
    assert (high + 10) == pytest.approx(4.30265 * 2**0.5, abs=1e-4)
    assert (low + 10) == pytest.approx(-4.30265 * 2**0.5, abs=1e-4)


def test_difference_of_means_with_unequal_variances_by_hand():
    """Of 3 scores each, the baseline's alike: 2 degrees of freedom, standard error 1 / sqrt(3)."""
    scores, baseline = plot.np.array([4.0, 5.0, 6.0]), plot.np.array([9.0, 9.0, 9.0])
    difference, low, high = intervals.welch(scores, baseline)
    half = 4.30265 / 3**0.5
    assert (difference, low, high) == pytest.approx((-4, -4 - half, -4 + half), abs=1e-4)


def test_difference_of_few_or_equal_scores():
    one, two, alike = (plot.np.array(x) for x in ([3.0], [1.0, 2.0], [5.0, 5.0]))
    difference, low, high = intervals.welch(one, two)
    assert difference == 1.5 and math.isnan(low) and math.isnan(high)
    difference, low, high = intervals.welch(alike, alike + 2)
    assert difference == -2 and math.isnan(low) and math.isnan(high), "chance is unknown"
    assert intervals.welch(alike, plot.np.full(3, 5.0)) == (0, 0, 0)
    tenths = plot.np.full(3, 0.1)  # whose mean is not 0.1: rounding leaves some variance
    assert math.isnan(intervals.welch(tenths, alike).low)


def test_p_value_is_of_the_test_that_makes_the_interval():
    """By hand: for 2 degrees of freedom p is 1 - t / sqrt(2 + t²)."""
    scores, baseline = plot.np.array([0.0, 2.0]), plot.np.array([10.0, 12.0])
    t = 10 / 2**0.5
    assert plot.p_value(scores, baseline) == pytest.approx(1 - t / (2 + t**2) ** 0.5)
    for shift in (-0.01, 0.01):  # beyond, and within half of the interval
        near = scores + 10 - (4.30265 + shift) * 2**0.5
        difference = intervals.welch(near, baseline)
        assert (plot.p_value(near, baseline) < 0.05) == (difference.high < 0) == (shift > 0)
    one, alike = plot.np.array([3.0]), plot.np.array([5.0, 5.0])
    assert math.isnan(plot.p_value(one, scores)) and math.isnan(plot.p_value(one[:0], scores))
    assert plot.p_value(alike, alike) == 1 and math.isnan(plot.p_value(alike, alike + 2))


def test_runs_that_do_not_vary_are_no_evidence():
    """499.9 beside 500 has no p-value that would win Holm's correction, and the cell says why."""
    effect = plot.effect_of("core-3", "A-v0", trained(499.9, 499.9), trained(500.0, 500.0))
    assert math.isnan(effect.p) and not effect.certain and not effect.same
    assert results.cell(effect) == "-0.1" and results.beyond_chance([effect]) == []
    assert plot.interval_of(dataclasses.replace(effect, start=0.0)) == "no spread"
    single = plot.effect_of("core-3", "A-v0", trained(499.9), trained(500.0, 500.0))
    assert plot.interval_of(dataclasses.replace(single, start=0.0)) == "one run"


def trained(*scores: float, seeds: tuple[int, ...] = (1, 2, 3)) -> list:
    """Runs with these scores, as ablation_plot.py has read them."""
    return [
        plot.Trained("x", a_run(seed, [score], steps=[1]), False)
        for seed, score in zip(seeds, scores, strict=False)
    ]


def a_run(seed: int, scores: list[float], steps: list[int], **settings: int) -> run_folders.Run:
    """A run whose episodes ended with these scores after these steps."""
    return run_folders.Run(
        folder=Path("x"),
        script="ppo.py",
        env_id="A-v0",
        seed=seed,
        settings=settings,
        provenance=run_folders.Provenance(),
        steps=plot.np.array(steps),
        minutes=plot.np.zeros(len(steps)),
        scores=plot.np.array(scores),
        total_steps=steps[-1],
        total_minutes=0.0,
    )


def test_a_score_is_the_mean_of_the_learning_curve():
    """By hand: the curve is 2 until step 50, 4 until step 75, then 6; at 200 points."""
    run = a_run(1, [2.0, 6.0, 10.0], steps=[25, 50, 75])
    assert run.score == 6 and run.mean_score(100) == (99 * 2 + 50 * 4 + 51 * 6) / 200
    ended_early = plot.Trained("x", a_run(1, [2.0, 6.0], [25, 50], total_timesteps=100), True)
    assert ended_early.score == (99 * 2 + 101 * 4) / 200


@pytest.mark.parametrize(
    ("scores", "seeds", "cell"),
    [
        ((500.0, 400.0, 450.0), (1, 2, 3), "the same scores"),
        ((500.0, 400.0), (1, 2), "the same scores, 2 runs"),
        ((450.0,), (3,), "the same scores, 1 run"),
        ((500.0, 400.0, 450.01), (1, 2, 3), "0.0 (-113 to 113)"),
        ((500.0, 450.0, 400.0), (1, 2, 3), "0.0 (-113 to 113)"),
        ((450.0,), (4,), "0.0, 1 run"),
        ((), (), "not run yet"),
    ],
)
def test_scores_are_the_same_if_those_of_every_seed_are(scores, seeds, cell):
    """Most seeds are not enough, nor are the same scores of other seeds."""
    baseline = trained(500.0, 400.0, 450.0)
    effect = plot.effect_of("core-3", "A-v0", trained(*scores, seeds=seeds), baseline)
    assert effect.same == cell.startswith("the same") and results.cell(effect) == cell
    shown = plot.interval_of(dataclasses.replace(effect, start=0.0))
    assert (shown == "the same scores") == effect.same


def make_run(
    folder: Path, seed: int, start: float, end: float, env_id: str = "A-v0", ended: bool = True
) -> None:
    """A run of a variant: 10 episodes of return `start`, then 100 of return `end`.

    All of them end with the first step of 200, so that the mean of the curve is `end`.
    """
    run = folder / f"{env_id}__ppo__{seed}__20261120-120000"
    run.mkdir(parents=True)
    facts = {
        "script": "ppo.py",
        "argv": [],
        "args": {"env_id": env_id, "seed": seed},
        "versions": {"torch": "2.13.0"},
        "hardware": "cpu",
    }
    (run / "args.json").write_text(json.dumps(facts))
    (run / ("agent.pt" if ended else "checkpoint.pt")).touch()
    writer = SummaryWriter(str(run))
    for score in [start] * 10 + [end] * 100:
        writer.add_scalar("charts/episodic_return", score, 1)
    writer.add_scalar("charts/learning_rate", 0.0, 200)
    writer.close()


def test_runs_with_other_flags_than_the_baselines_are_told(runs_dir, tmp_path, capsys):
    (run,) = (runs_dir / "core-3").glob("A-v0__ppo__2__*")
    facts = json.loads((run / "args.json").read_text())
    facts["args"]["total_timesteps"] = 7
    (run / "args.json").write_text(json.dumps(facts))
    plot.warn_of_unlike_runs(plot.read_all(runs_dir, ["baseline", "core-3", "core-7"]))
    told = "warning: core-3: The runs of A-v0 differ in total_timesteps.\n"
    assert capsys.readouterr().err == told


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """The baseline learns from 0 to 99, 100 and 101; two details were left out so far."""
    folder = tmp_path / "runs"
    for seed, end in enumerate((99.0, 100.0, 101.0), start=1):
        make_run(folder / "baseline", seed, 0.0, end)
    for seed, end in enumerate((49.0, 50.0, 51.0), start=1):
        make_run(folder / "core-3", seed, 0.0, end)
    make_run(folder / "core-7", 1, 0.0, 90.0)
    make_run(folder / "core-7", 2, 0.0, 70.0, ended=False)  # it diverged
    make_run(folder / "core-7", 3, 0.0, 70.0, ended=False)  # it goes on
    (folder / "core-7" / "logs").mkdir()
    printed = "run folder: A-v0__ppo__2__20261120-120000\nppo.py: diverged at step 42: nan\n"
    (folder / "core-7" / "logs" / "A-v0__2.log").write_text(printed)
    (folder / "baseline" / "ppo.py").write_text(Collection().source("ppo.py"))
    return folder


def test_effects_table_and_picture(runs_dir, tmp_path):
    out = tmp_path / "out"
    done = run_program("ablation_plot.py", "--runs-dir", str(runs_dir), "--out", str(out))
    assert done.returncode == 0, done.stderr
    names = ["ablation_ppo.csv", "ablation_ppo_scores.csv", "ablation_ppo.md", "ablation.png"]
    assert done.stdout.splitlines() == [str(out / name) for name in [*names, "ablation.svg"]]

    effects = {effect.tag: effect for effect in read_effects(out / "ablation_ppo.csv")}
    assert len(effects) == 13, "one for each detail that is trained"
    # Variances of 1 each, 3 runs: standard error sqrt(2/3), 4 degrees of freedom, t = 2.7764.
    found = effects["core-3"]
    assert (found.runs, found.baseline_runs, found.diverged) == (3, 3, 0)
    assert (found.score, found.baseline, found.start, found.difference) == (50, 100, 0, -50)
    half = 2.7764 * (2 / 3) ** 0.5
    assert (found.low, found.high) == pytest.approx((-50 - half, -50 + half), abs=0.01)
    assert found.certain and found.gain == 100
    assert 0 < found.p < 0.001 and not found.same
    found = effects["core-7"]
    assert (found.runs, found.diverged, found.difference) == (2, 1, -20) and not found.certain
    assert effects["core-4"].runs == 0 and math.isnan(effects["core-4"].difference)

    with open(out / "ablation_ppo_scores.csv") as file:
        scores = list(csv.DictReader(file))
    assert len(scores) == 8 and (scores[0]["score"], scores[0]["training_mean"]) == ("99.00",) * 2
    assert (scores[0]["versions"], scores[0]["hardware"]) == ("torch 2.13.0", "cpu")
    assert scores[0]["script"] == "ppo.py"
    assert [row["diverged"] for row in scores if row["variant"] == "core-7"] == ["no", "yes"]

    text = (out / "ablation_ppo.md").read_text()
    assert "| score with all of them | | 100 (3 runs) |" in text
    assert "| torch's default epsilon, 1e-8 | **-50.0** (-52.3 to -47.7) |" in text
    assert "| -20.0 (-145 to 105), 2 runs, 1 diverged |" in text
    assert text.count("| not run yet |") == 11 and text.count("| - |") == 2
    assert (out / "ablation.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "ablation.svg").read_text()


def test_environments_that_were_trained_elsewhere_stay(runs_dir, tmp_path):
    """A second call on runs of B-v0 alone adds them to those of A-v0."""
    out = tmp_path / "out"
    words = ["--out", str(out)]
    assert run_program("ablation_plot.py", "--runs-dir", str(runs_dir), *words).returncode == 0
    before = read_effects(out / "ablation_ppo.csv")
    other = tmp_path / "other"
    for seed, end in enumerate((199.0, 201.0), start=1):
        make_run(other / "baseline", seed, 0.0, end, env_id="B-v0")
        make_run(other / "core-7", seed, 0.0, end - 50, env_id="B-v0")
    (other / "baseline" / "ppo.py").write_text(Collection().source("ppo.py"))
    for _ in range(2):
        assert run_program("ablation_plot.py", "--runs-dir", str(other), *words).returncode == 0
        effects = read_effects(out / "ablation_ppo.csv")
        assert repr([one for one in effects if one.env_id == "A-v0"]) == repr(before)
        new = [one for one in effects if one.env_id == "B-v0" and one.runs]
        assert [(one.tag, one.difference) for one in new] == [("core-7", -50)]
        with open(out / "ablation_ppo_scores.csv") as file:
            rows = [(row["variant"], row["env_id"]) for row in csv.DictReader(file)]
        assert rows[:5] == [("baseline", "A-v0")] * 3 + [("baseline", "B-v0")] * 2
        assert len(rows) == 12 and rows[-2:] == [("core-7", "B-v0")] * 2
    assert "| 100 (3 runs) | 200 (2 runs) |" in (out / "ablation_ppo.md").read_text()


def test_a_file_of_somebody_else_is_left_out_of_the_picture(runs_dir, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "ablation_notes.csv").write_text("what,why\na,b\n")
    done = run_program("ablation_plot.py", "--runs-dir", str(runs_dir), "--out", str(out))
    assert done.returncode == 0 and (out / "ablation.png").exists()
    told = [line for line in done.stderr.splitlines() if "ablation_notes.csv" in line]
    assert len(told) == 1 and told[0].startswith("warning: ")


def test_numbers_of_details_without_runs_are_not_written_over(runs_dir, tmp_path):
    """Those of another folder of runs, where only some of the details were trained."""
    out = tmp_path / "out"
    words = ["--out", str(out)]
    assert run_program("ablation_plot.py", "--runs-dir", str(runs_dir), *words).returncode == 0
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    (runs_dir / "core-3").rename(tmp_path / "core-3")
    done = run_program("ablation_plot.py", "--runs-dir", str(runs_dir), *words)
    reason = "core-3 in A-v0, of which --runs-dir has no finished run: write elsewhere"
    assert done.returncode == 2
    assert done.stderr == f"error: --out: {out / 'ablation_ppo.csv'} has {reason}\n"
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    elsewhere = ["--out", str(tmp_path / "elsewhere")]
    assert run_program("ablation_plot.py", "--runs-dir", str(runs_dir), *elsewhere).returncode == 0


def test_environments_whose_baseline_is_not_finished_stay_as_they_were(runs_dir, tmp_path):
    """They are trained again, so far without a detail alone; a new environment is finished."""
    out = tmp_path / "out"
    words = ["--runs-dir", str(runs_dir), "--out", str(out)]
    assert run_program("ablation_plot.py", *words).returncode == 0
    before = (out / "ablation_ppo_scores.csv").read_text().splitlines()
    effects = read_effects(out / "ablation_ppo.csv")
    for run in (runs_dir / "baseline").glob("A-v0__*"):
        (run / "agent.pt").unlink()
    make_run(runs_dir / "baseline", 1, 0.0, 5.0, env_id="B-v0")
    done = run_program("ablation_plot.py", *words)
    assert done.returncode == 0, done.stderr
    told = "warning: A-v0 is left out: no finished run of the baseline"
    assert done.stderr.splitlines() == [told]
    after = (out / "ablation_ppo_scores.csv").read_text().splitlines()
    assert [line for line in after if ",B-v0," not in line] == before
    assert len(after) == len(before) + 1
    kept = [one for one in read_effects(out / "ablation_ppo.csv") if one.env_id == "A-v0"]
    assert repr(kept) == repr(effects)


def test_a_finished_run_with_damaged_event_files_does_not_count(runs_dir, capsys):
    """Its event file ends after 200 of 1,000 steps; so does that of the run that diverged."""
    for seed in (1, 2):
        (run,) = (runs_dir / "core-7").glob(f"A-v0__ppo__{seed}__*")
        facts = json.loads((run / "args.json").read_text())
        facts["args"]["total_timesteps"] = 1000
        (run / "args.json").write_text(json.dumps(facts))
    assert [one.run.seed for one in plot.read_variant(runs_dir / "core-7")] == [2]
    told = "is left out: its event files end after 200 of 1,000 steps: damaged\n"
    assert capsys.readouterr().err.endswith(told)


def test_the_picture_has_shares_of_what_is_learned():
    numbers = {"runs": 3, "diverged": 0, "score": 25.0, "baseline_runs": 3, "baseline": 100.0}
    effect = Effect("core-3", "A-v0", **numbers, start=50.0, difference=-75.0, low=-80, high=-70)
    assert effect.share(effect.difference) == -1.5 and effect.lost == 1.5
    assert [plot.percent(x) for x in (-1.5, 0.031, -0.001)] == ["\u2212150", "+3", "0"]
    assert plot.interval_of(effect) == "\u2212160 to \u2212140"
    nothing_learned = Effect("core-3", "A-v0", **numbers, start=100, difference=0, low=0, high=0)
    assert math.isnan(nothing_learned.share(-1.0)) and nothing_learned.lost == 0
    assert plot.interval_of(nothing_learned) == "nothing learned"
    other = dataclasses.replace(effect, tag="core-4", difference=-80.0)
    effects = [effect, other, dataclasses.replace(effect, tag="core-5", runs=0)]
    assert plot.by_importance(effects) == ["core-4", "core-3"]


def test_no_runs_are_bad_input(tmp_path, runs_dir):
    def refused(*words: object) -> str:
        done = run_program("ablation_plot.py", *map(str, words))
        assert done.returncode == 2
        return done.stderr.splitlines()[-1]

    out = ("--out", tmp_path / "out")
    assert "is no folder that ablation.py has made" in refused("--runs-dir", tmp_path, *out)
    script = runs_dir / "baseline" / "ppo.py"
    assert "is not a folder" in refused("--runs-dir", runs_dir, "--out", script / "sub")
    (tmp_path / "new" / "baseline").mkdir(parents=True)
    (tmp_path / "new" / "baseline" / "ppo.py").write_text(script.read_text())
    assert "no finished run" in refused("--runs-dir", tmp_path / "new", *out)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    for name in ("ablation_ppo.csv", "ablation_ppo_scores.csv"):
        file = tmp_path / "out" / name
        file.write_text("a,b\n")
        assert f"{file}: the columns" in refused("--runs-dir", runs_dir, *out)
        file.unlink()


# ------ the table of the details page ------


def test_effects_are_read_as_they_were_written(tmp_path):
    effect = Effect("core-3", "A-v0", 1, 0, 2.0, 3, 4.0, 5.0, -2.0, math.nan, math.nan)
    other = dataclasses.replace(effect, low=-3.0, high=-1.0, p=2.11e-10)
    same = dataclasses.replace(effect, p=1.0, same=True)
    small = dataclasses.replace(effect, difference=0.004, low=0.001, high=0.007, p=0.01)
    write_effects([effect, other, same, small], tmp_path / "x.csv")
    found = read_effects(tmp_path / "x.csv")
    assert repr(found) == repr([effect, other, same, small])
    assert found[3].certain
    assert read_effects(tmp_path / "nowhere.csv") == []
    (tmp_path / "x.csv").write_text("tag,score\ncore-3,1\n")
    with pytest.raises(ValueError, match=r"x\.csv: the columns are not tag, env_id"):
        read_effects(tmp_path / "x.csv")


def test_what_was_not_run_says_so():
    wanted = ablations("ppo.py", Collection().source("ppo.py")).values()
    lines = table(wanted, []).splitlines()
    assert len(lines) == 2 + len(wanted)
    assert lines[4].endswith("| torch's default epsilon, 1e-8 | not run yet |")
    effect = Effect("core-4", "A-v0", 5, 0, 2.0, 5, 4.0, 1.0, -2.0, -3.0, -1.0)
    lines = table(wanted, [effect]).splitlines()
    assert lines[0] == "| detail | without it | A-v0 |"
    assert lines[5].endswith("| torch's default epsilon, 1e-8 | not run yet |")
    assert lines[6].endswith("| **-2.0** (-3.0 to -1.0) |")


def test_weights_of_one_and_minus_one_make_welchs_test():
    """Interval and p-value are scipy's, also with one side that does not vary."""
    for scores, baseline in (([1.0, 4.0, 2.0], [0.5, 0.7]), ([4.0, 5.0, 7.0], [9.0, 9.0])):
        with warnings.catch_warnings(action="ignore"):  # of the side that does not vary
            test = stats.ttest_ind(scores, baseline, equal_var=False)
            expected = test.confidence_interval()
        samples = [plot.np.array(scores), plot.np.array(baseline)]
        found = intervals.weighted_sum(samples, [1, -1])
        assert found.interval == pytest.approx((expected.low, expected.high))
        assert found.p_value == pytest.approx(test.pvalue)


def test_holms_correction_by_hand():
    """0.05 / 4, 0.05 / 3 and 0.05 / 2 are the limits, in order; what follows one above is left."""
    effect = Effect("core-4", "A-v0", 5, 0, 2.0, 5, 11.0, 1.0, -9.0, -10.0, -8.0)

    def left(*ps: float) -> list[float]:
        effects = [dataclasses.replace(effect, p=p) for p in ps]
        return [one.p for one in results.beyond_chance(effects)]

    assert left(0.016, 0.9, 0.012, 0.026) == [0.012, 0.016]
    assert left(0.016, 0.9, 0.013, 0.016) == []
    assert left(0.016, math.nan, 0.012, 0.026) == [0.012, 0.016, 0.026], "3 of them were tested"
    assert left(0.01, 0.02) == [0.01, 0.02]
    assert left() == []


def test_details_are_named_by_whether_chance_explains_them():
    effect = Effect("core-4", "A-v0", 5, 0, 2.0, 5, 11.0, 1.0, -9.0, -10.0, -8.0, p=0.0001)
    other = dataclasses.replace(effect, env_id="B-v0", difference=-2.0, low=-3.0, high=-1.0)
    more = dataclasses.replace(effect, tag="core-3", difference=-10.0)
    gained = dataclasses.replace(effect, tag="core-5", difference=9.0, low=8.0, high=10.0)
    chance = dataclasses.replace(effect, tag="core-6", p=0.04)
    unclear = dataclasses.replace(effect, tag="core-7", high=1.0, p=0.06)
    same = dataclasses.replace(effect, tag="core-8", difference=0.0, low=0, high=0, p=1, same=True)
    single = dataclasses.replace(effect, tag="core-9", low=math.nan, high=math.nan, p=math.nan)
    effects = [effect, other, more, gained, unclear, same, single]
    script = "ppo_continuous_action.py"
    counts, sure, *rest = results.paragraphs({"ppo.py": effects, script: [chance]})
    assert " ".join(counts.split()) == (
        "7 differences were measured. In 1 of them all scores are the same; of the other 6, "
        "about 0 would have a 95 % interval without 0 by chance alone. 5 have one: they are bold, "
        "in the tables and below."
    )
    assert sure.startswith("**More than chance explains**, by Holm's correction over all 7,")
    assert rest == [
        "- in `ppo.py` less is learned without `core-3` Adam epsilon 1e-5 (A-v0 100 %); "
        "`core-4` Adam learning rate annealing (A-v0 90 %, B-v0 20 %)\n"
        "- in `ppo.py` more is learned without `core-5` generalized advantage estimation "
        "(A-v0 90 %)",
        "**Seen here, may be chance**, those that are bold besides:",
        f"- in `{script}` less is learned without `core-6` mini-batch updates (A-v0 90 %)",
    ]
    assert results.paragraphs({"ppo.py": [unclear]})[2:] == ["- none"]
    assert results.paragraphs({"ppo.py": [single], script: []}) == []


def test_the_page_counts_its_tables():
    """The numbers beside the names are those of the cells below, bold or not."""
    collection = Collection()
    text = " ".join(f"{results.summary(collection)} {results.tables(collection)}".split())
    with_interval = re.findall(r"\| (\**-?[\d.]+\** \([^|]* to [^|]*\))(?= \|)", text)
    bold = [cell for cell in with_interval if cell.startswith("**")]
    same = text.count("| the same scores")
    assert f"{len(with_interval) + same} differences were measured. In {same} of them" in text
    assert f"of the other {len(with_interval)}, about {0.05 * len(with_interval):.0f} " in text
    assert f"alone. {len(bold)} have one" in text
    lines = [line for about in results.sentences(collection).values() for line in about]
    below = [number for line in lines for number in re.findall(r"\*\*(-?[\d.]+)\*\* \(", line)]
    assert below and all(any(cell.startswith(f"**{x}**") for cell in bold) for x in below)


def test_the_page_says_which_details_have_not_been_measured():
    explanation = " ".join((ROOT / "docs" / "details.md").read_text().split())
    named = re.search(r"\(([a-z0-9, -]+)\) have not been measured", explanation)[1].split(", ")
    measured = results.sentences(Collection())
    for tag in DETAILS:
        left_out = tag in named or tag.rpartition("-")[0] in named or tag in NOT_IMPLEMENTED
        assert left_out != (tag in measured), tag


def test_the_page_has_all_details_that_are_trained():
    """All of ppo.py, and what ppo_continuous_action.py has besides."""
    text = results.tables(Collection())
    sentences = results.sentences(Collection())
    shown = set()
    for script, beginnings in results.TRAINED.items():
        part = text.partition(f"**`{script}`**")[2].partition("**`")[0]
        for ablation in ablations(script, Collection().source(script)).values():
            begin = f"Without it in `{script}`: {ablation.without}."
            said = any(sentence.startswith(begin) for sentence in sentences[ablation.tag])
            trained = ablation.tag.startswith(beginnings)
            row = f"{results.label(ablation.tag)} | {ablation.without} |"
            assert (row in part) == said == trained
            if trained:
                shown.add(ablation.tag)
    for script in results.TRAINED:
        assert shown >= set(ablations(script, Collection().source(script)))


def test_a_detail_says_what_happens_without_it(tmp_path):
    (tmp_path / "ppo").mkdir()
    (tmp_path / results.RESULTS).mkdir(parents=True)
    (tmp_path / "ppo" / "ppo.py").write_text(Collection().source("ppo.py"))
    collection = Collection(tmp_path, {"ppo.py": Script(None, None)}, ())
    effect = Effect("core-4", "A-v0", 5, 0, 2.0, 5, 4.0, 1.0, -2.0, -3.0, -1.0)
    other = dataclasses.replace(effect, env_id="B-v0", difference=0.5, high=4.0, diverged=1)
    write_effects([effect, other], tmp_path / results.RESULTS / "ablation_ppo.csv")
    found = results.sentences(collection)
    begin = "Without it in `ppo.py`: "
    each = "A-v0 **-2.0** (-3.0 to -1.0); B-v0 0.5 (-3.0 to 4.0), 1 diverged"
    scores = f"Change of the mean score: {each}."
    assert found["core-4"] == [f"{begin}the learning rate stays what it is at the start. {scores}"]
    assert found["core-3"] == [f"{begin}torch's default epsilon, 1e-8. Not run yet."]
    assert found["aux-3"][0].endswith("it is off unless --target-kl is given.")


# ------ from end to end ------


@pytest.mark.slow("trains")
def test_a_detail_of_ppo_is_trained_without(tmp_path):
    script = ROOT / "ppo" / "ppo.py"
    flags = "--no-cuda --eval-episodes 0 --total-timesteps 1024 --num-steps 64"
    runs, out = ["--runs-dir", str(tmp_path / "runs")], ["--out", str(tmp_path / "out")]
    words = ["--command", f"{sys.executable} {script} {flags}", "--env-ids", "CartPole-v1"]
    more = ["--num-seeds", "1", "--workers", "2", "--details", "core-7"]
    done = run_program("ablation.py", *words, *more, *runs)
    assert done.returncode == 0, done.stderr
    (copy,) = (tmp_path / "runs" / "core-7").glob("CartPole-v1__ppo__1__*/ppo.py")
    assert own_ablations("ppo.py")["core-7"].apply(script.read_text()) == copy.read_text()
    assert run_program("ablation_plot.py", *runs, *out).returncode == 0
    effects = {effect.tag: effect for effect in read_effects(tmp_path / "out/ablation_ppo.csv")}
    assert effects["core-7"].runs == 1 and effects["core-7"].score > 8
