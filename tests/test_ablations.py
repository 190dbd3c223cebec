"""Ablations: each is a script that trains, without the detail and with nothing else changed.

benchmark/ablation.py, ablation_plot.py and the table of tools/ablations.py.
"""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from helpers.in_process import load_file, load_script, train
from sync import Collection
from undo import Ablation, ablations, tagged_lines

COLLECTION = Collection()
SHORT = {
    "ppo.py": {"env_id": "CartPole-v1", "num_steps": 32, "total_timesteps": 256},
    "ppo_continuous_action.py": {
        "env_id": "continuous:Spring-v0",
        "num_steps": 64,
        "num_minibatches": 2,
        "update_epochs": 1,
        "total_timesteps": 128,
    },
}


def ablations_of(script: str) -> dict[str, Ablation]:
    return ablations(script, COLLECTION.source(script))


TRAINED = [
    (script, ablation)
    for script in SHORT
    for ablation in ablations_of(script).values()
    if ablation.edits
]
