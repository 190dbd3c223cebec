"""Every implementation detail is tested: when its line is undone, a test fails.

Each mutation edits a copy of a script and runs the tests that must notice on that copy
(tests/helpers/in_process.py imports it in place of the script, see PPO_SCRIPT there). They must
fail by an assertion: a copy that crashes would prove nothing.
"""

import multiprocessing
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from details import find_tags
from sync import ROOT, Collection

COLLECTION = Collection()


@dataclass(frozen=True)
class Mutation:
    """A way to undo a detail."""

    tag: str  # the tag that stands in the script's comment; for deviations with its text
    undone: str  # what the edited script does instead
    tests: str  # what must fail, as pytest selects it: file, and test names joined by " or "
    edits: dict[str, str]  # old text: new text; each old text occurs exactly once in the script


ONE_CRITIC_LAYER = """\
        trunk = mlp(obs_size, 64, std=1.0)[:-1]
        self.critic = nn.Sequential(*trunk, layer_init(nn.Linear(64, 1), 1.0))  # [core-13]"""
BOOTSTRAP = "deviation truncated episodes bootstrapped"
RESETS = "deviation reset steps left out"

# Where a tag heads a block (core-12), mutations may edit a line of the block.
MUTATIONS: dict[str, list[Mutation]] = {
    "ppo.py": [
        Mutation(
            "core-1",
            "one environment",
            "test_ppo.py side_by_side",
            {"return vector_env(env_fns,": "return vector_env(env_fns[:1],"},
        ),
        Mutation(
            "core-1",
            "reset in the same step",
            "test_ppo.py invalid_ones",
            {'autoreset_mode="NextStep"': 'autoreset_mode="SameStep"'},
        ),
        Mutation(
            "core-2",
            "torch's own initial weights",
            "test_ppo_agent.py orthogonal",
            {"nn.init.orthogonal_(layer.weight, std)": "pass"},
        ),
        Mutation(
            "core-2",
            "one scale for all layers",
            "test_ppo_agent.py orthogonal",
            {"nn.init.orthogonal_(layer.weight, std)": "nn.init.orthogonal_(layer.weight, 2**0.5)"},
        ),
        Mutation("core-3", "eps 1e-8", "test_ppo.py adams", {"eps=1e-5": "eps=1e-8"}),
        Mutation(
            "core-4",
            "constant learning rate",
            "test_ppo.py learning_rate",
            {'["lr"] = remaining * args.learning_rate': '["lr"] = args.learning_rate'},
        ),
        Mutation(
            "core-5",
            "one-step errors",
            "test_ppo_gae.py hand or definition",
            {"advantages[t] = lastgaelam": "advantages[t] = deltas[t]"},
        ),
        Mutation(
            "core-5",
            "no lambda",
            "test_ppo_gae.py hand or definition",
            {"args.gamma * args.gae_lambda * lastgaelam": "args.gamma * lastgaelam"},
        ),
        Mutation(
            "core-6",
            "one full batch",
            "test_ppo.py partition",
            {"shuffled.chunk(args.num_minibatches)": "shuffled.chunk(1)"},
        ),
        Mutation(
            "core-6",
            "not shuffled",
            "test_ppo.py partition",
            {"in shuffled.chunk(": "in shuffled.sort()[0].chunk("},
        ),
        Mutation(
            "core-7",
            "not normalized",
            "test_ppo_loss.py normalization",
            {"advantages = centered / (std + 1e-8)": "pass"},
        ),
        Mutation(
            "core-7",
            "only centered",
            "test_ppo_loss.py normalization",
            {"centered / (std + 1e-8)": "centered"},
        ),
        Mutation(
            "core-7",
            "normalized with reset rows",
            "test_ppo_loss.py normalization",
            {"centered / (std + 1e-8)": "(advantages - advantages.mean()) / advantages.std()"},
        ),
        Mutation(
            "core-8",
            "not clipped",
            "test_ppo_loss.py policy_loss",
            {"-(weight @ gain)": "-(weight @ (ratio * advantages))"},
        ),
        Mutation(
            "core-9",
            "not clipped",
            "test_ppo_loss.py value_loss",
            {"v_error = torch.max(v_error, v_clipped_error)": "pass"},
        ),
        Mutation(
            "core-9",
            "the smaller error",
            "test_ppo_loss.py value_loss",
            {"torch.max(v_error, v_clipped_error)": "torch.min(v_error, v_clipped_error)"},
        ),
        Mutation(
            "core-10",
            "no entropy bonus",
            "test_ppo_loss.py entropy_and_sum",
            {"pg_loss - args.ent_coef * entropy_loss + args": "pg_loss + args"},
        ),
        Mutation(
            "core-10",
            "entropy is punished",
            "test_ppo_loss.py entropy_and_sum",
            {"pg_loss - args.ent_coef": "pg_loss + args.ent_coef"},
        ),
        Mutation(
            "core-11",
            "not clipped",
            "test_ppo_loss.py gradient_is_clipped",
            {"args.max_grad_norm, norm)": "np.inf, norm)"},
        ),
        Mutation(
            "core-12",
            "no debug variables",
            "test_ppo.py every_metric",
            {"stats = {  # [core-12]": "stats = {} and {  # [core-12]"},
        ),
        Mutation(
            "core-12",
            "wrong sign of a divergence",
            "test_ppo_loss.py test_statistics",
            {"weight @ -logratio": "weight @ logratio"},
        ),
        Mutation(
            "core-12",
            "another divergence",
            "test_ppo_loss.py test_statistics",
            {"weight @ (ratio - 1 - logratio)": "weight @ (logratio**2 / 2)"},
        ),
        Mutation(
            "core-12",
            "only increases are counted",
            "test_ppo_loss.py test_statistics",
            {"(ratio - 1).abs() > args.clip_coef": "(ratio - 1) > args.clip_coef"},
        ),
        Mutation(
            "core-13",
            "one trunk for policy and value",
            "test_ppo_agent.py share_nothing",
            {
                "        self.critic = mlp(obs_size, 1, std=1.0)  # [core-13]": ONE_CRITIC_LAYER,
                "self.actor = mlp(obs_size, envs.single_action_space.n, std=0.01)": (
                    "self.actor = nn.Sequential("
                    "*trunk, layer_init(nn.Linear(64, envs.single_action_space.n), 0.01))"
                ),
            },
        ),
        Mutation(
            "aux-3",
            "never stopped",
            "test_ppo.py target_kl",
            {"break  # [aux-3]": "pass  # [aux-3]"},
        ),
        Mutation(
            BOOTSTRAP,
            "a time limit counts as an end",
            "test_ppo_gae.py hand or definition",
            {"values[1:] * ~terminated": "values[1:] * ~(terminated | truncated)"},
        ),
        Mutation(
            BOOTSTRAP,
            "an end counts as a time limit",
            "test_ppo_gae.py hand or definition",
            {"values[1:] * ~terminated": "values[1:]"},
        ),
        Mutation(
            RESETS,
            "learned from",
            "test_ppo.py invalid_ones",
            {"valid = ~done[:-1]": "valid = np.ones_like(done[:-1])"},
        ),
        Mutation(
            RESETS,
            "the last step left out instead",
            "test_ppo.py invalid_ones",
            {"valid = ~done[:-1]": "valid = ~done[1:]"},
        ),
        Mutation(
            RESETS,
            "forgotten where a rollout begins",
            "test_ppo.py invalid_ones",
            {"last_done = done[-1:]": "last_done = done[-1:] & False"},
        ),
    ],
    "ppo_continuous_action.py": [
        Mutation(
            "continuous-1",
            "no square",
            "test_ppo_continuous_action.py normal_distribution",
            {"-0.5 * (z**2 + np.log(2 * np.pi))": "-0.5 * (z.abs() + np.log(2 * np.pi))"},
        ),
        Mutation(
            "continuous-1",
            "density of another scale",
            "test_ppo_continuous_action.py normal_distribution",
            {"np.log(2 * np.pi)) - self.actor_logstd": "np.log(2 * np.pi))"},
        ),
        Mutation(
            "continuous-2",
            "not learned",
            "test_ppo_continuous_action.py initial_policy",
            {"nn.Parameter(torch.zeros(shape))": "nn.Buffer(torch.zeros(shape))"},
        ),
        Mutation(
            "continuous-2",
            "deviation of e",
            "test_ppo_continuous_action.py initial_policy",
            {"nn.Parameter(torch.zeros(shape))": "nn.Parameter(torch.ones(shape))"},
        ),
        Mutation(
            "continuous-3",
            "mean over the components",
            "test_ppo_continuous_action.py normal_distribution",
            {"reshape(len(x), -1).sum(-1)": "reshape(len(x), -1).mean(-1)"},
        ),
        Mutation(
            "continuous-4",
            "hidden layers of the critic",
            "test_ppo_continuous_action.py initial_policy",
            {
                "self.actor = mlp(obs_size, int(np.prod(shape)), std=0.01)": (
                    "self.actor = nn.Sequential("
                    "*self.critic[:-1], layer_init(nn.Linear(64, int(np.prod(shape))), 0.01))"
                )
            },
        ),
        Mutation(
            "continuous-5",
            "not clipped",
            "test_ppo_continuous_action.py sees_clipped",
            {"env = gym.wrappers.ClipAction(env)": "pass"},
        ),
        Mutation(
            "continuous-6",
            "not normalized",
            "test_ppo_continuous_action.py observations_are_normalized",
            {"x = (obs - mean) / std.clamp(min=1e-4)": "x = obs"},
        ),
        Mutation(
            "continuous-6",
            "only scaled",
            "test_ppo_continuous_action.py observations_are_normalized",
            {"(obs - mean) / std": "obs / std"},
        ),
        Mutation(
            "continuous-7",
            "not clipped",
            "test_ppo_continuous_action.py observations_are_normalized",
            {"x.clamp(-10, 10).float()": "x.float()"},
        ),
        Mutation(
            "continuous-8",
            "not scaled",
            "test_ppo_continuous_action.py rewards_are_scaled",
            {"rewards /= max(agent.return_stats[2].item(), 1e-4)": "pass"},
        ),
        Mutation(
            "continuous-8",
            "centered, too",
            "test_ppo_continuous_action.py rewards_are_scaled",
            {"rewards /= max(": "rewards -= rewards.mean()  # \n        rewards /= max("},
        ),
        Mutation(
            "continuous-9",
            "not clipped",
            "test_ppo_continuous_action.py rewards_are_scaled",
            {"rewards.clip(-10, 10, out=rewards)": "pass"},
        ),
        Mutation(
            "deviation statistics once per rollout",
            "never",
            "test_ppo_continuous_action.py statistics_cover",
            {"update_stats(agent.obs_stats, valid_obs)": "pass"},
        ),
        Mutation(
            "deviation statistics once per rollout",
            "before the update",
            "test_ppo_continuous_action.py first_ratio or observations_are_normalized",
            {
                "update_stats(agent.obs_stats, valid_obs)": "pass",
                "        advantages, returns = compute_gae(rewards,": (
                    "        seen = obs[torch.from_numpy(valid)].float()\n"
                    "        update_stats(agent.obs_stats, seen)\n"
                    "        advantages, returns = compute_gae(rewards,"
                ),
            },
        ),
    ],
    "ppo_multidiscrete.py": [
        Mutation(
            "multidiscrete-1",
            "the first component alone",
            "test_ppo_multidiscrete.py test_log_probability",
            {"logprob = logprob.sum(-1)": "logprob = logprob[:, 0]"},
        ),
        Mutation(
            "multidiscrete-1",
            "mean over the components",
            "test_ppo_multidiscrete.py test_log_probability",
            {"logprob = logprob.sum(-1)": "logprob = logprob.mean(-1)"},
        ),
    ],
    "ppo_multidiscrete_mask.py": [
        Mutation(
            "aux-4",
            "not masked",
            "test_ppo_multidiscrete.py masked_distribution or masked_actions",
            {"logits.where(mask, lowest)": "logits.where(mask | True, lowest)"},
        ),
        Mutation(
            "aux-4",
            "masked by a small logit",
            "test_ppo_multidiscrete.py masked_distribution or masked_actions",
            {"logits.where(mask, lowest)": "logits.where(mask, -10.0)"},
        ),
        Mutation(
            "aux-4",
            "lowered, so that the gradient goes through",
            "test_ppo_multidiscrete.py masked_distribution or masked_actions",
            {"logits.where(mask, lowest)": "(logits - 30.0 * ~mask)"},
        ),
        Mutation(
            "aux-4",
            "forgotten in the update",
            "test_ppo_multidiscrete.py first_ratio",
            {'mb["actions"], mb["masks"])': 'mb["actions"], mb["masks"] | True)'},
        ),
    ],
    "ppo_atari.py": [
        Mutation(
            "atari-1",
            "no no-ops",
            "test_ppo_atari.py Breakout-800-8",
            {"env = NoopReset(env)": "pass"},
        ),
        Mutation(
            "atari-1",
            "always one frame",
            "test_ppo_atari.py Breakout-800-8",
            {"np_random.integers(1, 31)": "np_random.integers(1, 2)"},
        ),
        Mutation(
            "atari-1",
            "a game that is over goes on",
            "test_ppo_atari.py no_ops_that_end",
            {
                "self.env.step(0)\n            if terminated or truncated:": (
                    "self.env.step(0)\n            if False:"
                )
            },
        ),
        Mutation(
            "atari-2",
            "every second frame",
            "test_ppo_atari.py Breakout-800-8",
            {"Observation(env, skip=4)": "Observation(env, skip=2)"},
        ),
        Mutation(
            "atari-3",
            "whole games",
            "test_ppo_atari.py Breakout-800-8",
            {"env = EpisodicLife(env)": "pass"},
        ),
        Mutation(
            "atari-4",
            "not fired",
            "test_ppo_atari.py Breakout-800-8",
            {"env = FireReset(env)": "pass"},
        ),
        Mutation(
            "atari-4",
            "without the next button",
            "test_ppo_atari.py fire_and_the_next",
            {"for action in (1, 2):": "for action in (1,):"},
        ),
        Mutation(
            "atari-5",
            "upside down",
            "test_ppo_atari.py Breakout-800-8",
            {"Observation(env, warp, images)": "Observation(env, lambda f: warp(f)[::-1], images)"},
        ),
        Mutation(
            "atari-6",
            "the game's own points",
            "test_ppo_atari.py Qbert-500-3",
            {"env = gym.wrappers.TransformReward(env, np.sign)": "pass"},
        ),
        Mutation(
            "atari-7",
            "empty frames at the start",
            "test_ppo_atari.py Breakout-800-8",
            {"StackObservation(env, 4)": "StackObservation(env, 4, padding_type='zero')"},
        ),
        Mutation(
            "atari-8",
            "one layer more",
            "test_ppo_atari.py nature_cnn",
            {"nn.Sequential(  # [atari-8]": "nn.Sequential(nn.ReLU(),  # [atari-8]"},
        ),
        Mutation(
            "atari-8",
            "fewer filters",
            "test_ppo_atari.py nature_cnn",
            {
                "nn.Conv2d(4, 32, kernel_size=8": "nn.Conv2d(4, 16, kernel_size=8",
                "nn.Conv2d(32, 64, kernel_size=4": "nn.Conv2d(16, 64, kernel_size=4",
                "nn.Sequential(  # [atari-8]": "nn.Sequential(nn.Identity(),  # [atari-8]",
            },
        ),
        Mutation(
            "atari-9",
            "from 0 to 255",
            "test_ppo_atari.py scaled_to_1",
            {"channels_last) / 255.0": "channels_last) / 1.0"},
        ),
    ],
    "ppo_atari_lstm.py": [
        Mutation(
            "core-6",
            "not shuffled",
            "test_ppo_atari_lstm.py whole_environments",
            {"in shuffled.chunk(": "in shuffled.sort()[0].chunk("},
        ),
        Mutation(
            "atari-9",
            "from 0 to 255",
            "test_ppo_atari_lstm.py scaled_to_1",
            {"channels_last) / 255.0": "channels_last) / 1.0"},
        ),
        Mutation(
            "lstm-1",
            "torch's own initial weights",
            "test_ppo_atari_lstm.py initial_weights",
            {"init(parameter)  #": "pass  #"},
        ),
        Mutation(
            "lstm-2",
            "initial states of ones",
            "test_ppo_atari_lstm.py zeroed",
            {"state = torch.zeros(2, args.num_envs": "state = torch.ones(2, args.num_envs"},
        ),
        Mutation(
            "lstm-3",
            "never reset",
            "test_ppo_atari_lstm.py one_by_one",
            {"state = state * goes_on[begin]": "pass"},
        ),
        Mutation(
            "lstm-3",
            "not in the evaluation",
            "test_ppo_atari_lstm.py evaluation",
            {"reset = (terminated | truncated)[None]": "pass"},
        ),
        Mutation(
            "lstm-4",
            "steps out of order",
            "test_ppo_atari_lstm.py whole_environments",
            {"(first_row + env_inds).flatten()": "(first_row + env_inds).flip(0).flatten()"},
        ),
        Mutation(
            "lstm-5",
            "from zero",
            "test_ppo_atari_lstm.py first_ratio",
            {'mb["obs"], state, starts)': 'mb["obs"], state * 0, starts)'},
        ),
    ],
    "ppo_atari_multigpu.py": [
        Mutation(
            "aux-2",
            "each process by itself",
            "test_ppo_atari_multigpu.py all_rows",
            {"add_up(agent, stats)  # [aux-2]": "pass  # [aux-2]"},
        ),
        Mutation(
            "aux-2",
            "clipped before it is added up",
            "test_ppo_atari_multigpu.py all_rows",
            {
                "    add_up(agent, stats)  # [aux-2] parallelized gradient update\n": "",
                "# [core-11] global": "#\n    add_up(agent, stats)  # [aux-2]",
            },
        ),
        Mutation(
            "aux-2",
            "mean of the processes' means",
            "test_ppo_atari_multigpu.py all_rows",
            {'total(mb["valid"].sum())': 'mb["valid"].sum()'},
        ),
        Mutation(
            "aux-2",
            "advantages centered by each process",
            "test_ppo_atari_multigpu.py all_rows",
            {"advantages - total(weight @ advantages)": "advantages - weight @ advantages"},
        ),
        Mutation(
            "aux-2",
            "advantages scaled by each process",
            "test_ppo_atari_multigpu.py all_rows",
            {"total(weight @ centered**2)": "(weight @ centered**2)"},
        ),
        Mutation(
            "aux-2",
            "statistics of the own rows, with which --target-kl parts the processes",
            "test_ppo_atari_multigpu.py all_rows",
            {"is not None), *stats.values()]": "is not None)]"},
        ),
        Mutation(
            "aux-2",
            "initial weights of its own",
            "test_ppo_atari_multigpu.py same_weights",
            {"dist.broadcast(weight, 0)": "pass"},
        ),
        Mutation(
            "aux-2",
            "the same games and actions",
            "test_ppo_atari_multigpu.py same_weights",
            {"seed=args.seed + RANK * args.num_envs)": "seed=args.seed)"},
        ),
        Mutation(
            "aux-2",
            "the same actions after a restart",
            "test_ppo_atari_multigpu.py same_weights",
            {'torch.manual_seed(args.seed + checkpoint.get("global_step", 0))': "pass"},
        ),
        Mutation(
            "aux-2",
            "steps of one process",
            "test_ppo_atari_multigpu.py equals_the_parents",
            {"global_step += args.num_envs * WORLD_SIZE": "global_step += args.num_envs"},
        ),
        Mutation(
            "aux-2",
            "episodes of one process",
            "test_ppo_atari_multigpu.py equals_the_parents",
            {"in all_episodes for episode in": "in all_episodes[:1] for episode in"},
        ),
        Mutation(
            "aux-2",
            "stops alone",
            "test_ppo_atari_multigpu.py signal_to_one",
            {"run.exit_code = max(exit_codes)": "run.exit_code = exit_codes[RANK]"},
        ),
        Mutation(
            "aux-2",
            "leaves while the first process still saves",
            "test_ppo_atari_multigpu.py signal_to_one",
            {"dist.barrier()  # who left": "pass  # who left"},
        ),
    ],
    "ppo_atari_envpool.py": [
        Mutation(
            "core-1",
            "one environment",
            "test_ppo_atari_envpool.py asked_for",
            {"num_envs=self.args.num_envs,": "num_envs=1,"},
        ),
        Mutation(
            "atari-1",
            "hardly any no-ops",
            "test_ppo_atari_envpool.py asked_for",
            {"noop_max=30": "noop_max=1"},
        ),
        Mutation(
            "atari-2",
            "every second frame",
            "test_ppo_atari_envpool.py asked_for",
            {"frame_skip=4": "frame_skip=2"},
        ),
        Mutation(
            "atari-3",
            "whole games",
            "test_ppo_atari_envpool.py asked_for",
            {"episodic_life=True": "episodic_life=False"},
        ),
        Mutation(
            "atari-4",
            "not fired",
            "test_ppo_atari_envpool.py asked_for",
            {"use_fire_reset=True": "use_fire_reset=False"},
        ),
        Mutation(
            "atari-5",
            "not square",
            "test_ppo_atari_envpool.py asked_for",
            {"img_height=84": "img_height=80"},
        ),
        Mutation(
            "atari-6",
            "the game's own points",
            "test_ppo_atari_envpool.py asked_for",
            {"reward_clip=True": "reward_clip=False"},
        ),
        Mutation(
            "atari-7",
            "three frames",
            "test_ppo_atari_envpool.py asked_for",
            {"stack_num=4": "stack_num=3"},
        ),
    ],
    "ppo_atari_envpool_multigpu.py": [
        Mutation(
            "aux-2",
            "each process by itself",
            "test_ppo_atari_envpool_multigpu.py share_the_games",
            {"add_up(agent, stats)  # [aux-2]": "pass  # [aux-2]"},
        ),
        Mutation(
            "aux-2",
            "the same games",
            "test_ppo_atari_envpool_multigpu.py share_the_games",
            {"seed=args.seed + RANK * args.num_envs)": "seed=args.seed)"},
        ),
        Mutation(
            "aux-2",
            "games of one process",
            "test_ppo_atari_envpool_multigpu.py share_the_games",
            {"in all_episodes for episode in": "in all_episodes[:1] for episode in"},
        ),
    ],
    "ppo_procgen.py": [
        Mutation(
            "core-1",
            "one environment",
            "test_ppo_procgen.py asked_for",
            {"self.args.num_envs,  # [core-1]": "1,  # [core-1]"},
        ),
        Mutation(
            "core-2",
            "blocks as large as other layers",
            "test_ppo_procgen.py orthogonal",
            {"std = 6**-0.25": "std = 1.0"},
        ),
        Mutation(
            "core-2",
            "blocks without their input",
            "test_ppo_procgen.py impala_cnn",
            {"return x + self.branch(x)": "return self.branch(x)"},
        ),
        Mutation(
            "core-2",
            "fewer channels",
            "test_ppo_procgen.py impala_cnn",
            {"((3, 16), (16, 32), (32, 32))": "((3, 16), (16, 16), (16, 32))"},
        ),
        Mutation(
            "core-7",
            "rows after an end left out",
            "test_ppo_procgen.py learned_from",
            {"valid = np.ones_like(goes_on)": "valid = goes_on"},
        ),
        Mutation(
            "core-12",
            "scores counted on over an end",
            "test_ppo_procgen.py whole_episodes or logged_scores",
            {"self.score = score * ~over": "self.score = score"},
        ),
        Mutation(
            "core-12",
            "evaluated on the levels of the training alone",
            "test_ppo_procgen.py all_levels",
            {"play(agent, replace(args, num_levels=0, start_level=0),": "play(agent, args,"},
        ),
        Mutation(
            "core-12",
            "levels of the training not evaluated",
            "test_ppo_procgen.py all_levels",
            {"known = play(agent, args,": "known = play(agent, replace(args, num_levels=0),"},
        ),
        Mutation(
            "atari-9",
            "from 0 to 255",
            "test_ppo_procgen.py scaled_to_1",
            {"obs.permute(0, 3, 1, 2) / 255.0": "obs.permute(0, 3, 1, 2) / 1.0"},
        ),
        Mutation(
            "continuous-8",
            "not scaled",
            "test_ppo_procgen.py scaled_and_clipped",
            {"rewards /= max(agent.return_stats[2].item(), 1e-4)": "pass"},
        ),
        Mutation(
            "continuous-8",
            "with another discount factor",
            "test_ppo_procgen.py scaled_and_clipped",
            {"args.gamma * discounted[t - 1]": "0.99 * discounted[t - 1]"},
        ),
        Mutation(
            "continuous-8",
            "summed on over an end",
            "test_ppo_procgen.py scaled_and_clipped",
            {"discounted[t - 1] * goes_on[t]": "discounted[t - 1]"},
        ),
        Mutation(
            "continuous-8",
            "an end forgotten where a rollout begins",
            "test_ppo_procgen.py scaled_and_clipped",
            {"last_done = done[-1:]": "last_done = done[-1:] & False"},
        ),
        Mutation(
            "continuous-9",
            "not clipped",
            "test_ppo_procgen.py scaled_and_clipped",
            {"rewards.clip(-10, 10, out=rewards)": "pass"},
        ),
        Mutation(
            "deviation statistics once per rollout",
            "never",
            "test_ppo_procgen.py scaled_and_clipped",
            {"update_stats(agent.return_stats, sums)": "pass"},
        ),
        Mutation(
            "deviation truncated episodes bootstrapped",
            "an end counts as a time limit",
            "test_ppo_procgen.py learned_from",
            {"over, np.zeros_like(over), infos": "np.zeros_like(over), over, infos"},
        ),
    ],
    "ppo_pettingzoo_ma_atari.py": [
        Mutation(
            "core-1",
            "one game",
            "test_ppo_pettingzoo_ma_atari.py stay_aligned",
            {"envs = vector_env(env_fns,": "envs = vector_env(env_fns[:1],"},
        ),
        Mutation(
            "core-1",
            "reset in the same step",
            "test_ppo_pettingzoo_ma_atari.py stay_aligned",
            {'autoreset_mode="NextStep"': 'autoreset_mode="SameStep"'},
        ),
        Mutation(
            "core-1",
            "a row of the actions for each player, not for each game",
            "test_ppo_pettingzoo_ma_atari.py stay_aligned",
            {
                "self.env.step(actions.reshape(-1, self.players))": (
                    "self.env.step(actions.reshape(self.players, -1).T)"
                )
            },
        ),
        Mutation(
            "core-1",
            "all are the first player",
            "test_ppo_pettingzoo_ma_atari.py stay_aligned or rows_equal",
            {
                "self.obs[:, range(self.players), range(4, 4 + self.players)] = 1": (
                    "self.obs[:, :, 4] = 1"
                )
            },
        ),
        Mutation(
            "core-1",
            "reset steps counted",
            "test_ppo_pettingzoo_ma_atari.py stay_aligned",
            {"self.length + ~self.done": "self.length + 1"},
        ),
        Mutation(
            "core-1",
            "points and steps of all games so far",
            "test_ppo_pettingzoo_ma_atari.py stay_aligned",
            {
                "self.points = self.points * ~ended": "pass",
                "self.length = self.length * ~ended": "pass",
            },
        ),
        Mutation(
            "core-1",
            "points of the other players",
            "test_ppo_pettingzoo_ma_atari.py statistics_of_each",
            {"{i % players}": "{(i + 1) % players}"},
        ),
        Mutation(
            "atari-2",
            "every second frame",
            "test_ppo_pettingzoo_ma_atari.py rows_equal",
            {"frame_skip_v0(env, 4)": "frame_skip_v0(env, 2)"},
        ),
        Mutation(
            "atari-2",
            "the last frame alone",
            "test_ppo_pettingzoo_ma_atari.py rows_equal",
            {"max_observation_v0(env, 2)": "max_observation_v0(env, 1)"},
        ),
        Mutation(
            "atari-5",
            "nearest pixel",
            "test_ppo_pettingzoo_ma_atari.py rows_equal",
            {"resize_v1(env, 84, 84)": "resize_v1(env, 84, 84, False)"},
        ),
        Mutation(
            "atari-6",
            "the game's own points",
            "test_ppo_pettingzoo_ma_atari.py rows_equal or stay_aligned",
            {"np.sign(": "np.asarray("},
        ),
        Mutation(
            "atari-6",
            "clipped points reported",
            "test_ppo_pettingzoo_ma_atari.py stay_aligned",
            {'"r": self.points.ravel()': '"r": np.sign(self.points).ravel()'},
        ),
        Mutation(
            "atari-7",
            "the newest frame first",
            "test_ppo_pettingzoo_ma_atari.py rows_equal",
            {
                "supersuit.frame_stack_v1(env, 4)": (
                    "gym.wrappers.TransformObservation("
                    "supersuit.frame_stack_v1(env, 4), lambda x: x[..., ::-1], None)"
                )
            },
        ),
        Mutation(
            "atari-9",
            "planes of players divided, too",
            "test_ppo_pettingzoo_ma_atari.py pixels_scaled",
            {"/ self.scale  # [atari-9]": "/ 255.0  # [atari-9]"},
        ),
        Mutation(
            "atari-9",
            "from 0 to 255",
            "test_ppo_pettingzoo_ma_atari.py pixels_scaled",
            {"/ self.scale  # [atari-9]": "/ 1.0  # [atari-9]"},
        ),
        Mutation(
            RESETS,
            "what a player who is out would do",
            "test_ppo_pettingzoo_ma_atari.py without_a_choice or stays_out",
            {"terminated.get(player, True)": "terminated.get(player, False)"},
        ),
        Mutation(
            BOOTSTRAP,
            "a time limit counts as an end",
            "test_ppo_pettingzoo_ma_atari.py time_limit",
            {"terminated.ravel(), truncated.ravel()": "self.done.ravel(), truncated.ravel()"},
        ),
    ],
    "league.py": [
        Mutation(
            "league",
            "always on the same side",
            "test_league.py swap",
            {
                "np.add.outer(np.arange(games), np.arange(players))": (
                    "np.add.outer(0 * np.arange(games), np.arange(players))"
                )
            },
        ),
        Mutation(
            "league",
            "the next game's points count",
            "test_league.py swap_sides",
            {"points[~over] = so_far[~over]": "points[:] = so_far"},
        ),
        Mutation(
            "league",
            "rated in the order of the games",
            "test_league.py order_of_games",
            {"random.Random(seed + order).sample(games, len(games))": "games"},
        ),
        Mutation(
            "league",
            "fewer points win",
            "test_league.py wins_more",
            {"scores=[mine, theirs]": "scores=[theirs, mine]"},
        ),
        Mutation(
            "league",
            "not every pair",
            "test_league.py every_other",
            {"itertools.combinations(range(len(entrants)), 2)": "itertools.pairwise(range(4))"},
        ),
        Mutation(
            "league",
            "checkpoints in the order of their names",
            "test_league.py evenly",
            {"files.sort(key=lambda file: int(file.stem[11:]))": "files.sort()"},
        ),
    ],
    "ppo_atari_envpool_xla_jax.py": [
        Mutation(
            "core-1",
            "one environment",
            "test_ppo_atari_envpool_xla_jax.py asked_for",
            {"num_envs=self.args.num_envs,": "num_envs=1,"},
        ),
        Mutation(
            "core-2",
            "Flax's own initial weights",
            "test_ppo_atari_envpool_xla_jax.py orthogonal and loop",
            {"layer.kernel[...] = orthogonal(rngs(), layer.kernel.shape)": "pass"},
        ),
        Mutation(
            "core-2",
            "one scale for all layers",
            "test_ppo_atari_envpool_xla_jax.py orthogonal and loop",
            {"nnx.initializers.orthogonal(std)": "nnx.initializers.orthogonal(2**0.5)"},
        ),
        Mutation(
            "core-3",
            "eps 1e-8",
            "test_ppo_atari_envpool_xla_jax.py adams and loop",
            {"eps=1e-5": "eps=1e-8"},
        ),
        Mutation(
            "core-4",
            "constant learning rate",
            "test_ppo_atari_envpool_xla_jax.py learning_rate and loop",
            {"= remaining * args.learning_rate": "= args.learning_rate"},
        ),
        Mutation(
            "core-5",
            "one-step errors",
            "test_ppo_atari_envpool_xla_jax.py advantages_equal and loop",
            {"advantages.insert(0, lastgaelam)": "advantages.insert(0, deltas[t])"},
        ),
        Mutation(
            "core-5",
            "backwards",
            "test_ppo_atari_envpool_xla_jax.py advantages_equal and loop",
            {"advantages.insert(0, lastgaelam)": "advantages.append(lastgaelam)"},
        ),
        Mutation(
            "core-6",
            "one full batch",
            "test_ppo_atari_envpool_xla_jax.py partition and loop",
            {"jnp.split(shuffled, args.num_minibatches)": "jnp.split(shuffled, 1)"},
        ),
        Mutation(
            "core-6",
            "not shuffled",
            "test_ppo_atari_envpool_xla_jax.py partition and loop",
            {"jnp.split(shuffled,": "jnp.split(jnp.sort(shuffled),"},
        ),
        Mutation(
            "core-7",
            "not normalized",
            "test_ppo_atari_envpool_xla_jax.py loss_statistics and loop",
            {"advantages = centered / (std + 1e-8)": "pass"},
        ),
        Mutation(
            "core-8",
            "not clipped",
            "test_ppo_atari_envpool_xla_jax.py loss_statistics and loop",
            {"-(weight @ gain)": "-(weight @ (ratio * advantages))"},
        ),
        Mutation(
            "core-9",
            "not clipped",
            "test_ppo_atari_envpool_xla_jax.py loss_statistics and loop",
            {"v_error = jnp.maximum(v_error, v_clipped_error)": "pass"},
        ),
        Mutation(
            "core-10",
            "entropy is punished",
            "test_ppo_atari_envpool_xla_jax.py loss_statistics and loop",
            {"pg_loss - args.ent_coef": "pg_loss + args.ent_coef"},
        ),
        Mutation(
            "core-11",
            "not clipped",
            "test_ppo_atari_envpool_xla_jax.py clipped_gradient and loop",
            {"lambda g: g * scale": "lambda g: g"},
        ),
        Mutation(
            "core-12",
            "no debug variables",
            "test_ppo_atari_envpool_xla_jax.py loss_statistics and loop",
            {"stats = {  # [core-12]": "stats = {} and {  # [core-12]"},
        ),
        Mutation(
            "core-12",
            "wrong sign of a divergence",
            "test_ppo_atari_envpool_xla_jax.py loss_statistics and loop",
            {"weight @ -logratio": "weight @ logratio"},
        ),
        Mutation(
            "atari-3",
            "whole games",
            "test_ppo_atari_envpool_xla_jax.py asked_for",
            {"episodic_life=True": "episodic_life=False"},
        ),
        Mutation(
            "atari-8",
            "another activation",
            "test_ppo_atari_envpool_xla_jax.py clipped_gradient and loop",
            {
                "nnx.relu,\n            flatten": "nnx.tanh,\n            flatten",
                "= nnx.Sequential(  # [atari-8]": "= (nnx.Sequential)(  # [atari-8]",
            },
        ),
        Mutation(
            "atari-9",
            "from 0 to 255",
            "test_ppo_atari_envpool_xla_jax.py clipped_gradient and loop",
            {"obs.transpose(0, 2, 3, 1) / 255.0": "obs.transpose(0, 2, 3, 1) / 1.0"},
        ),
        Mutation(
            "aux-3",
            "never stopped",
            "test_ppo_atari_envpool_xla_jax.py target_kl and loop",
            {"break  # [aux-3]": "pass  # [aux-3]"},
        ),
        Mutation(
            BOOTSTRAP,
            "a time limit counts as an end",
            "test_ppo_atari_envpool_xla_jax.py advantages_equal and loop",
            {"values[1:] * ~terminated": "values[1:] * ~(terminated | truncated)"},
        ),
        Mutation(
            RESETS,
            "learned from",
            "test_ppo_atari_envpool_xla_jax.py rows_are_paired and loop",
            {"valid = ~done[:-1]": "valid = jnp.ones_like(done[:-1])"},
        ),
        Mutation(
            RESETS,
            "forgotten where a rollout begins",
            "test_ppo_atari_envpool_xla_jax.py rows_are_paired and loop",
            {"last_done = done[-1:]": "last_done = done[-1:] & False"},
        ),
    ],
    "ppo_atari_envpool_xla_jax_scan.py": [
        Mutation(
            "core-4",
            "constant learning rate",
            "test_ppo_atari_envpool_xla_jax.py learning_rate and scan",
            {"= remaining * args.learning_rate": "= args.learning_rate"},
        ),
        Mutation(
            "core-5",
            "one-step errors",
            "test_ppo_atari_envpool_xla_jax.py advantages_equal and scan",
            {"= scan(after_last, rows)": "= None, deltas"},
        ),
        Mutation(
            "core-5",
            "forwards",
            "test_ppo_atari_envpool_xla_jax.py advantages_equal and scan",
            {"gae_step, reverse=True)": "gae_step, reverse=False)"},
        ),
        Mutation(
            "core-6",
            "one full batch",
            "test_ppo_atari_envpool_xla_jax.py partition and scan",
            {"shuffled.reshape(args.num_minibatches, -1)": "shuffled.reshape(1, -1)"},
        ),
        Mutation(
            "core-6",
            "not shuffled",
            "test_ppo_atari_envpool_xla_jax.py partition and scan",
            {"= shuffled.reshape(": "= jnp.sort(shuffled).reshape("},
        ),
        Mutation(
            "aux-3",
            "never stopped",
            "test_ppo_atari_envpool_xla_jax.py target_kl and scan",
            {"kl > args.target_kl": "kl > jnp.inf"},
        ),
        Mutation(
            "aux-3",
            "one epoch too late",
            "test_ppo_atari_envpool_xla_jax.py target_kl and scan",
            {
                "partial(jnp.where, stopped)": "partial(jnp.where, False)",
                "stopped |= kl >": "stopped |= kl * 1 >",
            },
        ),
        Mutation(
            RESETS,
            "forgotten where a rollout begins",
            "test_ppo_atari_envpool_xla_jax.py rows_are_paired and scan",
            {"last_done = done[-1:]": "last_done = done[-1:] & False"},
        ),
    ],
}
CASES = [(script, mutation) for script, group in MUTATIONS.items() for mutation in group]


def tagged_lines(source: str) -> dict[str, str]:
    """The line of each tag of a script, by the tag's name; of deviations with the text."""
    lines, found = source.split("\n"), {}
    for tag in find_tags(source):
        name = f"{tag.name} {tag.text}" if tag.name == "deviation" else tag.name
        found[name] = lines[tag.line - 1]
    return found


def mutated(source: str, mutation: Mutation) -> str:
    for old, new in mutation.edits.items():
        assert source.count(old) == 1, f"stale table: {old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)
    return source


def pytest_process(script: Path, output: Path, selection: list[str]) -> None:
    """Body of a process: runs selected tests with `script` in place of the script of that name."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]  # those of the pytest that runs this file
    # Columns: the reason of a failure is cut off at the terminal's width.
    os.environ |= {"PPO_SCRIPT": str(script), "COLUMNS": "300"}
    os.chdir(ROOT)
    files = sorted({f"tests/{item.split(' ', 1)[0]}" for item in selection})
    names = " or ".join(sorted(item.split(" ", 1)[1] for item in selection))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
    options += ["-o", "addopts="]  # pyproject.toml asks for xdist
    sys.exit(pytest.main([*options, *files, "-k", names]))


def run_tests(script: Path, selection: set[str]) -> tuple[int | None, str]:
    """Exit code and output of pytest in a new process.

    The processes are forked from one that has imported what takes seconds to import.
    """
    processes = multiprocessing.get_context("forkserver")
    # torch._dynamo: the first optimizer imports it. What is not installed is left out.
    slow = ["torch", "torch._dynamo", "torch.utils.tensorboard", "gymnasium", "tyro", "pytest"]
    slow += ["envpool", "flax.nnx"]
    processes.set_forkserver_preload(slow)
    output = script.with_suffix(".log")
    process = processes.Process(target=pytest_process, args=(script, output, sorted(selection)))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode, output.read_text() if output.exists() else ""


@pytest.mark.parametrize(
    ("script", "mutation"), CASES, ids=[f"{script}-{m.tag}-{m.undone}" for script, m in CASES]
)
def test_undone_detail_is_noticed(script: str, mutation: Mutation, tmp_path: Path):
    copy = tmp_path / script
    copy.write_text(mutated(COLLECTION.source(script), mutation))
    exit_code, output = run_tests(copy, {mutation.tests})
    assert exit_code == 1, f"pytest ended with {exit_code}, not with a failed test\n{output}"
    assert re.search(r"^FAILED .* - (AssertionError|assert )", output, re.MULTILINE), output


@pytest.mark.parametrize("script", MUTATIONS)
def test_unchanged_copy_passes(script: str, tmp_path: Path):
    """The control: it is the edits that make the tests fail, and each selects some test."""
    copy = tmp_path / script
    copy.write_text(COLLECTION.source(script))
    exit_code, output = run_tests(copy, {mutation.tests for mutation in MUTATIONS[script]})
    assert exit_code == 0, output


@pytest.mark.parametrize("script", COLLECTION.scripts())
def test_every_tag_has_a_mutation(script: str):
    """A tag that a script has from its parent, on the same line, is tested there."""
    lines = tagged_lines(COLLECTION.source(script))
    parent = COLLECTION.family[script].parent
    inherited = tagged_lines(COLLECTION.source(parent)) if parent else {}
    own = {tag for tag, line in lines.items() if inherited.get(tag) != line}
    table = MUTATIONS.get(script, [])
    assert {mutation.tag for mutation in table} >= own, "a tag without a mutation"
    assert {mutation.tag for mutation in table} <= set(lines), "a mutation of no tag"
    for tag in own:
        edits = [mutated_lines(script, m) for m in table if m.tag == tag]
        assert any(lines[tag] in changed for changed in edits), f"{tag}: its line stays as it is"


def mutated_lines(script: str, mutation: Mutation) -> frozenset[str]:
    """Lines of the script that a mutation changes."""
    source = COLLECTION.source(script)
    return frozenset(source.split("\n")) - frozenset(mutated(source, mutation).split("\n"))
