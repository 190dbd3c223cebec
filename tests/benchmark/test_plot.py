"""Curves and tables of benchmark/plot.py, from synthetic runs."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import plot
import pytest
from helpers.benchmark_runs import run_program
from helpers.fake_runs import episodes, make_group, make_run
from scipy import stats

WALKER, PENDULUM = "dm_control/walker-run-v0", "dm_control/pendulum-swingup-v0"


def draw(runs_dir: Path, out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """The program, which must end well."""
    done = run_program("plot.py", "--runs-dir", str(runs_dir), "--out", str(out), *flags)
    assert done.returncode == 0, done.stderr
    return done


def test_writes_curves_scores_table_and_picture(tmp_path):
    runs_dir, out = tmp_path / "runs", tmp_path / "out"
    last = (5000, 300.0)
    values = {seed: np.r_[np.full(400, 20.0), np.arange(100) + 100.0 * seed] for seed in (1, 2, 3)}
    for seed, returns in values.items():
        part = {"start": 0, "episodes": episodes(returns), "last": last}
        make_run(runs_dir, "CartPole-v1", seed, [part])
    part = {"start": 0, "episodes": episodes(np.full(7, -5.0), step=700), "last": last}
    make_run(runs_dir, "Own-v0", 1, [part])
    make_run(runs_dir, "Own-v0", 2, [part], finished=False)

    draw(runs_dir, out, "--name", "results")
    scores = pd.read_csv(out / "results_scores.csv")
    assert scores["score"].tolist() == [149.5, 249.5, 349.5, -5.0]
    assert scores["steps"].unique() == [5000] and scores["minutes"].unique() == [5.0]
    assert {"script_hash", "versions", "hardware", "commit"} <= set(scores)

    points = pd.read_csv(out / "results.csv")
    curve = points[(points["env_id"] == "CartPole-v1") & (points["seed"] == 2)]
    assert len(curve) == 200
    middle = curve[curve["global_step"] == 4500].iloc[0]  # 450 episodes
    assert middle["return"] == pytest.approx(values[2][350:450].mean(), abs=0.01)
    assert middle["minutes"] == pytest.approx(4.5, abs=0.001)
    own = points[points["env_id"] == "Own-v0"]
    assert own["global_step"].min() >= 700, "no point before the first episode"

    table = (out / "results.md").read_text()
    assert "| environment | `ppo.py` | CleanRL | openai/baselines | steps | minutes |" in table
    assert "| CartPole-v1 | 249.50 ± 100.00 (3 seeds) | 490.04 ± 6.12 (500k steps) |" in table
    assert "| Own-v0 | -5.00 (1 seed) | - | - | 5k | 5.0 |" in table
    assert "Left out, not finished: Own-v0 seed 2." in table
    picture = (out / "results.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and 10_000 < len(picture) < 150_000


def test_other_runs_are_shown_beside_after_as_many_steps(tmp_path):
    make_group(tmp_path / "ours", {"X-v0": [5.0]})
    part = {"start": 0, "episodes": episodes(np.arange(600.0)), "last": (6000, 360.0)}
    theirs = make_run(tmp_path / "theirs", "X-v0", 1, [part])
    (theirs / "args.json").unlink()
    draw(tmp_path / "ours", tmp_path / "out", "--beside", f"CleanRL={tmp_path / 'theirs'}")
    table = (tmp_path / "out" / "ppo.md").read_text()
    assert "| X-v0 | 5.00 (1 seed) | 4.50 (1 seed) |" in table  # its first ten episodes


def test_the_picture_says_which_single_seed_is_drawn_beside_others(tmp_path, monkeypatch):
    make_group(tmp_path / "ours", {"X-v0": [5.0]})
    make_group(tmp_path / "more", {"X-v0": [5.0]})
    figures = []
    monkeypatch.setattr(plot, "save", lambda figure, path: figures.append(figure))
    for beside in ((f"seed 3={tmp_path / 'more'}",), ()):
        results = plot.read_results(plot.Args(tmp_path / "ours", beside=beside))
        plot.draw(results, tmp_path / "unused.png", minutes=False)
    beside, alone = figures
    assert beside.axes[0].get_title() == "X-v0"
    names = [text.get_text() for text in beside.legends[0].get_texts()]
    assert names == ["ppo.py, seed 1", "seed 3"]
    assert alone.axes[0].get_title() == "X-v0\n1 seed"
    assert [text.get_text() for text in alone.legends[0].get_texts()] == ["ppo.py"]


def test_patterns_choose_among_the_runs_of_a_folder(tmp_path):
    for name, score in (("ppo", 5.0), ("mine", 7.0)):
        make_group(tmp_path / "runs", {"X-v0": [score]}, name=name)
    beside = f"mine={tmp_path / 'runs' / '*__mine__*'}"
    draw(tmp_path / "runs" / "*__ppo__*", tmp_path / "out", "--beside", beside)
    table = (tmp_path / "out" / "ppo.md").read_text()
    assert "| X-v0 | 5.00 (1 seed) | 7.00 (1 seed) |" in table


def test_shorter_runs_beside_say_so(tmp_path):
    make_group(tmp_path / "beside", {"X-v0": [5.0]})
    make_run(tmp_path / "beside", "X-v0", 2, [], finished=False)
    part = {"start": 0, "episodes": episodes(np.full(600, 7.0)), "last": (6000, 360.0)}
    make_run(tmp_path / "ours", "X-v0", 1, [part])
    draw(tmp_path / "ours", tmp_path / "out", "--beside", f"A={tmp_path / 'beside'}")
    table = (tmp_path / "out" / "ppo.md").read_text()
    assert "| X-v0 | 7.00 (1 seed) | 5.00 (1 seed, 100 steps) |" in table
    assert "A: Left out, not finished: X-v0 seed 2." in table


def test_seeds_of_several_versions_are_told_apart(tmp_path):
    make_group(tmp_path, {"X-v0": [1.0, 2.0, 3.0]})
    for folder in tmp_path.glob("*__3__*"):
        facts = json.loads((folder / "args.json").read_text())
        facts["argv"] += ["--gamma", "0.5"]
        (folder / "args.json").write_text(json.dumps(facts))
    results = plot.read_results(plot.Args(tmp_path))
    told = plot.origin(results.by_env["X-v0"])
    assert "default flags, seeds 1, 2; " in told and "flags `--gamma 0.5`, seed 3." in told


def test_another_programs_runs_are_of_unknown_origin(tmp_path):
    make_group(tmp_path, {"X-v0": [1.0]})
    for file in tmp_path.glob("*/args.json"):
        file.unlink()
    results = plot.read_results(plot.Args(tmp_path))
    told = plot.origin(results.by_env["X-v0"])
    assert told == "`ppo`, version not recorded, flags not recorded, seed 1."


def test_runs_are_called_by_their_own_name(tmp_path):
    results = plot.read_results(plot.Args(make_group(tmp_path, {"X-v0": [1.0, 2.0]})))
    for run, name in zip(results.runs, ("mine", "mine"), strict=True):
        run.settings["exp_name"] = name
    assert results.label == "mine"
    results.runs[0].settings["exp_name"] = "ppo"
    assert results.label == "ppo.py"


@pytest.mark.parametrize("ours", [True, False])
def test_lengths_are_the_scores_of_self_play(ours, tmp_path):
    part = {"start": 0, "episodes": episodes(np.full(9, 70.0)), "last": (90, 9.0)}
    tag = "charts/episodic_length-player0"
    folder = make_run(tmp_path, "pong_v3", 1, [part], name="ppo_pettingzoo_ma_atari", tag=tag)
    if not ours:  # CleanRL's script has the same name
        (folder / "args.json").unlink()
    results = plot.read_results(plot.Args(tmp_path))
    assert results.what == "length" and results.runs[0].score == 70


def test_published_score_of_the_nearest_number_of_steps_counts():
    scores = [SimpleNamespace(source="A", total_timesteps=steps) for steps in (1e6, 8e6, 1e7)]
    assert plot.nearest(scores, 2e6) == scores[:1]
    assert plot.nearest(scores, 9.5e6) == scores[2:]


def test_cleanrls_curve_is_drawn_as_far_as_the_runs_go(tmp_path):
    make_group(tmp_path, {"starpilot": [9.0], "X-v0": [1.0]}, "ppo_procgen", steps=250_000)
    results = plot.read_results(plot.Args(tmp_path))
    for over, expected in (("steps", [2.0, 2.6]), ("minutes", None)):
        figure, axes = plot.plt.subplots()
        plot.draw_panel(axes, results, "starpilot", over)
        curves = [line.get_ydata() for line in axes.lines if line.get_color() == plot.RED]
        assert curves == ([pytest.approx(expected)] if expected else [])
        assert len(axes.collections) == len(curves), "its band"
        plot.draw_panel(axes, results, "X-v0", over)
        assert len(axes.lines) == 2 + len(curves), "no curve of another environment"
        plot.plt.close(figure)


@pytest.mark.parametrize("minutes", [True, False])
def test_a_picture_has_a_panel_over_steps_and_one_over_minutes(tmp_path, monkeypatch, minutes):
    make_group(tmp_path, {env_id: [1.0] for env_id in "ABCDE"})
    figures = []
    monkeypatch.setattr(plot, "save", lambda figure, path: figures.append(figure))
    plot.draw(plot.read_results(plot.Args(tmp_path)), tmp_path, minutes)
    shown = [axes.get_xlabel() for axes in figures[0].axes if axes.get_visible()]
    assert shown.count("environment steps") == 5
    assert shown.count("wall-clock minutes") == 5 * minutes
    plot.plt.close(figures[0])


def test_the_band_is_students_interval(tmp_path):
    sample = [1.0, 2.0, 4.0]
    results = plot.read_results(plot.Args(make_group(tmp_path, {"X-v0": sample})))
    figure, axes = plot.plt.subplots()
    plot.draw_seeds(axes, results.runs, plot.BLUE, "steps")
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    interval = stats.t.interval(0.95, 2, np.mean(sample), stats.sem(sample))
    assert (heights.min(), heights.max()) == pytest.approx(interval)
    plot.plt.close(figure)


def test_a_suite_is_one_picture(tmp_path):
    """Walker scores 200 and 300, where 125.92 is published; pendulum 100 and 120, of 242.81."""
    scores = {WALKER: [200.0, 300.0], PENDULUM: [100.0, 120.0]}
    runs_dir = make_group(tmp_path / "runs", scores, "ppo_continuous_action", steps=700_000)
    done = draw(runs_dir, tmp_path / "out", "--suite", "two")
    files = [tmp_path / "out" / f"two{end}" for end in (".png", ".csv", "_scores.csv", ".md")]
    assert done.stdout.splitlines() == [str(path) for path in files]
    curve = pd.read_csv(files[1])
    # Variances 5,000 and 200 of two seeds each: that of the mean is (2,500 + 100) / 4, with
    # 2,600² / (2,500² + 100²) degrees of freedom.
    half = 650**0.5 * stats.t.ppf(0.975, 2600**2 / (2500**2 + 100**2))
    assert curve["mean"].to_numpy() == pytest.approx(180)
    assert curve["high"].to_numpy() == pytest.approx(180 + half, abs=0.01)
    first, _, table = files[3].read_text().partition("\n\n")
    assert "180 (95 %: -92 to 452)" in first and "higher in 1 of 2" in first
    assert f"| {WALKER} | 250.00 ± 70.71 (2 seeds) | 125.92 ± 10.01 (1M steps) |" in table


def test_a_suites_published_mean_names_only_those_it_is_from(tmp_path):
    """CartPole's scores of CleanRL and of openai/baselines are both in the table."""
    scores = {"CartPole-v1": [400.0], "Acrobot-v1": [-90.0]}
    results = plot.read_results(plot.Args(make_group(tmp_path, scores, steps=500_000)))
    assert len(results.sources) == 2 and plot.publishers(results) == "CleanRL, published"
