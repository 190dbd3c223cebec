"""What each implementation detail is worth, from what benchmark/ablation.sh measured.

docs/details.md shows it. Numbers are those of docs/results/ablation_<script>.csv, which
benchmark/ablation.py wrote; details are those of the scripts. A detail without numbers was not run
yet, and says so.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from details import DETAILS
from mutations import tagged_lines
from sync import ROOT, Collection

sys.path.append(str(ROOT / "benchmark"))
import stats
from edits import Ablation, ablations
from effects import Effect, read_effects
from stats import ALPHA

TRAINED = {  # by benchmark/ablation.sh: scripts, and how the tags of their details begin
    "ppo.py": ("core", "aux", "deviation"),
    "ppo_continuous_action.py": ("continuous", "deviation"),
}
RESULTS = Path("docs/results")
NOT_RUN = "not run yet"
SAME = "the same scores"
COUNTS = """\
{compared} differences were measured. In {same} of them all scores are the same; of the other
{intervals}, about {chance:.0f} would have a 95 % interval without 0 by chance alone. {certain} have
one: they are bold, in the tables and below."""
SURE = """\
**More than chance explains**, by Holm's correction over all {compared}, in percent of what the
script with all details learns:"""
UNSURE = "**Seen here, may be chance**, those that are bold besides:"


def number(x: float) -> str:
    """As many digits as say something: -4.5, 132."""
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.1f}"


def runs(count: int) -> str:
    """1 run, 5 runs."""
    return f"{count} run{'s' if count > 1 else ''}"


def cell(effect: Effect | None) -> str:
    """The difference with its interval, bold if 0 is not in it; or that all scores are the same."""
    if effect is None or effect.runs == 0:
        return NOT_RUN
    if effect.diverged:
        return f"{effect.diverged} of {runs(effect.runs)} diverged"
    text = SAME if effect.same else number(effect.difference)
    if effect.certain:
        text = f"**{text}**"
    if not (effect.same or math.isnan(effect.low)):
        text += f" ({number(effect.low)} to {number(effect.high)})"
    if effect.runs != effect.baseline_runs:
        text += f", {runs(effect.runs)}"
    return text


def baseline_cell(effect: Effect) -> str:
    """The score of the script as it is."""
    return f"{number(effect.baseline)} ({runs(effect.baseline_runs)})"


def label(tag: str) -> str:
    """What a detail is called: `core-3` Adam epsilon 1e-5; of a deviation its text."""
    name, _, text = tag.partition(" ")
    return f"`{name}` {text or DETAILS[tag]}"


def table(wanted: Iterable[Ablation], effects: list[Effect]) -> str:
    """Markdown table of the ablations of a script: a line for each, a column for each environment.

    Those that are not trained have dashes.
    """
    by_env = {effect.env_id: effect for effect in effects}
    found = {(effect.tag, effect.env_id): effect for effect in effects}
    columns = list(by_env) or ["effect"]
    lines = [
        f"| detail | without it | {' | '.join(columns)} |",
        f"|---|---|{'---|' * len(columns)}",
    ]
    if effects:
        scores = [baseline_cell(effect) for effect in by_env.values()]
        lines.append(f"| score with all of them | | {' | '.join(scores)} |")
    for ablation in wanted:
        if ablation.edits:
            cells = [cell(found.get((ablation.tag, env_id))) for env_id in columns]
        else:
            cells = ["-"] * len(columns)
        lines.append(f"| {label(ablation.tag)} | {ablation.without} | {' | '.join(cells)} |")
    return "\n".join(lines)


def named(effects: list[Effect]) -> str:
    """The details of these effects, the largest first, and where they were seen."""
    by_tag: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_tag[effect.tag].append(effect)
    texts = []
    for tag in sorted(by_tag, key=lambda tag: -max(abs(effect.lost) for effect in by_tag[tag])):
        where = ", ".join(f"{one.env_id} {100 * abs(one.lost):.0f} %" for one in by_tag[tag])
        texts.append(f"{label(tag).partition(',')[0]} ({where})")
    return "; ".join(texts)


def lines_about(effects: list[Effect], by_script: dict[str, list[Effect]]) -> str:
    """A list in Markdown: without which details of each script less is learned, or more."""
    lines = []
    for script, own in by_script.items():
        shown = [effect for effect in own if effect in effects]
        if lost := [effect for effect in shown if effect.lost > 0]:
            lines.append(f"- in `{script}` less is learned without {named(lost)}")
        if gained := [effect for effect in shown if effect.lost < 0]:
            lines.append(f"- in `{script}` more is learned without {named(gained)}")
    return "\n".join(lines) or "- none"


def paragraphs(by_script: dict[str, list[Effect]]) -> list[str]:
    """How many effects were measured, which are certain and which may be chance."""
    compared = [one for own in by_script.values() for one in own if not math.isnan(one.p)]
    if not compared:
        return []
    intervals = [effect for effect in compared if not effect.same]
    certain = [effect for effect in intervals if effect.certain]
    sure = [compared[index] for index in stats.beyond_chance([one.p for one in compared])]
    unsure = [effect for effect in certain if effect not in sure]
    counts = COUNTS.format(
        compared=len(compared),
        same=len(compared) - len(intervals),
        intervals=len(intervals),
        chance=ALPHA * len(intervals),
        certain=len(certain),
    )
    parts = [counts, SURE.format(compared=len(compared)), lines_about(sure, by_script)]
    if unsure:
        parts += [UNSURE, lines_about(unsure, by_script)]
    return parts


def measured(collection: Collection) -> dict[str, tuple[list[Ablation], list[Effect]]]:
    """Ablations and effects of each script that has some: what is trained, or was."""
    found = {}
    for script, beginnings in TRAINED.items():
        if script not in collection.family:
            continue
        effects = read_effects(collection.root / RESULTS / f"ablation_{Path(script).stem}.csv")
        run = {effect.tag for effect in effects if effect.runs}
        source = collection.source(script)
        known = ablations(script, source)
        wanted = [
            known[tag]
            for tag in tagged_lines(source)
            if tag in known and (tag.startswith(beginnings) or tag in run)
        ]
        if wanted:
            found[script] = (wanted, effects)
    return found


def sentences(collection: Collection) -> dict[str, list[str]]:
    """By tag, for each script: what it does without the detail, and the effect of that."""
    found: dict[str, list[str]] = defaultdict(list)
    for script, (wanted, effects) in measured(collection).items():
        for ablation in wanted:
            own = [effect for effect in effects if effect.tag == ablation.tag and effect.runs]
            text = f"Without it in `{script}`: {ablation.without}."
            if own:
                each = [f"{effect.env_id} {cell(effect)}" for effect in own]
                text += f" Change of the mean score: {'; '.join(each)}."
            elif ablation.edits:
                text += f" {NOT_RUN.capitalize()}."
            found[ablation.tag].append(text)
    return dict(found)


def summary(collection: Collection) -> str:
    """What the ablations of all scripts say, in a few paragraphs."""
    found = measured(collection)
    return "\n\n".join(paragraphs({script: effects for script, (_, effects) in found.items()}))


def tables(collection: Collection) -> str:
    """The table of each script that has ablations."""
    found = measured(collection)
    return "\n\n".join(f"**`{script}`**\n\n{table(*of)}" for script, of in found.items())
