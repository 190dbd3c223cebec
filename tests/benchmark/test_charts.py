"""The charts of speed: what their bars say, and which files become which picture."""

import re
import shutil
from pathlib import Path

import pytest
from helpers.benchmark_runs import run_program
from helpers.in_process import ROOT, load_program

charts = load_program("charts.py")
speed = charts.speed
RESULTS = ROOT / "docs" / "results"
RACES = """\
task,score,contender,seed,seconds,processor,steps,reached
CartPole-v1,475.0,ppo.py,1,30.0,20.0,100000,True
CartPole-v1,475.0,ppo.py,2,40.0,26.0,100000,True
CartPole-v1,475.0,Peer,1,90.0,80.0,100000,True
CartPole-v1,475.0,Peer,2,300.0,200.0,500000,False
"""
SCALING = """\
knob,value,round,steps_per_second,memory_mib
num_envs,1,1,3000,500
num_envs,16,1,20000,600
width,64,1,10000,500
width,64,2,11000,500
"""


def test_bars_are_multiples_of_the_first_peers_speed():
    """Ours is 3 times as fast as A and 2 times as fast as B, so B is 1.5 times as fast as A."""
    speeds = {"ppo.py": 300.0, "ppo.py --compile": 600.0, "A": 100.0, "B": 150.0}
    results = {name: [speed.Measurement(x, 500.0)] for name, x in speeds.items()}
    bars = charts.speed_bars(speed.summary(results, 2))
    assert [(bar.name, bar.length) for bar in bars] == [
        ("ppo.py", 3.0),
        ("ppo.py --compile", 6.0),
        ("A", 1.0),
        ("B", 1.5),
    ]
    assert [bar.color for bar in bars] == [charts.BLUE, charts.PALE_BLUE, charts.GREY, charts.GREY]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ppo.py", "ours"),
        ("ppo.py --compile", "ours --compile"),
        ("CleanRL ppo.py", "CleanRL"),
        ("LeanRL ppo_x.py --compile", "LeanRL --compile"),
        ("SB3 PPO", "SB3 PPO"),
    ],
)
def test_names_of_bars_leave_the_script_to_the_title(name: str, short: str):
    assert charts.short_name(name) == short


def test_equal_bars_of_all_scripts_are_equally_long(tmp_path):
    """Their widths in the picture: the shorter script's bars do not fill its row."""
    short, long = (charts.Bar("a", length, f"{length}", charts.BLUE) for length in (2.0, 4.0))
    widths = []
    for one_scale in (False, True):
        path = charts.bar_chart({"x": [short], "y": [long]}, tmp_path / "a.svg", "", one_scale)
        corners = r'd="M ([\d.]+) [\d.]+\s+L ([\d.]+) [^"]*"[^>]*fill: ' + charts.BLUE
        rectangles = re.findall(corners, path.read_text())
        widths.append([float(right) - float(left) for left, right in rectangles])
    each, common = widths
    assert each[0] == pytest.approx(each[1])
    assert common[0] == pytest.approx(common[1] / 2)


def test_every_table_becomes_a_chart(tmp_path):
    for path in RESULTS.glob("speed*.csv"):
        shutil.copy(path, tmp_path)
    done = run_program("charts.py", "--results", str(tmp_path))
    assert done.returncode == 0
    drawn = {Path(line).name for line in done.stdout.splitlines()}
    assert drawn == {f"{path.stem}.svg" for path in tmp_path.glob("speed*.csv")} | {"speeds.svg"}
    texts = (tmp_path / "speeds.svg").read_text()
    for path in tmp_path.glob("speed*.csv"):
        for bar in charts.speed_bars(speed.read_summary(path)):
            assert f">{charts.short_name(bar.name)}<" in texts and f">{bar.text}<" in texts
    again = run_program("charts.py", "--results", str(tmp_path))
    assert again.stdout == done.stdout and (tmp_path / "speeds.svg").read_text() == texts


def write_speeds(path: Path, script: str, *peers: str) -> None:
    """A table of a script that is twice as fast as its peers."""
    results = {name: [speed.Measurement(100.0, 500.0)] for name in peers}
    speed.write_summary(speed.summary({script: [speed.Measurement(200, 500.0)]} | results, 1), path)


@pytest.mark.parametrize(
    ("peers", "caption"),
    [
        (("SB3 PPO",), "steps per second; SB3 PPO: 1"),
        (("CleanRL ppo.py", "SB3 PPO"), "steps per second; CleanRL or SB3 PPO: 1"),
    ],
)
def test_the_caption_says_who_is_1(peers, caption, tmp_path):
    write_speeds(tmp_path / "speed.csv", "ppo.py", *peers)
    write_speeds(tmp_path / "speed_b.csv", "ppo_b.py", "SB3 PPO")
    assert run_program("charts.py", "--results", str(tmp_path)).returncode == 0
    assert f">{caption}<" in (tmp_path / "speeds.svg").read_text()
    assert f">steps per second; {peers[0]}: 1<" in (tmp_path / "speed.svg").read_text()


def test_files_of_the_same_script_are_all_drawn(tmp_path):
    for name in ("speed.csv", "speed_again.csv"):
        write_speeds(tmp_path / name, "ppo.py", "CleanRL ppo.py")
    for name in ("solved.csv", "solved_again.csv"):
        (tmp_path / name).write_text(RACES)
    assert run_program("charts.py", "--results", str(tmp_path)).returncode == 0
    speeds, races = ((tmp_path / name).read_text() for name in ("speeds.svg", "solved.svg"))
    assert ">ppo.py, speed.csv<" in speeds and ">ppo.py, speed_again.csv<" in speeds
    title = "CartPole-v1 at 475"
    assert f">{title}, solved.csv<" in races and f">{title}, solved_again.csv<" in races


def test_a_table_without_a_peer_is_left_out(tmp_path):
    """And what else is there is drawn."""
    write_speeds(tmp_path / "speed.csv", "ppo.py")
    (tmp_path / "solved.csv").write_text(RACES)
    done = run_program("charts.py", "--results", str(tmp_path))
    assert done.returncode == 0 and done.stdout == f"{tmp_path}/solved.svg\n"
    left_out = f"warning: {tmp_path}/speed.csv is left out: nothing is beside the script\n"
    assert done.stderr == left_out


def test_published_charts_are_those_of_their_tables(tmp_path):
    """The texts are compared: where matplotlib puts them depends on its version."""
    for pattern in ("speed*.csv", "solved*.csv", "scaling.csv"):
        for path in RESULTS.glob(pattern):
            shutil.copy(path, tmp_path)
    done = run_program("charts.py", "--results", str(tmp_path))
    drawn = [Path(line) for line in done.stdout.splitlines()]
    assert {"speeds.svg", "solved.svg", "scaling.svg"} < {path.name for path in drawn}
    for path in drawn:
        texts, published = (
            re.findall(r">([^<>]+)</text>", file.read_text())
            for file in (path, RESULTS / path.name)
        )
        assert len(texts) > 5 and texts == published, path.name


def test_times_until_a_score_and_growing_work(tmp_path):
    (tmp_path / "solved.csv").write_text(RACES)
    (tmp_path / "scaling.csv").write_text(SCALING)
    done = run_program("charts.py", "--results", str(tmp_path))
    assert [Path(line).name for line in done.stdout.splitlines()] == ["solved.svg", "scaling.svg"]
    texts = (tmp_path / "solved.svg").read_text()
    assert ">CartPole-v1 at 475<" in texts and ">23 s<" in texts
    assert ">140 s, reached by 1 of 2 seeds<" in texts
    assert (
        ">processor seconds of the whole run, stopped at this mean return of 100 episodes<" in texts
    )
    texts = (tmp_path / "scaling.svg").read_text()
    assert all(f">{charts.KNOBS[knob]}<" in texts for knob in ("num_envs", "width"))
    assert f">{charts.KNOBS['num_steps']}<" not in texts


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "nothing of speed.py or scaling.py to draw in "),
        ({"speed.csv": ""}, "FOLDER/speed.csv is not what speed.py or scaling.py writes"),
        ({"speed.csv": "a,b\n1,2\n"}, "FOLDER/speed.csv is not what"),
        (
            {"speed.csv": "contender,column,median,lowest,highest\nx,steps,1,1,1\n"},
            "FOLDER/speed.csv is not what",
        ),
        ({"solved.csv": "task,score\n"}, "FOLDER/solved.csv is not what"),
        ({"scaling.csv": "knob,value\nwidth,64\n"}, "FOLDER/scaling.csv is not what"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(files, message, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = run_program("charts.py", "--results", str(tmp_path))
    assert done.returncode == 2 and done.stdout == ""
    message = message.replace("FOLDER", str(tmp_path))
    assert done.stderr.startswith(f"error: --results: {message}") and done.stderr.count("\n") == 1


def test_a_folder_that_is_not_there():
    done = run_program("charts.py", "--results", "nowhere")
    assert done.returncode == 2 and done.stderr == "error: --results: there is no folder nowhere\n"
