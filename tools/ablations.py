"""What each implementation detail is worth, from what benchmark/ablation.sh measured.

docs/ablations.md shows it. Numbers are those of docs/results/ablation_<script>.csv, which
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

TRAINED = {  # by benchmark/ablation.sh: scripts, and how the tags of their details begin
    "ppo.py": ("core", "aux", "deviation"),
    "ppo_continuous_action.py": ("continuous", "deviation"),
}
RESULTS = Path("docs/results")
NOT_RUN = "not run yet"
SAME = "the same scores"
SURE = """\
**Significant** (Holm's correction over all differences below), in percent of what the script with
all details learns:"""


def number(x: float) -> str:
    """As many digits as say something: -4.5, 132."""
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.1f}"


def runs(count: int) -> str:
    """1 run, 5 runs."""
    return f"{count} run{'s' if count > 1 else ''}"


def cell(effect: Effect | None) -> str:
    """The difference with its interval, or that all scores are the same, or why there is none."""
    if effect is None or effect.runs == 0:
        return NOT_RUN
    if effect.diverged:
        return f"{effect.diverged} of {runs(effect.runs)} diverged"
    if math.isnan(effect.difference) and not effect.same:
        return "not finished"
    text = SAME if effect.same else number(effect.difference)
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


def table(wanted: Iterable[Ablation], effects: list[Effect], sure: list[Effect]) -> str:
    """Markdown table of the ablations of a script: a line for each, a column for each environment.

    Those that are not trained have dashes. sure: the effects that are bold.
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
            own = [found.get((ablation.tag, env_id)) for env_id in columns]
            cells = [f"**{cell(one)}**" if one in sure else cell(one) for one in own]
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


def beyond_chance(by_script: dict[str, list[Effect]]) -> dict[str, list[Effect]]:
    """By script, the effects that Holm's correction over all of these effects leaves."""
    every = [effect for own in by_script.values() for effect in own]
    sure = [every[index] for index in stats.beyond_chance([effect.p for effect in every])]
    return {script: [one for one in own if one in sure] for script, own in by_script.items()}


def lines_about(by_script: dict[str, list[Effect]]) -> str:
    """A list in Markdown: without which details of each script less is learned, or more."""
    lines = []
    for script, own in by_script.items():
        if lost := [effect for effect in own if effect.lost > 0]:
            lines.append(f"- `{script}` learns less without {named(lost)}")
        if gained := [effect for effect in own if effect.lost < 0]:
            lines.append(f"- `{script}` learns more without {named(gained)}")
    return "\n".join(lines) or "- none"


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


def sure_effects(collection: Collection) -> dict[str, list[Effect]]:
    """By script, the effects that are more than chance explains, among those of all scripts."""
    return beyond_chance({script: own for script, (_, own) in measured(collection).items()})


def changes(effects: list[Effect]) -> str:
    """By how much the score of each environment changes without a detail."""
    return "; ".join(f"{effect.env_id} {cell(effect)}" for effect in effects)


def sentences(collection: Collection) -> dict[str, list[str]]:
    """By tag, for each script: what it does without the detail, where that has a sure effect."""
    sure = sure_effects(collection)
    found: dict[str, list[str]] = defaultdict(list)
    for script, (wanted, _) in measured(collection).items():
        for ablation in wanted:
            if own := [effect for effect in sure[script] if effect.tag == ablation.tag]:
                without = f"Without it in `{script}`: {ablation.without}."
                how = f"[Change of the mean score](ablations.md): {changes(own)}."
                found[ablation.tag].append(f"{without} {how}")
    return dict(found)


def summary(collection: Collection) -> str:
    """The significant effects in the ablations of all scripts."""
    return f"{SURE}\n\n{lines_about(sure_effects(collection))}"


def tables(collection: Collection) -> str:
    """The table of each script that has ablations."""
    sure = sure_effects(collection)
    parts = []
    for script, (wanted, effects) in measured(collection).items():
        parts.append(f"**`{script}`**\n\n{table(wanted, effects, sure[script])}")
    return "\n\n".join(parts)
