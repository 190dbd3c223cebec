"""Scripts that are broken on purpose: the edits, and the page that shows what comes of them."""

import re

import pandas as pd
import pytest
from edits import read_ablations
from helpers.in_process import ROOT

FAULTS = read_ablations(ROOT / "benchmark" / "broken.toml")
SCRIPTS = [ROOT / "ppo" / name for name in ("ppo.py", "ppo_continuous_action.py")]
RESULTS = ROOT / "docs" / "results"
PAGE = (ROOT / "docs" / "debugging.md").read_text()


@pytest.mark.parametrize("tag", FAULTS)
def test_a_fault_edits_a_script_as_it_is_now(tag: str):
    fitting = [script for script in SCRIPTS if FAULTS[tag].fits(script.read_text())]
    assert fitting and FAULTS[tag].edits
    compile(FAULTS[tag].apply(fitting[0].read_text()), fitting[0].name, "exec")


@pytest.mark.parametrize("tag", FAULTS)
def test_the_page_shows_a_fault(tag: str):
    assert re.search(rf"!\[[^\]]{{20,}}\]\(results/broken_{tag}\.png\)", PAGE), "with its alt text"
    assert (RESULTS / f"broken_{tag}.png").stat().st_size < 100_000


def test_the_healthy_ranges_are_those_of_the_curves():
    """The middle 90 % of the points, without the first tenth of a run."""
    curves = pd.read_csv(RESULTS / "broken.csv")
    healthy = ["cartpole", "acrobot", "halfcheetah"]
    assert set(curves["run"]) == {*healthy, *FAULTS}
    table = (RESULTS / "broken_healthy.md").read_text()
    rows = re.findall(r"^\| `(losses/\w+)` \| (.*) \|$", table, re.MULTILINE)
    assert len(rows) == 8
    for metric, cells in rows:
        for run, cell in zip(healthy, cells.split(" | "), strict=True):
            points = curves[(curves["run"] == run) & (curves["step"] > 5000)][metric]
            low, high = points.quantile([0.05, 0.95])
            assert cell == f"{low:.2g} to {high:.2g}", (metric, run)


def test_the_program_that_plays_at_random(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    seen, rewards, lengths = capsys.readouterr().out.splitlines()
    assert seen.startswith("observations [-") and lengths.startswith("lengths ")
    mean = float(rewards.removeprefix("rewards 1.0 to 1.0 returns ").partition(" ")[0])
    assert 15 < mean < 30
