"""What keys of different sections mean together: what cannot be, and what is probably not meant."""

from __future__ import annotations

from dracofl.config.schema import Config, DracoMethod

_MOST_EVALUATIONS = 1_000_000  # a slip of the unit is more likely than a wish for more


def contradictions(config: Config) -> list[str]:
    """What is wrong between sections."""
    found = []
    users = config.users
    for name, rate in (("compute.rate", config.compute.rate), ("transmit.rate", config.transmit.rate)):
        if isinstance(rate, tuple) and len(rate) != users:
            found.append(f"{name} lists {len(rate)} rates for {users} users; give one for all or one each")
    if config.task.kind != "quadratic" and config.data.samples_per_user < config.train.batch:
        found.append(
            f"data.samples_per_user = {config.data.samples_per_user} is less than one batch "
            f"(train.batch = {config.train.batch})"
        )
    every_s = config.evaluate.every_s
    if every_s is not None and config.duration_s / every_s > _MOST_EVALUATIONS:
        found.append(
            f"evaluate.every_s = {every_s:g} asks for {config.duration_s / every_s:.3g} evaluations in "
            f"duration_s = {config.duration_s:g}; at most {_MOST_EVALUATIONS:,}"
        )
    if config.model.kind == "cnn" and config.task.kind not in ("emnist", "glyphs"):
        found.append(f'model.kind = "cnn" is for images (emnist, glyphs), not for task.kind = "{config.task.kind}"')
    if config.data.dir is not None and config.task.kind not in ("poker", "emnist"):
        found.append(f'data.dir is set, but task.kind = "{config.task.kind}" is generated; unset it (data.dir=none)')
    if config.task.kind == "logistic" and config.model.kind != "softmax":
        found.append('task.kind = "logistic" has known constants for model.kind = "softmax" only; set it')
    if config.data.partition == "shards" and config.data.shards_per_user > config.data.samples_per_user:
        found.append(
            f"data.shards_per_user = {config.data.shards_per_user} is more than "
            f"data.samples_per_user = {config.data.samples_per_user}"
        )
    if config.method.kind == "async-push" and config.channel.kind == "lossy" and config.channel.loss == 1.0:
        found.append('channel.loss = 1 with method.kind = "async-push": its model would be sent again for ever')
    return found


def doubts(config: Config) -> list[str]:
    """What is allowed and probably not meant."""
    found = []
    duration_s, method = config.duration_s, config.method
    if config.evaluate.every_s is not None and config.evaluate.every_s >= duration_s:
        found.append(f"evaluate.every_s = {config.evaluate.every_s:g} is not shorter than the run ({duration_s:g} s)")
    if config.channel.kind == "wireless" and config.channel.deadline_s >= duration_s:
        found.append(f"channel.deadline_s = {config.channel.deadline_s:g} is not shorter than the run")
    if method.kind == "draco":
        return found + _doubts_about_draco(method, config)
    if config.transmit.when == "poisson":
        found.append(f'transmit.when = "poisson" is for draco; method.kind = "{method.kind}" sends when it does')
    if config.compute.snapshot == "start" and method.kind != "async-push":
        found.append(f'compute.snapshot = "start" makes no difference to method.kind = "{method.kind}"')
    return found


def _doubts_about_draco(method: DracoMethod, config: Config) -> list[str]:
    found = []
    if method.period_s is None and method.unification != "off":
        found.append("method.period_s is none: there will be no unification")
    elif method.period_s is not None and method.period_s >= config.duration_s:
        found.append(
            f"method.period_s = {method.period_s:g} is not shorter than the run ({config.duration_s:g} s): "
            "no period ends, so there will be no unification"
        )
    if method.period_s is not None and method.window_s > method.period_s:
        found.append(f"method.window_s = {method.window_s:g} is longer than method.period_s = {method.period_s:g}")
    if method.own_weight == 0.0 and config.topology.kind != "complete":
        found.append("method.own_weight = 0 on a sparse graph: learning is known to collapse there (see the README)")
    return found
