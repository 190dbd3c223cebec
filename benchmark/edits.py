"""Tables of edits: copies of a script that lack one of its details, or that have a mistake.

A table is a TOML file. Each [[ablation]] has a `tag`, its name; `without`, what the edited script
does; and an `old` text, which occurs exactly once in the script, and a `new` one, or several such
pairs in [[ablation.edits]]. One without edits is not trained; `without` says why. The tables in
tests/mutations/ have the details, whose tags stand in comments of the scripts. There a
[[mutation]], which some test must notice, is also an ablation if it has a `without`.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[1] / "tests" / "mutations"  # a file for each script
COMMON = TABLES / "ppo.toml"  # all scripts descend from ppo.py and have details from it
Edits = tuple[tuple[str, str], ...]  # old text, new text


@dataclass(frozen=True)
class Undoing:
    """Edits of a script that belong together."""

    table: Path  # the file that it stands in
    tag: str  # the tag in the script's comment, of a deviation with its text; or any name
    edits: Edits

    @property
    def name(self) -> str:
        """The tag as a part of file names: without blanks."""
        return self.tag.replace(" ", "-")

    def fits(self, source: str) -> bool:
        """Whether each old text occurs exactly once in a source."""
        return all(source.count(old) == 1 for old, _ in self.edits)

    def apply(self, source: str) -> str:
        """The edited source; ValueError if an old text does not occur exactly once."""
        for old, new in self.edits:
            if (count := source.count(old)) != 1:
                found = f"{old!r} occurs {count} times in the script, not once"
                raise ValueError(f"{self.table.name}, {self.tag}: {found}")
            source = source.replace(old, new)
        return source


@dataclass(frozen=True)
class Ablation(Undoing):
    """One that is worth training. Without edits: training would show nothing."""

    without: str  # what the edited script does


def table_of(script: str) -> Path:
    """The table of a script, by its file name; not every script has one."""
    return TABLES / f"{Path(script).stem}.toml"


def read_rows(table: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of a kind, `mutation` or `ablation`, in a table; none if there is no such file."""
    if not table.exists():
        return []
    return tomllib.loads(table.read_text(encoding="utf-8")).get(kind, [])


def edits_of(row: dict[str, Any]) -> Edits:
    """What a row replaces: its own texts, or those of its edits."""
    edits = [row] if "old" in row else row.get("edits", [])
    return tuple((edit["old"], edit["new"]) for edit in edits)


def read_ablations(table: Path) -> dict[str, Ablation]:
    """The ablations in a table, by tag."""
    rows = [row for row in read_rows(table, "mutation") if "without" in row]
    rows += read_rows(table, "ablation")
    return {row["tag"]: Ablation(table, row["tag"], edits_of(row), row["without"]) for row in rows}


def own_ablations(script: str) -> dict[str, Ablation]:
    """The ablations in the table of a script, by tag."""
    return read_ablations(table_of(script))


def has_tag(source: str, tag: str) -> bool:
    """Whether a comment of a source has a tag: `# [core-3]`, `# [deviation] its text`."""
    name, _, text = tag.partition(" ")
    return f"# [{name}] {text}" in source


def ablations(script: str, source: str) -> dict[str, Ablation]:
    """Ablations of a script by tag, core-2 before core-10; some of its tags may have none.

    A detail that ppo.py has as well is undone as there, where the script's own table has nothing
    else and the edits fit.
    """
    own = own_ablations(script)
    common = {
        tag: ablation
        for tag, ablation in read_ablations(COMMON).items()
        if tag not in own and ablation.fits(source)
    }
    known = {**common, **own}
    tags = sorted(known, key=lambda tag: re.sub(r"\d+", lambda digits: digits[0].zfill(2), tag))
    return {tag: known[tag] for tag in tags if has_tag(source, tag)}
