"""benchmark/rerun.py: which source it runs, and when it says that a published row agrees."""

import subprocess
import sys
from pathlib import Path

import pytest
import rerun
from edits import own_ablations
from helpers.benchmark_runs import FakeScript, run_program, starts, write_returns
from helpers.in_process import ROOT
from scipy import stats

PUBLISHED = ROOT / "docs" / "results"
ROWS = rerun.published(PUBLISHED)
HEADER = "env_id,seed,score,steps,minutes,script,script_hash,flags,processes,versions,hardware\n"


class FakeRow(FakeScript):
    """A published row, `it/<env_id>`, of a script that pretends to train and has fixed scores."""

    def publish(self, scores: list[float], env_id: str = "X-v0", **changed: str) -> None:
        """Write the row's scores, of seeds from 1 on."""
        facts = {
            "script": "fake.py",
            "script_hash": rerun.digest(self.path.read_text()),
            "flags": "--learning-rate 0.1",
            "processes": "1",
            "versions": "torch 1",
            "hardware": "cpu",
            **changed,
        }
        made = ",".join(facts.values())
        lines = [f"{env_id},{n},{score:.2f},1000,1.0,{made}\n" for n, score in enumerate(scores, 1)]
        (self.folder / "it_scores.csv").write_text(HEADER + "".join(lines))

    def logs(self, score: float) -> None:
        """All runs score this; the file is beside the copy of the script that is run."""
        folder = self.runs_dir / f"it-X-v0-{rerun.digest(self.path.read_text())}"
        folder.mkdir(parents=True)
        write_returns(folder / "events-0.1", score)

    def words(self, *words: str, env_id: str = "X-v0") -> list[str]:
        """What follows rerun.py on its command line."""
        folders = ["--results", str(self.folder), "--scripts", str(self.folder)]
        runs = ["--runs-dir", str(self.runs_dir), "--python", sys.executable]
        return [f"it/{env_id}", *folders, *runs, *words]

    def run_again(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The program in this process, until it ends."""
        return run_program("rerun.py", *self.words(*words))


@pytest.fixture
def fake(tmp_path: Path) -> FakeRow:
    return FakeRow(tmp_path)


def test_the_same_scores_of_the_same_seeds_agree(fake):
    fake.publish([490.12, 490.12, 12.0])
    fake.logs(490.12)
    done = fake.run_again("--num-seeds", "2")
    assert done.returncode == 0, done.stderr
    assert "seed 2: 490.12, published 490.12\nit/X-v0: the same scores\n" in done.stdout
    assert "torch: 1 when published, none now" in done.stdout
    again = fake.run_again("--num-seeds", "3")
    assert again.returncode == 0 and "seed 3: 490.12, published 12.00" in again.stdout
    folders = [path.parent for path in fake.runs_dir.glob("*/*/starts.txt")]
    assert sorted(len(starts(folder)) for folder in folders) == [1, 1, 1], "none is trained twice"


@pytest.mark.filterwarnings("ignore:Precision loss")
@pytest.mark.parametrize(("score", "agrees"), [(11.0, True), (15.0, False)])
def test_other_seeds_agree_within_the_interval(fake, score, agrees):
    fake.publish([10.0, 11.0, 12.5])
    fake.logs(score)
    done = fake.run_again("--start-seed", "11", "--num-seeds", "2")
    assert done.returncode == (0 if agrees else 1), done.stderr
    test = stats.ttest_ind([score, score], [10.0, 11.0, 12.5], equal_var=False)
    low, high = test.confidence_interval()
    assert (low <= 0 <= high) == agrees
    assert f"(95 %: {low:+.2f} to {high:+.2f})" in done.stdout


def test_a_run_without_a_score_is_no_answer(fake):
    fake.publish([1.0, 2.0])
    done = fake.run_again()
    assert done.returncode == 1 and "so no answer" in done.stderr


def test_the_published_version_of_a_script_is_run(fake):
    """Where git has it; otherwise the present one, with a warning."""

    def git(*words: str) -> None:
        me = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", "-C", str(fake.folder), *me, *words], check=True)

    fake.publish([5.0, 5.0])
    fake.logs(5.0)
    git("init", "-q")
    git("add", "fake.py")
    git("commit", "-qm", "published")
    fake.path.write_text("raise SystemExit('edited')\n")
    git("commit", "-qam", "edited")
    done = fake.run_again("--num-seeds", "1")
    assert done.returncode == 0 and "has changed" not in done.stderr
    fake.publish([5.0, 5.0], script_hash="abc")
    done = fake.run_again("--num-seeds", "1")
    assert done.returncode == 1 and "fake.py has changed: published with abc" in done.stderr


def test_a_detail_is_left_out_of_the_present_script():
    script = ROOT / "ppo" / "ppo.py"
    source = script.read_text()
    row = ROWS["ablation_ppo/CartPole-v1/core-7"].iloc[0]
    assert rerun.source_of(script, row) == own_ablations("ppo.py")["core-7"].apply(source)
    with pytest.raises(SystemExit):
        rerun.source_of(script, row.replace("core-7", "core-99"))


def test_published_rows_say_how_they_were_made():
    """rerun.py compares the digits of the scores: all have two decimals, as programs write them."""
    for name in ("presets/ppo/LunarLander-v3", "compare_clip_vloss/CartPole-v1/clipping"):
        assert name in ROWS
    for name, lines in ROWS.items():
        assert (lines[["script", "versions"]] != "").all(axis=None), name
        assert lines[["script", "flags", "processes"]].drop_duplicates().shape[0] == 1, name
        assert lines["score"].to_list() == [f"{float(score):.2f}" for score in lines["score"]]
        assert (ROOT / "ppo" / lines.iloc[0]["script"]).is_file()
