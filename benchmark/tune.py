"""Search for flags with which a script learns better, on several environments at once.

    uv run benchmark/tune.py --command "uv run ppo/ppo.py --total-timesteps 100000" \\
        --target-scores CartPole-v1=0:500 Acrobot-v1=-500:0 --space learning-rate=log:3e-4:1e-2 \\
        num-steps=32,64,128 gae-lambda=0.8:1.0 --trials 30 --workers 2 --check-seeds 5
    benchmark/tune.sh                                   the example of docs/search.md

A search space is one word for each flag:
    num-steps=32,64,128            one of these
    norm-adv=yes,no                with the flag, --norm-adv, or without, --no-norm-adv
    update-epochs=int:1:10         a whole number, both ends included
    gae-lambda=0.9:1.0             a number
    learning-rate=log:1e-4:1e-2    a number, tried as often below 1e-3 as above

A trial is one run for each environment and seed, and its score is the mean of theirs. With
ENV_ID=LOW:HIGH a score of LOW counts 0 and HIGH counts 1, and it goes on beyond. LOW is what a
random policy gets, HIGH what is good; LOW may be the larger one, where less is better.

Optuna draws the flags. The first to run are the command's own, without any of the space. A trial
that is worse than most others were at the same place ends early, by what its TensorBoard files say.
One whose flags the script refuses with exit code 2, say minibatches that do not divide the batch,
does not count. A flag that the script does not have ends the search, and so does an edit of the
script.

The same call again does what is left: the search is in STUDY/study.db, unfinished runs are resumed.
Ctrl-C lets the runs save and stops. Exit codes: 0 when all is done, 1 if the search gave up, 2 for
bad input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import os
import shlex
import sys

import optuna
import run
import tyro
from console import Signals, check_folder, fail
from tasks import lock_log
from tuning import (
    DRAWS,
    Args,
    Search,
    Table,
    check_env_flags,
    open_study,
    parse_space,
    parse_targets,
    runner_arguments,
    work,
)
from tuning_results import run_check, say_results, write_results, write_trials


def check_arguments(args: Args) -> None:
    """Exit with one line and code 2 if the arguments cannot work; creates nothing."""
    targets = parse_targets(args.target_scores)
    space = parse_space(args.space)
    if not targets:
        fail("--target-scores is empty")
    if not space:
        fail("--space is empty")
    for flag, folder in (("--study", args.study), ("--plot", args.plot)):
        if folder is not None:
            check_folder(flag, folder)
    run.check(runner_arguments(args, {}, "defaults"))
    check_env_flags(args)
    if args.trials < 1:
        fail(f"--trials must be at least 1, not {args.trials}")
    if not 0 <= args.prune_below < 100:
        fail(f"--prune-below must be 0 to 99, not {args.prune_below}")
    if not args.minutes > 0:
        fail(f"--minutes must be above 0, not {args.minutes:g}")
    if args.check_seeds < 0 or args.check_seeds == 1:
        fail(f"--check-seeds must be 0, or at least 2 for an interval, not {args.check_seeds}")


def show(args: Args) -> None:
    """Print what would be searched, and the runs of the command's own flags."""
    for name, distribution in parse_space(args.space).items():
        print(f"# {name}: {distribution}")
    print(f"# {args.trials} trials, a run for each line; first with the command's own flags:")
    for task in run.expand(runner_arguments(args, {}, "defaults")):
        print(shlex.join(task.command))


def processor_seconds() -> float:
    """Of one core, that the processes which have ended took."""
    times = os.times()
    return times.children_user + times.children_system


def search_and_tell(args: Args) -> int:
    """Run the search and say what it has found; returns the exit code."""
    study, storage = open_study(args)
    signals = Signals()
    search = Search(args, study, storage)
    table = Table(search)
    work(search, signals, args.workers, table)
    if search.exhausted:
        table.say(f"no new flags in {DRAWS} draws: the search ends here")
    check = None
    best = search.winner()
    if args.check_seeds and best and not (signals.received or search.given_up):
        table.say("checking the best flags and the defaults with fresh seeds")
        check = run_check(search, best, signals, table)
    cost = study.user_attrs.get("core seconds", 0.0) + processor_seconds()
    study.set_user_attr("core seconds", cost)
    write_trials(search, args.study / "trials.csv")
    table.say(table.summary())
    if search.given_up:
        print(f"FAILED   {search.given_up}", file=sys.stderr)
    if search.completed() and search.defaults.finished:
        say_results(search, check, cost)
        if args.plot and not signals.received:
            for path in write_results(search, check, cost, args.plot):
                print(path)
    if signals.received:
        print("the same command again goes on from here")
        return 128 + signals.received[0]
    return 1 if search.given_up or not search.completed() else 0


def main() -> int:
    """Parse the command line and do what it asks for; returns the exit code."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    args = tyro.cli(Args, description=__doc__)
    check_arguments(args)
    if args.dry_run:
        show(args)
        return 0
    args.study.mkdir(parents=True, exist_ok=True)
    with open(args.study / "lock", "wb") as file:
        if not lock_log(file):
            fail(f"--study: another process is searching in {args.study}")
        return search_and_tell(args)


if __name__ == "__main__":
    raise SystemExit(main())
