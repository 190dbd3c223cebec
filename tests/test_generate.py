"""All that programs generate is current, and what is stale is found; drift is not accepted."""

from pathlib import Path

import pytest
from family import Script
from generate import main, stale_files
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
    """Two scripts, notes of their diff, and a page with a block; everything is generated."""
    rows = {"ppo.py": Script(None, None), "ppo_a.py": Script("ppo.py", (1, 1))}
    for folder in ("ppo", "tools", "docs/notes"):
        (tmp_path / folder).mkdir(parents=True)
    result = Collection(tmp_path, rows, ())
    result.path("ppo.py").write_text(SCRIPT)
    result.path("ppo_a.py").write_text(CHILD)
    (tmp_path / "docs" / "ppo.md").write_text(BLOCK)
    (tmp_path / "docs" / "notes" / "ppo_a.md").write_text(NOTES)
    result.accept("ppo_a.py", [])
    assert main([], result) == 0
    return result


def stale(collection: Collection) -> list[str]:
    return [str(path.relative_to(collection.root)) for path in stale_files(collection)]


def test_generated_files_of_this_repository_are_current(capsys: pytest.CaptureFixture[str]):
    exit_code = main(["--check"])
    assert exit_code == 0, capsys.readouterr().out


def test_what_is_generated(collection: Collection):
    docs = collection.root / "docs"
    files = {str(path.relative_to(docs)) for path in docs.rglob("*.*")}
    pages = {"ppo.md", "details.md", "source/ppo.md", "source/ppo_a.md"}
    assert files == pages | {"diffs/ppo_a.diff", "diffs/ppo_a.md", "notes/ppo_a.md"}
    assert "| `--lr` | `1e-3` | step size |" in (docs / "ppo.md").read_text()
    assert stale(collection) == []


def test_stale_missing_and_left_over_files(
    collection: Collection, capsys: pytest.CaptureFixture[str]
):
    docs = collection.root / "docs"
    (docs / "ppo.md").write_text(BLOCK)
    (docs / "details.md").write_text("stale")
    (docs / "source" / "ppo.md").unlink()
    (docs / "diffs" / "ppo_gone.diff").write_text("")
    (docs / "source" / "ppo_gone.md").write_text("")
    (docs / "read-ppo_gone.md").write_text("")
    names = ["details.md", "diffs/ppo_gone.diff", "ppo.md", "read-ppo_gone.md"]
    names += ["source/ppo.md", "source/ppo_gone.md"]
    capsys.readouterr()
    assert main(["--check"], collection) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"docs/{name} is stale: python tools/generate.py" for name in names
    ]
    assert main([], collection) == 0
    assert stale(collection) == []


def test_drift_is_refused(collection: Collection, capsys: pytest.CaptureFixture[str]):
    diff = collection.root / "docs" / "diffs" / "ppo_a.diff"
    old = diff.read_text()
    collection.path("ppo_a.py").write_text(CHILD.replace("return rewards", "return 0"))
    capsys.readouterr()
    assert main([], collection) == 1
    assert "ppo/ppo_a.py: `compute_gae` differs" in capsys.readouterr().out
    assert diff.read_text() == old


def test_a_hunk_without_a_note_is_refused(
    collection: Collection, capsys: pytest.CaptureFixture[str]
):
    notes = collection.root / "docs" / "notes"
    (notes / "ppo_a.md").unlink()
    (notes / "ppo_gone.md").write_text(NOTES)
    (collection.root / "docs" / "details.md").write_text("stale")
    capsys.readouterr()
    assert main([], collection) == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/notes/ppo_a.md: no note for the hunk of `Args` that has: "
        "lr: float = 1e-3  # step size",
        "docs/notes/ppo_gone.md: there is no such script",
    ]
    assert (collection.root / "docs" / "details.md").read_text() == "stale"


def test_a_block_that_cannot_be_filled_is_told(
    collection: Collection, capsys: pytest.CaptureFixture[str]
):
    page = collection.root / "docs" / "ppo.md"
    page.write_text(BLOCK.replace("ppo.py", "ppo_gone.py"))
    capsys.readouterr()
    assert main([], collection) == 1
    assert "docs/ppo.md: block `flags ppo_gone.py`: " in capsys.readouterr().out


def test_a_damaged_record_is_told(collection: Collection, capsys: pytest.CaptureFixture[str]):
    (collection.root / "tools" / "own_units.json").write_text("{} {}")
    capsys.readouterr()
    assert main([], collection) == 1
    assert capsys.readouterr().out.startswith("tools/own_units.json: ")
