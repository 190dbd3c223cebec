"""It learns: the one test that needs no knowledge of how."""

from pathlib import Path

import numpy as np
from scripts import load_script, train

ppo = load_script("ppo.py")


def test_cartpole(tmp_path: Path):
    """The last 100 episodes of a short run, out of 500 at most.

    With these flags seeds 1 to 5 ended between 459 and 500 after 100,000 steps.
    """
    flags = {"learning_rate": 1.5e-3, "gamma": 0.98, "total_timesteps": 120_000}
    run = train(ppo, tmp_path, env_id="CartPole-v1", seed=1, **flags)
    returns = [value for _, value in run.scalars()["charts/episodic_return"]]
    assert np.mean(returns[:20]) < 50  # it had something to learn
    assert np.mean(returns[-100:]) > 400
