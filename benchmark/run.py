# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["cloudpickle>=3", "submitit>=1.5", "tyro>=0.9.20"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Run one training script on several environments and seeds.

    uv run benchmark/run.py --command "uv run ppo/ppo.py" --env-ids CartPole-v1 --workers 2
    uv run benchmark/run.py --command "uv run ppo/ppo_atari.py" \\
        --env-ids PongNoFrameskip-v4 --workers 16 --launcher slurm --partition gpu --gpus 1 --cpus 4

Each run gets `--env-id X --seed N --runs-dir DIR` appended to the command. The same call again does
what is left: finished runs are skipped, runs that were cut off are resumed, failed ones repeated.
Workers share the CPUs, by OMP_NUM_THREADS. With --launcher slurm the runs are jobs of an array, for
which this program waits. Ctrl-C lets the runs save and stops; so does --minutes with a run that
takes longer, which then counts as failed. If the script is edited meanwhile, the runs that have not
begun are left out; so are other seeds of an environment whose flags the script refuses with exit
code 2. When all runs are finished, --plot draws them and --then goes on with each environment. A
flag that is given twice counts as it was given last. Exit codes: 0 when all is done, 1 if a run
failed or was left out or what follows failed, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import importlib.util
import json
import shlex
import shutil
import signal
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro
from console import Progress, Signals, check_folder, check_name, cpu_count, fail
from tasks import (
    BUSY,
    OWN_FLAGS,
    REFUSAL,
    Children,
    Result,
    Task,
    file_name,
    find_run,
    hash_of,
    next_command,
    resumed_with_others,
    run_task,
    without_flags,
)

# What plot.py and suite.py need besides: package by module.
DRAWN_WITH = {
    "matplotlib": "matplotlib",
    "PIL": "pillow",
    "scipy": "scipy",
    "tensorboard": "tensorboard",
}
GRACE = 120.0  # seconds to save in, for a run whose time is over
PAUSE = 1.0  # seconds until a task that another process runs is looked at again


@dataclass
class Args:
    command: str  # how the script is run, with the flags that all runs share
    env_ids: list[str]  # environments
    env_flags: tuple[str, ...] = ()  # "ENV_ID=FLAGS": more flags, for the runs of one environment
    num_seeds: int = 3  # runs of each environment
    start_seed: int = 1  # the first seed; the others follow it
    workers: int = 1  # runs at a time
    minutes: float | None = None  # a run that takes longer is stopped and counts as failed
    runs_dir: Path = Path("runs/benchmark")  # where the run folders and logs/ are kept
    keep_old: bool = False  # keep finished runs of another version of the script, resume others
    plot: Path | None = None  # folder for curves and tables of the finished runs
    suite: str | None = None  # name under which --plot shows all environments in one picture
    then: str | None = None  # shell command for each {env_id} after that; also {runs_dir}
    dry_run: bool = False  # print what would be run, and run nothing
    launcher: Literal["local", "slurm"] = "local"  # where the runs are: on this machine, in SLURM
    partition: str | None = None  # of SLURM; its default if there is none
    gpus: int = 0  # of a job of SLURM
    cpus: int = 1  # of a job of SLURM
    hours: float = 24.0  # time limit of a job of SLURM; a longer run goes on in another one


def split_words(flag: str, text: str) -> list[str]:
    """The words of a shell command; fails if they are not one or hold what is set for each run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        fail(f"{flag}: {error}")
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name in OWN_FLAGS:
            fail(f"{flag} must not contain {name}: it is set for each run")
        if name == "--num-seeds":  # of ppo_gymnax.py, for which all seeds are one run
            fail(f"{flag} must not contain {name}: here each seed is a run")
    return words


def flags_by_env(given: tuple[str, ...]) -> dict[str, list[str]]:
    """--env-flags by environment id; fails if one is not ENV_ID=FLAGS or given twice."""
    found: dict[str, list[str]] = {}
    for text in given:
        env_id, equals, flags = text.partition("=")
        if not (env_id and equals):
            fail(f'--env-flags: {text} is not of the form "ENV_ID=--flag value"')
        if env_id in found:
            fail(f"--env-flags names {env_id} twice")
        found[env_id] = split_words("--env-flags", flags)
    return found


def threads_per_run(args: Args) -> int | None:
    """A run's share of the CPUs; None: all of them."""
    if args.launcher == "slurm":
        return args.cpus
    if args.workers == 1:
        return None
    return max(1, cpu_count() // args.workers)


def expand(args: Args) -> list[Task]:
    """One task for each seed and environment; all environments get their first seed first."""
    shared = split_words("--command", args.command)
    env_flags = flags_by_env(args.env_flags)
    script = next(i for i, word in enumerate(shared) if word.endswith(".py"))
    tasks = []
    for seed in range(args.start_seed, args.start_seed + args.num_seeds):
        for env_id in args.env_ids:
            own = ["--env-id", env_id, "--seed", str(seed), "--runs-dir", str(args.runs_dir)]
            command = [*shared, *env_flags.get(env_id, [])]
            tasks.append(
                Task(
                    env_id=env_id,
                    seed=seed,
                    command=(*command, *own),
                    resume_command=(*command, "--resume"),
                    argv=(*command[script + 1 :], *own),
                    script=Path(command[script]),
                    runs_dir=args.runs_dir,
                    threads=threads_per_run(args),
                )
            )
    return tasks


def outcome(future: Future[Result]) -> Result:
    """How the task of a future that is done ended."""
    if future.cancelled():
        return Result("stopped")
    if error := future.exception():
        return Result("failed", str(error))
    return future.result()


class LocalRuns:
    """The processes of tasks on this machine, which end by themselves or are told to."""

    def __init__(self, tasks: list[Task], minutes: float | None):
        self.children = {task: Children() for task in tasks}
        self.minutes = minutes  # that a run may take; None: any time
        self.overdue: dict[Task, float] = {}  # when a run was last told to end, by monotonic()
        self.refused: dict[tuple[str, str], Task] = {}  # by variant and environment, see `run`
        self.busy: set[Task] = set()  # that another process runs, or ran

    def run(self, task: Task) -> Result:
        """Bring a task to its end.

        Flags that the script has refused are not tried with more seeds. A run that is there has
        begun with them: if it cannot be resumed, that says nothing about others.
        """
        kind = (task.variant, task.env_id)
        if kind in self.refused and find_run(task)[0] is None:
            return Result("left out", f"{self.refused[kind].name} had {REFUSAL}")
        result = run_task(task, self.children[task])
        if result.reason == REFUSAL and find_run(task)[0] is None:
            self.refused[kind] = task
        return result

    def end_overdue(self, running: list[Task], since: dict[Task, float]) -> None:
        """Let the runs save and end whose time is over; kill them if they still run GRACE later.

        since: when a task began, by time.monotonic().
        """
        if self.minutes is None:
            return
        now = time.monotonic()
        for task in running:
            if task in self.overdue:
                if now - self.overdue[task] > GRACE:
                    self.overdue[task] = now
                    self.children[task].stop(signal.SIGINT, kill=True)
            elif now - since.get(task, now) > 60 * self.minutes:
                self.overdue[task] = now
                self.children[task].stop(signal.SIGINT)

    def stop(self, signum: int, kill: bool) -> None:
        """Pass a signal on to all runs and start no more; kill: end them all at once."""
        for task, children in self.children.items():
            if kill or task not in self.overdue:  # a second signal would keep it from saving
                children.stop(signum, kill)

    def outcome(self, task: Task, future: Future[Result]) -> Result:
        """How a task ended whose future is done."""
        result = outcome(future)
        if result.reason == BUSY and self.children[task].signum:
            return Result("stopped")
        if task in self.overdue and result.outcome == "stopped":
            return Result("failed", f"stopped after {self.minutes:g} minutes", result.seconds)
        return result


def run_locally(
    tasks: list[Task], workers: int, signals: Signals, minutes: float | None = None
) -> int:
    """Run the tasks on this machine, `workers` at a time; returns the exit code.

    A task that another process runs, as a runner that was killed leaves them, goes to the end of
    the queue. minutes: after which a run is stopped and counts as failed.
    """
    progress = Progress(tasks)
    runs = LocalRuns(tasks, minutes)

    def start(task: Task) -> Result:
        progress.since[task] = time.monotonic()
        if task in runs.busy:
            time.sleep(PAUSE)
        return runs.run(task)

    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(start, task): task for task in tasks}
        pending = set(futures)
        while pending:
            finished, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in finished:
                task = futures.pop(future)
                result = runs.outcome(task, future)
                if result.reason != BUSY:
                    progress.report(task, result)
                    continue
                if task not in runs.busy:
                    progress.say(f"waiting  {task.name}: another process has {task.log}")
                runs.busy.add(task)
                later = pool.submit(start, task)
                futures[later] = task
                pending.add(later)
            if demand := signals.demand():
                signum = signals.received[0]
                # A training script knows how to stop on SIGTERM; a lost terminal is news to it.
                forwarded = signum if signum == signal.SIGINT else signal.SIGTERM
                runs.stop(forwarded, kill=demand == "kill")
                if demand == "save":
                    progress.say("stopping: the runs save what they have; again to kill them")
                for future in pending:
                    future.cancel()
            running = [t for f, t in futures.items() if f in pending and f.running()]
            runs.end_overdue(running, progress.since)
            progress.draw(running)
    return progress.conclude(signals.received)


def run_in_slurm(tasks: list[Task], args: Args, signals: Signals) -> int:
    """Run the tasks as jobs of SLURM, `workers` at a time; returns the exit code."""
    import slurm  # with submitit, which other runs need not wait for

    resources = slurm.Resources(
        partition=args.partition,
        gpus=args.gpus,
        cpus=args.cpus,
        hours=args.hours,
        jobs=args.workers,
    )
    try:
        return slurm.run_in_slurm(tasks, resources, args.runs_dir, signals)
    except slurm.Refused as error:
        fail(f"sbatch: {error}")


def python_that_draws() -> list[str]:
    """This Python if it has what it takes; else uv, which installs it; fails without both."""
    missing = [
        package for module, package in DRAWN_WITH.items() if not importlib.util.find_spec(module)
    ]
    if not missing:
        return [sys.executable]
    if not shutil.which("uv"):
        fail(f"--plot needs {', '.join(missing)}; install them for {sys.executable}, or install uv")
    return ["uv", "run"]


def closing_commands(args: Args, plot_program: str = "plot.py") -> list[str]:
    """Shell commands that follow the finished runs: the plots, then --then for each environment."""
    commands = []
    if args.plot is not None:
        words = ["--runs-dir", str(args.runs_dir), "--out", str(args.plot)]
        if args.suite is not None:
            plot_program = "suite.py"
            words += ["--name", args.suite]
        program = str(Path(__file__).with_name(plot_program))
        commands.append(shlex.join([*python_that_draws(), program, *words]))
    if args.then is not None:
        runs_dir = shlex.quote(str(args.runs_dir))
        for env_id in args.env_ids:
            name = shlex.quote(file_name(env_id))  # as in the names of run folders
            command = args.then.replace("{env_id}", name)
            commands.append(command.replace("{runs_dir}", runs_dir))
    return commands


def close(commands: list[str], signals: Signals) -> int:
    """Run the closing commands, until one fails or a signal comes; returns the exit code."""
    for command in commands:
        exit_code = 0
        if not signals.received:
            print(f"$ {command}", flush=True)
            exit_code = signals.run(command)
        if signals.received:
            print("the same command again goes on from here", flush=True)
            return 128 + signals.received[0]
        if exit_code:
            print(f"FAILED   {command}: exit code {exit_code}", file=sys.stderr)
            return 1
    return 0


def check_command(args: Args) -> None:
    """Fail if the command or the environments cannot work."""
    command = split_words("--command", args.command)
    scripts = [word for word in command if word.endswith(".py")]
    if not scripts:
        fail('--command names no .py script; try --command "uv run ppo/ppo.py"')
    if not Path(scripts[0]).is_file():
        fail(f"--command: there is no file {scripts[0]}")
    if shutil.which(command[0]) is None:
        fail(f"--command: cannot run {command[0]}: not found or not executable")
    if not args.env_ids:
        fail("--env-ids is empty")
    if len(set(args.env_ids)) < len(args.env_ids):
        fail("--env-ids names an environment twice")
    for env_id in sorted(flags_by_env(args.env_flags).keys() - set(args.env_ids)):
        print(f"note: no runs of {env_id}: its --env-flags are not used", file=sys.stderr)


def check(args: Args) -> None:
    """Exit with one line and code 2 if the arguments cannot work; creates nothing."""
    check_command(args)
    if args.num_seeds < 1:
        fail(f"--num-seeds must be at least 1, not {args.num_seeds}")
    if args.start_seed < 0:
        fail(f"--start-seed must not be negative, but is {args.start_seed}")
    if args.workers < 1:
        fail(f"--workers must be at least 1, not {args.workers}; to run nothing: --dry-run")
    if args.minutes is not None and not args.minutes > 0:
        fail(f"--minutes must be above 0, not {args.minutes:g}")
    if args.minutes is not None and args.launcher == "slurm":
        fail("--minutes is for runs on this machine; a job of SLURM has --hours")
    unused = (args.partition, args.gpus, args.cpus, args.hours) != (None, 0, 1, 24.0)
    if args.launcher == "local" and unused:
        fail("--partition, --gpus, --cpus and --hours need --launcher slurm")
    if args.launcher == "slurm" and shutil.which("sbatch") is None:
        fail("--launcher slurm: there is no sbatch on this machine")
    if args.gpus < 0 or args.cpus < 1 or not args.hours > 0:
        fail("--gpus must be at least 0, --cpus at least 1, --hours above 0")
    if args.suite is not None and args.plot is None:
        fail("--suite needs --plot")
    if args.suite is not None:
        check_name("--suite", args.suite)
    for flag, folder in (("--runs-dir", args.runs_dir), ("--plot", args.plot)):
        if folder is not None:
            check_folder(flag, folder)


def show(tasks: list[Task], closing: list[str]) -> None:
    """Print the commands that would be run."""
    for task in tasks:
        folder, finished = find_run(task)
        print(f"# finished: {folder}" if finished else shlex.join(next_command(task, folder)))
    for command in closing:
        print(command)


def check_versions(
    tasks: list[Task], keep_old: bool, sources: dict[str, str] | None = None
) -> None:
    """Fails if a run was made by another version of its script; with keep_old it is told alone.

    sources: by variant, what the scripts of the tasks will be; without it they are there.
    """
    for task in tasks:
        folder, _ = find_run(task)
        if folder is None:
            continue
        source = sources[task.variant].encode() if sources else task.script.read_bytes()
        copy = folder / task.script.name
        if copy.exists() and copy.read_bytes() != source:
            made = f"{folder} was made by a different {copy.name}"
            if not keep_old:
                fail(f"{made}: choose another --runs-dir, or keep such runs with --keep-old")
            print(f"note: {made}", file=sys.stderr)


def others(tasks: list[Task]) -> tuple[list[str], list[str]]:
    """Finished runs of the same script and environments that are not what the tasks will be.

    The names of those with other flags, and of those of another version of the script. A task's own
    run of another version is not among them: of it `check_versions` speaks.
    """
    by_env = {task.env_id: task for task in tasks}
    own = {(task.env_id, task.seed) for task in tasks}
    flags, version = [], []
    for file in sorted(tasks[0].runs_dir.glob("*/args.json")):
        folder = file.parent
        try:
            facts = json.loads(file.read_text())
            env_id, seed = facts["args"]["env_id"], facts["args"]["seed"]
            task = by_env[env_id]
            given = without_flags(facts["argv"], OWN_FLAGS)
            wanted = without_flags(task.argv, OWN_FLAGS)
            other_flags = given != wanted or resumed_with_others(task, folder)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # no run, or none of these environments
        if facts["script"] != task.script.name or not (folder / "agent.pt").exists():
            continue
        copy = folder / task.script.name
        other_version = copy.exists() and copy.read_bytes() != task.script.read_bytes()
        if other_flags:
            flags.append(folder.name)
        elif other_version and (env_id, seed) not in own:
            version.append(folder.name)
    return flags, version


def tell_of_others(tasks: list[Task]) -> None:
    """One line about the runs in --runs-dir with which the results would be mixed, if any."""
    parts = []
    kinds = ("with other flags", f"of another {tasks[0].script.name}")
    for names, kind in zip(others(tasks), kinds, strict=True):
        if names:
            count = "1 run" if len(names) == 1 else f"{len(names)} runs"
            parts.append(f"{count} {kind} ({names[0]}{', ...' if len(names) > 1 else ''})")
    if parts:
        print(
            f"note: {tasks[0].runs_dir} also has {' and '.join(parts)}; plot.py and compare.py "
            "take the newest run of each seed, whatever made it; another --runs-dir keeps them "
            "apart",
            file=sys.stderr,
        )


def launch(tasks: list[Task], args: Args, signals: Signals) -> int:
    """Bring the tasks to their end where --launcher says; returns the exit code.

    Without --keep-old none is started once its script is another one than now.
    """
    if not args.keep_old:
        tasks = [replace(task, script_hash=hash_of(task.script)) for task in tasks]
    if args.launcher == "slurm":
        return run_in_slurm(tasks, args, signals)
    return run_locally(tasks, args.workers, signals, args.minutes)


def main() -> int:
    """Parse the command line and run what it asks for; returns the exit code."""
    args = tyro.cli(Args, description=__doc__)
    check(args)
    tasks = expand(args)
    check_versions(tasks, args.keep_old)
    tell_of_others(tasks)
    closing = closing_commands(args)
    if args.dry_run:
        show(tasks, closing)
        return 0
    signals = Signals()
    return launch(tasks, args, signals) or close(closing, signals)


if __name__ == "__main__":
    raise SystemExit(main())
