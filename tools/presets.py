"""Flags that solve an environment, with what they score: blocks of docs/presets.md (see blocks.py).

All comes from the files that benchmark/presets.sh left in docs/results/presets/.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

from home import rows_of

NOT_RUN = "not run yet"
FOLDER = Path("docs/results/presets")
SOLVED = {  # mean return at which an environment counts as solved, as Gymnasium has it
    "LunarLander-v3": 200,
    "LunarLanderContinuous-v3": 200,
    "MountainCar-v0": -110,
    "BipedalWalker-v3": 300,
}


@dataclass(frozen=True)
class Preset:
    """The runs of an environment, all with the same flags."""

    env_id: str
    script: str
    flags: str  # of the command, without environment and seed
    scores: list[float]  # of each seed
    minutes: float  # of a run

    @property
    def command(self) -> str:
        """The shell command of one run, wrapped to short lines."""
        words = ["uv", "run", f"ppo/{self.script}", "--env-id", self.env_id, *self.flags.split()]
        lines = [""]
        for word in words:
            if word.startswith("--") and len(lines[-1]) > 60:
                lines.append("   ")
            lines[-1] += f" {word}" if lines[-1] else word
        return " \\\n".join(lines)

    @property
    def row(self) -> str:
        """Its row of the table."""
        score = f"{statistics.mean(self.scores):.1f}"
        if len(self.scores) > 1:
            score += f" ± {statistics.stdev(self.scores):.1f}"
        solved = sum(value >= SOLVED[self.env_id] for value in self.scores)
        each = ", ".join(f"{value:.1f}" for value in self.scores)
        cells = [f"[{self.env_id}](#{self.env_id.lower()})", str(SOLVED[self.env_id]), score]
        cells += [each, f"{solved} of {len(self.scores)}", f"{self.minutes:.1f}"]
        return f"| {' | '.join(cells)} |"


def read_presets(root: Path) -> list[Preset]:
    """The presets that were run, in the order of SOLVED.

    Raises ValueError if runs of an environment differ in their flags, or if it is not in SOLVED.
    """
    found = []
    for file in sorted((root / FOLDER).glob("*_scores.csv")):
        rows = rows_of(file)
        for env_id in dict.fromkeys(row["env_id"] for row in rows):
            own = [row for row in rows if row["env_id"] == env_id]
            made = {(row["script"], row["flags"]) for row in own}
            if len(made) > 1:
                raise ValueError(f"{file.name}: the runs of {env_id} differ in their flags")
            script, flags = made.pop()
            scores = [float(row["score"]) for row in own]
            minutes = statistics.mean(float(row["minutes"]) for row in own)
            found.append(Preset(env_id, script, flags, scores, minutes))
    return sorted(found, key=lambda preset: list(SOLVED).index(preset.env_id))


def table(root: Path) -> str:
    """A row for each environment; those whose preset was not run say so."""
    rows = ["| environment | solved at | score | each seed | solved | minutes |"]
    rows.append("|---|---:|---:|---|---:|---:|")
    presets = {preset.env_id: preset for preset in read_presets(root)}
    for env_id, threshold in SOLVED.items():
        if env_id in presets:
            rows.append(presets[env_id].row)
        else:
            rows.append(f"| {env_id} | {threshold} | {NOT_RUN} | | | |")
    return "\n".join(rows)


def commands(root: Path) -> str:
    """A heading and a command for each environment."""
    parts = [
        f"### {preset.env_id} {{ #{preset.env_id.lower()} }}\n\n```bash\n{preset.command}\n```"
        for preset in read_presets(root)
    ]
    return "\n\n".join(parts)
