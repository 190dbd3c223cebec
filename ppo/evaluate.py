# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["tyro>=0.9.20"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""Plays the agent of a finished or unfinished run: returns of whole episodes, films on request.

    uv run ppo/evaluate.py runs/CartPole-v1__ppo__1__<time> --episodes 20
    uv run ppo/evaluate.py runs/... --greedy --capture-video

A run is loaded without executing anything it contains: the weights are read as plain tensors, and
the script beside this file that has the name of the run's script plays them; a line says so if the
run was made by another version. For a run of your own edited script, --script names that script; it
will be executed.
"""

import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import tyro

# Flags of the machine that trained the run; here their defaults hold.
MACHINE_FLAGS = ("cuda", "torch_threads", "env_threads", "device_ids", "backend")


@dataclasses.dataclass
class Args:
    run: tyro.conf.Positional[Path]  # run folder, or a checkpoint.pt or agent.pt file
    episodes: int = 10  # episodes to play; of several players: games
    greedy: bool = False  # most probable actions instead of sampled ones
    capture_video: bool = False  # film every episode
    seed: int | None = None  # of the environments and the sampling; the run's seed if not given
    device: str = "cpu"  # cpu, cuda, cuda:1, mps
    script: Path | None = None  # script to play with; it is executed


def fail(message: str) -> NoReturn:
    """One line, exit code 2."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def find_script(args: Args) -> Path:
    """The script that plays the run: --script, or the one beside this file that made the run."""
    if args.script is not None:
        return args.script if args.script.is_file() else fail(f"no script at {args.script}")
    folder = args.run if args.run.is_dir() else args.run.parent
    try:
        name = json.loads((folder / "args.json").read_text())["script"]
    except (OSError, ValueError, KeyError, TypeError):
        fail(f"{folder} is not a run folder: it has no readable args.json; try --script")
    script = Path(__file__).resolve().with_name(Path(str(name)).name)
    if not script.is_file():
        fail(f"the run was made by {name}, which is not in {script.parent}: name it with --script")
    return script


def warn_if_edited(script: Path, folder: Path) -> None:
    """Says so if the run was trained, or last resumed, by another version of the script."""
    resumed = folder.glob(f"resumed_at_*/{script.name}")
    in_time = sorted(resumed, key=lambda copy: int(copy.parent.name.removeprefix("resumed_at_")))
    made_by = [folder / script.name, *in_time][-1]
    if made_by.exists() and made_by.read_bytes() != script.read_bytes():
        print(
            f"{Path(sys.argv[0]).name}: {script} is not the version that made {folder}; if the "
            f"network or the environment differs, execute the run's own copy: --script {made_by}",
            file=sys.stderr,
        )


def import_script(script: Path) -> ModuleType:
    """Imports the script; under uv, restarts in its own environment if a package is missing."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    if spec is None or spec.loader is None:
        fail(f"{script} is not a Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    sys.path.insert(0, str(script.resolve().parent))  # as if it were run: it may import others
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        uv = shutil.which("uv")
        if uv is None or os.environ.get("PPO_EVALUATE_RESTARTED"):
            fail(f"{script.name} needs a package: pip install {error.name}")
        try:
            subprocess.run([uv, "sync", "--quiet", "--script", str(script)], check=True)
            find = [uv, "python", "find", "--script", str(script)]
            python = subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip()
        except subprocess.CalledProcessError:  # uv has said why
            fail(f"{script.name} needs {error.name}, and uv cannot make its environment")
        os.environ["PPO_EVALUATE_RESTARTED"] = "1"
        os.execv(python, [python, *sys.argv])
    return module


def report(results: dict[str, Any], what: str, seeds: range) -> None:
    """Prints each episode, then means and deviations: of each seed if there are several, of all.

    results: by name, (seeds * episodes,) each, those of a seed beside each other.
    """
    results = {name.removeprefix("episodic_"): x for name, x in results.items()}
    total = len(next(iter(results.values())))
    episodes = total // len(seeds)
    for number in range(total):
        seed, episode = divmod(number, episodes)
        whose = f"seed {seeds[seed]} " if len(seeds) > 1 else ""
        shown = ", ".join(f"{name} {x[number]:g}" for name, x in results.items())
        print(f"{whose}episode {episode + 1:3d}: {shown}")
    for name, x in results.items():
        if len(seeds) > 1:
            for seed, own in zip(seeds, x.reshape(len(seeds), episodes), strict=True):
                print(f"seed {seed}: {name} {own.mean():.1f} ± {own.std():.1f}")
        print(f"{what}: {name} {x.mean():.1f} ± {x.std():.1f} over {total} episodes")


def load_agent(script: ModuleType, checkpoint: dict[str, Any], run_args: Any, args: Args) -> Any:
    """The agent of a checkpoint, on the device of the flags; random numbers are seeded."""
    one = dataclasses.replace(run_args, num_envs=1, capture_video=False)
    envs = script.make_envs(one, Path())
    precision = {"bf16": run_args.bf16} if hasattr(run_args, "bf16") else {}
    if not hasattr(script, "setup_jax"):
        agent = script.Agent(envs, **precision).to(script.setup_torch(run_args))
        envs.close()
        script.torch.manual_seed(run_args.seed)
    else:
        script.setup_jax(run_args)
        jax = script.jax

        def make_agent(seed: Any) -> Any:
            return script.Agent(envs, script.nnx.Rngs(jax.random.key(seed)), **precision)

        agent = jax.eval_shape(make_agent, 0)
        if hasattr(run_args, "num_seeds"):  # the arrays of all seeds in one
            seeds = jax.numpy.arange(run_args.num_seeds)
            agent = jax.eval_shape(lambda: jax.lax.map(make_agent, seeds))
    try:
        if hasattr(script, "setup_jax"):
            return script.with_arrays(agent, checkpoint["train_state"]["agent"])
        agent.load_state_dict(checkpoint["agent"])
        return agent
    except (KeyError, RuntimeError, TypeError, ValueError) as error:  # other names or shapes
        fits = f"fits {script.__name__}.py and {run_args.env_id}"
        fail(f"{args.run} holds no agent that {fits}: {' '.join(str(error).split()):.300}")


def main() -> None:
    """Loads the run, plays it, prints the results."""
    args = tyro.cli(Args, description=__doc__)
    if not args.run.exists():
        fail(f"there is no run at {args.run}")
    if args.episodes < 1:
        fail(f"--episodes must be at least 1, not {args.episodes}")
    folder = args.run if args.run.is_dir() else args.run.parent
    if args.capture_video and not os.access(folder, os.W_OK):
        fail(f"--capture-video: {folder} is not a folder that can be written to")
    path = find_script(args)
    script = import_script(path)
    if args.script is None:
        warn_if_edited(path, folder)

    file = args.run / "checkpoint.pt" if args.run.is_dir() else args.run
    checkpoint = script.load_checkpoint(file)
    trained = checkpoint["args"]
    defaults = {field.name: field.default for field in dataclasses.fields(script.Args)}
    settings = {name: defaults.get(name) for name in MACHINE_FLAGS}
    settings |= {
        "seed": trained.seed if args.seed is None else args.seed,
        "eval_episodes": args.episodes,
        "device": args.device,
        "capture_video": args.capture_video,
        "video_every": 1,
        "async_envs": False,
    }
    known = {name: value for name, value in settings.items() if hasattr(trained, name)}
    run_args = dataclasses.replace(trained, **known)
    script.check(run_args)
    agent = load_agent(script, checkpoint, run_args, args)
    videos = folder / time.strftime("videos/evaluation-%Y%m%d-%H%M%S")
    how = "most probable actions" if args.greedy else "sampled actions"
    what = f"{run_args.env_id} after {checkpoint['global_step']:,} steps, {how}"
    seeds = range(trained.seed, trained.seed + getattr(trained, "num_seeds", 1))
    report(script.evaluate(agent, run_args, videos, args.greedy), what, seeds)
    if args.capture_video:
        print(f"films: {videos}")


if __name__ == "__main__":
    main()
