"""Runs commands as somebody does who has uv and nothing of this process's Python."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.command_line import PPO

needs_uv = pytest.mark.skipif(not shutil.which("uv"), reason="uv is not installed")


def environment() -> dict[str, str]:
    """The variables of this process without those that lead to its packages, and without GPUs."""
    ours = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "UV_PYTHON")
    kept = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith("WANDB_")}
    return kept | {"CUDA_VISIBLE_DEVICES": ""}


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; it may install what it needs first."""
    options = {"env": environment(), "capture_output": True, "text": True, "timeout": 1200}
    return subprocess.run(list(map(str, words)), cwd=cwd, check=False, **options)


def uv_run(script: str | Path, *args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`uv run ppo/script args`: in the script's own environment."""
    return run("uv", "run", PPO / script, *args, cwd=cwd)
