"""SGD steps a second of gossipy: nodes push their model to a random neighbour, which merges it and trains.

    python gossipy_run.py '{"model": "mlp", "seconds": 3, "threads": [1, 2], "quick": false}'

Runs in the peers' environment; prints one line of JSON: {"complete, 1 thread": steps a second, ...}.
"""

from __future__ import annotations

import itertools
import json
import sys
import types

import nets
import numpy as np
import torch
from torch.nn.functional import cross_entropy

# gossipy imports torchvision without declaring it, and only to download image data sets, which nobody does here. An
# empty module in its place leaves everything that is timed as it is.
sys.modules.setdefault("torchvision", types.ModuleType("torchvision"))

from gossipy import LOG, set_seed  # noqa: E402
from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork  # noqa: E402
from gossipy.data import DataDispatcher  # noqa: E402
from gossipy.data.handler import ClassificationDataHandler  # noqa: E402
from gossipy.model import TorchModel  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator  # noqa: E402

ROUND_LEN = 100


class Net(TorchModel):
    def __init__(self, work: nets.Work, layout: str) -> None:
        super().__init__()
        self.work = work
        for number, value in enumerate(nets.parameters(work, layout)):
            self.register_parameter(f"p{number}", value)

    def init_weights(self) -> None:
        pass

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.work.apply(x, *self._parameters.values())


class CountedLoss:
    """Cross-entropy, which is asked for exactly once an SGD step."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return cross_entropy(scores, labels)

    def __deepcopy__(self, memo: dict) -> CountedLoss:
        return self  # all nodes count together


def simulator(work: nets.Work, topology: str, layout: str, loss: CountedLoss) -> GossipSimulator:
    set_seed(1)
    # A local update of gossipy is a whole epoch, so a node holds as many samples as an update of ours goes through.
    x, y = nets.samples(work, nets.USERS * work.local_steps * nets.BATCH, layout)
    dispatcher = DataDispatcher(ClassificationDataHandler(x, y, test_size=0), n=nets.USERS, eval_on_user=False)
    links = None  # gossipy's complete graph
    if topology == "ring":
        links = np.roll(np.eye(nets.USERS), 1, axis=1)
        links += links.T
    handler = TorchModelHandler(
        net=Net(work, layout),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": work.step},
        criterion=loss,
        local_epochs=1,
        batch_size=nets.BATCH,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    # Time steps in a round: as in gossipy's examples. A single one, with less to loop over, was no faster.
    nodes = GossipNode.generate(
        data_dispatcher=dispatcher,
        p2p_net=StaticP2PNetwork(nets.USERS, links),
        model_proto=handler,
        round_len=ROUND_LEN,
        sync=True,
    )
    made = GossipSimulator(nodes=nodes, data_dispatcher=dispatcher, delta=ROUND_LEN, protocol=AntiEntropyProtocol.PUSH)
    made.init_nodes(seed=1)
    return made


def main(order: dict) -> dict[str, float]:
    LOG.setLevel("ERROR")
    work, found = nets.WORK[order["model"]], {}
    for topology, layout in itertools.product(("complete", "ring"), work.layouts[: 1 if order["quick"] else None]):
        loss = CountedLoss()
        made = simulator(work, topology, layout, loss)
        for threads in order["threads"]:
            torch.set_num_threads(threads)
            name = ", ".join([topology, nets.counted(threads, "thread"), *[layout] * (len(work.layouts) > 1)])
            found[name] = nets.speed(
                lambda rounds: made.start(n_rounds=rounds),  # noqa: B023
                lambda: loss.steps,  # noqa: B023
                nets.USERS * work.local_steps,
                order["seconds"],
            )
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
