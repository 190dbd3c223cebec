"""What every script scores, beside what is published: tables of README.md and of the pages.

They are made of the files that benchmark/plot.py and benchmark/speed.py left in docs/results/ and
of benchmark/published.csv. What is published and was not run says so.
"""

import csv
import re
import statistics
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from sync import Collection, diff_size

WHOLE = 0.97  # of a number of steps: the last rollout may be left out
SMOKE = 0.05  # runs of a smaller part of the published steps show no more than that it works
SOURCES = ("CleanRL", "openai/baselines", "gymnax-blines")
NOT_RUN = "not run"
FOLDED = 10  # more rows of a script that were not run than these fold open
USUAL_SEEDS = 3  # of a score, if nothing else is said
HEADLINES = [  # script, environment
    ("ppo.py", "CartPole-v1"),
    ("ppo.py", "Acrobot-v1"),
    ("ppo_continuous_action.py", "HalfCheetah-v4"),
    ("ppo_continuous_action.py", "Walker2d-v4"),
    ("ppo_continuous_action.py", "Hopper-v4"),
    ("ppo_atari_envpool.py", "Pong-v5"),
    ("ppo_atari_envpool.py", "Breakout-v5"),
]
PRESETS = Path("docs/results/presets")
SOLVED = {  # mean return at which an environment counts as solved, as Gymnasium has it
    "LunarLander-v3": 200,
    "LunarLanderContinuous-v3": 200,
    "MountainCar-v0": -110,
    "BipedalWalker-v3": 300,
}


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; none if there is no such file."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def short_number(x: float) -> str:
    """500000 -> 500k, 1000000 -> 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


@dataclass(frozen=True)
class Score:
    """The final score of a run."""

    env_id: str
    value: float
    steps: int
    minutes: float
    hardware: str


@dataclass(frozen=True)
class Published:
    """A score that somebody has published."""

    source: str
    env_id: str
    mean: float
    std: float | None  # None: of a single seed
    steps: int


@dataclass
class Row:
    """Runs of an environment that took as many steps, and the published scores beside them."""

    env_id: str
    runs: list[Score]  # none: not run
    published: list[Published]  # of each source at most one

    @property
    def steps(self) -> int:
        """Of the shortest run of ours; 0 if there is none."""
        return self.runs[0].steps if self.runs else 0

    @property
    def published_steps(self) -> int:
        """Of a published run; 0 if there is none."""
        return max((one.steps for one in self.published), default=0)

    @property
    def whole(self) -> bool:
        """Whether ours took as many steps as the published runs, or more."""
        return self.steps >= WHOLE * self.published_steps

    def steps_cell(self) -> str:
        """Steps of ours, and of the published runs if those are another number."""
        ours, theirs = short_number(self.steps), short_number(self.published_steps)
        if not self.runs:
            return theirs
        if not self.published or alike(self.steps, self.published_steps):
            return ours
        return f"{ours} of {theirs}"

    def line(self, sources: list[str], with_hardware: bool) -> str:
        """The row of a table that has these sources of published scores."""
        values = [run.value for run in self.runs]
        cells = [self.env_id, NOT_RUN]
        if self.runs:
            std = statistics.stdev(values) if len(values) > 1 else None
            cells = [self.env_id, mean_and_std(statistics.mean(values), std)]
        by_source = {one.source: mean_and_std(one.mean, one.std) for one in self.published}
        cells += [by_source.get(source, "") for source in sources]
        cells += [str(len(values) or ""), self.steps_cell(), ""]
        if self.runs:
            minutes = statistics.mean(run.minutes for run in self.runs)
            cells[-1] = f"{minutes:.{0 if minutes >= 10 else 1}f}"
        if with_hardware:
            cells.append("; ".join(sorted({run.hardware for run in self.runs})))
        return f"| {' | '.join(cells)} |"


def alike(steps: int, others: int) -> bool:
    """Whether two runs took about as many steps: a last rollout may be left out."""
    return WHOLE <= steps / others <= 1 / WHOLE


def mean_and_std(mean: float, std: float | None) -> str:
    """'1,443 ± 46', '20.36 ± 0.20': as many digits as say something; std: none of a single run."""
    digits = 0 if abs(mean) >= 100 else 2
    spread = "" if std is None else f" ± {std:,.{digits}f}"
    return f"{mean:,.{digits}f}{spread}"


def script_of(file: Path, scripts: list[str]) -> str | None:
    """The script whose scores are in a file: the one with the longest name that begins its name."""
    found = [script for script in scripts if f"{file.stem}_".startswith(f"{Path(script).stem}_")]
    return max(found, key=len, default=None)


def our_scores(root: Path, scripts: list[str]) -> dict[str, list[Score]]:
    """The scores of the runs of each script."""
    found: dict[str, list[Score]] = {script: [] for script in scripts}
    for file in sorted((root / "docs/results").glob("*_scores.csv")):
        script = script_of(file, scripts)
        if script is None:  # what compare.py has measured
            continue
        for row in rows_of(file):
            if "group" in row:  # of compare.py, under the name of a script
                continue
            if row.get("script", script) != script:  # a copy of it with a name that begins alike
                continue
            value, steps, minutes = float(row["score"]), int(row["steps"]), float(row["minutes"])
            hardware = row.get("hardware") or "not recorded"
            found[script].append(Score(row["env_id"], value, steps, minutes, hardware))
    return found


def published_scores(root: Path, script: str) -> list[Published]:
    """The published scores of a script."""
    return [
        Published(
            source=row["source"],
            env_id=row["env_id"],
            mean=float(row["mean"]),
            std=float(row["std"]) if row["std"] else None,
            steps=int(row["total_timesteps"]),
        )
        for row in rows_of(root / "benchmark/published.csv")
        if row["script"] == Path(script).stem
    ]


def beside(steps: int, published: list[Published]) -> int:
    """The number of steps of the published runs that runs of ours stand beside.

    The longest of those that ours have reached, else the shortest.
    """
    numbers = sorted({one.steps for one in published})
    reached = [number for number in numbers if steps >= WHOLE * number]
    return max(reached) if reached else min(numbers, default=0)


def rows_of_environment(env_id: str, runs: list[Score], published: list[Published]) -> list[Row]:
    """A row for each number of steps, of ours or of published runs that ours are not beside."""
    groups: list[list[Score]] = []
    for run in sorted(runs, key=lambda run: run.steps):
        if groups and alike(run.steps, groups[-1][0].steps):
            groups[-1].append(run)
        else:
            groups.append([run])
    rows = []
    for group in groups:
        number = beside(group[0].steps, published)
        rows.append(Row(env_id, group, [one for one in published if one.steps == number]))
    shown = {row.published_steps for row in rows}
    for number in sorted({one.steps for one in published} - shown):
        rows.append(Row(env_id, [], [one for one in published if one.steps == number]))
    return rows


def rows_of_script(runs: list[Score], published: list[Published]) -> list[Row]:
    """All rows of a script, in the order of what is published; those that were not run last."""
    rows = []
    env_ids = [one.env_id for one in published] + sorted({run.env_id for run in runs})
    for env_id in dict.fromkeys(env_ids):
        own = [run for run in runs if run.env_id == env_id]
        theirs = [one for one in published if one.env_id == env_id]
        rows += rows_of_environment(env_id, own, theirs)
    return [*(row for row in rows if row.runs), *(row for row in rows if not row.runs)]


def table(rows: list[Row], sources: list[str], with_hardware: bool) -> list[str]:
    """Lines of a table of these rows, with a column for each source of published scores."""
    names = ["environment", "ours", *sources, "seeds", "steps", "minutes"]
    rule = f"|---|{'---:|' * (len(names) - 1)}"
    if with_hardware:
        names.append("hardware")
        rule += "---|"
    lines = [row.line(sources, with_hardware) for row in rows]
    return [f"| {' | '.join(names)} |", rule, *lines]


def section(script: str, rows: list[Row], with_hardware: bool) -> list[str]:
    """Heading and table of a script; its rows that were not run fold open if they are many."""
    lines = ["", f"## [{script}]({Path(script).stem}.md)", ""]
    if not rows:
        return [*lines, "No score is published, and none of ours yet."]
    known = {one.source for row in rows for one in row.published}
    sources = [source for source in SOURCES if source in known]
    run = [row for row in rows if row.runs]
    not_run = [row for row in rows if not row.runs]
    if len(not_run) <= FOLDED:
        return [*lines, *table(rows, sources, with_hardware)]
    if run:
        lines += [*table(run, sources, with_hardware), ""]
    title = f"<summary>Published and not run: {len(not_run)} rows</summary>"
    folded = table(not_run, sources, with_hardware=False)
    return [*lines, "<details markdown>", title, "", *folded, "", "</details>"]


def summary(rows: list[Row]) -> str:
    """How many of CleanRL's published scores ours stand beside."""
    theirs = [row for row in rows if any(one.source == "CleanRL" for one in row.published)]
    whole = sum(row.whole for row in theirs)
    part = sum(bool(row.runs) for row in theirs) - whole
    open_ones = len(theirs) - whole - part
    counts = f"We have run {whole} to the end, {part} in part, and {open_ones} not yet."
    return f"Listed are {len(theirs)} scores that CleanRL has published of its scripts. {counts}"


def tables(root: Path, scripts: list[str]) -> str:
    """A summary, and the section of each script."""
    ours = our_scores(root, scripts)
    rows = {
        script: rows_of_script(ours[script], published_scores(root, script)) for script in scripts
    }
    out = [summary([row for group in rows.values() for row in group])]
    hardware = sorted({run.hardware for runs in ours.values() for run in runs})
    with_hardware = len(hardware) > 1  # a column for it
    if len(hardware) == 1:
        out += ["", f"All ran on {hardware[0].removesuffix(', cpu')}."]
    for script in scripts:
        out += section(script, rows[script], with_hardware)
    return "\n".join(out) + "\n"


# ------ the first pages ------
def one_digit(x: float) -> str:
    """Rounded half up, as one would by hand: 1.45 -> 1.5, though as a binary number it is less."""
    return str(Decimal(str(x)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def rounded(x: float, std: float | None = None) -> str:
    """'3,371 ± 1,314', '20.5': as the first pages have scores."""
    digits = 0 if abs(x) >= 100 else 1
    spread = "" if std is None else f" ± {std:,.{digits}f}"
    return f"{x:,.0f}{spread}" if digits == 0 else f"{one_digit(x)}{spread}"


def headline(row: Row) -> str:
    """'490 ± 14, 2 seeds'."""
    values = [run.value for run in row.runs]
    text = rounded(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None)
    if len(values) != USUAL_SEEDS:
        text += f", {len(values)} seed{'s' * (len(values) > 1)}"
    return text


def cleanrl_of(row: Row) -> str:
    """CleanRL's score with its spread; empty if it has published none."""
    found = [one for one in row.published if one.source == "CleanRL"]
    return rounded(found[0].mean, found[0].std) if found else ""


def evidence(collection: Collection, script: str) -> str:
    """What a script has shown: full (with its score), partial or smoke-tested.

    Full: as many steps as the published runs of the script, or of any script in that environment;
    without such runs, as many as the script trains for by default.
    """
    runs = our_scores(collection.root, collection.scripts())[script]
    rows = rows_of_script(runs, published_scores(collection.root, script))
    source = collection.source(script)
    default = int(re.findall(r"^    total_timesteps: int = ([\d_]+)", source, re.MULTILINE)[0])
    lengths = {
        one["env_id"]: int(one["total_timesteps"])
        for one in reversed(rows_of(collection.root / "benchmark/published.csv"))
    }  # the first row of an environment counts
    rows.sort(key=lambda row: row.env_id != collection.family[script].shown)
    parts = [0.0]
    for row in rows:
        part = row.steps / (row.published_steps or lengths.get(row.env_id, default))
        if part >= WHOLE:
            theirs = cleanrl_of(row)
            beside = f" (CleanRL {theirs})" if theirs else ""
            return f"full: {row.env_id} {headline(row)}{beside}"
        parts.append(part)
    return "partial" if max(parts) > SMOKE else "smoke-tested"


def speed(root: Path, script: str, file: str | None) -> str:
    """How many times as fast as CleanRL's it is, as it comes and with the flag that helps most."""
    rows = rows_of(root / "docs/results" / file) if file else []
    ratios = {row["program"]: float(row["ratio"]) for row in rows}
    if f"CleanRL {script}" not in ratios:
        return ""
    best = max(ratio for name, ratio in ratios.items() if name.startswith(f"{script} --"))
    return f"{one_digit(ratios[script])} to {one_digit(best)} ×"


def scripts_table(collection: Collection, page: str) -> str:
    """Table of all scripts. page: README.md or index.md, from where the links lead."""
    folder = "docs/" if page == "README.md" else ""
    lines = ["| script | what it is about | diff | speed | evidence |", "|---|---|---:|---:|---|"]
    for script in collection.scripts():
        row = collection.family[script]
        diff = ""
        if row.parent and row.budget:
            sources = collection.source(row.parent), collection.source(script)
            diff = "−{} +{}".format(*diff_size(*sources))
        cells = [f"[`{script}`]({folder}{Path(script).stem}.md)", row.about, diff]
        cells += [speed(collection.root, script, row.speed), evidence(collection, script)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def scores_table(collection: Collection) -> str:
    """Table of the headlines beside CleanRL's scores."""
    lines = ["| environment | ours | CleanRL | script |", "|---|---:|---:|---|"]
    ours = our_scores(collection.root, collection.scripts())
    for script, env_id in HEADLINES:
        rows = rows_of_script(ours[script], published_scores(collection.root, script))
        row = next(row for row in rows if row.env_id == env_id and row.whole)
        lines.append(f"| {env_id} | {headline(row)} | {cleanrl_of(row)} | `{script}` |")
    return "\n".join(lines)


# ------ docs/presets.md ------
def presets_of(root: Path) -> dict[str, list[dict[str, str]]]:
    """The runs of benchmark/presets.sh by environment, in the order of SOLVED."""
    rows = [row for file in (root / PRESETS).glob("*_scores.csv") for row in rows_of(file)]
    found = {env_id: [row for row in rows if row["env_id"] == env_id] for env_id in SOLVED}
    return {env_id: runs for env_id, runs in found.items() if runs}


def presets_table(root: Path) -> str:
    """A row for each environment whose preset was run."""
    lines = ["| environment | solved at | score | each seed | solved | minutes |"]
    lines.append("|---|---:|---:|---|---:|---:|")
    for env_id, runs in presets_of(root).items():
        values = [float(run["score"]) for run in runs]
        score = f"{statistics.mean(values):.1f}"
        if len(values) > 1:
            score += f" ± {statistics.stdev(values):.1f}"
        solved = sum(value >= SOLVED[env_id] for value in values)
        each = ", ".join(f"{value:.1f}" for value in values)
        cells = [f"[{env_id}](#{env_id.lower()})", str(SOLVED[env_id]), score, each]
        minutes = statistics.mean(float(run["minutes"]) for run in runs)
        cells += [f"{solved} of {len(values)}", f"{minutes:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def preset_command(run: dict[str, str]) -> str:
    """The shell command of a preset, wrapped to short lines."""
    words = ["uv", "run", f"ppo/{run['script']}", "--env-id", run["env_id"], *run["flags"].split()]
    lines = [""]
    for word in words:
        if word.startswith("--") and len(lines[-1]) > 60:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def presets_commands(root: Path) -> str:
    """A heading and a command for each environment."""
    return "\n\n".join(
        f"### {env_id} {{ #{env_id.lower()} }}\n\n```bash\n{preset_command(runs[0])}\n```"
        for env_id, runs in presets_of(root).items()
    )
