"""Stands in for a training script: keeps the contract of a run folder and learns nothing.

What it does depends on the environment's name, or on the learning rate, which may be a word: Fail
fails, Refuse calls its flags wrong, Slow trains until it is stopped, Deaf trains on whatever
signals come, Dies is killed. A file `let-go` beside the script makes Fail, Slow and Deaf end well,
and so does a second start Slow and Deaf. A file `events-<learning rate>` is what it logs.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__)
SIGNALS: list[int] = []


def parse() -> argparse.Namespace:
    """The flags that every training script has, and one of its own."""
    parser = argparse.ArgumentParser()
    for flag in ("--env-id", "--seed", "--runs-dir", "--resume", "--learning-rate", "--exp-name"):
        parser.add_argument(flag)
    return parser.parse_args()


def create_folder(args: argparse.Namespace) -> Path:
    """The folder of a fresh run."""
    exp_name = args.exp_name or HERE.stem
    name = f"{args.env_id.replace('/', '-')}__{exp_name}__{args.seed}__{time.time_ns()}"
    folder = Path(args.runs_dir) / name
    folder.mkdir(parents=True)
    own = {"env_id": args.env_id, "seed": int(args.seed), "total_timesteps": 1000}
    facts = {"script": HERE.name, "argv": sys.argv[1:], "args": own, "versions": {}}
    (folder / HERE.name).write_bytes(HERE.read_bytes())
    (folder / "facts").write_text(json.dumps(facts))
    (folder / "facts").rename(folder / "args.json")  # whole, for runs that start beside this one
    events = HERE.with_name(f"events-{args.learning_rate}")
    if events.exists():
        shutil.copy(events, folder / "events.out.tfevents.1")
    return folder


def run_to_resume(runs_dir: str) -> Path | None:
    """For --resume auto: the last run of the same command, if there is one that is not finished."""
    for file in sorted(Path(runs_dir).glob("*/args.json"), reverse=True):
        facts = json.loads(file.read_text())
        if facts["script"] != HERE.name or facts["argv"] != sys.argv[1:]:
            continue
        if (file.parent / HERE.name).read_bytes() != HERE.read_bytes():
            return None
        if (file.parent / "agent.pt").exists():
            print(f"{file.parent} is finished")
            sys.exit(0)
        return file.parent
    return None


def train_until_stopped(folder: Path, deaf: bool) -> None:
    """Exits like a script that was stopped; returns when it is let go."""
    deadline = time.monotonic() + 60
    while not HERE.with_name("let-go").exists():
        if time.monotonic() > deadline:
            sys.exit("nobody has ended this run")
        time.sleep(0.01)
        if SIGNALS and not deaf:
            time.sleep(0.1)  # for a second signal, which would kill a real run
            (folder / "signals.txt").write_text(str(len(SIGNALS)))
            sys.exit(128 + SIGNALS[0])


def main() -> None:
    """Plays the part."""
    args = parse()
    rate = args.learning_rate or ""
    if rate.startswith("Refuse"):
        print("fake.py: such flags cannot work", file=sys.stderr)
        sys.exit(2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: SIGNALS.append(received))
    earlier = run_to_resume(args.runs_dir) if args.resume == "auto" else None
    folder = earlier or create_folder(args)
    env_id = args.env_id

    def acts(*words: str) -> bool:
        """Whether the environment or the learning rate begins with one of the words."""
        return env_id.startswith(words) or rate.startswith(words)

    print(f"run folder: {folder}")
    (folder / "checkpoint.pt").touch()
    names = ("PJRT_NPROC", "XLA_PYTHON_CLIENT_PREALLOCATE", "OMP_NUM_THREADS")
    values = [f"{name}={os.environ.get(name, 'unset')}" for name in names]
    with open(folder / "starts.txt", "a") as file:
        print(*sys.argv[1:], *values, file=file)
    print("42 of 100 steps, 1 steps/s, return 7.0, length 7", flush=True)
    if acts("Fail") and not HERE.with_name("let-go").exists():
        print("\n".join(f"line {n}" for n in range(50)))
        sys.exit("RuntimeError: the loss is not finite")
    if acts("Dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if acts("Slow", "Deaf") and not earlier:
        train_until_stopped(folder, deaf=acts("Deaf"))
    (folder / "agent.pt").touch()
    print("evaluation: return 7.0 ± 0.5", flush=True)


if __name__ == "__main__":
    main()
