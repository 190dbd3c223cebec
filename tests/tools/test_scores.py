"""Tables of scores: from a small collection of results, whose rows are known."""

import statistics
from pathlib import Path

import pytest
from scores import (
    evidence,
    mean_and_std,
    one_digit,
    presets_commands,
    presets_table,
    rows_of,
    script_of,
    scripts_table,
    speed,
    tables,
)
from scripts import Script
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


# ------ the first pages ------
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("Pong,1,20.25,9990000", "full: Pong 20.3, 1 seed (CleanRL 20.4 ± 0.2)"),
        ("Pong,1,9,600000", "partial"),
        ("Pong,1,-20,100000", "smoke-tested"),
        ("Own-v0,1,1234.4,2000000\nOwn-v0,2,1234.4,2000000", "full: Own-v0 1,234 ± 0, 2 seeds"),
        ("CartPole-v1,1,500,2000", "full: CartPole-v1 500, 1 seed"),  # as long as ppo.py's
    ],
)
def test_evidence(rows: str, expected: str, root: Path):
    (root / "docs/results/ppo_atari_pong_scores.csv").unlink()
    lines = [f"{row},1" for row in rows.splitlines()]
    (root / "docs/results/ppo_atari_scores.csv").write_text("\n".join([HEADER, *lines]))
    (root / "ppo").mkdir()
    (root / "ppo/ppo_atari.py").write_text("    total_timesteps: int = 2_000_000  # in all\n")
    family = {"ppo_atari.py": Script(None, None)}
    assert evidence(Collection(root, family, ()), "ppo_atari.py") == expected


def test_speed_beside_cleanrls(root: Path):
    rows = "ppo.py,2.75\nppo.py --compile,4.03\nppo.py --bf16,3.1\nCleanRL ppo.py,1\nSB3 PPO,9\n"
    file = root / "docs/results/speed.csv"
    file.write_text(f"program,ratio\n{rows}")
    assert speed(root, "ppo.py", "speed.csv") == "2.8 to 4.0 ×"
    file.write_text("program,ratio\nppo.py,1\nppo.py --compile,4.03\n")
    assert speed(root, "ppo.py", "speed.csv") == "" == speed(root, "ppo.py", None)
    assert [one_digit(x) for x in (1.44, 1.45, 2.75, 3.0)] == ["1.4", "1.5", "2.8", "3.0"]


def test_links_lead_to_the_pages_from_both_places():
    collection = Collection()
    for page, folder in (("README.md", ROOT), ("index.md", ROOT / "docs")):
        table = scripts_table(collection, page)
        for script in collection.scripts():
            link = table.split(f"[`{script}`](")[1].split(")")[0]
            assert (folder / link).is_file()


def test_presets(tmp_path: Path):
    """The deviation of -100 and -120 is 20 / sqrt(2); one of them is above -110."""
    flags = "--no-cuda --gamma 0.98 --total-timesteps 1000000 --num-envs 16 --no-anneal-lr"
    rows = [
        f"MountainCar-v0,{seed},{score},1,{seed},ppo.py,{flags}"
        for seed, score in ((1, -100), (2, -120))
    ]
    file = tmp_path / "docs/results/presets/ppo_scores.csv"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["env_id,seed,score,steps,minutes,script,flags", *rows]))
    row = "| [MountainCar-v0](#mountaincar-v0) | -110 | -110.0 ± 14.1 | -100.0, -120.0 | 1 of 2 |"
    assert presets_table(tmp_path).splitlines()[2:] == [f"{row} 1.5 |"]
    command = presets_commands(tmp_path).split("```bash\n")[1].removesuffix("\n```")
    assert max(map(len, command.splitlines())) <= 100
    assert command.replace("\\\n    ", "") == f"uv run ppo/ppo.py --env-id MountainCar-v0 {flags}"


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
