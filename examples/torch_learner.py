"""A PyTorch module as a learner: is a point inside a circle? Needs `pip install 'dracofl[torch]'`.

Alone: `python examples/torch_learner.py`. As a peer's: `learner = "torch_learner:learner"` in its node file.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dracofl.runtime.torch_learner import TorchLearner


def loader(who: int, count: int) -> DataLoader:
    chance = torch.Generator().manual_seed(who)
    points = 2 * torch.rand(count, 2, generator=chance) - 1
    inside = (points.norm(dim=1) < 0.8).long()
    return DataLoader(TensorDataset(points, inside), batch_size=32, shuffle=True, generator=chance)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


def learner(user: int, users: int) -> TorchLearner:
    return TorchLearner(net, loader(user, 500), step=0.2, local_steps=10, evaluate_on=loader(users, 2000))


if __name__ == "__main__":
    alone = learner(0, 1)
    model = alone.init()
    for number in range(30):
        model += alone.local_update(model, number)
    print(f"accuracy {alone.evaluate(model, True)['accuracy']:.3f} after 30 local updates alone")
