"""What every test module shares."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "ppo"
SLOW = "slow(what): takes seconds because of `what`; -m 'not slow' leaves it out and says so"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", SLOW)
    config.left_out = Counter[str]()
    check_script_under_test(os.environ.get("PPO_SCRIPT", ""))
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


def check_script_under_test(given: str) -> None:
    """Refuses a PPO_SCRIPT that no test would import: all would pass, and be about another file."""
    if not given:
        return
    if not Path(given).is_file():
        raise pytest.UsageError(f"PPO_SCRIPT: there is no file {given}")
    if not (SCRIPTS / Path(given).name).is_file():
        raise pytest.UsageError(
            f"PPO_SCRIPT: {given} stands in for the script of the same file name in ppo/, and "
            "there is none; copy it to a folder of its own, under that name"
        )


def pytest_report_header() -> str | None:
    """Says which file is tested, if not the one in ppo/."""
    given = os.environ.get("PPO_SCRIPT")
    return f"PPO_SCRIPT: testing {given} in place of ppo/{Path(given).name}" if given else None


@pytest.hookimpl(optionalhook=True)  # the tests of mutations do without xdist
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: one more than CPUs, as tests often wait, for processes, a cluster or time.

    xdist's own variable comes first.
    """
    if given := os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return int(given)
    has_affinity = hasattr(os, "sched_getaffinity")  # on Linux: the CPUs that this process may use
    cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return cpus + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest tests first, so that no worker is left with one when the others have ended."""

    def place(item: pytest.Item) -> int:
        marker = item.get_closest_marker("slow")
        if marker is None:
            return 3
        return {"uv installs packages": 0, "mutations": 2}.get(marker.args[0], 1)

    items.sort(key=place)


# ------ what -m "not slow" has left out ------
def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if marker := item.get_closest_marker("slow"):
            item.config.left_out[marker.args[0]] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # of a worker of xdist
        session.config.workeroutput["left_out"] = dict(session.config.left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Every worker leaves out the same; the first that ends tells it."""
    config = node.config
    config.left_out = config.left_out or Counter(getattr(node, "workeroutput", {}).get("left_out"))


def pytest_terminal_summary(terminalreporter: object, config: pytest.Config) -> None:
    if config.left_out and "not slow" in config.option.markexpr:
        each = ", ".join(f"{what} ({count})" for what, count in config.left_out.most_common())
        terminalreporter.write_line(f"left out as slow, {config.left_out.total()} tests: {each}")


@pytest.fixture(autouse=True)
def restored_signal_handlers() -> Iterator[None]:
    """A script's train() installs handlers of its own; Ctrl-C must stop pytest again afterwards."""
    saved = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)
