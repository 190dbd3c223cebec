"""Does every script train on this machine's GPU, and how fast? Two parts of ten minutes at most.

    benchmark/gpu.sh check
    benchmark/gpu.sh speed --cleanrl ~/cleanrl --leanrl ~/LeanRL

`check` trains with every script in the table below, also with --compile and --bf16, in several
processes, and from the CPU to the GPU and back; then evaluate.py plays and films what was trained.
Where the steps suffice the run has to show that it learns, elsewhere that its metrics are finite;
the table says which. `speed` measures steps per second beside CleanRL and LeanRL, by speed.py, and
over more and more environments. A run that fails is a row of the table, with its error; then the
exit code is 1. So is one that finds no time: then choose some --scripts. Scripts whose packages are
missing are skipped. Without a GPU both parts run on the CPU, with far fewer steps.
"""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, NoReturn

import speed
import tyro
from console import cpu_count
from tasks import kill_all
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).resolve().parents[1]
PPO = ROOT / "ppo"
CPUS = cpu_count()


@dataclass
class Args:
    part: tyro.conf.Positional[Literal["check", "speed"]]  # what to do
    out: Path = Path("runs/gpu")  # folder for the table, and for the runs of `check`
    scripts: tuple[str, ...] = ()  # of ppo/, or edited copies of them; all if not given
    plain: bool = False  # leave out --compile, --bf16, two processes and --resume
    steps: int | None = None  # environment steps of each run; by default as the table says
    envs: tuple[int, ...] = ()  # numbers of environments to measure; on a GPU 8 to 512
    minutes: float | None = None  # time for all runs; 9 on a GPU, no limit elsewhere
    limit: float | None = None  # seconds for one run; 180 on a GPU, 900 elsewhere
    workers: int | None = None  # runs of `check` at a time; one for each 4 CPUs
    python: str = sys.executable  # interpreter for the scripts
    cleanrl: Path | None = None  # clone of CleanRL
    cleanrl_python: Path | None = None  # interpreter for it; by default uv makes one
    leanrl: Path | None = None  # clone of LeanRL
    leanrl_python: Path | None = None  # interpreter for it; by default uv makes one


# ------ what is run ------
@dataclass(frozen=True)
class Criterion:
    """What learning does to a metric: the mean of its last points is another than of the first."""

    metric: str
    gain: float  # at least so much higher at the end; below 0: lower
    points: int  # at each end
    steps: int = 40_000  # of a run that can show it; a shorter one has to have finite metrics


def episodes(gain: float, points: int = 20) -> Criterion:
    """Returns that rise so much from the first to the last episodes."""
    return Criterion("charts/episodic_return", gain, points)


# With images 50,000 steps do not raise the returns yet. But the value function has begun to
# explain them, from 0 to 0.5 or more, and the policy to prefer some actions. Without gradients
# neither does.
VALUES = Criterion("losses/explained_variance", 0.15, 5)
ENTROPY = Criterion("losses/entropy", -0.005, 5)
TORCH = ("tensorboard", "torch", "gymnasium")
JAX = ("tensorboard", "jax", "flax", "optax", "gymnasium", "envpool")


@dataclass(frozen=True)
class Script:
    """A script of ppo/, and how it is checked and measured."""

    criteria: tuple[Criterion, ...]
    needs: tuple[str, ...] = TORCH  # modules
    flags: tuple[str, ...] = ()  # of its check
    cpu_flags: tuple[str, ...] = ("--num-steps", "32")  # more of them, on a CPU
    cpu_steps: int = 1024  # of its check, on a CPU
    resume_steps: int = 0  # of a run that goes from CPU to GPU and back; 0: there is none
    torchrun: bool = False  # it is for several processes
    speed_steps: int = 0  # of a measurement on a GPU; 0: none
    speed_needs: tuple[str, ...] = ()  # more modules for it
    sweep: bool = False  # measure it over numbers of environments
    threads: int = CPUS  # of a measurement


ATARI = Script((VALUES, ENTROPY), needs=(*TORCH, "ale_py", "cv2"))
ENVPOOL = replace(ATARI, needs=(*TORCH, "envpool"))
IN_JAX = replace(ATARI, needs=JAX, sweep=True, speed_steps=50_000)
MICRORTS = Script(
    (episodes(20),), needs=(*TORCH, "gym_microrts", "jpype"), cpu_flags=(), cpu_steps=2048
)
CHECK_STEPS = 50_000  # on a GPU
SCRIPTS = {
    # A pole that falls at random stands for 22 steps, one that is balanced after 50,000 for 150.
    "ppo.py": Script(
        (episodes(60),),
        cpu_flags=(),
        cpu_steps=50_000,
        resume_steps=60_000,
        speed_steps=100_000,
        threads=1,
    ),
    # Its default, HalfCheetah, would need MuJoCo, and more steps. Returns go from -1250 to -300.
    "ppo_continuous_action.py": Script(
        (episodes(400),),
        flags=(
            *("--env-id", "Pendulum-v1", "--num-envs", "4", "--num-steps", "256"),
            *("--gamma", "0.9", "--learning-rate", "1e-3"),
        ),
        cpu_flags=(),
        cpu_steps=50_000,
        speed_steps=40_000,
        speed_needs=("mujoco",),  # it is HalfCheetah that is measured
        threads=1,
    ),
    "ppo_multidiscrete.py": replace(MICRORTS, criteria=(episodes(0.3, points=60),)),
    "ppo_multidiscrete_mask.py": MICRORTS,
    "ppo_atari.py": replace(ATARI, speed_steps=20_000),
    # Its policy takes longer to move.
    "ppo_atari_lstm.py": replace(ATARI, criteria=(VALUES,), resume_steps=3072, speed_steps=20_000),
    "ppo_atari_envpool.py": replace(ENVPOOL, sweep=True, speed_steps=50_000),
    "ppo_atari_envpool_xla_jax.py": replace(IN_JAX, resume_steps=3072),
    "ppo_atari_envpool_xla_jax_scan.py": replace(IN_JAX, cpu_steps=512),  # slow without a GPU
    # It logs episodes ten times in these steps.
    "ppo_gymnax.py": Script(
        (episodes(60),),
        needs=("tensorboard", "jax", "flax", "optax", "gymnasium", "gymnax"),
        flags=("--log-every", "5000"),
        cpu_flags=(),
        cpu_steps=50_000,
    ),
    # Few robots, so that there are many updates.
    "ppo_continuous_action_mjx.py": Script(
        (ENTROPY,),
        needs=("tensorboard", "jax", "flax", "optax", "gymnasium", "mujoco_playground"),
        flags=("--env-id", "CartpoleBalance", "--num-envs", "16"),
        cpu_flags=("--num-steps", "8", "--num-minibatches", "4"),
    ),
    "ppo_atari_multigpu.py": replace(ATARI, torchrun=True),
    "ppo_atari_envpool_multigpu.py": replace(ENVPOOL, torchrun=True),
    # Against itself an agent neither wins nor loses more: its returns say nothing.
    "ppo_pettingzoo_ma_atari.py": replace(
        ATARI, criteria=(ENTROPY,), needs=(*TORCH, "ale_py", "pettingzoo", "supersuit")
    ),
    "ppo_procgen.py": replace(
        ATARI, needs=(*TORCH, "procgen", "gym3"), flags=("--num-envs", "8", "--num-steps", "128")
    ),
}


# ------ the machine ------
PROBE = """
import importlib.util, json, sys
gpus = 0
facts = {"Python": sys.version.split()[0]}
try:
    import torch
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts["torch"] = torch.__version__
    facts["CUDA"] = torch.version.cuda
    facts["cuDNN"] = torch.backends.cudnn.version()
    facts["GPU"] = ", ".join(torch.cuda.get_device_name(i) for i in range(gpus))
except ImportError:
    pass
try:
    import jax
    facts["jax"] = f"{jax.__version__} on {jax.default_backend()}"
except Exception:
    pass
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
print(json.dumps({"facts": facts, "gpus": gpus, "missing": missing}))
"""


@dataclass(frozen=True)
class Machine:
    """What the interpreter of the scripts finds."""

    facts: dict[str, str]  # versions and names
    gpus: int
    missing: tuple[str, ...]  # modules that are not installed

    @property
    def device(self) -> str:
        """Where to train."""
        return "cuda" if self.gpus else "cpu"


def fail(message: str) -> NoReturn:
    """End with one line and exit code 2: the input is wrong."""
    print(f"{Path(__file__).name}: {message}", file=sys.stderr)
    sys.exit(2)


def driver() -> str:
    """Version of the driver of the GPUs; empty if there is none."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if found.returncode else found.stdout.partition("\n")[0]


def probe(python: str) -> Machine:
    """What there is for an interpreter; ends the program if that does not run."""
    modules = sorted({name for script in SCRIPTS.values() for name in script.needs})
    command = [python, "-c", PROBE, *modules]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        fail(f"--python {python} does not answer: {error!r:.200}")
    facts = {name: str(x or "none") for name, x in found["facts"].items()}
    facts |= {"driver": driver() or "none", "CPU cores": str(CPUS), "CPU": speed.processor()}
    return Machine(facts, found["gpus"], tuple(found["missing"]))


# ------ the table ------
@dataclass(frozen=True)
class Row:
    """How a run went."""

    run: str  # script and flags
    outcome: str  # ok, FAILED or skipped
    note: str  # what was shown, or why it was not
    device: str = ""
    steps: int = 0  # environment steps; 0: it did not train
    seconds: float = 0.0  # from start to end
    speed: float = 0.0  # environment steps per second; 0: not known
    memory: float = 0.0  # peak of the process on the CPU, MiB


def cells(row: Row) -> list[str]:
    """A row of the table as text."""
    numbers = [row.steps, row.seconds, row.speed, row.memory]
    return [
        row.run,
        row.outcome,
        row.note,
        row.device,
        *(f"{x:,.0f}" if x else "" for x in numbers),
    ]


HEADER = [
    *("run", "outcome", "what it shows", "device"),
    *("steps", "seconds", "steps per second", "memory, MiB"),
]


def markdown(rows: list[Row], machine: Machine, heading: str) -> str:
    """The table, and below it what it was made with."""
    lines = [f"| {' | '.join(HEADER)} |", "|---" * 4 + "|--:" * 4 + "|"]
    for row in rows:
        escaped = [cell.replace("|", "\\|") for cell in cells(row)]
        lines.append(f"| {' | '.join(escaped)} |")
    facts = ", ".join(f"{name} {x}" for name, x in machine.facts.items())
    return "\n".join([f"# {heading}", "", *lines, "", f"{facts}."])


def write_table(rows: list[Row], machine: Machine, args: Args) -> None:
    """Prints the table and writes it to the folder; the CSV repeats the versions in each line."""
    counts = [f"{sum(row.outcome == x for row in rows)} {x}" for x in ("ok", "FAILED", "skipped")]
    text = markdown(rows, machine, f"gpu.sh {args.part}: {', '.join(counts)}")
    print(f"\n{text}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{args.part}.md").write_text(text + "\n")
    with open(args.out / f"{args.part}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        names = [field.name for field in fields(Row)]
        writer.writerow([*names, *machine.facts])
        for row in rows:
            writer.writerow([*(getattr(row, name) for name in names), *machine.facts.values()])


def reason(printed: str) -> str:
    """The line in which a program says why it failed: its own or that of a Python error."""
    lines = [line.strip() for line in printed.splitlines() if re.search(r"\w", line)]
    # torchrun and the like add a summary below it.
    telling = [x for x in lines if re.search(r"(Error|Exception): \S|^\S+\.py: \S", x)]
    return (telling or lines or ["it printed nothing"])[-1][:300]


# ------ part one: does it train? ------
@dataclass(frozen=True)
class Job:
    """A run of a script, in one session or in several that go on with it."""

    script: Path
    flags: tuple[str, ...]
    devices: tuple[str, ...]  # of the sessions
    steps: int  # in all
    criteria: tuple[Criterion, ...]
    processes: int = 0  # that torchrun starts; 0: without it
    play: bool = False  # evaluate.py plays it afterwards
    folder: Path = Path()  # of its runs and its log

    @property
    def name(self) -> str:
        """What the user reads."""
        extra = [f"{self.processes} x torchrun"] if self.processes else []
        extra += ["resumed"] if len(self.devices) > 1 else []
        return " ".join([self.script.name, *extra, *self.flags])


Scalars = dict[str, list[float]]
Limit = Callable[[], float]  # seconds that the next run may take


class Trouble(Exception):
    """A run that is not as it should be; the text says why, in one line."""


def jobs_of(name: str, path: Path, args: Args, machine: Machine) -> Iterator[Job]:
    """The runs of a script."""
    script = SCRIPTS[name]
    on_gpu = machine.gpus > 0
    device = machine.device
    flags = script.flags if on_gpu else (*script.flags, *script.cpu_flags)
    steps = args.steps or (CHECK_STEPS if on_gpu else script.cpu_steps)
    processes = 1 if script.torchrun else 0
    job = Job(path, flags, (device,), steps, script.criteria, processes, play=True)
    yield job
    if args.plain:
        return
    if script.torchrun:
        # A GPU that two processes share has no NCCL.
        backend = "nccl" if machine.gpus > 1 else "gloo"
        more = ("--backend", backend, "--timeout", "60")
        yield replace(job, flags=(*flags, *more), processes=2, play=False)
    if script.resume_steps:
        devices = ("cpu", device, "cpu")
        resume_steps = args.steps or script.resume_steps
        yield replace(job, devices=devices, steps=resume_steps, play=False)
    for variant in speed.variants(path)[1:]:
        yield replace(job, flags=(*flags, *variant), play=False)


def command_of(job: Job, python: str) -> list[str]:
    """How its sessions are started, up to their own flags."""
    start = [python]
    if job.processes:
        start += ["-m", "torch.distributed.run", "--standalone"]
        start += [f"--nproc_per_node={job.processes}"]
    return [*start, str(job.script)]


def run_or_raise(
    command: list[str], job: Job, variables: dict[str, str], limit: float
) -> speed.Ended:
    """Runs a command of a job, which leaves all it prints in the job's log. Raises Trouble."""
    if limit < 1:
        raise Trouble("not run: no time was left")
    try:
        ended = speed.run_command(command, job.folder, variables, limit)
    except OSError as error:
        raise Trouble(str(error)) from error
    with open(job.folder / "log.txt", "a") as log:
        log.write(f"$ {' '.join(command)}\n{ended.printed}")
    if ended.late:
        raise Trouble(f"still ran after {limit:.0f} s; {reason(ended.printed)}")
    if ended.exit_code:
        raise Trouble(f"exit code {ended.exit_code}; {reason(ended.printed)}")
    return ended


def scalars_of(folder: Path) -> Scalars:
    """All values of all metrics of a run; what a resumed run purged is left out."""
    log = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    return {name: [point.value for point in log.Scalars(name)] for name in log.Tags()["scalars"]}


def mean(values: list[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def judge(scalars: Scalars, criteria: tuple[Criterion, ...], steps: int) -> str:
    """What a run of so many steps has shown. Raises Trouble if that is too little."""
    if not scalars.get("losses/value_loss"):
        raise Trouble("it logged no losses")
    for name, values in scalars.items():
        if not all(map(math.isfinite, values)):
            raise Trouble(f"{name} is not finite")
    shown = []
    for wanted in criteria:
        name = wanted.metric.partition("/")[2]
        if steps < wanted.steps:
            continue
        values = scalars.get(wanted.metric, [])
        if len(values) < 2 * wanted.points:
            raise Trouble(f"{name} was logged {len(values)} times, not {2 * wanted.points}")
        first = mean(values[: wanted.points])
        last = mean(values[-wanted.points :])
        found = f"{name} {first:.3g} to {last:.3g}, wanted {wanted.gain:+g}"
        if (last - first) / wanted.gain < 1:
            raise Trouble(f"does not learn: {found}")
        shown.append(found)
    return "learns: " + "; ".join(shown) if shown else "finite metrics, too few steps to learn"


def train(job: Job, python: str, variables: dict[str, str], limit: Limit) -> tuple[Row, Path]:
    """Runs all sessions of a job; the row and the run's folder. Raises Trouble."""
    started = time.monotonic()
    folder: Path | None = None
    memory = 0.0
    for number, device in enumerate(job.devices, start=1):
        own = ["--device", device, "--total-timesteps", str(job.steps * number // len(job.devices))]
        own += ["--eval-episodes", "1"]
        where = ["--resume", str(folder)] if folder else ["--runs-dir", str(job.folder)]
        command = [*command_of(job, python), *job.flags, *own, *where]
        ended = run_or_raise(command, job, variables, limit())
        memory = max(memory, ended.memory)
        if not folder:
            found = re.search(r"^run folder: (.+)$", ended.printed, re.MULTILINE)
            if not found:
                raise Trouble("it named no run folder")
            folder = Path(found[1])
    assert folder is not None, "a job has sessions"
    if not (folder / "agent.pt").exists():
        raise Trouble("there is no agent.pt in its run folder")
    scalars = scalars_of(folder)
    note = judge(scalars, job.criteria, job.steps)
    speeds = scalars.get("charts/SPS", [0.0])
    seconds = time.monotonic() - started
    devices = ", ".join(job.devices)
    return Row(job.name, "ok", note, devices, job.steps, seconds, speeds[-1], memory), folder


def play(job: Job, folder: Path, python: str, variables: dict[str, str], limit: Limit) -> Row:
    """Plays an episode of a trained agent and films it. Raises Trouble."""
    started = time.monotonic()
    command = [python, str(PPO / "evaluate.py"), str(folder), "--script", str(job.script)]
    command += ["--episodes", "1", "--capture-video", "--device", job.devices[0]]
    ended = run_or_raise(command, job, variables, limit())
    films = [path for path in folder.glob("videos/evaluation-*/*.mp4") if path.stat().st_size]
    if not films:
        raise Trouble("evaluate.py has left no film")
    shown = [line for line in ended.printed.splitlines() if line.startswith("episode ")]
    seconds = time.monotonic() - started
    return Row(
        f"evaluate.py, {job.script.name}",
        "ok",
        f"{' '.join(shown[-1].split()) if shown else 'no episode'}; {len(films)} film",
        job.devices[0],
        seconds=seconds,
        memory=ended.memory,
    )


def work(job: Job, python: str, variables: dict[str, str], limit: Limit) -> list[Row]:
    """The rows of a job: of its training and, if it is to be played, of that."""
    job.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    name = job.name
    devices = ", ".join(job.devices)
    try:
        row, folder = train(job, python, variables, limit)
        rows.append(row)
        if job.play:
            name = f"evaluate.py, {job.script.name}"
            rows.append(play(job, folder, python, variables, limit))
    except Trouble as trouble:
        rows.append(Row(name, "FAILED", str(trouble), devices))
    for row in rows:
        print(f"{row.outcome:7} {row.run}: {row.note}", flush=True)
    return rows


def check(chosen: dict[str, Path], args: Args, machine: Machine, limit: Limit) -> list[Row]:
    """Trains with all scripts, some at a time; plain runs first, for the time may not suffice."""
    workers = args.workers or max(1, CPUS // 4)
    variables = {**os.environ, "WANDB_MODE": "disabled"}
    variables.setdefault("MUJOCO_GL", "egl")  # films of MuJoCo without a screen
    variables["OMP_NUM_THREADS"] = str(max(1, CPUS // workers))
    variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # JAX would take most of the GPU's memory
    jobs = [job for name, path in chosen.items() for job in jobs_of(name, path, args, machine)]
    jobs.sort(key=lambda job: not job.play)
    base = args.out.absolute() / time.strftime("check-%Y%m%d-%H%M%S")
    jobs = [replace(job, folder=base / f"{i:02d}-{job.script.stem}") for i, job in enumerate(jobs)]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, job, args.python, variables, limit) for job in jobs]
        try:
            return [row for future in futures for row in future.result()]
        except BaseException:  # Ctrl-C: the runs are in sessions of their own
            pool.shutdown(wait=False, cancel_futures=True)
            for group in list(speed.RUNNING):
                kill_all(group)
            raise


# ------ part two: how fast? ------
def compared(name: str, path: Path, args: Args, machine: Machine) -> list[speed.Contender]:
    """The script with its flags, then the peers' scripts of that name; none if it has no steps."""
    script = SCRIPTS[name]
    if not script.speed_steps:
        return []
    steps = args.steps or (script.speed_steps if machine.gpus else 4096)
    clones = {
        peer.name: root
        for peer, root in ((speed.CLEANRL, args.cleanrl), (speed.LEANRL, args.leanrl))
        if root is not None
        and path.parent == PPO  # an edited copy has no counterpart
        and peer.script(root.expanduser(), name).is_file()
    }
    listed = speed.contenders(
        speed.Args(
            script=name if path.parent == PPO else str(path),
            steps=steps,
            threads=script.threads,
            cuda=machine.gpus > 0,
            ppo_python=Path(args.python),
            cleanrl=clones.get(speed.CLEANRL.name),
            cleanrl_python=args.cleanrl_python,
            leanrl=clones.get(speed.LEANRL.name),
            leanrl_python=args.leanrl_python,
            sb3=False,
        )
    )
    return [replace(each, name=each.name.replace(str(path), name)) for each in listed]


def swept(
    name: str, contender: speed.Contender, args: Args, machine: Machine
) -> Iterator[speed.Contender]:
    """The script with more and more environments, at least three iterations of it each."""
    few = machine.gpus == 0
    for num_envs in args.envs or ((8, 16) if few else (8, 16, 32, 64, 128, 256, 512)):
        steps = max(args.steps or (1 if few else 20_000), 3 * 128 * num_envs)
        flags = ["--num-envs", str(num_envs), "--total-timesteps", str(steps)]
        yield speed.Contender(
            f"{name} --num-envs {num_envs}", [*contender.command, *flags], contender.pattern
        )


def time_one(contender: speed.Contender, threads: int, machine: Machine, limit: float) -> Row:
    """Measures a contender once, in a folder that is then removed."""
    flags = contender.command
    steps = int(flags[len(flags) - flags[::-1].index("--total-timesteps")])
    started = time.monotonic()
    row = Row(contender.name, "FAILED", "not run: no time was left", machine.device, steps)
    if limit < 1:
        return row
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = speed.attempt(contender, folder, threads, machine.gpus > 0, limit)
    except (speed.Failed, OSError) as error:
        printed = getattr(error, "printed", "")
        row = replace(row, note=f"{error}; {reason(printed)}" if printed else str(error))
    else:
        row = replace(row, outcome="ok", note="", speed=found.speed, memory=found.memory)
    print(f"{row.outcome:7} {row.run}: {row.speed:,.0f} steps/s {row.note}", flush=True)
    return replace(row, seconds=time.monotonic() - started)


def with_ratios(rows: list[Row]) -> list[Row]:
    """The rows of a comparison; each tells how many times as fast as it the first one is."""
    first = rows[0]
    return [
        replace(row, note=f"{first.run} is {first.speed / row.speed:.2f} times as fast")
        if row.speed and first.speed and row is not first
        else row
        for row in rows
    ]


def measure(chosen: dict[str, Path], args: Args, machine: Machine, limit: Limit) -> list[Row]:
    """Measures all scripts in turn: the comparisons first, then numbers of environments."""
    rows = []
    sweeps = []
    for name, path in chosen.items():
        threads = SCRIPTS[name].threads
        contenders = compared(name, path, args, machine)
        own = len(speed.variants(path))
        if args.plain and contenders:
            contenders = [contenders[0], *contenders[own:]]
        if contenders:
            measured = [time_one(each, threads, machine, limit()) for each in contenders]
            rows += with_ratios(measured)
        if SCRIPTS[name].sweep:
            sweeps += [(each, threads) for each in swept(name, contenders[0], args, machine)]
    return rows + [time_one(each, threads, machine, limit()) for each, threads in sweeps]


# ------ both ------
def chosen_scripts(args: Args) -> dict[str, Path]:
    """The files to run, by the name of their script; ends the program if there is no such one."""
    chosen = {}
    for text in args.scripts or SCRIPTS:
        given = Path(text).expanduser()
        path = PPO / text if len(given.parts) == 1 else given.absolute()
        if path.name not in SCRIPTS or not path.is_file():
            fail(f"--scripts: {text} is none of {', '.join(SCRIPTS)}, nor a copy of one")
        chosen[path.name] = path
    return chosen


def lacking(name: str, args: Args, machine: Machine) -> str:
    """What a script needs and the machine does not have, empty if there is nothing."""
    script = SCRIPTS[name]
    needs = (*script.needs, *(script.speed_needs if args.part == "speed" else ()))
    missing = [module for module in needs if module in machine.missing]
    if missing:
        return f"no module {missing[0]}"
    return "no Java" if "jpype" in needs and not shutil.which("java") else ""


def check_args(args: Args) -> None:
    """Ends the program if the flags cannot work."""
    python = shutil.which(os.path.expanduser(args.python))
    if python is None:
        fail(f"there is no interpreter {args.python}")
    args.python = os.path.abspath(python)
    for flag, clone in (("--cleanrl", args.cleanrl), ("--leanrl", args.leanrl)):
        if clone is not None and not clone.expanduser().is_dir():
            fail(f"{flag}: there is no folder {clone}")
    numbers = (args.steps, args.minutes, args.limit, args.workers, *args.envs)
    if any(x is not None and not x > 0 for x in numbers):
        fail("--steps, --minutes, --limit, --workers and --envs must be above 0")


def main() -> int:
    """Runs one part and writes its table; the exit code."""
    args = tyro.cli(Args, description=__doc__)
    check_args(args)
    chosen = chosen_scripts(args)
    machine = probe(args.python)
    print(", ".join(f"{name} {x}" for name, x in machine.facts.items()), flush=True)
    minutes = args.minutes or (9 if machine.gpus else math.inf)
    longest = args.limit or (180 if machine.gpus else 900)
    end = time.monotonic() + 60 * minutes
    speed.listen()

    def limit() -> float:
        return min(longest, end - time.monotonic())

    skipped = {name: lack for name in chosen if (lack := lacking(name, args, machine))}
    left = {name: path for name, path in chosen.items() if name not in skipped}
    part = check if args.part == "check" else measure
    try:
        rows = part(left, args, machine, limit)
    except KeyboardInterrupt as stop:
        print("stopped; no table was written", file=sys.stderr)
        return 128 + stop.args[0]
    if not rows:
        rows = [Row("all", "FAILED", "nothing was run")]
    rows += [Row(name, "skipped", f"skipped: {lack}") for name, lack in skipped.items()]
    write_table(rows, machine, args)
    return int(any(row.outcome == "FAILED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
