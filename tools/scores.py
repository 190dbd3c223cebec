"""The tables of docs/scores.md: what every script scores, beside what is published.

They are made of the scores that benchmark/plot.py left in docs/results/ and of
benchmark/published.csv. What is published and was not run says so.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

from home import WHOLE, rows_of, short_number

SOURCES = ("CleanRL", "openai/baselines", "gymnax-blines")
NOT_RUN = "not run"
SHOWN = 10  # rows of a script that were not run; more of them fold open


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
    if len(not_run) <= SHOWN:
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
