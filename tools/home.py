"""The tables of the first pages: what there is, how large the step to it, how fast, how good.

Blocks of README.md and docs/index.md (see blocks.py): `scripts README.md`, a row for each script,
and `scores README.md`, the headlines. Numbers come from the scripts and the CSV files in
docs/results/.
"""

import csv
import statistics
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from family import FAMILY
from sync import Collection, diff_size

ABOUT = {  # the row of each script
    "ppo.py": "classic control: vector observations, discrete actions",
    "ppo_continuous_action.py": "continuous actions: MuJoCo, Box2D, dm_control",
    "ppo_multidiscrete.py": "several discrete actions at a time: Gym-µRTS and others",
    "ppo_multidiscrete_mask.py": "invalid actions masked",
    "ppo_atari.py": "Atari games",
    "ppo_atari_lstm.py": "a recurrent policy that sees one frame",
    "ppo_atari_multigpu.py": "several GPUs or machines",
    "ppo_atari_envpool.py": "Atari games in EnvPool, a fast engine in C++",
    "ppo_atari_envpool_multigpu.py": "EnvPool on several GPUs or machines",
    "ppo_procgen.py": "Procgen: games with generated levels",
    "ppo_pettingzoo_ma_atari.py": "Atari games of two and four players by self-play",
    "ppo_atari_envpool_xla_jax.py": "Atari in JAX: EnvPool steps inside compiled code (XLA)",
    "ppo_atari_envpool_xla_jax_scan.py": "the same with `jax.lax.scan`",
    "ppo_gymnax.py": "the whole training as one compiled function, on environments in JAX (gymnax)",
    "ppo_continuous_action_mjx.py": "robots simulated in JAX, on the GPU (MuJoCo Playground)",
}
SPEEDS = {  # file in docs/results/ with steps per second, ours beside CleanRL's
    "ppo.py": "speed.csv",
    "ppo_continuous_action.py": "speed_continuous.csv",
    "ppo_atari.py": "speed_atari.csv",
    "ppo_atari_lstm.py": "speed_atari_lstm.csv",
    "ppo_atari_envpool.py": "speed_atari_envpool.csv",
}
SHOWN = {  # the environment in a script's row, if chosen
    "ppo_atari_envpool.py": "Breakout-v5",
    "ppo_gymnax.py": "SpaceInvaders-MinAtar",
}
MEASURES = {"ppo_pettingzoo_ma_atari.py": "length "}  # what a score is, if it is no return
SEEDS = 3  # of a score, if nothing else is said
WHOLE = 0.97  # of the published number of steps: a run of full length
HEADLINES = [  # script, environment
    ("ppo.py", "CartPole-v1"),
    ("ppo.py", "Acrobot-v1"),
    ("ppo_continuous_action.py", "HalfCheetah-v4"),
    ("ppo_continuous_action.py", "Walker2d-v4"),
    ("ppo_continuous_action.py", "Hopper-v4"),
    ("ppo_atari_envpool.py", "Pong-v5"),
    ("ppo_atari_envpool.py", "Breakout-v5"),
]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; none if there is no such file."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def published(root: Path, script: str) -> dict[str, tuple[float, int]]:
    """CleanRL's mean scores of a script and after how many steps, by environment.

    Where there are scores of longer runs, too, the shortest runs count.
    """
    found: dict[str, tuple[float, int]] = {}
    for row in rows_of(root / "benchmark/published.csv"):
        env_id, steps = row["env_id"], int(row["total_timesteps"])
        if row["source"] != "CleanRL" or row["script"] != Path(script).stem:
            continue
        if env_id not in found or steps < found[env_id][1]:
            found[env_id] = float(row["mean"]), steps
    return found


def runs_of(root: Path, script: str) -> list[dict[str, str]]:
    """The rows of a script's final scores."""
    rows = rows_of(root / "docs/results" / f"{Path(script).stem}_scores.csv")
    if script in SHOWN:  # it may be in another file
        others = (root / "docs/results").glob(f"{Path(script).stem}_*_scores.csv")
        rows += [row for path in sorted(others) for row in rows_of(path)]
    return [
        row
        for row in rows
        if "group" not in row  # of compare.py, under the name of a script
        and row.get("script", script) == script  # no copy of it with a name that begins alike
    ]


def scores(root: Path, script: str) -> dict[str, list[float]]:
    """The final scores of a script's runs, by environment; without runs shorter than published."""
    wanted = {env_id: steps for env_id, (_, steps) in published(root, script).items()}
    found: dict[str, list[float]] = {}
    for row in runs_of(root, script):
        # The last rollout that would go beyond the published number is left out.
        if int(row["steps"]) >= WHOLE * wanted.get(row["env_id"], 0):
            found.setdefault(row["env_id"], []).append(float(row["score"]))
    return found


def short_number(x: float) -> str:
    """500000 -> 500k, 1000000 -> 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def mean_and_std(x: list[float]) -> str:
    """Mean and standard deviation over the runs; of a single run its score."""
    mean = statistics.mean(x)
    digits = 0 if abs(mean) >= 100 else 1
    spread = f" ± {statistics.stdev(x):,.{digits}f}" if len(x) > 1 else ""
    return f"{one_digit(mean) if digits else f'{mean:,.0f}'}{spread}"


def seeds(runs: list[float]) -> str:
    """How many they are, unless as many as usual."""
    if len(runs) == SEEDS:
        return ""
    return f", {len(runs)} seed{'s' if len(runs) > 1 else ''}"


def speed(root: Path, script: str) -> str:
    """How many times as fast as CleanRL's it is, as it comes and with the flag that helps most."""
    if script not in SPEEDS:
        return ""
    rows = rows_of(root / "docs/results" / SPEEDS[script])
    ratios = {row["program"]: float(row["ratio"]) for row in rows}
    if f"CleanRL {script}" not in ratios:
        return ""
    plain = ratios[script]
    best = max(ratio for name, ratio in ratios.items() if name.startswith(f"{script} --"))
    return f"{one_digit(plain)} to {one_digit(best)} ×"


def one_digit(ratio: float) -> str:
    """Rounded half up, as one would by hand: 1.45 -> 1.5, though as a binary number it is less."""
    return str(Decimal(str(ratio)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def steps_of(root: Path, script: str, env_id: str) -> str:
    """How many environment steps the runs of an environment have, the shortest of them."""
    rows = runs_of(root, script)
    return short_number(min(int(row["steps"]) for row in rows if row["env_id"] == env_id))


def score(root: Path, script: str) -> str:
    """That of SHOWN, or the first environment with runs and a published score, or with runs.

    With its steps if nobody has published a score after as many; of a script whose runs are all
    shorter than published, those of the first environment.
    """
    ours, theirs = scores(root, script), published(root, script)
    chosen = [SHOWN[script]] if SHOWN.get(script) in ours else []
    for env_id in (*chosen, *(env_id for env_id in ours if env_id in theirs), *ours):
        shown = f"{env_id}: {mean_and_std(ours[env_id])}"
        if env_id in theirs:
            beside = f" ({mean_and_std([theirs[env_id][0]])})"
        else:
            beside = f" after {steps_of(root, script, env_id)} steps"
        return f"{shown}{beside}{seeds(ours[env_id])}"
    rows = runs_of(root, script)
    if not rows:
        return "to come"
    env_id = rows[0]["env_id"]
    found = [float(row["score"]) for row in rows if row["env_id"] == env_id]
    steps = f"{steps_of(root, script, env_id)} of {short_number(theirs[env_id][1])} steps"
    shown = f"{env_id}: {MEASURES.get(script, '')}{mean_and_std(found)}"
    return f"{shown} after {steps}{seeds(found)}"


def scripts_table(collection: Collection, page: str) -> str:
    """Table of all scripts. page: README.md or index.md, from where the links lead.

    Raises ValueError for a script without a row in ABOUT.
    """
    folder = "docs/" if page == "README.md" else ""
    rows = ["| script | what it is about | diff | speed | score |", "|---|---|---:|---:|---|"]
    for script in collection.scripts():
        if script not in ABOUT:
            raise ValueError(f"tools/home.py: ABOUT lacks {script}")
        parent, budget = FAMILY[script].parent, FAMILY[script].budget
        removed, added = 0, 0
        if parent and budget:
            removed, added = diff_size(collection.source(parent), collection.source(script))
        link = f"{folder}{Path(script).stem}.md"
        diff = f"−{removed} +{added}" if parent and budget else ""
        shown = [f"[`{script}`]({link})", ABOUT[script], diff]
        shown += [speed(collection.root, script), score(collection.root, script)]
        rows.append(f"| {' | '.join(shown)} |")
    return "\n".join(rows)


def scores_table(collection: Collection) -> str:
    """Table of the headlines beside CleanRL's scores."""
    rows = ["| environment | ours | CleanRL | script |", "|---|---:|---:|---|"]
    for script, env_id in HEADLINES:
        runs = scores(collection.root, script).get(env_id)
        ours = f"{mean_and_std(runs)}{seeds(runs)}" if runs else "to come"
        theirs = mean_and_std([published(collection.root, script)[env_id][0]])
        rows.append(f"| {env_id} | {ours} | {theirs} | `{script}` |")
    return "\n".join(rows)
