"""Learn to add two digits, only from how much of the answer is right.

The prompt is two digits, the answer is the two digits of their sum. The reward is the share of them
that is right. Put your model, your prompts and your verifier in place of this file.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

PROMPTS, ANSWERS = 64, 16  # prompts of a rollout, answers to each of them
PASSES, PART = 3, 512  # of one update: over all answers, answers at once
CLIP, CAP, ENTROPY = 0.2, 3.0, 0.005  # of PPO, with both of its clips
NOTHING = 10  # the digit before the first one


class Policy(nn.Module):
    """Logits of both digits of an answer: (answer, digit, 10)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.seen = nn.Embedding(4 * 11, width)  # which digit, and where
        self.next = nn.Sequential(
            nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )

    def forward(self, prompts: Tensor, answers: Tensor) -> Tensor:
        first = torch.full_like(answers[..., 0], NOTHING)
        before = torch.stack([first, answers[..., 0]], -1)
        both = prompts.unsqueeze(-2).expand(*prompts.shape[:-1], 2, 2)
        place = torch.arange(2).expand_as(before)
        words = torch.cat([both, before.unsqueeze(-1), place.unsqueeze(-1)], -1)
        logits: Tensor = self.next(self.seen(words + 11 * torch.arange(4)).sum(-2))
        return logits


@torch.no_grad()
def play(policy: Policy) -> dict[str, Tensor]:
    """A rollout: several answers to each of some prompts, with their rewards.

    It also has how likely each digit was by the weights that gave the answer.
    """
    prompts = torch.randint(10, (PROMPTS, 1, 2)).expand(PROMPTS, ANSWERS, 2).contiguous()
    answers = torch.zeros_like(prompts)
    for place in range(2):
        answers[..., place] = Categorical(logits=policy(prompts, answers)[..., place, :]).sample()
    total = prompts.sum(-1)
    rewards = (answers == torch.stack([total // 10, total % 10], -1)).float().mean(-1)
    likely = Categorical(logits=policy(prompts, answers)).log_prob(answers)
    return {"prompts": prompts, "answers": answers, "rewards": rewards, "likely": likely}


def learn(policy: Policy, adam: torch.optim.Optimizer, rollouts: list[dict[str, Tensor]]) -> None:
    """Update as in GRPO, without its division by the deviation.

    An answer is as good as it is better than the other answers to its prompt. The ratio corrects
    for the older weights, and the clip bounds it.
    """
    prompts, answers, rewards, likely = (
        torch.cat([rollout[name] for rollout in rollouts])
        for name in ("prompts", "answers", "rewards", "likely")
    )
    gains = rewards - rewards.mean(1, keepdim=True)
    rows = [rows.flatten(0, 1) for rows in (prompts, answers, likely, gains.unsqueeze(-1))]
    for part in [part for _ in range(PASSES) for part in torch.randperm(len(rows[0])).split(PART)]:
        asked, said, was, gain = (of[part] for of in rows)
        now = Categorical(logits=policy(asked, said))
        ratio = (now.log_prob(said) - was).exp().clamp(max=CAP)
        gained = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
        adam.zero_grad()
        (-gained - ENTROPY * now.entropy().mean()).backward()
        adam.step()
