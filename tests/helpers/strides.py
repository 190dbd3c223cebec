"""Watches over what torch's fused Adam takes for granted on the CPU."""

from types import ModuleType
from typing import Any

import pytest
import torch

# For a test with the argument `compile`: the gradient with and without --compile.
eager_and_compiled = pytest.mark.parametrize(
    "compile",
    [False, pytest.param(True, marks=pytest.mark.slow("torch.compile"))],
    ids=["eager", "compiled"],
)


def watch_strides(script: ModuleType) -> list[bool]:
    """Of every step of the script's optimizer from now on, whether all gradients are right.

    Fused Adam goes through a parameter and its gradient as they lie in memory. Where one is
    channels_last and the other is not, it pairs the wrong numbers, and says nothing.
    """
    right: list[bool] = []

    class Adam(torch.optim.Adam):
        def step(self, *arguments: Any) -> Any:
            parameters = self.param_groups[0]["params"]
            assert any(not p.is_contiguous() for p in parameters), "no weight is channels_last"
            right.append(all(p.grad.stride() == p.stride() for p in parameters))
            return super().step(*arguments)

    script.optim = type("optim", (), {"Adam": Adam})
    return right
