"""`cpu_random.py SCRIPT FLAGS`: a script whose random numbers torch always draws on the CPU.

A GPU draws others from the same seed, so that a run there would take other actions.
"""

import runpy
import sys
from typing import Any

import torch
from torch import Tensor

exponential = Tensor.exponential_
randn = torch.randn
randperm = torch.randperm


def drawn_exponential(tensor: Tensor) -> Tensor:
    return tensor.copy_(exponential(torch.empty(tensor.shape)))


def drawn_normal(tensor: Tensor) -> Tensor:
    return randn(tensor.shape).to(tensor.device)


def drawn_order(count: int, device: Any = None) -> Tensor:
    return randperm(count).to(device)


if __name__ == "__main__":
    Tensor.exponential_ = drawn_exponential
    torch.randn_like = drawn_normal
    torch.randperm = drawn_order
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
