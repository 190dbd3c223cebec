"""The page of all results: from a small collection of scores, whose rows are known."""

import statistics
from pathlib import Path

import pytest
from home import rows_of
from scores import mean_and_std, script_of, tables
from sync import ROOT, Collection

PUBLISHED = """\
script,env_id,source,mean,std,total_timesteps
ppo,CartPole-v1,CleanRL,490.04,6.12,1000
ppo,CartPole-v1,openai/baselines,497.54,4.02,1000
ppo,CartPole-v1,CleanRL,499,1,8000
ppo,Acrobot-v1,CleanRL,-86.36,1.32,1000
ppo_atari,Pong,CleanRL,20.36,0.2,10000000
"""
HEADER = "env_id,seed,score,steps,minutes"
CLASSIC = f"""\
{HEADER},script,hardware
CartPole-v1,1,480,1000,1,ppo.py,"2 CPUs, cpu"
CartPole-v1,2,500,970,4,ppo.py,"2 CPUs, cpu"
LunarLander-v3,1,-1234.5,20000,1,ppo.py,"2 CPUs, cpu"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with these results."""
    (tmp_path / "benchmark").mkdir()
    results = tmp_path / "docs/results"
    results.mkdir(parents=True)
    (tmp_path / "benchmark/published.csv").write_text(PUBLISHED)
    (results / "ppo_scores.csv").write_text(CLASSIC)
    (results / "ppo_atari_pong_scores.csv").write_text(f"{HEADER}\nPong,1,13.456,2000000,90\n")
    (results / "compare_x_scores.csv").write_text("env_id,runs,score\nCartPole-v1,x,1\n")
    return tmp_path


def section(text: str, script: str) -> str:
    return text.split(f"\n## [{script}](")[1].split("\n\n", 1)[1].split("\n\n## ")[0].strip()


def test_rows_computed_by_hand(root: Path):
    """490 ± 14: the deviation of 480 and 500 is 20 / sqrt(2). What was not run stands last."""
    text = tables(root, ["ppo.py", "ppo_atari.py", "ppo_gymnax.py"])
    rows = """\
| environment | ours | CleanRL | openai/baselines | seeds | steps | minutes | hardware |
|---|---:|---:|---:|---:|---:|---:|---|
| CartPole-v1 | 490 ± 14 | 490 ± 6 | 498 ± 4 | 2 | 970 | 2.5 | 2 CPUs, cpu |
| LunarLander-v3 | -1,234 |  |  | 1 | 20k | 1.0 | 2 CPUs, cpu |
| CartPole-v1 | not run | 499 ± 1 |  |  | 8k |  |  |
| Acrobot-v1 | not run | -86.36 ± 1.32 |  |  | 1k |  |  |"""
    assert section(text, "ppo.py") == rows
    assert section(text, "ppo_gymnax.py") == "No score is published, and none of ours yet."
    assert "Listed are 4 scores that CleanRL has published of its scripts." in text
    assert "We have run 1 to the end, 1 in part, and 2 not yet." in text


def test_hardware_that_all_share_has_no_column(root: Path):
    scripts = ["ppo.py", "ppo_atari.py"]
    assert "All ran on" not in tables(root, scripts)
    (root / "docs/results/ppo_atari_pong_scores.csv").unlink()
    text = tables(root, scripts)
    assert "\n\nAll ran on 2 CPUs.\n" in text
    assert "| CartPole-v1 | 490 ± 14 | 490 ± 6 | 498 ± 4 | 2 | 970 | 2.5 |\n" in text
    assert "hardware" not in text


def test_partial_runs_tell_both_numbers_of_steps(root: Path):
    text = tables(root, ["ppo.py", "ppo_atari.py"])
    assert section(text, "ppo_atari.py").splitlines() == [
        "| environment | ours | CleanRL | seeds | steps | minutes | hardware |",
        "|---|---:|---:|---:|---:|---:|---|",
        "| Pong | 13.46 | 20.36 ± 0.20 | 1 | 2M of 10M | 90 | not recorded |",
    ]


def test_runs_of_another_length_have_a_row_of_their_own(root: Path):
    more = root / "docs/results/ppo_long_scores.csv"
    more.write_text(f"{HEADER}\nCartPole-v1,1,500,8000,1\nCartPole-v1,1,9,100,1\n")
    rows = section(tables(root, ["ppo.py"]), "ppo.py").splitlines()[2:5]
    shown = [[cell.strip() for cell in row.split("|")[1:7]] for row in rows]
    assert shown == [
        ["CartPole-v1", "9.00", "490 ± 6", "498 ± 4", "1", "100 of 1k"],
        ["CartPole-v1", "490 ± 14", "490 ± 6", "498 ± 4", "2", "970"],
        ["CartPole-v1", "500", "499 ± 1", "", "1", "8k"],
    ]


def test_many_rows_that_were_not_run_fold_open(root: Path):
    rows = "".join(f"ppo_atari,Game{n},CleanRL,1,1,10\n" for n in range(11))
    (root / "benchmark/published.csv").write_text(PUBLISHED + rows)
    shown, folded = section(tables(root, ["ppo_atari.py"]), "ppo_atari.py").split(
        "<details markdown>"
    )
    assert "Pong" in shown and "Game" not in shown
    assert "<summary>Published and not run: 11 rows</summary>" in folded
    assert folded.count("| not run |") == 11


def test_groups_of_a_comparison_are_no_results(root: Path):
    """compare.py may have been given a name that begins like a script's."""
    before = tables(root, ["ppo.py"])
    rows = "env_id,group,seed,score,normalized,steps,script\nCartPole-v1,A,1,9.00,0,1000,ppo.py\n"
    (root / "docs/results/ppo_clip_scores.csv").write_text(rows)
    assert tables(root, ["ppo.py"]) == before


def test_runs_of_an_edited_copy_are_not_the_scripts(root: Path):
    before = tables(root, ["ppo.py"])
    rows = "env_id,seed,score,steps,minutes,script\nCartPole-v1,1,9.00,1000,1,ppo_mine.py\n"
    (root / "docs/results/ppo_mine_scores.csv").write_text(rows)
    assert tables(root, ["ppo.py"]) == before


def test_files_belong_to_the_script_with_the_longest_name():
    scripts = ["ppo.py", "ppo_atari.py", "ppo_atari_envpool.py"]
    assert script_of(Path("ppo_scores.csv"), scripts) == "ppo.py"
    assert script_of(Path("ppo_atari_envpool_pong_scores.csv"), scripts) == "ppo_atari_envpool.py"
    assert script_of(Path("compare_x_scores.csv"), scripts) is None


def test_every_published_score_and_every_run_of_ours_has_its_place():
    """The page of this repository: no row of the files is lost."""
    scripts = Collection().scripts()
    text = tables(ROOT, scripts)
    for file in sorted((ROOT / "docs/results").glob("*_scores.csv")):
        script = script_of(file, scripts)
        if script is None or "group" in rows_of(file)[0]:
            continue
        lines = section(text, script).splitlines()
        scores: dict[str, list[float]] = {}
        for row in rows_of(file):
            scores.setdefault(row["env_id"], []).append(float(row["score"]))
        for env_id, ours in scores.items():
            std = statistics.stdev(ours) if len(ours) > 1 else None
            begin = f"| {env_id} | {mean_and_std(statistics.mean(ours), std)} |"
            assert any(line.startswith(begin) for line in lines), begin
    for script in scripts:
        lines = section(text, script).splitlines()
        for row in rows_of(ROOT / "benchmark/published.csv"):
            if row["script"] == Path(script).stem:
                std = float(row["std"]) if row["std"] else None
                score = f"| {mean_and_std(float(row['mean']), std)} |"
                begin = f"| {row['env_id']} | "
                assert any(line.startswith(begin) and score in line for line in lines)
