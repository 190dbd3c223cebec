"""ppo.py stays fast: its loop takes less of the processor than a plain one, by a known factor.

Both train in this process for the same steps, in turn. Compared is the least time that the
processor worked for each: other programs make it work longer, by emptying its caches, but never
shorter. The factor was 1.5 to 1.9 on two cores beside three to thirty others; that of a loop that
takes half as long again is two thirds of it. The limit lies between the two.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import plain_ppo
from helpers.in_process import load_script, train

STEPS = 5 * plain_ppo.BATCH_SIZE
ROUNDS = 5
TRIES = 3  # the machine may have a bad moment
LIMIT = 1.4  # at least so many times as fast as the plain loop
SLOWER = 0.5


def processor_seconds(function: Callable[[], Any]) -> float:
    """What the processor works for a call, in all threads of this process."""
    started = time.process_time()
    function()
    return time.process_time() - started


def times_as_fast(script: ModuleType, folder: Path) -> float:
    """How many times as fast as the plain loop a script is, each at its best of several rounds."""
    plain_ppo.train(plain_ppo.BATCH_SIZE)  # what torch imports at its first use
    plain, ours = [], []
    for number in range(ROUNDS):
        run_dir = folder / str(number)
        plain.append(processor_seconds(lambda: plain_ppo.train(STEPS)))
        ours.append(processor_seconds(lambda to=run_dir: train(script, to, total_timesteps=STEPS)))
    return min(plain) / min(ours)


def best_of_tries(script: ModuleType, folder: Path) -> float:
    """The ratio; if it is below the limit, that of another try."""
    for number in range(TRIES):
        ratio = times_as_fast(script, folder / f"try_{number}")
        if ratio >= LIMIT:
            break
    return ratio


@pytest.mark.slow("timing")
def test_the_loop_is_faster_than_a_plain_one(tmp_path):
    assert best_of_tries(load_script("ppo.py"), tmp_path) >= LIMIT


@pytest.mark.slow("timing")
def test_a_loop_that_takes_half_as_long_again_is_noticed(tmp_path, monkeypatch):
    """At the end of each iteration it works on for half of the time that this has taken."""
    script = load_script("ppo.py")
    log = script.Run.log
    ended = time.process_time()

    def slow_log(*args: Any) -> None:
        nonlocal ended
        now = time.process_time()
        while time.process_time() < now + SLOWER * (now - ended):
            pass
        log(*args)
        ended = time.process_time()

    def train_slowly(*args: Any) -> int:
        nonlocal ended
        ended = time.process_time()
        return fast_train(*args)

    fast_train = script.train
    monkeypatch.setattr(script.Run, "log", slow_log)
    monkeypatch.setattr(script, "train", train_slowly)
    assert times_as_fast(script, tmp_path) < LIMIT


def test_the_plain_loop_learns():
    returns = plain_ppo.train(20 * plain_ppo.BATCH_SIZE)
    assert statistics.mean(returns[-20:]) > 2 * statistics.mean(returns[:20])
