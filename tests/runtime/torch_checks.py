"""What must hold of the PyTorch learner, in plain asserts: run by pytest where PyTorch is installed, and as a script by
the Python of an environment that has PyTorch but not this project's other needs."""

from __future__ import annotations

import functools
import os
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dracofl.errors import DracoError
from dracofl.runtime.learners import Checked, load_learner
from dracofl.runtime.torch_learner import TorchLearner

EXAMPLES = Path(__file__).parents[2] / "examples"


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def data(who: int = 0, count: int = 96) -> DataLoader:
    chance = torch.Generator().manual_seed(who)
    inputs = torch.randn(count, 4, generator=chance)
    return DataLoader(TensorDataset(inputs, inputs[:, :3].argmax(dim=1)), batch_size=32)


def refused(make: Callable[[], object]) -> str:
    try:
        make()
    except DracoError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def several_local_updates_reduce_the_loss() -> None:
    learner = Checked(TorchLearner(net, data(), step=0.3, local_steps=5, evaluate_on=data(1)), "net")
    learner.try_out()
    model = learner.init()
    losses = [learner.evaluate(model, False)["loss"]]
    for number in range(20):
        model += learner.local_update(model, number)
        losses.append(learner.evaluate(model, False)["loss"])
    assert losses[0] > losses[5] > losses[20]
    assert losses[20] < 0.5 * losses[0]
    assert learner.evaluate(model, True)["accuracy"] > 0.8
    assert learner.evaluate(model, True)["samples"] == 96


def flat_vectors_round_trip_exactly() -> None:
    for layout in (torch.contiguous_format, torch.channels_last):
        module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3, 2)).to(memory_format=layout)
        learner = TorchLearner(module, data(), step=0.1, local_steps=1)
        count = sum(parameter.numel() for parameter in module.parameters())
        numbers = np.random.default_rng(0).normal(size=count).astype(np.float32)
        numbers[:4] = [-0.0, 1e-45, 3e38, -np.inf]  # to the bit, whatever they are
        learner._load(numbers)
        assert learner._flat().numpy().tobytes() == numbers.tobytes()


def vectors_are_in_the_order_of_pytorchs_own() -> None:
    module = net()
    vector = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    assert TorchLearner(module, data(), step=0.1, local_steps=1).init().tobytes() == vector.tobytes()


def an_update_is_what_plain_sgd_does() -> None:
    module, loader = net(), data()
    learner = TorchLearner(module, loader, step=0.1, local_steps=1)
    start = learner.init()
    update = learner.local_update(start, 0)
    twin = net()
    nn.utils.vector_to_parameters(torch.tensor(start), twin.parameters())
    inputs, labels = next(iter(loader))
    nn.functional.cross_entropy(twin(inputs), labels).backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in twin.parameters()])
    np.testing.assert_allclose(update, -0.1 * gradient.numpy(), rtol=1e-4, atol=1e-7)


def a_local_update_goes_on_in_the_data_and_leaves_the_model_alone() -> None:
    with_momentum = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    learner = TorchLearner(net, data(), optimizer=with_momentum, local_steps=2)
    start = learner.init()
    kept = start.copy()
    start.flags.writeable = False
    updates = [learner.local_update(start, number) for number in range(4)]
    assert start.tobytes() == kept.tobytes()
    assert learner.init().tobytes() == kept.tobytes()
    # Three batches, two an update: the fourth update begins where the first did, and with no momentum left over.
    assert not np.array_equal(updates[0], updates[1])
    assert updates[0].tobytes() == updates[3].tobytes()


def every_peer_begins_with_the_same_model_and_keeps_its_own_chance() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = TorchLearner(net, data(), step=0.1, local_steps=1).init()
    assert torch.rand(1) == expected
    assert first.tobytes() == TorchLearner(net, data(), step=0.1, local_steps=1).init().tobytes()
    assert first.tobytes() != TorchLearner(net, data(), step=0.1, local_steps=1, seed=1).init().tobytes()


def any_optimizer_and_loss_will_do() -> None:
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=16)
    learner = TorchLearner(
        lambda: nn.Linear(4, 1),
        loader,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.1),
        loss=nn.functional.mse_loss,
        local_steps=20,
        evaluate_on=loader,
    )
    model = learner.init()
    before = learner.evaluate(model, False)
    model += learner.local_update(model, 0)
    assert set(before) == {"loss", "samples"}  # no classes, no accuracy
    assert learner.evaluate(model, False)["loss"] < 0.3 * before["loss"]


def frozen_parameters_stay_and_are_not_sent() -> None:
    module = net()
    for parameter in module[0].parameters():
        parameter.requires_grad = False
    frozen = module[0].weight.clone()
    learner = TorchLearner(module, data(), step=0.1, local_steps=1)
    learner.local_update(learner.init(), 0)
    assert len(learner.init()) == 8 * 3 + 3
    assert torch.equal(module[0].weight, frozen)


def what_cannot_work_is_refused_in_a_sentence() -> None:
    def learner(module: object = net, loader: object = None, **options: object) -> TorchLearner:
        return TorchLearner(module, loader or data(), **{"step": 0.1, "local_steps": 1} | options)

    normed = nn.Sequential(net(), nn.BatchNorm1d(3))
    assert "BatchNorm1d '1' keeps running statistics" in refused(lambda: learner(normed))
    learner(nn.Sequential(net(), nn.BatchNorm1d(3, track_running_stats=False)))
    assert "'weight' has dtype torch.float64" in refused(lambda: learner(nn.Linear(4, 3).double()))
    assert "no parameters to train" in refused(lambda: learner(nn.Tanh()))
    assert "not an nn.Module" in refused(lambda: learner(lambda: None))
    assert "either step, for plain SGD, or optimizer" in refused(lambda: learner(step=None))
    assert "local_steps = 0" in refused(lambda: learner(local_steps=0))
    start = learner().init()
    once = learner(loader=iter(data()), local_steps=4)
    assert "the loader gave no batch" in refused(lambda: once.local_update(start, 0))
    assert "must give pairs" in refused(lambda: learner(loader=[torch.zeros(3, 4)]).local_update(start, 0))
    assert "evaluate_on gave no batch" in refused(lambda: learner(evaluate_on=[]).evaluate(start, True))


def without_data_to_evaluate_on_nothing_is_measured() -> None:
    learner = TorchLearner(net, data(), step=0.1, local_steps=1)
    assert learner.evaluate(learner.init(), True) == {}


def the_example_is_a_learner_that_learns() -> None:
    before, path = Path.cwd(), list(sys.path)
    os.chdir(EXAMPLES)  # where the module is looked for
    try:
        peers = [load_learner("torch_learner:learner", user, 2) for user in range(2)]
    finally:
        os.chdir(before)
        sys.path[:] = path
    model = peers[0].init()
    assert model.tobytes() == peers[1].init().tobytes()
    start = peers[0].evaluate(model, True)
    for number in range(10):
        updates = [peer.local_update(model, number) for peer in peers]
        assert not np.array_equal(*updates)
        model += sum(updates) / np.float32(2)
    assert peers[0].evaluate(model, True)["loss"] < 0.8 * start["loss"]


def the_example_runs_on_its_own() -> None:
    runpy.run_path(str(EXAMPLES / "torch_learner.py"), run_name="__main__")


CHECKS = [
    several_local_updates_reduce_the_loss,
    flat_vectors_round_trip_exactly,
    vectors_are_in_the_order_of_pytorchs_own,
    an_update_is_what_plain_sgd_does,
    a_local_update_goes_on_in_the_data_and_leaves_the_model_alone,
    every_peer_begins_with_the_same_model_and_keeps_its_own_chance,
    any_optimizer_and_loss_will_do,
    frozen_parameters_stay_and_are_not_sent,
    what_cannot_work_is_refused_in_a_sentence,
    without_data_to_evaluate_on_nothing_is_measured,
    the_example_is_a_learner_that_learns,
    the_example_runs_on_its_own,
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    for check in CHECKS:
        check()
        print(f"holds: {check.__name__}")
    print("imported:", *sorted({"jax", "pydantic", "pyarrow"} & set(sys.modules)))
