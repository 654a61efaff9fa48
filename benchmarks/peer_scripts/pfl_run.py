"""SGD steps a second of pfl-research: federated averaging, all users in every central iteration.

    python pfl_run.py '{"model": "mlp", "seconds": 3, "threads": [1, 2], "users": [25], "quick": false}'
    python -m torch.distributed.run --standalone --nproc-per-node 2 pfl_run.py '...'

Runs in the peers' environment; prints one line of JSON: {"1 process, 1 thread, 25 users": steps a second, ...}.
"""

from __future__ import annotations

import itertools
import json
import sys

import nets
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy


class Net(torch.nn.Module):
    def __init__(self, work: nets.Work, layout: str) -> None:
        super().__init__()
        self.work, self.steps = work, 0
        for number, value in enumerate(nets.parameters(work, layout)):
            self.register_parameter(f"p{number}", value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.work.apply(x, *self._parameters.values())

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.steps += 1  # asked for exactly once an SGD step
        return cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(cross_entropy(self(x), y, reduction="sum").item(), len(y))}


class Simulation:
    def __init__(self, work: nets.Work, layout: str, cohort: int) -> None:
        self.net, self._cohort = Net(work, layout), cohort
        x, y = nets.samples(work, nets.USERS * nets.SAMPLES, layout)
        # Made once and kept, so that a user's batches, which a dataset caches, are not cut again each time.
        users = [Dataset(part) for part in zip(x.split(nets.SAMPLES), y.split(nets.SAMPLES), strict=True)]
        data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(range(nets.USERS))))
        self._backend = SimulatedBackend(training_data=data, val_data=data)
        self._model = PyTorchModel(
            self.net, torch.optim.SGD, central_optimizer=torch.optim.SGD(self.net.parameters(), lr=1.0)
        )
        self._train = NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=work.local_steps,
            local_learning_rate=work.step,
            local_batch_size=nets.BATCH,
        )
        self._algorithm, self._iterations = FederatedAveraging(), 0
        self.run(1)  # pfl evaluates in its first iteration and, as asked for here, never again

    def run(self, iterations: int) -> None:
        self._iterations += iterations
        self._algorithm.run(
            NNAlgorithmParams(
                central_num_iterations=self._iterations,
                evaluation_frequency=10**9,
                train_cohort_size=self._cohort,
                val_cohort_size=None,
            ),
            self._backend,
            self._model,
            self._train,
            NNEvalHyperParams(local_batch_size=nets.SAMPLES),
            send_metrics_to_platform=False,
        )


def main(order: dict) -> dict[str, float] | None:
    work, found = nets.WORK[order["model"]], {}
    ranks = get_framework_module().distributed

    def together(value: float) -> float:
        """The sum over all processes."""
        return float(ranks.all_reduce([torch.tensor([value])])[0]) if ranks.world_size > 1 else value

    for cohort, layout in itertools.product(order["users"], work.layouts[: 1 if order["quick"] else None]):
        simulation = Simulation(work, layout, cohort)
        for threads in order["threads"]:
            torch.set_num_threads(threads)
            name = [nets.counted(ranks.world_size, "process"), nets.counted(threads, "thread"), f"{cohort} users"]
            found[", ".join([*name, *[layout] * (len(work.layouts) > 1)])] = nets.speed(
                simulation.run,
                lambda: int(together(simulation.net.steps)),  # noqa: B023
                cohort * work.local_steps,
                order["seconds"],
                agreed=lambda value: together(value) / ranks.world_size,
            )
    return found if ranks.global_rank == 0 else None


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    if answer is not None:
        print(json.dumps(answer), flush=True)
