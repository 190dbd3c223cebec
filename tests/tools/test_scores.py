"""Tables of scores: from a small collection of results, whose rows are known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t, ttest_ind_from_stats
from scores import evidence, presets_commands, presets_table, rows_of_scripts, speed, tables
from scripts import Script
from sync import ROOT, Collection

PUBLISHED = """\
script,env_id,source,mean,std,total_timesteps
ppo,CartPole-v1,CleanRL,490.04,6.12,1000
ppo,CartPole-v1,openai/baselines,497.54,4.02,1000
ppo,CartPole-v1,CleanRL,499,1,8000
ppo,Acrobot-v1,CleanRL,-86.36,1.32,1000
ppo_atari,Pong,CleanRL,20.36,,10000000
"""
HEADER = "env_id,seed,score,steps,minutes,script,hardware,commit,flags\n"
# The files of ablation.py and compare.py, and runs of a copy, are not among the scripts' scores.
FILES = {
    "ppo": HEADER
    + """\
CartPole-v1,1,480,1000,1,ppo.py,cpu,abc1234,
CartPole-v1,2,500,970,4,ppo.py,cpu,abc1234,
CartPole-v1,1,9,100,1,ppo.py,cpu,,
LunarLander-v3,1,-1234.5,20000,1,ppo.py,cpu,def5678,
CartPole-v1,1,7,1000,1,ppo_mine.py,cpu,,
""",
    "ppo_atari_pong": f"{HEADER}Pong,1,13.456,2000000,90,ppo_atari.py,gpu,abc1234,\n",
    "compare_x": "env_id,group,score,script\nCartPole-v1,x,1,ppo.py\n",
    "ablation_ppo": "variant,env_id,score,script\nbaseline,CartPole-v1,1,ppo.py\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with these results."""
    for folder in ("benchmark", "docs/results", "ppo"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "benchmark/published.csv").write_text(PUBLISHED)
    for name, text in FILES.items():
        (tmp_path / f"docs/results/{name}_scores.csv").write_text(text)
    return tmp_path


def section(text: str, script: str) -> str:
    return text.split(f"\n## [{script}](")[1].split("\n\n", 1)[1].split("\n\n## ")[0].strip()


def test_rows_computed_by_hand(root: Path):
    """490 ± 14: the deviation of 480 and 500 is 20 / sqrt(2). What was not run stands last."""
    text = tables(root, ["ppo.py", "ppo_atari.py", "ppo_gymnax.py"])
    assert (
        section(text, "ppo.py")
        == """\
| environment | ours | CleanRL | openai/baselines | seeds | steps | minutes | commit | hardware |
|---|---:|---:|---:|---:|---:|---:|---|---|
| CartPole-v1 | 9.00 | 490 ± 6 | 498 ± 4 | 1 | 100 of 1k | 1.0 |  | cpu |
| CartPole-v1 | 490 ± 14 | 490 ± 6 | 498 ± 4 | 2 | 970 | 2.5 | abc1234 | cpu |
| LunarLander-v3 | -1,234 |  |  | 1 | 20k | 1.0 | def5678 | cpu |
| CartPole-v1 | not run | 499 ± 1 |  |  | 8k |  |  |  |
| Acrobot-v1 | not run | -86.36 ± 1.32 |  |  | 1k |  |  |  |"""
    )
    assert "| Pong | 13.46 | 20.36 | 1 | 2M of 10M | 90 | abc1234 | gpu |" in section(
        text, "ppo_atari.py"
    )
    assert section(text, "ppo_gymnax.py") == "No score is published, and none of ours yet."
    assert "CleanRL has published 5 scores for these scripts." in text
    assert "We have run 1 to the end, 2 in part, and 2 not at all." in text


@pytest.mark.parametrize("run", ["3,9,1000,1,ppo.py,cpu,,--gamma 0.9", "1,9,1000,1,ppo.py,cpu,,"])
def test_other_flags_and_the_same_seed_are_not_averaged(run: str, root: Path):
    (root / "docs/results/mine_scores.csv").write_text(f"{HEADER}CartPole-v1,{run}\n")
    with pytest.raises(ValueError, match="CartPole-v1: runs with other flags"):
        rows_of_scripts(root, ["ppo.py"])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("Pong,1,20.25,9990000", "full: Pong 20.3, 1 seed (CleanRL 20.4)"),
        ("Pong,1,9,600000", "partial"),
        ("Pong,1,-20,100000", "smoke-tested"),
        ("Own-v0,1,1234.4,2000000\nOwn-v0,2,1234.4,2000000", "full: Own-v0 1,234 ± 0, 2 seeds"),
        ("CartPole-v1,1,500,2000", "full: CartPole-v1 500, 1 seed"),  # as long as ppo.py's
    ],
)
def test_evidence(rows: str, expected: str, root: Path):
    lines = [f"{row},1,ppo_atari.py,cpu,,\n" for row in rows.splitlines()]
    (root / "docs/results/ppo_atari_pong_scores.csv").write_text("".join([HEADER, *lines]))
    (root / "ppo/ppo_atari.py").write_text("class Args:\n    total_timesteps: int = 2_000_000\n")
    collection = Collection(root, {"ppo_atari.py": Script(None, None)}, ())
    own = rows_of_scripts(root, ["ppo_atari.py"])["ppo_atari.py"]
    assert evidence(collection, "ppo_atari.py", own) == expected


def test_speed_beside_cleanrls(root: Path):
    """1.45 is rounded up: as a binary number it is a little less."""
    rows = "ppo.py,1.45\nppo.py --compile,4.03\nppo.py --bf16,3.1\nCleanRL ppo.py,1\nSB3 PPO,9\n"
    (root / "docs/results/speed.csv").write_text(f"program,ratio\n{rows}")
    assert speed(root, "ppo.py", "speed.csv") == "1.5 / 4.0 ×"
    assert speed(root, "ppo.py", None) == ""


def test_presets(tmp_path: Path):
    """The deviation of -100 and -120 is 20 / sqrt(2); one of them is above -110."""
    flags = "--no-cuda --gamma 0.98 --total-timesteps 1000000 --num-envs 16 --no-anneal-lr"
    file = tmp_path / "docs/results/presets/ppo_scores.csv"
    file.parent.mkdir(parents=True)
    rows = [f"MountainCar-v0,1,-100,1,ppo.py,{flags}", f"MountainCar-v0,2,-120,2,ppo.py,{flags}"]
    file.write_text("\n".join(["env_id,seed,score,minutes,script,flags", *rows]))
    row = "| [MountainCar-v0](#mountaincar-v0) | -110 | -110.0 ± 14.1 | -100.0, -120.0 | 1 of 2 |"
    assert presets_table(tmp_path).splitlines()[2:] == [f"{row} 1.5 |"]
    command = presets_commands(tmp_path).split("```bash\n")[1].removesuffix("\n```")
    assert command.replace("\\\n    ", "") == f"uv run ppo/ppo.py --env-id MountainCar-v0 {flags}"


def test_no_run_and_no_published_score_is_left_out():
    """The files of this repository."""
    scripts = Collection().scripts()
    rows = [row for rows in rows_of_scripts(ROOT, scripts).values() for row in rows]
    files = [f for s in scripts for f in ROOT.glob(f"docs/results/{Path(s).stem}*_scores.csv")]
    lines = [line for file in set(files) for line in file.read_text().splitlines()[1:]]
    assert sum(len(row.runs) for row in rows) == len(lines)
    published = (ROOT / "benchmark/published.csv").read_text().splitlines()[1:]
    names = {(one.script, one.env_id) for row in rows for one in row.published.itertuples()}
    assert names == {(f"{line.split(',')[0]}.py", line.split(",")[1]) for line in published}


def cleanrl_in_continuous_action() -> pd.DataFrame:
    """Mean and standard deviation of CleanRL's three seeds, by environment.

    CleanRL's tables come from openrlbenchmark's rlops, whose deviation divides by n = 3; the
    tests here need the one that divides by n - 1.
    """
    published = pd.read_csv(ROOT / "benchmark/published.csv").query("source == 'CleanRL'")
    theirs = published[published.script == "ppo_continuous_action"].set_index("env_id")
    return theirs.assign(std=theirs["std"] * np.sqrt(3 / 2))


def words_of(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


def test_readme_and_page_count_the_tasks_that_differ_significantly_from_cleanrl():
    """Welch's test at 5 %, with three seeds on each side."""
    theirs = cleanrl_in_continuous_action()
    names = ("ppo_continuous_action", "ppo_continuous_action_dm_control")
    runs = pd.concat([pd.read_csv(ROOT / f"docs/results/{name}_scores.csv") for name in names])
    runs = runs[runs.env_id.isin(theirs.index)]
    ours = runs.groupby("env_id").score.agg(["mean", "std", "count"])
    theirs = theirs.loc[ours.index]
    test = ttest_ind_from_stats(
        *ours.to_numpy().T, theirs["mean"], theirs["std"], 3, equal_var=False
    )
    beyond = np.where(test.pvalue < 0.05, np.sign(ours["mean"] - theirs["mean"]), 0)
    higher, lower, other = ((beyond == sign).sum() for sign in (1, -1, 0))
    counts = (
        f"significantly higher in {higher} and lower in {lower or 'none'}, with no significant "
        f"difference in {other}"
    )
    p = np.sort(test.pvalue)
    assert p[0] < 0.05 / len(p) and p[1] > 0.05 / (len(p) - 1)  # with Holm's correction one remains
    assert counts in words_of("README.md") and counts in words_of("docs/ppo_continuous_action.md")


def test_the_page_counts_the_scores_of_one_seed_that_fit_cleanrls():
    """The 95 % prediction interval of one more seed, after CleanRL's three."""
    runs = pd.read_csv(ROOT / "docs/results/ppo_continuous_action_dm_control_heavy_scores.csv")
    theirs = cleanrl_in_continuous_action().loc[runs.env_id]
    half_width = t.ppf(0.975, df=2) * theirs["std"].to_numpy() * np.sqrt(1 + 1 / 3)
    inside = (np.abs(runs.score.to_numpy() - theirs["mean"]) < half_width).sum()
    counts = f"{inside} of {len(runs)} scores lie in the 95 % prediction interval"
    assert counts in words_of("docs/ppo_continuous_action.md")
