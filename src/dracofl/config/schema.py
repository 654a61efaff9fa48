"""Every key of a configuration, with its default, unit and meaning: what `draco show` prints.

The defaults are the preset `poker`. Sections with a `kind` have one class a kind; the fields of a class are what the
plug-in of that kind takes, under the same names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

NONE = "none"
"""How "no value" is written, as TOML has no word for it."""


def _none_or_given(value: Any) -> Any:
    # What has been through Python is no longer JSON to pydantic, and a strict tuple must then be one.
    if isinstance(value, list):
        return tuple(map(_none_or_given, value))
    return None if value == NONE else value


T = TypeVar("T")
Optional = Annotated[T | None, BeforeValidator(_none_or_given)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]


def key(default: Any, meaning: str, unit: str = "", **limits: Any) -> Any:
    return Field(default, description=meaning, json_schema_extra={"unit": unit}, **limits)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# What is learned


class PokerTask(Section):
    """Name the poker hand: ten classes, dealt by the rules of the game or read from UCI files."""

    kind: Literal["poker"] = "poker"


class EmnistTask(Section):
    """Handwritten digits and letters, 47 classes: the EMNIST files (draco data fetch emnist, or data.dir)."""

    kind: Literal["emnist"] = "emnist"


class GlyphsTask(Section):
    """Synthetic stand-in for EMNIST: distorted characters of fonts, same classes and size. Needs no files."""

    kind: Literal["glyphs"] = "glyphs"


class LogisticTask(Section):
    """Two-class logistic regression on Gaussian data, with known smoothness and strong convexity."""

    kind: Literal["logistic"] = "logistic"
    dimension: int = key(20, "length of an input", ge=1)
    noise: float = key(0.2, "label noise: near 0 is separable, larger is harder", gt=0)
    l2: float = key(0.01, "weight of the squared norm in the loss: the strong convexity", ge=0)


class QuadraticTask(Section):
    """Strongly convex quadratic, each user with its own optimum; exact gradients, no samples."""

    kind: Literal["quadratic"] = "quadratic"
    dimension: int = key(10, "length of the model", ge=1)
    strong_convexity: float = key(0.5, "smallest curvature", gt=0)
    smoothness: float = key(2.0, "largest curvature", gt=0)
    heterogeneity: float = key(1.0, "spread of the users' optima around 0, a standard deviation", ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> QuadraticTask:
        if self.smoothness < self.strong_convexity:
            raise ValueError(
                f"task.smoothness = {self.smoothness} is below task.strong_convexity = {self.strong_convexity}"
            )
        if self.dimension == 1 and self.smoothness != self.strong_convexity:
            raise ValueError("task.dimension = 1 has one curvature: set task.smoothness equal to task.strong_convexity")
        return self


class Data(Section):
    dir: Optional[Text] = key(None, "folder of the real data files; none: dealt (poker), or as fetched (emnist)")
    samples_per_user: int = key(1000, "training samples of one user (the mean, if by quantity)", "samples", ge=1)
    partition: Literal["iid", "dirichlet", "shards", "quantity"] = key(
        "iid", "who gets which samples: alike, by label skew, by label shards, or by unequal amounts"
    )
    alpha: float = key(0.5, "Dirichlet concentration (dirichlet, quantity): small is uneven", gt=0, le=1e6)
    shards_per_user: int = key(2, "label shards dealt to each user (shards)", ge=1)


class MlpModel(Section):
    """Dense layers with ReLU between them."""

    kind: Literal["mlp"] = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = key((75, 75), "widths of the hidden layers", "neurons")


class CnnModel(Section):
    """Convolutional network for 28 x 28 images, 149,194 parameters: the size of the paper's."""

    kind: Literal["cnn"] = "cnn"


class SoftmaxModel(Section):
    """Softmax regression: one dense layer, started from zero."""

    kind: Literal["softmax"] = "softmax"


class Train(Section):
    step: float = key(0.5, "SGD step size", gt=0)
    batch: int = key(64, "samples in a mini-batch", "samples", ge=1)
    local_steps: int = key(10, "SGD steps in one local update (B)", "steps", ge=1)
    order: Literal["reshuffle", "replacement"] = key(
        "reshuffle", "mini-batches: a new order each epoch, or drawn with replacement"
    )


# When things happen

Rate: TypeAlias = Annotated[float, Field(gt=0)]


class Compute(Section):
    rate: Rate | tuple[Rate, ...] = key(
        0.1, "local updates a second while computing (lambda): one for all, or one a user", "1/s"
    )
    snapshot: Literal["finish", "start"] = key(
        "finish",
        "the model an update is computed on: the one when it finishes (literal) or when it starts (devices)",
    )


class Transmit(Section):
    when: Literal["on-update", "poisson"] = key(
        "on-update", "each update is sent as it finishes, or at the points of a Poisson process of its own"
    )
    rate: Rate | tuple[Rate, ...] = key(0.1, "transmissions a second (poisson): one for all, or one a user", "1/s")
    backlog: Literal["sum", "latest"] = key(
        "sum", "what a Poisson transmission carries: all unsent updates, or the newest, even again"
    )


# What is done


class DracoMethod(Section):
    """Users push updates whenever they finish; a hub unifies the models once a period."""

    kind: Literal["draco"] = "draco"
    psi: Optional[Annotated[int, Field(ge=1)]] = key(
        None, "messages a user accepts in a period (Psi); none: no limit", "messages"
    )
    own_weight: float = key(1.0, "share of its own update that a user applies to itself; literal is 0", ge=0)
    window_s: float = key(0.0, "superposition window: messages accepted within it are applied together", "s", ge=0)
    weights: Text = key(
        "uniform",
        'row of weights: "uniform", "delivered" (literal), or the path of a matrix (.npy, .csv, .txt)',
    )
    period_s: Optional[Annotated[float, Field(gt=0)]] = key(
        100.0, "unification period (P), which also paces the budget; none: neither", "s"
    )
    hub: Literal["random", "round-robin", "best-heard"] = key("best-heard", "who unifies: by what policy")
    unification: Literal["reliable", "radio", "off"] = key(
        "reliable", "the hub's model reaches everybody at once, or goes over the air, or there is none"
    )

    @model_validator(mode="after")
    def _psi_needs_a_period(self) -> DracoMethod:
        if self.psi is not None and self.period_s is None:
            raise ValueError(f"method.psi = {self.psi} is a budget for a period: set method.period_s too")
        return self


class SyncSymmMethod(Section):
    """CHOCO-SGD: synchronous rounds, gossip over links that work both ways, optional compression."""

    kind: Literal["sync-symm"] = "sync-symm"
    gamma: float = key(1.0, "consensus step; about 0.4 with qsgd, 0.04 with the top 1%", gt=0, le=1)
    compressor: Literal["identity", "top-k", "random-k", "qsgd"] = key("identity", "what is done to a message")
    keep: float = key(0.01, "share of the entries kept (top-k, random-k)", gt=0, le=1)
    levels: int = key(15, "quantisation levels (qsgd)", ge=1)


class SyncPushMethod(Section):
    """Push-sum SGD: synchronous rounds on a directed graph, column-stochastic weights."""

    kind: Literal["sync-push"] = "sync-push"


class AsyncSymmMethod(Section):
    """Decentralized asynchronous SGD: iterations of fixed length, stale gradients, gossip both ways."""

    kind: Literal["async-symm"] = "async-symm"
    iteration_s: float = key(10.0, "length of an iteration, the deadline of its messages", "s", gt=0)
    zeta: float = key(1.0, "consensus step", gt=0, le=1)


class AsyncPushMethod(Section):
    """DIGEST: local SGD without pause, and a global model that walks the directed graph."""

    kind: Literal["async-push"] = "async-push"
    local_updates: int = key(1, "updates the holder of the walking model makes before it sends it on (H)", ge=1)
    streams: int = key(1, "models that walk at once (S)", ge=1)


class FedAvgMethod(Section):
    """Federated averaging with a server and perfect links: an upper reference, not over the air."""

    kind: Literal["fedavg"] = "fedavg"


class LocalMethod(Section):
    """No communication at all: each user trains on its own samples. A lower reference."""

    kind: Literal["local"] = "local"


# Who hears whom


class CycleTopology(Section):
    """A ring: every user exchanges with the one before it and the one after it."""

    kind: Literal["cycle"] = "cycle"


class DirectedCycleTopology(Section):
    """A one-way ring: every user sends only to the one after it."""

    kind: Literal["directed-cycle"] = "directed-cycle"


class CompleteTopology(Section):
    """Everybody sends to everybody."""

    kind: Literal["complete"] = "complete"


class StarTopology(Section):
    """User 0 is the centre: it exchanges with all the others, and they only with it."""

    kind: Literal["star"] = "star"


class GridTopology(Section):
    """A grid, as square as can be: every user exchanges with those left, right, above and below."""

    kind: Literal["grid"] = "grid"


class TorusTopology(Section):
    """A grid whose opposite sides touch, so that nobody stands at an edge."""

    kind: Literal["torus"] = "torus"


class ExponentialTopology(Section):
    """Every user sends to those 1, 2, 4, 8, ... places after it on a ring: about log2 of the users each."""

    kind: Literal["exponential"] = "exponential"


class KOutTopology(Section):
    """Every user sends to k others picked at random; a user nobody picked hears its nearest."""

    kind: Literal["k-out"] = "k-out"
    k: int = key(3, "out-neighbours of each user", "users", ge=1)


class ErdosRenyiTopology(Section):
    """Every one-way link exists with the same probability; an isolated user is joined to its nearest."""

    kind: Literal["erdos-renyi"] = "erdos-renyi"
    probability: float = key(0.2, "of each directed link", ge=0, le=1)


class GeometricTopology(Section):
    """Users closer than range_m metres exchange; one with nobody in range is joined to its nearest."""

    kind: Literal["geometric"] = "geometric"
    range_m: float = key(250.0, "radio range", "m", gt=0)


class FileTopology(Section):
    """The links written in a file: lines 'sender receiver', or a square matrix as text or .npy."""

    kind: Literal["file"] = "file"
    path: Text = Field(
        description="edge list (sender receiver, a line each) or square matrix (.npy, .csv, .txt)",
        json_schema_extra={"unit": ""},
    )


class FieldSection(Section):
    radius_m: float = key(500.0, "radius of the disc in which users are dropped (R)", "m", gt=0, le=1e9)


# What the air does


class ChannelSection(Section):
    message_bytes: Optional[Annotated[int, Field(ge=1)]] = key(
        None, "size of a message; none: 4 bytes a parameter", "bytes"
    )


class WirelessChannel(ChannelSection):
    """Radio with path loss, Rayleigh fading, interference and a deadline."""

    kind: Literal["wireless"] = "wireless"
    deadline_s: float = key(10.0, "a message that takes longer never arrives (Gamma_max)", "s", gt=0)
    interference: Literal["nearby", "concurrent", "none"] = key(
        "nearby", "who disturbs a receiver: all near it, those of them on the air, or nobody"
    )
    interference_radius_m: Optional[Annotated[float, Field(ge=0)]] = key(
        None, "how near is near; none: a tenth of field.radius_m", "m"
    )
    bandwidth: Literal["each", "shared"] = key("each", "every link has bandwidth_hz, or all users share it (W / N)")
    bandwidth_hz: float = key(10e6, "bandwidth (W)", "Hz", gt=0)
    power_dbm: float = key(30.0, "transmit power (P)", "dBm", ge=-200, le=200)
    path_loss_exponent: float = key(4.0, "power falls with distance to this power (alpha)", gt=0)
    noise_dbm_per_hz: float = key(-174.0, "noise density (N0)", "dBm/Hz", ge=-300, le=100)


class IdealChannel(ChannelSection):
    """Every message arrives at once; nothing is lost."""

    kind: Literal["ideal"] = "ideal"


class ExponentialChannel(ChannelSection):
    """Each message takes Exp(rate) seconds; past an optional deadline it is late."""

    kind: Literal["exponential"] = "exponential"
    rate: float = key(1.0, "inverse of the mean delay", "1/s", ge=1e-9)
    rates: Optional[tuple[tuple[Rate, ...], ...]] = key(
        None, "table of rates, a row a sender and a column a receiver, instead of rate", "1/s"
    )
    deadline_s: Optional[Annotated[float, Field(gt=0)]] = key(
        None, "a message that takes longer never arrives; none: all arrive", "s"
    )


class LossyChannel(ChannelSection):
    """Each message is lost with a fixed probability; the others arrive after a fixed delay."""

    kind: Literal["lossy"] = "lossy"
    loss: float = key(0.1, "probability that a message is lost", ge=0, le=1)
    delay_s: float = key(0.0, "delay of a message that is not lost", "s", ge=0)


# What is measured and kept


class Evaluate(Section):
    every_s: Optional[Annotated[float, Field(gt=0)]] = key(
        100.0, "evaluate at every multiple of this time; none: not by time", "s"
    )
    every_events: Optional[Annotated[int, Field(ge=1)]] = key(
        None, "evaluate whenever so many more events have happened; none: not by events", "events"
    )
    samples: Optional[Annotated[int, Field(ge=1)]] = key(
        2000,
        "test samples of an evaluation, the first ones; none: all. The last one always uses all",
        "samples",
    )
    users: Optional[Annotated[int, Field(ge=0)]] = key(
        None, "users that are measured, the first ones; none: all; 0: nobody, there is no evaluation", "users"
    )
    split: Literal["test", "validation"] = key(
        "test", "which samples are scored: the test set, or others that are kept apart for choosing options"
    )


class Checkpoint(Section):
    every_s: Optional[Annotated[float, Field(gt=0)]] = key(
        500.0, "save the run after so much simulated time; none: only when interrupted", "s"
    )


Task: TypeAlias = Annotated[
    PokerTask | EmnistTask | GlyphsTask | LogisticTask | QuadraticTask, Field(discriminator="kind")
]
Model: TypeAlias = Annotated[MlpModel | CnnModel | SoftmaxModel, Field(discriminator="kind")]
Method: TypeAlias = Annotated[
    DracoMethod | SyncSymmMethod | SyncPushMethod | AsyncSymmMethod | AsyncPushMethod | FedAvgMethod | LocalMethod,
    Field(discriminator="kind"),
]
Topology: TypeAlias = Annotated[
    CycleTopology
    | DirectedCycleTopology
    | CompleteTopology
    | StarTopology
    | GridTopology
    | TorusTopology
    | ExponentialTopology
    | KOutTopology
    | ErdosRenyiTopology
    | GeometricTopology
    | FileTopology,
    Field(discriminator="kind"),
]
Channel: TypeAlias = Annotated[
    WirelessChannel | IdealChannel | ExponentialChannel | LossyChannel, Field(discriminator="kind")
]


class Config(Section):
    """A whole run. It and nothing else decides what happens."""

    users: int = key(25, "number of users (N)", "users", ge=2)
    duration_s: float = key(5000.0, "simulated time (T)", "s", gt=0)
    seed: int = key(1, "of all random draws", ge=0, lt=2**63)
    executor: Literal["compiled", "reference"] = key(
        "compiled",
        "what plays the tape: compiled, in whole stretches on all cores, or reference, an operation at a time",
    )
    task: Task = PokerTask()
    data: Data = Data()
    model: Model = MlpModel()
    train: Train = Train()
    compute: Compute = Compute()
    transmit: Transmit = Transmit()
    method: Method = DracoMethod()
    topology: Topology = CompleteTopology()
    field: FieldSection = FieldSection()
    channel: Channel = WirelessChannel()
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoint = Checkpoint()
