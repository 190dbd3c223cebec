"""Runs a script's functions in several processes that torch.distributed connects.

What torchrun would set is set by `child`, so that tests can look into the processes.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from helpers.in_process import load_script
from helpers.warm_processes import context
from torch import distributed as dist


def child(
    name: str, rank: int, size: int, given: str, folder: Path, body: Callable, options: dict
) -> None:
    """What each process does: loads the script as torchrun would have it loaded, and meets."""
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ |= {"PPO_SCRIPT": given, **{k: str(v) for k, v in values.items()}}
    load_script.cache_clear()  # of what the parent process has loaded, if forked from it
    torch.set_num_threads(1)
    limit = timedelta(seconds=options.pop("limit", 60))
    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size, timeout=limit)
    dist.init_process_group = lambda *_, **__: None  # the script's own call
    result = body(load_script(name), folder, **options)
    torch.save(result, folder / f"result{rank}.tmp")
    os.replace(folder / f"result{rank}.tmp", folder / f"result{rank}.pt")


@contextmanager
def group(
    name: str, body: Callable, folder: Path, size: int = 2, **options: Any
) -> Iterator[list[Any]]:
    """So many processes that run `body(script, folder, **options)`; ended on leaving."""
    given = os.environ.get("PPO_SCRIPT", "")
    processes = [
        context().Process(target=child, args=(name, rank, size, given, folder, body, options))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def together(
    name: str, body: Callable, folder: Path, size: int = 2, seconds: float = 120, **options: Any
) -> list[Any]:
    """What each of the processes returns; they must end well within so many seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    with group(name, body, folder, size, limit=seconds, **options) as processes:
        deadline = time.monotonic() + seconds
        for process in processes:
            process.join(max(0, deadline - time.monotonic()))
        codes = [process.exitcode for process in processes]
    assert codes == [0] * size
    return [torch.load(folder / f"result{rank}.pt", weights_only=False) for rank in range(size)]


# A thread of the backend that drops a tensor while the interpreter ends aborts the process.
NOTE_THREADS = """
import atexit, os, pathlib

def note():
    names = [file.read_text().strip() for file in pathlib.Path("/proc/self/task").glob("*/comm")]
    file = pathlib.Path(__file__).parent / f"rank{os.environ['RANK']}.txt"
    file.write_text(" ".join(names))

if "RANK" in os.environ:
    atexit.register(note)
"""


def noting_threads(folder: Path) -> dict[str, str]:
    """Variables with which each process notes, at its end, which threads it still has."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NOTE_THREADS)
    return {"PYTHONPATH": str(folder)}


def assert_no_thread_left(folder: Path, size: int = 2) -> None:
    left = [(folder / f"rank{rank}.txt").read_text() for rank in range(size)]
    assert not [names for names in left if "gloo" in names]
