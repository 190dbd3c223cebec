"""Curves and tables of benchmark/plot.py, from synthetic runs."""

import csv
import json
import subprocess
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import runs as run_folders
import tyro
from helpers.benchmark_runs import run_program
from helpers.in_process import load_program
from matplotlib.lines import Line2D
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

plot = load_program("plot.py")
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

    An episode is (step, seconds since the part's start, return); several that share a point have
    their number behind it.
    """
    folder = runs_dir / f"{env_id.replace('/', '-')}__{name}__{seed}__{ended}"
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
        for step, seconds, value, *count in part["episodes"]:
            values = [Summary.Value(tag=tag, simple_value=value)]
            values += [Summary.Value(tag="charts/episodes", simple_value=x) for x in count]
            summary = Summary(value=values)
            writer.file_writer.add_summary(summary, step, walltime=begin + seconds)
        step, seconds = part["last"]
        writer.add_scalar("charts/SPS", 100.0, step, walltime=begin + seconds)
        writer.close()
    return folder


def episodes(values: np.ndarray, step: int = 10) -> list[tuple[int, float, float]]:
    return [(step * (i + 1), 0.6 * (i + 1), float(value)) for i, value in enumerate(values)]


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
    (runs_dir / "logs").mkdir()

    done = draw(runs_dir, out, "--name", "results")
    assert "Own-v0__ppo__2__20261120-120000 is left out: not finished" in done.stderr

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
    assert "| CartPole-v1 | 249.50 ± 100.00 (3 seeds) | 490.04 ± 6.12 (500k steps) |" in table
    assert "| Own-v0 | -5.00 (1 seed) | - | - | 5k | 5.0 |" in table
    assert "Ours were made with python 3.11.7 torch 2.13.0 on cpu." in table
    assert "CartPole-v1: `ppo.py`, version not recorded, default flags, seeds 1, 2, 3." in table
    assert scores[0]["script"] == "ppo.py" and scores[0]["versions"] == "python 3.11.7 torch 2.13.0"
    assert "Left out, not finished: Own-v0 seed 2." in table
    assert "Fewer than 100 episodes, all of them counted: Own-v0 seed 1 (7)." in table
    assert "docs/rl-algorithms/ppo" in table

    picture = (out / "results.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and 10_000 < len(picture) < 150_000
    assert picture[25] == 3, "with a palette: a full benchmark stays below 150 kB"


def test_other_programs_runs_are_shown_beside(tmp_path):
    """At the steps of ours, wherever they ended; folders that are no runs are passed over."""
    ours, theirs, out = tmp_path / "runs", tmp_path / "theirs", tmp_path / "out"
    part = {"start": 0, "episodes": episodes(np.full(300, 7.0)), "last": (3000, 180.0)}
    make_run(ours, "CartPole-v1", 1, [part])
    for seed, steps in ((1, 6000), (2, 2000)):
        part = {"start": 0, "episodes": episodes(np.arange(steps // 10)), "last": (steps, 360.0)}
        (make_run(theirs, "CartPole-v1", seed, [part]) / "args.json").unlink()
    (theirs / "notes").mkdir()
    draw(ours, out, "--beside", f"Peer={theirs}")
    table = (out / "ppo.md").read_text()
    header = "| environment | `ppo.py` | Peer, run beside it | CleanRL | openai/baselines | steps |"
    assert header in table
    assert "| CartPole-v1 | 7.00 (1 seed) | 199.50 ± 70.71 (2 seeds) |" in table  # 249.5, 149.5
    assert "CartPole-v1__ppo__2__20261120-120000 ended after 2,000 steps." in table
    with open(out / "ppo_peer.csv") as file:
        points = [row for row in csv.DictReader(file) if row["seed"] == "1"]
    assert (points[99]["global_step"], points[99]["return"]) == ("3000", "249.50")


def test_own_runs_beside_count_if_they_are_finished(tmp_path):
    ours, before, out = tmp_path / "runs", tmp_path / "x/before", tmp_path / "out"
    part = {"start": 0, "episodes": episodes(np.full(300, 7.0)), "last": (3000, 180.0)}
    make_run(ours, "CartPole-v1", 1, [part])
    make_run(before, "CartPole-v1", 1, [part])
    part["episodes"] = episodes(np.full(300, 900.0))
    make_run(before, "CartPole-v1", 2, [part], finished=False)
    draw(ours, out, "--beside", f"before={before}")
    table = (out / "ppo.md").read_text()
    assert "| CartPole-v1 | 7.00 (1 seed) | 7.00 (1 seed) |" in table
    assert "before: Left out, not finished: CartPole-v1 seed 2." in table
    done = run_program("plot.py", "--runs-dir", str(ours), "--beside", f"before={tmp_path / 'x'}")
    assert done.returncode == 2
    assert f"before: runs of ours are in sub-folders: {before}; name one" in done.stderr


def drawn(group: list, beside: list) -> tuple[list, list]:
    """Lines and bands of the other program's colour in a panel."""
    axes = plot.plt.figure().subplots()
    panel = plot.Panel(axes, "steps", group)
    panel.draw_beside(beside, "#123456")
    lines = [line for line in axes.lines if line.get_color() == "#123456"]
    return lines, list(axes.collections)


def test_several_runs_beside_are_a_mean_with_its_band(tmp_path):
    for seed, value in ((1, 4.0), (2, 8.0), (3, 9.0)):
        part = {"start": 0, "episodes": episodes(np.full(300, value)), "last": (3000, 180.0)}
        make_run(tmp_path, "CartPole-v1", seed, [part])
    group = run_folders.read_runs(tmp_path)[0]["CartPole-v1"]
    *thin, mean = drawn(group, group)[0]
    (band,) = drawn(group, group)[1]
    assert len(thin) == 3
    assert all(line.get_linewidth() < mean.get_linewidth() for line in thin)
    assert mean.get_ydata()[-1] == pytest.approx(7.0)
    half = 4.302653 * (7.0 / 3) ** 0.5  # t of 97.5 % and 2 degrees of freedom; variance 7
    top = band.get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(7.0 + half, rel=1e-5)
    lines, bands = drawn(group, group[:1])
    assert len(lines) == 1 and not bands


def test_groups_beside_each_other_have_colours_and_names_in_the_legend(tmp_path):
    part = {"start": 0, "episodes": episodes(np.full(300, 7.0)), "last": (3000, 180.0)}
    for folder, count in (("after", 1), ("before", 2), ("once", 1)):
        for seed in range(count):
            make_run(tmp_path / folder, "CartPole-v1", seed, [part])

    def legend(*flags: str) -> dict[str, str]:
        """What each line is called, with its colour."""
        args = tyro.cli(plot.Args, args=["--runs-dir", str(tmp_path / "after"), *flags])
        results = plot.without_longer_ones(plot.read_results(args))
        handles = plot.legend_entries(results)
        return {one.get_label(): one.get_color() for one in handles if isinstance(one, Line2D)}

    groups = [f"{name}={tmp_path / name}" for name in ("before", "once")]
    assert legend("--beside", *groups) == {
        "ppo.py": plot.BLUE,
        "single seeds": plot.BLUE,
        "before, mean of seeds": plot.BESIDE_COLORS[0],
        "once, run beside it": plot.BESIDE_COLORS[1],
    }
    assert list(legend()) == ["ppo.py"]
    make_run(tmp_path / "after", "CartPole-v1", 1, [part])
    assert list(legend()) == ["ppo.py, mean of seeds", "single seeds"]


def test_runs_are_called_by_their_own_name_if_all_have_it(tmp_path):
    part = {"start": 0, "episodes": episodes(np.full(300, 7.0)), "last": (3000, 180.0)}
    folders = [make_run(tmp_path / "runs", "CartPole-v1", seed, [part]) for seed in (1, 2)]

    def rename(folder: Path, exp_name: str) -> None:
        facts = json.loads((folder / "args.json").read_text())
        facts["args"]["exp_name"] = exp_name
        (folder / "args.json").write_text(json.dumps(facts))

    for names, label in ((("ppo", "ppo"), "ppo.py"), (("mine", "ppo"), "ppo.py")):
        for folder, name in zip(folders, names, strict=True):
            rename(folder, name)
        draw(tmp_path / "runs", tmp_path / "out")
        assert f"| `{label}` |" in (tmp_path / "out" / "ppo.md").read_text()
    rename(folders[1], "mine")
    draw(tmp_path / "runs", tmp_path / "out")
    assert "| `mine` |" in (tmp_path / "out" / "ppo.md").read_text()


def test_lengths_of_self_play_are_called_so_and_stand_beside_lengths(tmp_path):
    ours, theirs, out = tmp_path / "runs", tmp_path / "theirs", tmp_path / "out"
    part = {"start": 0, "episodes": episodes(np.full(200, 1300.0)), "last": (2000, 180.0)}
    facts = {"name": "ppo_pettingzoo_ma_atari", "tag": "charts/episodic_length-player0"}
    make_run(ours, "pong_v3", 1, [part], **facts)
    part["episodes"] = episodes(np.full(200, 1200.0))
    make_run(theirs, "pong_v3", 1, [part], tag=facts["tag"])
    make_run(ours, "pong_v3", 2, [part], finished=False, name="ppo")  # another script's
    silent = {"start": 0, "episodes": [], "last": (100, 9.0)}
    make_run(ours, "CartPole-v1", 3, [silent], name="ppo")
    draw(ours, out, "--beside", f"Peer={theirs}")
    table = (out / "ppo_pettingzoo_ma_atari.md").read_text()
    assert "| pong_v3 | 1300.00 (1 seed) | 1200.00 (1 seed) |" in table
    assert "mean length of its last" in table and "eft out" not in table
    for name in ("ppo_pettingzoo_ma_atari", "ppo_pettingzoo_ma_atari_peer"):
        header, row, *_ = (out / f"{name}.csv").read_text().splitlines()
        assert header.endswith(",minutes,length") and row.endswith("00.00")


def test_the_newest_of_several_runs_counts(tmp_path, capsys):
    part = {"start": 0, "episodes": episodes(np.full(9, 1.0)), "last": (90, 9.0)}
    make_run(tmp_path, "A-v0", 1, [part], name="ppo-zz", ended="20260101-120000")
    newest = make_run(tmp_path, "A-v0", 1, [part], name="ppo-a", ended="20260901-120000")
    make_run(tmp_path, "A-v0", 1, [part], name="ppo-m", ended="20260501-120000")
    assert [run.folder for run in run_folders.read_runs(tmp_path)[0]["A-v0"]] == [newest]
    assert "zz__1__20260101-120000 is left out" in capsys.readouterr().err
    silent = {"start": 0, "episodes": [], "last": (100, 9.0)}
    make_run(tmp_path, "A-v0", 1, [silent], ended="20261001-120000")
    found = run_folders.find_runs(tmp_path)
    assert not found.runs and list(found.left_out.values()) == [run_folders.NO_EPISODE]
    assert f"{newest} is left out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Peer", "a peer whose name takes half of the picture's width"])
def test_legend_is_as_wide_as_the_picture_at_most(name, tmp_path):
    part = {"start": 0, "episodes": episodes(np.full(20, 9.0)), "last": (400_000, 60.0)}
    run = make_run(tmp_path / "runs", "CartPole-v1", 1, [part])
    draw(run.parent, tmp_path / "out", "--beside", f"{name}={run.parent}")
    with plot.Image.open(tmp_path / "out" / "ppo.png") as picture:
        dark = np.array(picture.convert("L")) < 200
    legend = np.flatnonzero(dark[-45:].any(0))  # its columns; the axes' labels are above
    assert len(legend)
    assert legend[0] > 3 and legend[-1] < dark.shape[1] - 3


@pytest.mark.parametrize(("steps", "drawn"), [(5000, []), (400_000, [490.04, 497.54])])
def test_scores_of_much_longer_runs_are_not_drawn(steps, drawn, tmp_path, monkeypatch):
    """The published runs did 500,000 steps: 490.04 in CleanRL, 497.54 in baselines."""
    part = {"start": 0, "episodes": episodes(np.full(20, 9.0)), "last": (steps, 60.0)}
    make_run(tmp_path / "runs", "CartPole-v1", 1, [part])
    found, axhline = set(), plot.plt.Axes.axhline

    def spy(axes, y, **options):
        found.add(y)
        return axhline(axes, y, **options)

    monkeypatch.setattr(plot.plt.Axes, "axhline", spy)
    draw(tmp_path / "runs", tmp_path / "out")
    assert sorted(found) == drawn
    assert "497.54" in (tmp_path / "out" / "ppo.md").read_text()


def test_published_score_of_the_nearest_number_of_steps_counts():
    one, two, other = (
        plot.PublishedScore(source, mean, 0.0, steps)
        for source, mean, steps in (("A", 25.6, 1e6), ("A", 27.8, 8e6), ("B", 3.0, 5e5))
    )
    assert plot.nearest([one, two, other], 2e6) == [one, other]
    assert plot.nearest([one, two, other], 4e6) == [two, other]
    assert plot.published_cell([two, one], "A", 9.99e5) == "25.60 ± 0.00"
    assert plot.published_cell([two, one], "A", 4e6) == "27.80 ± 0.00 (8M steps)"


def test_a_published_score_of_one_seed_has_no_deviation(tmp_path):
    part = {"start": 0, "episodes": episodes(np.full(20, 9.0)), "last": (10_000_000, 60.0)}
    make_run(tmp_path / "runs", "Breakout-MinAtar", 1, [part], name="ppo_gymnax")
    draw(tmp_path / "runs", tmp_path / "out")
    table = (tmp_path / "out" / "ppo_gymnax.md").read_text()
    assert "| 43.38 |" in table
    assert "(gymnax-blines): [checkpoints of one seed](https://github.com/" in table


def test_resumed_run_drops_superseded_episodes_and_the_pause(tmp_path):
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
    events = run_folders.read_events(folder)
    found = [(episode.step, episode.score) for episode in events.episodes]
    assert found == [(100, 1), (200, 2), (290, 30), (390, 40)]
    assert [episode.minutes for episode in events.episodes] == pytest.approx([1, 2, 4, 5])
    assert events.last_step == 400 and events.minutes == pytest.approx(6)
    second["episodes"], second["last"] = [(230, 30.0, 30.0)], (240, 60.0)  # ends before the first
    shorter = make_run(tmp_path / "shorter", "CartPole-v1", 1, [first, second])
    assert run_folders.read_events(shorter).last_step == 240

    accumulator = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    expected = [(e.step, e.value) for e in accumulator.Scalars("charts/episodic_return")]
    assert found == expected


def test_a_point_of_several_episodes_counts_as_that_many(tmp_path):
    """The last hundred are 50 that had 3 on average and 50 of the 80 before them, which had 2."""
    points = [(100, 60.0, 1.0, 30), (200, 120.0, 2.0, 80), (300, 180.0, 3.0, 50)]
    part = {"start": 0, "episodes": points, "last": (300, 180.0)}
    make_run(tmp_path, "CartPole-v1", 1, [part])
    (run,) = run_folders.read_runs(tmp_path)[0]["CartPole-v1"]
    assert run.score == pytest.approx(2.5) and len(run.scores) == 160
    assert run.score_after(200) == pytest.approx((80 * 2 + 20 * 1) / 100)
    curve = run.curve("steps", np.array([100, 250, 300]))
    assert curve == pytest.approx([1.0, 1.8, 2.5])


def test_rolling_mean_and_held_values():
    x = np.random.default_rng(0).normal(size=250)
    expected = [x[max(0, i - 99) : i + 1].mean() for i in range(250)]
    assert np.allclose(run_folders.rolling_mean(x), expected)
    held = run_folders.value_at(
        np.array([0, 1, 2.5, 9]), np.array([1, 2, 3]), np.array([10, 20, 30])
    )
    assert np.array_equal(held, [np.nan, 10, 20, 30], equal_nan=True)


def test_confidence_is_students_interval():
    mean, half = plot.confidence(np.array([[1.0], [2.0], [3.0]]))
    assert mean[0] == 2 and half[0] == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5)


@pytest.mark.parametrize("names", [("Peer", "Peer"), ("a.b", "A-b"), ("scores",)])
def test_numbers_of_two_programs_do_not_go_to_one_file(names, tmp_path):
    part = {"start": 0, "episodes": [(100, 60.0, 1.0)], "last": (100, 60.0)}
    make_run(tmp_path / "runs", "A-v0", 1, [part])
    words = ["--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    words += ["--beside", *(f"{name}={tmp_path / 'runs'}" for name in names)]
    done = run_program("plot.py", *words)
    told = f"error: --beside: the numbers of {names[-1]} need a file of their own: "
    assert done.returncode == 2 and told in done.stderr
    assert not (tmp_path / "out").exists()


CASES = ["no folder", "no finished run", "two scripts", "beside", "name", "out"]


@pytest.mark.parametrize("case", CASES)
def test_plot_rejects_bad_input(case, tmp_path):
    part = {"start": 0, "episodes": [(100, 60.0, 1.0)], "last": (100, 60.0)}
    runs_dir = tmp_path / "runs"
    if case != "no folder":
        folder = make_run(runs_dir, "A-v0", 1, [part], finished=case != "no finished run")
    if case == "two scripts":
        make_run(runs_dir, "A-v0", 2, [part])
        facts = (folder / "args.json").read_text().replace("ppo.py", "ppo_atari.py")
        (folder / "args.json").write_text(facts)
    out = tmp_path / "out"
    (tmp_path / "file").touch()
    wrong = {"beside": "Peer", "name": "a/b", "out": str(tmp_path / "file/sub")}
    more = (f"--{case}", wrong[case]) if case in wrong else ()
    done = run_program("plot.py", "--runs-dir", str(runs_dir), "--out", str(out), *more)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and not out.exists()


def test_a_resumed_run_is_described_by_all_its_parts(tmp_path):
    part = {"start": 0, "episodes": episodes(np.ones(3)), "last": (30, 2)}
    run = make_run(tmp_path / "runs", "CartPole-v1", 1, [part])
    (run / "ppo.py").write_text("one version of the script")
    facts = json.loads((run / "args.json").read_text())
    later = {
        "resumed_at_200": ["--total-timesteps", "2000", "--resume", str(run)],
        "resumed_at_1000": ["--resume", str(run)],
    }
    for name, argv in later.items():
        (run / name).mkdir()
        (run / name / "ppo.py").write_text(f"the script of {name}")
        facts |= {"argv": argv, "versions": {"python": "3.12.1", "torch": "2.13.0"}}
        facts["args"] |= {"gamma": facts["args"]["gamma"] - 0.1}
        (run / name / "args.json").write_text(json.dumps(facts))
    (found,) = load_program("runs.py").find_runs(tmp_path / "runs").runs.values()
    assert found.settings["gamma"] == pytest.approx(0.79)
    made = found.provenance
    assert made.flags == "--total-timesteps 2000"
    assert made.versions == "python 3.11.7 torch 2.13.0 then python 3.12.1 torch 2.13.0"
    digests = [sha256(path.read_bytes()).hexdigest()[:12] for path in sorted(run.glob("**/ppo.py"))]
    assert len(digests) == 3
    in_time = [digests[0], digests[2], digests[1]]  # sorted as words, 1000 comes before 200
    assert made.script_hash == " then ".join(in_time)
