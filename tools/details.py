"""The pages docs/details.md, the matrix of implementation details, and docs/source/*.md.

`python tools/generate.py` writes them. The cells link to line anchors of the source pages, which
MkDocs makes (pymdownx.highlight with anchor_linenums), so that they work offline too.
"""

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sync import PLUMBING, Collection, by_name, split_lines

BLOG = "https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/"
DETAILS = {
    "core-1": "vectorized architecture",
    "core-2": "orthogonal initialization of weights, constant initialization of biases",
    "core-3": "Adam epsilon 1e-5",
    "core-4": "Adam learning rate annealing",
    "core-5": "generalized advantage estimation",
    "core-6": "mini-batch updates",
    "core-7": "advantage normalization",
    "core-8": "clipped surrogate objective",
    "core-9": "value function loss clipping",
    "core-10": "overall loss and entropy bonus",
    "core-11": "global gradient clipping",
    "core-12": "debug variables",
    "core-13": "separate MLPs for policy and value",
    "atari-1": "NoopReset",
    "atari-2": "MaxAndSkip",
    "atari-3": "EpisodicLife",
    "atari-4": "FireReset",
    "atari-5": "WarpFrame",
    "atari-6": "ClipReward",
    "atari-7": "FrameStack",
    "atari-8": "shared Nature-CNN for policy and value",
    "atari-9": "scale images to [0, 1]",
    "continuous-1": "normal distribution",
    "continuous-2": "state-independent log standard deviation",
    "continuous-3": "independent action components",
    "continuous-4": "separate MLPs for policy and value",
    "continuous-5": "action clipping for the environment, unclipped action stored",
    "continuous-6": "observation normalization",
    "continuous-7": "observation clipping",
    "continuous-8": "reward scaling",
    "continuous-9": "reward clipping",
    "lstm-1": "LSTM layer initialization",
    "lstm-2": "zero initial states",
    "lstm-3": "reset states at episode end",
    "lstm-4": "sequential rollouts in minibatches",
    "lstm-5": "reconstruct states in training",
    "multidiscrete-1": "independent action components",
    "aux-1": "clip range annealing",
    "aux-2": "parallelized gradient update",
    "aux-3": "early stopping on KL",
    "aux-4": "invalid action masking",
}
GROUPS = {  # heading of each group
    "core": "Core",
    "atari": "Atari",
    "continuous": "Continuous actions",
    "lstm": "LSTM",
    "multidiscrete": "MultiDiscrete actions",
    "aux": "Auxiliary, outside the 37",
}
NOT_IMPLEMENTED = {
    "aux-1": "no script anneals `clip_coef`; it is constant in the runs that we compare with, too",
}
EFFECTS = [  # tools/ablations.py writes the file
    "",
    "## What each detail is worth",
    "",
    '--8<-- "docs/results/ablation.md"',
]
TAG = re.compile(r"\[([a-z]+-\d+|deviation)\] *(.*)")


@dataclass(frozen=True)
class Tag:
    """A tag in a comment of a script."""

    name: str  # core-3, or deviation
    text: str  # what follows the tag
    line: int  # from 1
    ends_code: bool  # the comment stands behind code and starts with the tag


def find_tags(source: str) -> list[Tag]:
    """All tags in the comments of a script, in file order."""
    tags = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        behind_code = bool(token.line[: token.start[1]].strip())
        for match in TAG.finditer(token.string):
            starts = token.string[: match.start()] == "# "
            tags.append(Tag(match[1], match[2].strip(), token.start[0], behind_code and starts))
    return tags


def docstring_of(source: str) -> str:
    """The text of a script's docstring; empty if there is none."""
    unit = by_name(source).get("docstring")
    return unit.code.strip('"\n') if unit else ""


def declared_details(source: str) -> set[str]:
    """Tags that the docstring's line `Details: core 1-12, atari 1-9, aux 3 (remark)` names.

    Raises ValueError if there is not exactly one such line or if it cannot be read.
    """
    found = re.findall(r"^Details: (.*)$", docstring_of(source), re.MULTILINE)
    if len(found) != 1:
        raise ValueError(f"the docstring has {len(found)} lines `Details: ...`, not one")
    declared: list[str] = []
    group = ""
    for item in re.sub(r"\(.*?\)", "", found[0]).strip(" .").split(","):
        match = re.fullmatch(r"(?:([a-z]+) )?(\d+)(?:-(\d+))?", item.strip(" ."))
        if not match or not (group := match[1] or group):
            raise ValueError(f"cannot read `{item.strip()}` in the line `Details: {found[0]}`")
        first, last = int(match[2]), int(match[3] or match[2])
        declared += [f"{group}-{number}" for number in range(first, last + 1)]
    if twice := [name for name, count in Counter(declared).items() if count > 1]:
        raise ValueError(f"the line `Details: {found[0]}` names {', '.join(twice)} twice")
    return set(declared)


def declared_deviations(source: str) -> str:
    """The docstring's paragraph `Deviations: ...` on one line; empty if there is none."""
    found = re.search(r"^Deviations: (.+?)(?:\n\s*\n|\Z)", docstring_of(source), re.M | re.S)
    return " ".join(found[1].split()) if found else ""


def words(text: str) -> set[str]:
    """Words of a tag's text up to the first comma, colon, semicolon or parenthesis."""
    return set(re.findall(r"[a-z0-9]+", re.split(r"[,;:(]", text.lower())[0]))


def check_tags(source: str) -> list[str]:
    """What is wrong with the tags of a script, one sentence per problem."""
    tags, problems = find_tags(source), []
    lines = split_lines(source)
    end = next((n for n, line in enumerate(lines, 1) if PLUMBING.match(line)), len(lines) + 1)
    for name, count in Counter(tag.name for tag in tags).items():
        if count > 1 and name != "deviation":
            problems.append(f"[{name}] appears {count} times")
    deviations = declared_deviations(source)
    for tag in tags:
        where = f"line {tag.line}: [{tag.name}]"
        if not tag.ends_code:
            problems.append(f"{where} is not a comment at the end of a code line")
        if tag.line > end:
            problems.append(f"{where} is below the plumbing line")
        if tag.name == "deviation":
            stems = {word[:5] for word in words(tag.text)}
            missing = stems - {word[:5] for word in re.findall(r"[a-z0-9]+", deviations.lower())}
            if not stems or missing:
                problems.append(f"{where} {tag.text}: not in the docstring's `Deviations:`")
        elif tag.name not in DETAILS:
            problems.append(f"{where} is not one of the {len(DETAILS)} details")
        elif not words(tag.text) or not words(tag.text) <= set(
            re.findall(r"[a-z0-9]+", DETAILS[tag.name].lower())
        ):
            problems.append(f"{where} {tag.text}: the detail's title is `{DETAILS[tag.name]}`")
    if deviations and not any(tag.name == "deviation" for tag in tags):
        problems.append("the docstring lists deviations but no line is tagged [deviation]")
    try:
        declared = declared_details(source)
    except ValueError as error:
        return [*problems, str(error)]
    used = {tag.name for tag in tags} - {"deviation"}
    if undeclared := sorted(used - declared):
        problems.append(f"the docstring's `Details:` line lacks {', '.join(undeclared)}")
    if absent := sorted(declared - used):
        problems.append(f"the code lacks {', '.join(absent)} of the docstring's `Details:` line")
    return problems


def link(script: str, line: int, text: str) -> str:
    """Markdown link to a line of a script's source page."""
    return f"[{text}](source/{Path(script).stem}.md#__codelineno-0-{line})"


def matrix_rows(details: Iterable[str], tags: dict[str, dict[str, Tag]]) -> list[str]:
    """Table rows of these details; tags: of each script, by name."""
    rows = []
    for name in details:
        found = [(script, tags[script].get(name)) for script in tags]
        cells = [link(script, tag.line, str(tag.line)) if tag else "" for script, tag in found]
        rows.append(f"| {name} | {DETAILS[name]} | {' | '.join(cells)} |")
    return rows


def details_page(sources: dict[str, str]) -> str:
    """Text of docs/details.md; sources: of the scripts, by file name."""
    found = {script: find_tags(source) for script, source in sources.items()}
    tags = {script: {tag.name: tag for tag in found[script]} for script in sources}
    columns = [f"[{Path(script).stem}](source/{Path(script).stem}.md)" for script in sources]
    out = [
        "<!-- Generated by tools/generate.py. Do not edit. -->",
        "# Implementation details",
        "",
        f"[The 37 Implementation Details of PPO]({BLOG})",
        "lists what a program must do to reach PPO's published scores, and four auxiliary details.",
        "In the scripts each is tagged once, as `[core-3]`, at the end of the line that implements",
        "it. The cells are the numbers of these lines and lead there. An empty cell: the detail",
        "does not apply to the script, or another one replaces it (the CNN of atari-8 replaces the",
        "MLPs of core-13).",
    ]
    for group, heading in GROUPS.items():
        details = [name for name in DETAILS if name.rpartition("-")[0] == group]
        out += ["", f"## {heading}", "", f"| tag | detail | {' | '.join(columns)} |"]
        out += ["|---|---|" + "---|" * len(columns), *matrix_rows(details, tags)]
    out += EFFECTS
    missing = [name for name in DETAILS if not any(name in tags[script] for script in tags)]
    if missing:
        out += ["", "## In no script", ""]
    for name in missing:
        out.append(f"- {name}: {NOT_IMPLEMENTED.get(name, 'without a line that has its tag')}")
    out += ["", "## Deviations from openai/baselines", ""]
    for script, source in sources.items():
        text = declared_deviations(source)
        out.append(f"- `{script}`: {text}" if text else f"- `{script}`: none")
        for tag in found[script]:
            if tag.name == "deviation":
                out.append(f"    - {link(script, tag.line, f'line {tag.line}')}: {tag.text}")
    return "\n".join(out) + "\n"


def source_page(script: str) -> str:
    """Text of the page that shows a script with line anchors."""
    return "\n".join(
        [
            "---",
            "hide: [toc]",
            "---",
            "<!-- Generated by tools/generate.py. Do not edit. -->",
            f"# {script}",
            "",
            '``` { .python linenums="1" }',
            f'--8<-- "ppo/{script}"',
            "```",
            "",
        ]
    )


def pages(collection: Collection) -> dict[Path, str]:
    """Path and text of every generated page."""
    sources = {script: collection.source(script) for script in collection.scripts()}
    docs = collection.root / "docs"
    result = {docs / "details.md": details_page(sources)}
    for script in sources:
        result[docs / "source" / f"{Path(script).stem}.md"] = source_page(script)
    return result
