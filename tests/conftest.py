"""What every test module shares."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import processes

SCRIPTS = Path(__file__).parents[1] / "ppo"
GIVEN = os.environ.get("PPO_SCRIPT")  # a file to test in the place of a script
SLOW = "slow(what): takes seconds because of `what`; -m 'not slow' leaves it out"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", SLOW)
    if GIVEN and not (Path(GIVEN).is_file() and (SCRIPTS / Path(GIVEN).name).is_file()):
        # All tests would pass, and be about another file.
        raise pytest.UsageError(f"PPO_SCRIPT: {GIVEN} is no file with the name of a script")
    # A shell ignores Ctrl-C for what it starts in the background, and that would be inherited by
    # the programs that tests interrupt.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup does the same with the loss of the terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # OpenMP's threads spin while they wait; several tests run at once and need the CPUs.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    # XLA leaves out LLVM's optimizations: they would take longer than they save here.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    # What JAX has compiled is kept, for the processes of this session and for the next session.
    cache = getattr(config, "cache", None)
    if cache is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache.mkdir("jax"))
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_report_header() -> str | None:
    """Says which file is tested, if not the one in ppo/."""
    return f"PPO_SCRIPT: testing {GIVEN} in place of ppo/{Path(GIVEN).name}" if GIVEN else None


@pytest.hookimpl(optionalhook=True)  # the tests of mutations do without xdist
def pytest_xdist_auto_num_workers() -> int | None:
    """For `-n auto`: one more than CPUs, as tests often wait for processes; None: xdist decides."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or not hasattr(os, "sched_getaffinity"):
        return None
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest tests first, so that no worker is left with one when the others have ended."""

    def place(item: pytest.Item) -> int:
        marker = item.get_closest_marker("slow")
        if marker is None:
            return 3
        return {"uv installs packages": 0, "mutations": 2}.get(marker.args[0], 1)

    items.sort(key=place)


@pytest.fixture(autouse=True)
def ended_programs() -> Iterator[None]:
    """What a failed test has started would go on for hours."""
    yield
    processes.kill_what_still_runs()


@pytest.fixture(autouse=True)
def restored_signal_handlers() -> Iterator[None]:
    """Scripts and the runner install handlers; Ctrl-C must stop pytest again afterwards."""
    numbers = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
    saved = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)
