"""The tables of the first pages: from a small collection of results, whose rows are known."""

from pathlib import Path

import home
import pytest
from sync import ROOT, Collection

PUBLISHED = """\
script,env_id,source,mean,std,total_timesteps
ppo,CartPole-v1,CleanRL,490.04,6.12,1000
ppo,CartPole-v1,openai/baselines,497.54,4.02,1000
ppo,CartPole-v1,CleanRL,495,1,8000
ppo_atari,Pong,CleanRL,20.36,0.2,1000
"""
SCORES = """\
env_id,seed,score,steps,minutes
Acrobot-v1,1,-90,1000,1
CartPole-v1,1,480,1000,1
CartPole-v1,2,500,970,1
CartPole-v1,3,100,960,1
"""
SPEED = """\
contender,column,median,lowest,highest
ppo.py,steps per second,12457,12227,12883
CleanRL ppo.py,ppo.py is faster,2.75,2.70,2.79
CleanRL ppo.py,with --compile,4.03,3.92,4.26
CleanRL ppo.py,with --bf16,3.03,2.92,3.26
SB3 PPO,ppo.py is faster,9.02,9.92,9.19
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with these results, of ppo.py alone."""
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "benchmark/published.csv").write_text(PUBLISHED)
    (tmp_path / "docs/results/ppo_scores.csv").write_text(SCORES)
    (tmp_path / "docs/results/speed.csv").write_text(SPEED)
    return tmp_path


def test_runs_shorter_than_published_do_not_count(root: Path) -> None:
    assert home.scores(root, "ppo.py") == {"Acrobot-v1": [-90], "CartPole-v1": [480, 500]}
    assert home.published(root, "ppo.py") == {"CartPole-v1": (490.04, 1000)}


def test_groups_of_a_comparison_are_no_results(root: Path) -> None:
    rows = "env_id,group,seed,score,normalized,steps,script\nSpaceInvaders-MinAtar,A,1,9,0,1000,x\n"
    (root / "docs/results/ppo_gymnax_scores.csv").write_text(SCORES)
    (root / "docs/results/ppo_gymnax_clip_scores.csv").write_text(rows)
    assert home.scores(root, "ppo_gymnax.py").keys() == {"Acrobot-v1", "CartPole-v1"}


def test_score_beside_the_published_one(root: Path) -> None:
    assert home.score(root, "ppo.py") == "CartPole-v1: 490 ± 14 (490), 2 seeds"  # 20 / sqrt(2)
    assert home.score(root, "ppo_atari.py") == "to come"
    short = root / "docs/results/ppo_atari_scores.csv"
    short.write_text("env_id,seed,score,steps\nPong,1,-5.25,500\nPong,2,3.1,500\n")
    assert home.score(root, "ppo_atari.py") == "Pong: -1.1 ± 5.9 after 500 of 1k steps, 2 seeds"
    own = root / "docs/results/ppo_multidiscrete_scores.csv"
    own.write_text("env_id,seed,score,steps\nMining,1,1234.4,10\n")
    assert home.score(root, "ppo_multidiscrete.py") == "Mining: 1,234 after 10 steps, 1 seed"


def test_score_of_the_environment_that_was_chosen(root: Path) -> None:
    games = root / "docs/results/ppo_gymnax_minatar_scores.csv"
    games.write_text("env_id,seed,score,steps\nA-v0,1,7,10\nSpaceInvaders-MinAtar,1,174.4,10\n")
    assert home.score(root, "ppo_gymnax.py") == "SpaceInvaders-MinAtar: 174 after 10 steps, 1 seed"
    games.write_text("env_id,seed,score,steps\nA-v0,1,7,10\n")
    assert home.score(root, "ppo_gymnax.py") == "A-v0: 7.0 after 10 steps, 1 seed"


def test_speed_beside_cleanrls(root: Path) -> None:
    assert home.speed(root, "ppo.py") == "2.8 to 4.0 ×"
    assert home.speed(root, "ppo_multidiscrete.py") == ""
    assert home.speed(root, "ppo_procgen.py") == "1.7 ×"  # by hand, on its page


@pytest.mark.parametrize("kept", ["with --", "is faster"])
def test_speed_that_was_not_measured_beside_cleanrl_is_left_out(kept: str, root: Path) -> None:
    header, *rows = SPEED.splitlines()
    rows = [row for row in rows if not row.startswith("CleanRL") or kept in row]
    (root / "docs/results/speed.csv").write_text("\n".join([header, *rows]))
    assert home.speed(root, "ppo.py") == ""


def test_rounding_is_half_up() -> None:
    assert [home.one_digit(x) for x in (1.44, 1.45, 2.75, 3.0)] == ["1.4", "1.5", "2.8", "3.0"]
    assert home.mean_and_std([20.45]) == "20.5" and home.mean_and_std([-85.25]) == "-85.3"
    assert home.mean_and_std([1443.2, 1443.2]) == "1,443 ± 0"


def test_results_of_an_edited_copy_are_not_the_scripts(root: Path) -> None:
    rows = "env_id,seed,score,steps,minutes,script\nCartPole-v1,1,1,1000,1,ppo_gymnax_mine.py\n"
    (root / "docs/results/ppo_gymnax_scores.csv").write_text(SCORES)
    (root / "docs/results/ppo_gymnax_mine_scores.csv").write_text(rows)
    assert home.scores(root, "ppo_gymnax.py")["CartPole-v1"] == [480, 500, 100]


def test_links_lead_to_the_pages_from_both_places() -> None:
    collection = Collection()
    for page, folder in (("README.md", ROOT), ("index.md", ROOT / "docs")):
        table = home.scripts_table(collection, page)
        assert table.count("\n") == 1 + len(collection.scripts())
        for script in collection.scripts():
            link = table.split(f"[`{script}`](")[1].split(")")[0]
            assert (folder / link).is_file()


def test_script_without_a_row_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(home.ABOUT, "ppo.py")
    with pytest.raises(ValueError, match=r"ABOUT lacks ppo\.py"):
        home.scripts_table(Collection(), "index.md")
