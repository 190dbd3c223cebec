"""`robot_steps.py DEVICE FILE`: what robots of MuJoCo Playground observe, (steps, robots, size).

All devices begin in the same states and take the same actions.
"""

import sys
from pathlib import Path

import jax
import numpy as np
from helpers.in_process import load_script

STEPS = 10
ROBOTS = 64


def main(device: str, file: Path) -> None:
    script = load_script("ppo_continuous_action_mjx.py")
    args = script.Args(device=device)
    script.setup_jax(args)
    robots = script.Playground(args, Path())
    start, moves = jax.random.split(jax.random.key(1))
    states, _ = jax.jit(jax.vmap(robots.reset))(jax.random.split(start, ROBOTS))
    step = jax.jit(jax.vmap(robots.step))
    shape = (STEPS, ROBOTS, robots.action_size)
    seen = []
    for actions in jax.random.uniform(moves, shape, minval=-1, maxval=1):
        states, obs, _ = step(states, actions)
        seen.append(np.asarray(obs))
    np.save(file, np.array(seen))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
