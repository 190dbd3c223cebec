"""What every test module shares."""

import os
import signal
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than ten seconds; -m 'not slow' skips it")


@pytest.hookimpl(optionalhook=True)  # the tests of mutations do without xdist
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: one more than CPUs, as tests often wait, for processes, a cluster or time."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True)
def restored_signal_handlers() -> Iterator[None]:
    """A script's train() installs handlers of its own; Ctrl-C must stop pytest again afterwards."""
    saved = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)
