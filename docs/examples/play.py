# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["filelock>=3.16", "gymnasium[box2d,classic-control]>=1.4,<2", "moviepy>=2.1",
#     "numpy>=2", "tensorboard>=2.19", "torch>=2.11", "tqdm>=4.66", "tyro>=0.9.20",
#     "wandb>=0.30"]
# [tool.uv]
# exclude-newer = "2026-11-20T00:00:00Z"
# ///
"""A trained agent in a program of one's own: one episode of a run of ppo.py.

uv run docs/examples/play.py runs/<run>
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, "ppo")  # the folder of the script that trained the agent
import ppo as script

run = Path(sys.argv[1])
checkpoint = script.load_checkpoint(run / "checkpoint.pt")  # executes nothing of it
args = replace(checkpoint["args"], num_envs=1, capture_video=False)
envs = script.make_envs(args, run)
agent = script.Agent(envs)
agent.load_state_dict(checkpoint["agent"])

obs, _ = envs.reset(seed=1)
total = 0.0
done = False
while not done:
    with torch.no_grad():
        x = torch.as_tensor(obs, dtype=torch.float32)  # one row for each environment
        action = agent.get_action(x, greedy=True)
    obs, reward, terminated, truncated, _ = envs.step(action.numpy())
    total += reward[0]
    done = terminated[0] or truncated[0]
envs.close()
print(f"return {total:.1f}")
