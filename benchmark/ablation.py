"""Train a script without one of its implementation details at a time, and as it is.

    uv run benchmark/ablation.py --command "uv run ppo/ppo.py" --env-ids CartPole-v1 --num-seeds 5
    uv run benchmark/ablation.py --command "uv run ppo/ppo.py" --env-ids CartPole-v1 \\
        --details core-3 deviation --plot results

What is done without a detail stands in tests/mutations/. Each gets a folder in --runs-dir with an
edited copy of the script and its runs; `baseline` is the script as it is. All first seeds are run
first. The same call again does what is left, and --workers, --launcher and so on are those of
run.py; --plot calls ablation_plot.py. A run whose loss is not finite any more has ended: that is
a result. Exit codes: 0 when all is done, 1 if a run or what follows failed, 2 for bad input, 130
after Ctrl-C, 143 after SIGTERM.
"""

import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import run
import tyro
from console import Signals
from tasks import Task, diverged, find_run

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
from family import FAMILY
from undo import Ablation, ablations, tagged_lines

BASELINE = "baseline"


@dataclass
class Args(run.Args):
    runs_dir: Path = Path("runs/benchmark/ablation")  # a folder for each detail is made in it
    plot: Path | None = None  # folder for figure, table and numbers of the finished runs
    suite: tyro.conf.Fixed[tyro.conf.Suppress[None]] = None  # for run.py alone
    details: tuple[str, ...] = ()  # tags or their beginnings, as core-3 or deviation; or all


def place_of_script(words: list[str]) -> int:
    """Which word of a command names the script."""
    return next(place for place, word in enumerate(words) if word.endswith(".py"))


def script_of(args: Args) -> Path:
    """The script that --command names; fails if it is none of those whose details are known."""
    words = shlex.split(args.command)
    script = Path(words[place_of_script(words)])
    if script.name not in FAMILY:
        run.fail(f"--command: {script.name} is not called like one of the scripts in ppo/")
    return script


def is_part(name: str, detail: str) -> bool:
    """Whether --details DETAIL means that ablation: core means core-1, but core-1 not core-10."""
    return f"{name}-".startswith(f"{detail}-")


def chosen(args: Args, script: Path) -> list[Ablation]:
    """What is to be trained; fails if --details asks for something else."""
    source = script.read_text()
    known = ablations(script.name, source)
    if missing := [tag for tag in tagged_lines(source) if tag not in known]:
        print(f"note: no ablation is written for {', '.join(missing)}", file=sys.stderr)
    names = [ablation.name for ablation in known.values()]
    for detail in args.details:
        if not any(is_part(name, detail) for name in names):
            run.fail(f"--details: {detail} is none of those of {script.name}: {' '.join(names)}")
    wanted = [
        ablation
        for ablation in known.values()
        if not args.details or any(is_part(ablation.name, detail) for detail in args.details)
    ]
    for ablation in wanted:
        if not ablation.edits:
            print(f"note: {ablation.tag} is not trained: {ablation.without}", file=sys.stderr)
    return [ablation for ablation in wanted if ablation.edits]


def sources_by_variant(args: Args) -> dict[str, str]:
    """The script as it is and its edited sources, by the names of their folders."""
    script = script_of(args)
    source = script.read_text()
    sources = {BASELINE: source}
    for ablation in chosen(args, script):
        try:
            sources[ablation.name] = ablation.apply(source)
        except ValueError as error:
            run.fail(str(error))
    return sources


def expand(args: Args, variants: list[str]) -> list[Task]:
    """The runs of all variants; those of the first seed come first."""
    words = shlex.split(args.command)
    place = place_of_script(words)
    name = Path(words[place]).name
    tasks = []
    for variant in variants:
        folder = args.runs_dir / variant
        words[place] = str(folder / name)
        own = dataclasses.replace(args, command=shlex.join(words), runs_dir=folder)
        tasks += [dataclasses.replace(task, variant=variant) for task in run.expand(own)]
    return sorted(tasks, key=lambda task: task.seed)


def write_copies(args: Args, sources: dict[str, str]) -> None:
    """Writes the edited scripts to where the tasks expect them."""
    name = script_of(args).name
    for variant, source in sources.items():
        copy = args.runs_dir / variant / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text() != source:
            copy.write_text(source)


def has_diverged(task: Task) -> bool:
    """Whether the task's run has ended with a loss that is not finite."""
    folder, finished = find_run(task)
    return folder is not None and not finished and diverged(folder)


def main() -> int:
    """Parse the command line and run what it asks for; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    run.check(args)
    sources = sources_by_variant(args)
    tasks = expand(args, list(sources))
    run.check_versions(tasks, args.keep_old, sources)
    closing = run.closing_commands(args, "ablation_plot.py")
    if args.dry_run:
        run.show(tasks, closing)
        return 0
    write_copies(args, sources)
    for task in (task for task in tasks if has_diverged(task)):
        print(f"diverged {task.name}: {task.log}")
    signals = Signals()
    exit_code = run.launch([task for task in tasks if not has_diverged(task)], args, signals)
    if all(find_run(task)[1] or has_diverged(task) for task in tasks):
        exit_code = 0
    return exit_code or run.close(closing, signals)


if __name__ == "__main__":
    raise SystemExit(main())
