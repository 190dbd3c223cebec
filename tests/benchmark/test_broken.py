"""Scripts that are broken on purpose: the edits, and the page that shows what comes of them."""

import re

import pytest
from edits import read_ablations
from helpers.in_process import ROOT

FAULTS = read_ablations(ROOT / "benchmark" / "broken.toml")
SCRIPTS = [ROOT / "ppo" / name for name in ("ppo.py", "ppo_continuous_action.py")]
PAGE = (ROOT / "docs" / "debugging.md").read_text()


@pytest.mark.parametrize("tag", FAULTS)
def test_a_fault_edits_a_script_as_it_is_now(tag: str):
    fitting = [script for script in SCRIPTS if FAULTS[tag].fits(script.read_text())]
    assert fitting and FAULTS[tag].edits
    compile(FAULTS[tag].apply(fitting[0].read_text()), fitting[0].name, "exec")


@pytest.mark.parametrize("tag", FAULTS)
def test_the_page_shows_a_fault(tag: str):
    assert f"](results/broken_{tag}.png)" in PAGE


def test_the_program_that_plays_at_random(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    seen, rewards, lengths = capsys.readouterr().out.splitlines()
    assert seen.startswith("observations [-") and lengths.startswith("lengths ")
    mean = float(rewards.removeprefix("rewards 1.0 to 1.0 returns ").partition(" ")[0])
    assert 15 < mean < 30
