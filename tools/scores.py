"""What every script scores, beside what is published: tables of README.md and of the pages.

They are made of the files that benchmark/plot.py and benchmark/speed.py left in docs/results/ and
of benchmark/published.csv. What is published and was not run says so.
"""

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pandas as pd
from scripts import default_of
from stats import short_number
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
    ("ppo_continuous_action.py", "Humanoid-v4"),
    ("ppo_atari.py", "BreakoutNoFrameskip-v4"),
    ("ppo_atari.py", "PongNoFrameskip-v4"),
    ("ppo_atari_lstm.py", "PongNoFrameskip-v4"),
    ("ppo_atari_envpool.py", "Pong-v5"),
    ("ppo_atari_envpool.py", "Breakout-v5"),
]
SOLVED = {  # mean return at which an environment counts as solved, as Gymnasium has it
    "LunarLander-v3": 200,
    "LunarLanderContinuous-v3": 200,
    "MountainCar-v0": -110,
    "BipedalWalker-v3": 300,
}


def rounded(x: float, digits: int) -> str:
    """With so many digits behind the point.

    One digit is rounded half up, as by a reader of the tables with two: 20.45 -> 20.5.
    """
    if digits == 1:
        return f"{Decimal(str(x)).quantize(Decimal('0.1'), ROUND_HALF_UP):,}"
    return f"{x:,.{digits}f}"


def mean_and_std(mean: float, std: float, digits: int = 2) -> str:
    """'1,443 ± 46', '20.36 ± 0.20': no digits from 100 on; std: NaN of a single run."""
    digits = 0 if abs(mean) >= 100 else digits
    spread = "" if pd.isna(std) else f" ± {rounded(std, digits)}"
    return f"{rounded(mean, digits)}{spread}"


def our_scores(root: Path) -> pd.DataFrame:
    """Final scores: a row for each run.

    Columns: script, env_id, seed, score, steps, flags, minutes, hardware, commit (of the script).

    Files with variants of a script (ablation.py) or groups of runs (compare.py) are left out.
    """
    tables = [pd.read_csv(file) for file in sorted(root.glob("docs/results/*_scores.csv"))]
    return pd.concat([table for table in tables if not {"group", "variant"} & set(table)])


def published_scores(root: Path) -> pd.DataFrame:
    """Scores that others have published: script, env_id, source, mean, std, steps.

    std: NaN of a single seed.
    """
    table = pd.read_csv(root / "benchmark/published.csv")
    table["script"] += ".py"
    return table.rename(columns={"total_timesteps": "steps"})


@dataclass(frozen=True)
class Row:
    """Runs of an environment that took as many steps, and the published scores beside them."""

    env_id: str
    runs: pd.DataFrame  # empty: not run
    published: pd.DataFrame  # of each source at most one

    @property
    def steps(self) -> int:
        """Of the shortest run of ours; 0 if there is none."""
        return 0 if self.runs.empty else int(self.runs.steps.min())

    @property
    def published_steps(self) -> int:
        """Of a published run; 0 if there is none."""
        return 0 if self.published.empty else int(self.published.steps.max())

    @property
    def whole(self) -> bool:
        """Whether ours took as many steps as the published runs, or more."""
        return self.steps >= WHOLE * self.published_steps

    def ours(self, digits: int = 2) -> str:
        """Mean and standard deviation of our runs."""
        if self.runs.empty:
            return NOT_RUN
        return mean_and_std(self.runs.score.mean(), self.runs.score.std(), digits)

    def theirs(self, source: str, digits: int = 2) -> str:
        """What a source has published; empty if it has not."""
        found = self.published[self.published.source == source]
        return "".join(mean_and_std(one.mean, one.std, digits) for one in found.itertuples())

    def steps_cell(self) -> str:
        """Steps of ours, and of the published runs if those are another number."""
        ours, theirs = short_number(self.steps), short_number(self.published_steps)
        if self.runs.empty:
            return theirs
        if self.published.empty or WHOLE <= self.steps / self.published_steps <= 1 / WHOLE:
            return ours
        return f"{ours} of {theirs}"

    def line(self, sources: list[str], with_hardware: bool) -> str:
        """The row of a table that has these sources of published scores."""
        cells = [self.env_id, self.ours(), *(self.theirs(source) for source in sources)]
        cells += [str(len(self.runs) or ""), self.steps_cell()]
        minutes = self.runs.minutes.mean()
        cells.append("" if self.runs.empty else f"{minutes:.{0 if minutes >= 10 else 1}f}")
        cells.append(", ".join(sorted(set(self.runs.commit.dropna()))))
        if with_hardware:
            cells.append("; ".join(sorted(set(self.runs.hardware))))
        return f"| {' | '.join(cells)} |"


def rows_of_environment(env_id: str, runs: pd.DataFrame, published: pd.DataFrame) -> list[Row]:
    """A row for each number of steps, of ours or of published runs that ours are not beside.

    Ours stand beside the longest published runs whose steps they have reached, else the shortest.
    """
    runs = runs.sort_values("steps", kind="stable")
    lengths = sorted(set(published.steps))
    open_lengths = set(lengths)
    rows = []
    while not runs.empty:
        shortest = runs.steps.iloc[0]
        reached = [length for length in lengths if shortest >= WHOLE * length]
        length = max(reached, default=min(lengths, default=0))
        alike = runs.steps <= shortest / WHOLE
        group = runs[alike]
        if group["flags"].nunique(dropna=False) > 1 or group.seed.duplicated().any():
            raise ValueError(f"{env_id}: runs with other flags, or of the same seed, in one row")
        rows.append(Row(env_id, group, published[published.steps == length]))
        runs = runs[~alike]
        open_lengths.discard(length)
    for length in sorted(open_lengths):
        rows.append(Row(env_id, runs, published[published.steps == length]))
    return rows


def rows_of_scripts(root: Path, scripts: list[str]) -> dict[str, list[Row]]:
    """The rows of each script, in the order of what is published; those that were not run last."""
    ours, published = our_scores(root), published_scores(root)
    found: dict[str, list[Row]] = {}
    for script in scripts:
        own, theirs = ours[ours.script == script], published[published.script == script]
        rows = []
        for env_id in dict.fromkeys([*theirs.env_id, *sorted(own.env_id)]):
            of_env = own[own.env_id == env_id], theirs[theirs.env_id == env_id]
            rows += rows_of_environment(env_id, *of_env)
        found[script] = sorted(rows, key=lambda row: row.runs.empty)
    return found


def table(rows: list[Row], sources: list[str], with_hardware: bool) -> list[str]:
    """Lines of a table of these rows, with a column for each source of published scores."""
    numbers = ["ours", *sources, "seeds", "steps", "minutes"]
    texts = ["commit", "hardware"] if with_hardware else ["commit"]
    names = ["environment", *numbers, *texts]
    rule = f"|---|{'---:|' * len(numbers)}{'---|' * len(texts)}"
    lines = [row.line(sources, with_hardware) for row in rows]
    return [f"| {' | '.join(names)} |", rule, *lines]


def section(script: str, rows: list[Row], with_hardware: bool) -> list[str]:
    """Heading and table of a script; its rows that were not run fold open if they are many."""
    lines = ["", f"## [{script}]({Path(script).stem}.md)", ""]
    if not rows:
        return [*lines, "No score is published, and none of ours yet."]
    sources = [name for name in SOURCES if any(row.theirs(name) for row in rows)]
    run = [row for row in rows if not row.runs.empty]
    not_run = [row for row in rows if row.runs.empty]
    if len(not_run) <= FOLDED:
        return [*lines, *table(rows, sources, with_hardware)]
    if run:
        lines += [*table(run, sources, with_hardware), ""]
    title = f"<summary>Published and not run: {len(not_run)} rows</summary>"
    folded = table(not_run, sources, with_hardware=False)
    return [*lines, "<details markdown>", title, "", *folded, "", "</details>"]


def summary(rows: list[Row]) -> str:
    """How many of CleanRL's published scores ours stand beside."""
    theirs = [row for row in rows if row.theirs("CleanRL")]
    whole = sum(row.whole for row in theirs)
    part = sum(not row.runs.empty for row in theirs) - whole
    open_ones = len(theirs) - whole - part
    counts = f"We have run {whole} to the end, {part} in part, and {open_ones} not at all."
    return f"CleanRL has published {len(theirs)} scores for these scripts. {counts}"


def tables(root: Path, scripts: list[str]) -> str:
    """A summary, and the section of each script."""
    rows = rows_of_scripts(root, scripts)
    out = [summary([row for group in rows.values() for row in group])]
    hardware = {name for group in rows.values() for row in group for name in row.runs.hardware}
    if len(hardware) == 1:
        out += ["", f"All ran on {hardware.pop().removesuffix(', cpu')}."]
    for script in scripts:
        out += section(script, rows[script], with_hardware=len(hardware) > 1)
    return "\n".join(out) + "\n"


# ------ the first pages ------
def headline(row: Row) -> str:
    """'490 ± 14, 2 seeds'."""
    seeds = len(row.runs)
    text = row.ours(digits=1)
    if seeds != USUAL_SEEDS:
        text += f", {seeds} seed{'s' * (seeds > 1)}"
    return text


def evidence(collection: Collection, script: str, rows: list[Row]) -> str:
    """What a script has shown: full (with its score), partial or smoke-tested.

    Full: as many steps as the published runs of the script, or of any script in that environment;
    without such runs, as many as the script trains for by default.
    """
    default = default_of(collection.source(script), "total_timesteps")
    lengths = published_scores(collection.root).groupby("env_id").steps.first()
    parts = [0.0]
    for row in sorted(rows, key=lambda row: row.env_id != collection.family[script].shown):
        part = row.steps / (row.published_steps or lengths.get(row.env_id, default))
        if part >= WHOLE:
            theirs = row.theirs("CleanRL", digits=1)
            beside = f" (CleanRL {theirs})" if theirs else ""
            return f"full: {row.env_id} {headline(row)}{beside}"
        parts.append(part)
    return "partial" if max(parts) > SMOKE else "smoke-tested"


def speed(root: Path, script: str, file: str | None) -> str:
    """How many times as fast as CleanRL's it is, as it comes and with the flag that helps most."""
    if file is None:
        return ""
    ratios = pd.read_csv(root / "docs/results" / file, index_col="program").ratio
    best = ratios[ratios.index.str.startswith(f"{script} --")].max()
    return f"{rounded(ratios[script], 1)} / {rounded(best, 1)} ×"


def scripts_table(collection: Collection, page: str) -> str:
    """Table of all scripts. page: README.md or index.md, from where the links lead."""
    folder = "docs/" if page == "README.md" else ""
    lines = ["| script | what it is about | diff | speed | evidence |", "|---|---|---:|---:|---|"]
    for script, rows in rows_of_scripts(collection.root, collection.scripts()).items():
        row = collection.family[script]
        diff = ""
        if row.parent and row.budget:
            sources = collection.source(row.parent), collection.source(script)
            diff = "−{} +{}".format(*diff_size(*sources))
        cells = [f"[`{script}`]({folder}{Path(script).stem}.md)", row.about, diff]
        cells += [speed(collection.root, script, row.speed), evidence(collection, script, rows)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def scores_table(collection: Collection) -> str:
    """Table of the headlines beside CleanRL's scores."""
    lines = ["| environment | ours | CleanRL | script |", "|---|---:|---:|---|"]
    rows = rows_of_scripts(collection.root, collection.scripts())
    for script, env_id in HEADLINES:
        row = next(row for row in rows[script] if row.env_id == env_id and row.whole)
        theirs = row.theirs("CleanRL", digits=1)
        lines.append(f"| {env_id} | {headline(row)} | {theirs} | `{script}` |")
    return "\n".join(lines)


# ------ docs/presets.md ------
def presets_of(root: Path) -> dict[str, pd.DataFrame]:
    """The runs of benchmark/presets.sh by environment, in the order of SOLVED."""
    files = sorted(root.glob("docs/results/presets/*_scores.csv"))
    runs = pd.concat([pd.read_csv(file) for file in files])
    return {env_id: runs[runs.env_id == env_id] for env_id in SOLVED if env_id in set(runs.env_id)}


def presets_table(root: Path) -> str:
    """A row for each environment whose preset was run."""
    lines = ["| environment | solved at | score | each seed | solved | minutes |"]
    lines.append("|---|---:|---:|---|---:|---:|")
    for env_id, runs in presets_of(root).items():
        each = ", ".join(f"{score:.1f}" for score in runs.score)
        score = f"{runs.score.mean():.1f} ± {runs.score.std():.1f}"
        cells = [f"[{env_id}](#{env_id.lower()})", str(SOLVED[env_id]), score, each]
        cells.append(f"{(runs.score >= SOLVED[env_id]).sum()} of {len(runs)}")
        cells.append(f"{runs.minutes.mean():.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def preset_command(script: str, env_id: str, flags: str) -> str:
    """The shell command of a preset, in short lines; a flag and its value stay together."""
    text = f"uv run ppo/{script} --env-id {env_id} {flags}"
    return re.sub(r"(.{60}\S*(?: [^-]\S*)?) (?=--)", r"\1 \\\n    ", text)


def presets_commands(root: Path) -> str:
    """A heading and a command for each environment."""
    parts = []
    for env_id, runs in presets_of(root).items():
        command = preset_command(runs.script.iloc[0], env_id, runs["flags"].iloc[0])
        parts.append(f"### {env_id} {{ #{env_id.lower()} }}\n\n```bash\n{command}\n```")
    return "\n\n".join(parts)
