"""The presets' page: from a small file of scores, and as benchmark/presets.sh would run them."""

import shlex
from pathlib import Path

import gymnasium as gym
import pytest
from presets import FOLDER, SOLVED, commands, read_presets, table
from sync import ROOT

SCORES = """\
env_id,seed,score,steps,minutes,script,script_hash,flags
MountainCar-v0,1,-100,1000,1,ppo.py,,--no-cuda --gamma 0.98
MountainCar-v0,2,-120,1000,4,ppo.py,,--no-cuda --gamma 0.98
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with these results."""
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "ppo_scores.csv").write_text(SCORES)
    return tmp_path


def test_table_by_hand(root: Path):
    """The deviation of -100 and -120 is 20 / sqrt(2); one of them is above -110."""
    row = "| [MountainCar-v0](#mountaincar-v0) | -110 | -110.0 ± 14.1 | -100.0, -120.0 | 1 of 2 |"
    rows = table(root).splitlines()[2:]
    assert f"{row} 2.5 |" in rows
    assert rows[0] == "| LunarLander-v3 | 200 | not run yet | | | |"
    assert len(rows) == len(SOLVED)


def test_a_single_score_has_no_deviation(root: Path):
    file = root / FOLDER / "ppo_scores.csv"
    file.write_text("".join(SCORES.splitlines(keepends=True)[:2]))
    assert " | -110 | -100.0 | -100.0 | 1 of 1 | 1.0 |" in table(root)


def test_commands_are_short_lines_that_say_all_flags(root: Path):
    heading, command = commands(root).split("\n\n")
    assert heading == "### MountainCar-v0 { #mountaincar-v0 }"
    words = "uv run ppo/ppo.py --env-id MountainCar-v0 --no-cuda --gamma 0.98"
    assert command == f"```bash\n{words}\n```"
    file = root / FOLDER / "ppo_scores.csv"
    more = "--gamma 0.98 --total-timesteps 1000000 --num-envs 16 --no-anneal-lr --ent-coef 0.01"
    file.write_text(SCORES.replace("--gamma 0.98", more))
    lines = commands(root).split("```")[1].splitlines()[1:]
    assert len(lines) > 1 and max(map(len, lines)) <= 100
    assert shlex.split(" ".join(lines).replace(" \\ ", " ")) == shlex.split(
        words.replace("--gamma 0.98", more)
    )


def test_runs_with_different_flags_are_no_preset(root: Path):
    file = root / FOLDER / "ppo_scores.csv"
    file.write_text(SCORES.replace("0.98", "0.99", 1))
    with pytest.raises(ValueError, match=r"ppo_scores\.csv: the runs of MountainCar-v0 differ"):
        read_presets(root)


def test_thresholds_are_gymnasiums():
    assert {env_id: gym.spec(env_id).reward_threshold for env_id in SOLVED} == SOLVED


def test_presets_of_this_repository_have_three_seeds():
    presets = read_presets(ROOT)
    assert presets and all(len(preset.scores) == 3 for preset in presets)
    assert {preset.env_id for preset in presets} <= SOLVED.keys()
