"""From a configuration to the objects of a run: the one place that knows which class a kind is.

The fields of a plug-in have the names of its keys, so most are built by handing the section over as it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dracofl import field
from dracofl.channels.exponential import Exponential
from dracofl.channels.ideal import Ideal
from dracofl.channels.interface import Medium
from dracofl.channels.lossy import Lossy
from dracofl.channels.wireless import Wireless
from dracofl.config.schema import Config, Section
from dracofl.errors import ConfigError
from dracofl.methods.async_push import AsyncPush
from dracofl.methods.async_symm import AsyncSymm
from dracofl.methods.draco import Draco
from dracofl.methods.fedavg import FedAvg
from dracofl.methods.interface import Setting
from dracofl.methods.local import Local
from dracofl.methods.sync_push import SyncPush
from dracofl.methods.sync_symm import SyncSymm
from dracofl.protocol.peer import PeerCore, PeerState
from dracofl.sim.simulator import Simulator
from dracofl.topologies.complete import Complete
from dracofl.topologies.connectivity import is_strongly_connected
from dracofl.topologies.cycle import Cycle, DirectedCycle
from dracofl.topologies.erdos_renyi import ErdosRenyi
from dracofl.topologies.exponential import Exponential as ExponentialGraph
from dracofl.topologies.file import FromFile
from dracofl.topologies.geometric import Geometric
from dracofl.topologies.grid import Grid, Torus
from dracofl.topologies.k_out import KOut
from dracofl.topologies.star import Star
from dracofl.types import Graph

if TYPE_CHECKING:
    from dracofl.compute.executor import Executor
    from dracofl.compute.problem import Problem
    from dracofl.compute.timings import Timings
    from dracofl.datasets.samples import Classification

METHODS: dict[str, Any] = {
    "draco": Draco,
    "sync-symm": SyncSymm,
    "sync-push": SyncPush,
    "async-symm": AsyncSymm,
    "async-push": AsyncPush,
    "fedavg": FedAvg,
    "local": Local,
}
CHANNELS: dict[str, Any] = {"wireless": Wireless, "ideal": Ideal, "exponential": Exponential, "lossy": Lossy}
TOPOLOGIES: dict[str, Any] = {
    "cycle": Cycle,
    "directed-cycle": DirectedCycle,
    "complete": Complete,
    "star": Star,
    "grid": Grid,
    "torus": Torus,
    "exponential": ExponentialGraph,
    "k-out": KOut,
    "erdos-renyi": ErdosRenyi,
    "geometric": Geometric,
    "file": FromFile,
}


@dataclass(frozen=True)
class World:
    """Where a run takes place: who stands where, and who sends to whom."""

    positions: field.Positions
    graph: Graph


def build_world(config: Config) -> World:
    positions = field.drop_users(config.seed, config.users, config.field.radius_m)
    topology = TOPOLOGIES[config.topology.kind](**_options(config.topology))
    return World(positions, topology.build(config.users, config.seed, positions))


def build_setting(config: Config, world: World, parameter_count: int) -> Setting:
    return Setting(
        seed=config.seed,
        graph=world.graph,
        compute_rates=_of_each(config.compute.rate, config.users),
        snapshot=config.compute.snapshot,
        when=config.transmit.when,
        transmit_rates=_of_each(config.transmit.rate, config.users),
        backlog=config.transmit.backlog,
        parameters=parameter_count,
        message_bytes=config.channel.message_bytes,
    )


def _of_each(rate: float | tuple[float, ...], users: int) -> tuple[float, ...]:
    return rate if isinstance(rate, tuple) else (rate,) * users


def build_medium(config: Config, world: World) -> Medium:
    options = _options(config.channel, without="message_bytes")
    if config.channel.kind == "wireless" and config.channel.interference_radius_m is None:
        options["interference_radius_m"] = 0.1 * config.field.radius_m
    medium: Medium = CHANNELS[config.channel.kind](**options).open(config.seed, world.positions)
    return medium


def build_peer_core(config: Config, world: World, parameter_count: int, user: int, state: PeerState) -> PeerCore:
    """One user's control plane, as a real peer has it. The method must be draco."""
    assert config.method.kind == "draco"
    return Draco(**_options(config.method)).open_peer(build_setting(config, world, parameter_count), user, state)


def build_simulator(config: Config, world: World, parameter_count: int) -> Simulator:
    """The whole control plane. Of the data plane it knows the length of a model, nothing else."""
    method = METHODS[config.method.kind](**_options(config.method))
    network = method.open(build_setting(config, world, parameter_count))
    medium = build_medium(config, world)
    return Simulator(
        network,
        medium,
        duration_s=config.duration_s,
        evaluate_every_s=config.evaluate.every_s,
        evaluate_every_events=config.evaluate.every_events,
        stretch_trainings=_stretch_trainings(config.users, parameter_count),
        stretch_operations=16_384,
    )


def _stretch_trainings(users: int, parameters: int) -> int:
    """Long enough for the users of a large network to have work side by side, and for small models not to spend their
    time on being fetched, put back, and brought up to date between stretches; short enough to be stopped soon."""
    return max(64, min(4 * users, 256), min(10_000_000 // parameters, 1024))


def build_problem(config: Config) -> Problem:
    """The data plane's side: data, model and local SGD. Imports JAX."""
    train = config.train
    if config.task.kind == "quadratic":
        from dracofl.compute.quadratic import QuadraticProblem
        from dracofl.datasets.synthetic import Quadratic

        quadratic = Quadratic.generate(seed=config.seed, users=config.users, **_options(config.task))
        return QuadraticProblem(quadratic, step=train.step, local_steps=train.local_steps)
    return _build_classification(config)


def build_executor(config: Config, problem: Problem, timings: Timings) -> Executor:
    """What plays the tape. Imports JAX."""
    from dracofl.compute.compiled import CompiledExecutor
    from dracofl.compute.reference import ReferenceExecutor

    kind = CompiledExecutor if config.executor == "compiled" else ReferenceExecutor
    measured = config.users if config.evaluate.users is None else min(config.evaluate.users, config.users)
    return kind(problem, config.users, measured, timings)


def _build_classification(config: Config) -> Problem:
    from dracofl.compute.batches import Batches
    from dracofl.compute.classification import ClassificationProblem
    from dracofl.datasets.partition import partition
    from dracofl.models.cnn import Cnn
    from dracofl.models.interface import Model
    from dracofl.models.mlp import Mlp

    train = config.train
    data = _load_data(config)
    if config.evaluate.samples is not None and config.evaluate.samples > len(data.test):
        raise ConfigError(
            f"evaluate.samples = {config.evaluate.samples} is more than the {len(data.test)} {config.evaluate.split} "
            "samples there are"
        )
    rows_by_user = partition(
        data.train.labels,
        users=config.users,
        samples_per_user=config.data.samples_per_user,
        scheme=config.data.partition,
        alpha=config.data.alpha,
        shards_per_user=config.data.shards_per_user,
        minimum=train.batch,
        in_random_order=config.data.dir is None and config.task.kind != "emnist",
        seed=config.seed,
    )
    model: Model
    if config.model.kind == "cnn":
        model = Cnn(classes=data.classes)
    else:
        hidden = config.model.hidden if config.model.kind == "mlp" else ()
        model = Mlp((data.features, *hidden, data.classes))
    return ClassificationProblem(
        data,
        model,
        Batches(rows_by_user, train.batch, train.local_steps, train.order, config.seed),
        step=train.step,
        local_steps=train.local_steps,
        batch=train.batch,
        l2=config.task.l2 if config.task.kind == "logistic" else 0.0,
        evaluation_samples=config.evaluate.samples,
        seed=config.seed,
    )


def _load_data(config: Config) -> Classification:
    from dracofl.datasets import emnist, fetch, glyphs, poker, synthetic
    from dracofl.datasets.samples import Samples

    task, folder = config.task, config.data.dir
    asked = config.users * config.data.samples_per_user
    if task.kind == "logistic":
        data = synthetic.generate_logistic(config.seed, task.dimension, task.noise, asked)
    elif task.kind == "glyphs":
        data = glyphs.generate(config.seed, asked)
    elif task.kind == "emnist":
        data = emnist.read(folder or fetch.cache_folder() / "emnist")
    elif folder is None:
        data = poker.generate(config.seed, asked)
    else:
        data = poker.read(folder)
    if config.evaluate.split == "validation":
        # As many as the test set has: choosing options should not cost more than reporting.
        kept = slice(len(data.test))
        unseen = Samples(data.validation.inputs[kept], data.validation.labels[kept])
        return dataclasses.replace(data, test=unseen)
    return data


def doubts_about(world: World) -> list[str]:
    """What is allowed of a graph and probably not meant."""
    if is_strongly_connected(world.graph):
        return []
    return ["the graph is not strongly connected: what some users learn never reaches some others but by unification"]


def _options(section: Section, without: str = "") -> dict[str, Any]:
    return section.model_dump(exclude={"kind", without})
