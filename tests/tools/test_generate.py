"""README.md and the diffs are current, and what is stale is found; drift is not accepted."""

from pathlib import Path

import pytest
from generate import main, stale_files
from scripts import Script
from sync import Collection

SCRIPT = """\
\"\"\"Title.\"\"\"


class Args:
    lr: float = 1e-3  # step size


def compute_gae(rewards):
    return rewards
"""
CHILD = SCRIPT.replace("1e-3", "1e-4")
NOTES = "## Args\nSmaller steps.\n"
BLOCK = "<!-- begin flags ppo.py -->\n<!-- end -->\n"


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """Two scripts, notes of their diff, and README.md with a block; everything is generated."""
    rows = {"ppo.py": Script(None, None), "ppo_a.py": Script("ppo.py", (1, 1))}
    for folder in ("ppo", "docs/notes"):
        (tmp_path / folder).mkdir(parents=True)
    result = Collection(tmp_path, rows, ())
    result.path("ppo.py").write_text(SCRIPT)
    result.path("ppo_a.py").write_text(CHILD)
    (tmp_path / "README.md").write_text(BLOCK)
    (tmp_path / "docs" / "notes" / "ppo_a.md").write_text(NOTES)
    assert main([], result) == 0
    return result


def test_generated_files_of_this_repository_are_current(capsys: pytest.CaptureFixture[str]):
    exit_code = main(["--check"])
    assert exit_code == 0, capsys.readouterr().out


def test_stale_missing_and_left_over_files(
    collection: Collection, capsys: pytest.CaptureFixture[str]
):
    diffs = collection.root / "docs" / "diffs"
    readme = collection.root / "README.md"
    assert "| flag | default | meaning |" in readme.read_text()
    readme.write_text(BLOCK)
    (diffs / "ppo_a.diff").unlink()
    (diffs / "ppo_gone.diff").write_text("")
    capsys.readouterr()
    assert main(["--check"], collection) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{name} is stale: python tools/generate.py"
        for name in ("README.md", "docs/diffs/ppo_a.diff", "docs/diffs/ppo_gone.diff")
    ]
    assert main([], collection) == 0
    assert stale_files(collection) == {}


def test_a_block_without_its_end_is_told(
    collection: Collection, capsys: pytest.CaptureFixture[str]
):
    (collection.root / "README.md").write_text(BLOCK + BLOCK.partition("\n")[0])
    assert main(["--check"], collection) == 1
    assert "README.md: a `<!-- begin` has no" in capsys.readouterr().out


def test_drift_is_refused(collection: Collection, capsys: pytest.CaptureFixture[str]):
    diff = collection.root / "docs" / "diffs" / "ppo_a.diff"
    old = diff.read_text()
    collection.path("ppo_a.py").write_text(CHILD.replace("return rewards", "return 0"))
    capsys.readouterr()
    assert main([], collection) == 1
    assert "ppo/ppo_a.py: `compute_gae` differs" in capsys.readouterr().out
    assert diff.read_text() == old
