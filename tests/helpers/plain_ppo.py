"""PPO as one writes it down first, of CartPole-v1: what test_speed_guard.py times ppo.py against.

It learns by the equations and the settings of ppo.py, and does nothing to be fast: a distribution
object and the value at every step, a loop over episodes' ends, the gradient's norm layer by layer,
numbers read after every minibatch. Nobody improves this file: a yardstick has to stay as it is.
"""

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

NUM_ENVS = 4
NUM_STEPS = 128
NUM_MINIBATCHES = 4
UPDATE_EPOCHS = 4
LEARNING_RATE = 2.5e-4
GAMMA = 0.99
GAE_LAMBDA = 0.95
CLIP_COEF = 0.2
ENT_COEF = 0.01
VF_COEF = 0.5
MAX_GRAD_NORM = 0.5
BATCH_SIZE = NUM_ENVS * NUM_STEPS


def layer(inputs: int, outputs: int, std: float) -> nn.Linear:
    """A layer with orthogonal weights and no bias at first."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, std)
    nn.init.zeros_(made.bias)
    return made


def network(inputs: int, outputs: int, std: float) -> nn.Sequential:
    """Two hidden layers of 64 units."""
    gain = 2**0.5
    hidden = (layer(inputs, 64, gain), nn.Tanh(), layer(64, 64, gain), nn.Tanh())
    return nn.Sequential(*hidden, layer(64, outputs, std))


def train(total_timesteps: int, seed: int = 1) -> list[float]:
    """Trains for so many steps of the environments; the returns of the episodes that ended."""
    torch.manual_seed(seed)
    envs = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="sync")
    actor = network(4, 2, 0.01)
    critic = network(4, 1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, eps=1e-5)

    all_obs = torch.zeros(NUM_STEPS, NUM_ENVS, 4)
    all_actions = torch.zeros(NUM_STEPS, NUM_ENVS)
    all_logprobs = torch.zeros(NUM_STEPS, NUM_ENVS)
    all_values = torch.zeros(NUM_STEPS, NUM_ENVS)
    all_rewards = torch.zeros(NUM_STEPS, NUM_ENVS)
    all_dones = torch.zeros(NUM_STEPS, NUM_ENVS)
    returns_so_far = np.zeros(NUM_ENVS)
    finished: list[float] = []
    statistics: list[tuple[float, float]] = []
    next_obs, _ = envs.reset(seed=seed)
    iterations = total_timesteps // BATCH_SIZE
    for iteration in range(iterations):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - iteration / iterations)
        for step in range(NUM_STEPS):
            obs = torch.tensor(next_obs, dtype=torch.float32)
            with torch.no_grad():
                policy = Categorical(logits=actor(obs))
                action = policy.sample()
                all_logprobs[step] = policy.log_prob(action)
                all_values[step] = critic(obs).flatten()
            all_obs[step] = obs
            all_actions[step] = action
            next_obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            done = np.logical_or(terminated, truncated)
            all_rewards[step] = torch.tensor(reward, dtype=torch.float32)
            all_dones[step] = torch.tensor(done, dtype=torch.float32)
            returns_so_far += reward
            for i in range(NUM_ENVS):
                if done[i]:
                    finished.append(float(returns_so_far[i]))
                    returns_so_far[i] = 0

        with torch.no_grad():
            next_value = critic(torch.tensor(next_obs, dtype=torch.float32)).flatten()
            advantages = torch.zeros(NUM_STEPS, NUM_ENVS)
            last = torch.zeros(NUM_ENVS)
            for step in reversed(range(NUM_STEPS)):
                goes_on = 1 - all_dones[step]
                delta = all_rewards[step] + GAMMA * next_value * goes_on - all_values[step]
                last = delta + GAMMA * GAE_LAMBDA * goes_on * last
                advantages[step] = last
                next_value = all_values[step]
            returns = advantages + all_values

        obs = all_obs.reshape(BATCH_SIZE, 4)
        actions = all_actions.reshape(BATCH_SIZE)
        logprobs = all_logprobs.reshape(BATCH_SIZE)
        values = all_values.reshape(BATCH_SIZE)
        advantages = advantages.reshape(BATCH_SIZE)
        returns = returns.reshape(BATCH_SIZE)
        for _ in range(UPDATE_EPOCHS):
            order = torch.randperm(BATCH_SIZE)
            for rows in order.split(BATCH_SIZE // NUM_MINIBATCHES):
                policy = Categorical(logits=actor(obs[rows]))
                ratio = (policy.log_prob(actions[rows]) - logprobs[rows]).exp()
                gain = advantages[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = torch.clamp(ratio, 1 - CLIP_COEF, 1 + CLIP_COEF)
                policy_loss = -torch.min(ratio * gain, clipped * gain).mean()
                value = critic(obs[rows]).flatten()
                change = torch.clamp(value - values[rows], -CLIP_COEF, CLIP_COEF)
                error = (value - returns[rows]) ** 2
                clipped_error = (values[rows] + change - returns[rows]) ** 2
                value_loss = 0.5 * torch.max(error, clipped_error).mean()
                entropy = policy.entropy().mean()
                loss = policy_loss - ENT_COEF * entropy + VF_COEF * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
                optimizer.step()
                statistics.append((policy_loss.item(), value_loss.item()))
    envs.close()
    return finished
