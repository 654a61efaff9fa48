"""A PyTorch module and a data loader as a learner. Needs the extra `dracofl[torch]`.

def learner(user: int, users: int) -> TorchLearner:
    return TorchLearner(Net, my_loader(user), step=0.1, local_steps=10, evaluate_on=test_loader())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dracofl.errors import DracoError

try:
    import torch
except ImportError as error:
    raise DracoError(f"a PyTorch learner needs PyTorch: pip install 'dracofl[torch]' ({error})") from error

Batches = Iterable[Any]  # of pairs (inputs, targets), as a DataLoader gives them; begun again when it ends


class TorchLearner:
    """Mini-batch training of a module, whose trainable parameters are one flat vector to the outside.

    `module` is a class or a function that makes the module, called with PyTorch's random numbers seeded with `seed` so
    that it is the same at every peer. A module itself is taken as it is: then its weights must be the same everywhere,
    as those from a file are.

    Parameters that need no gradient are not sent, and neither are buffers: both stay as they are here. Running
    statistics, as BatchNorm keeps them, would not belong to a model mixed from those of several peers, so a module
    with such is refused: take GroupNorm, LayerNorm or `track_running_stats=False`.

    A local update goes through the next `local_steps` batches of the loader, wherever the last one stopped, by plain
    SGD with `step` or by what `optimizer` makes of the parameters. The optimizer is made anew each time: the model has
    moved in between, and old momenta do not fit it. Training and evaluation share the module: never call both at once.
    """

    def __init__(
        self,
        module: torch.nn.Module | Callable[[], torch.nn.Module],
        loader: Batches,
        *,
        local_steps: int,
        step: float | None = None,
        optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer] | None = None,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.nn.functional.cross_entropy,
        evaluate_on: Batches | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        if (step is None) == (optimizer is None):
            raise DracoError("a TorchLearner takes either step, for plain SGD, or optimizer")
        if local_steps < 1:
            raise DracoError(f"local_steps = {local_steps} must be at least 1")
        self._module = _made(module, seed).to(device)
        self._parameters = _trainable(self._module)
        self._initial = self._flat()
        self._loader, self._evaluate_on = loader, evaluate_on
        self._batches = _endless(loader)
        self._local_steps = local_steps
        self._step, self._optimizer = step, optimizer
        self._loss = loss
        self._device = device

    def init(self) -> np.ndarray:
        return _to_numpy(self._initial).copy()

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        start = self._load(model)
        optimizer = self._new_optimizer()
        self._module.train()
        for _ in range(self._local_steps):
            inputs, targets = self._fetched(next(self._batches))
            optimizer.zero_grad()
            torch.autograd.backward(self._loss(self._module(inputs), targets))  # typed, as .backward() is not
            optimizer.step()
        return _to_numpy(self._flat() - start)

    def evaluate(self, model: np.ndarray, final: bool) -> dict[str, float]:
        """The loss, as a mean over samples, and with class numbers as targets the accuracy, on `evaluate_on`."""
        if self._evaluate_on is None:
            return {}
        self._load(model)
        self._module.eval()
        samples, loss, correct = 0, 0.0, 0
        has_classes = True
        with torch.no_grad():
            for batch in self._evaluate_on:
                inputs, targets = self._fetched(batch)
                outputs = self._module(inputs)
                samples += len(targets)
                loss += float(self._loss(outputs, targets)) * len(targets)
                has_classes = has_classes and _are_classes(outputs, targets)
                if has_classes:
                    correct += int((outputs.argmax(dim=1) == targets).sum())
        if not samples:
            raise DracoError("evaluate_on gave no batch; it must be possible to go through it again and again")
        accuracy = {"accuracy": correct / samples} if has_classes else {}
        return {**accuracy, "loss": loss / samples, "samples": samples}

    def _new_optimizer(self) -> torch.optim.Optimizer:
        if self._optimizer is not None:
            return self._optimizer(self._parameters)
        assert self._step is not None
        return torch.optim.SGD(self._parameters, lr=self._step)

    def _fetched(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        try:
            inputs, targets = batch
        except (TypeError, ValueError):
            raise DracoError("a loader of a TorchLearner must give pairs: inputs and targets") from None
        return inputs.to(self._device), targets.to(self._device)

    # torch.nn.utils has functions for these two, but they give the parameters new memory and refuse channels_last.

    def _flat(self) -> torch.Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])

    def _load(self, model: np.ndarray) -> torch.Tensor:
        """Put the numbers into the module; returned is a copy of them on its device."""
        flat = torch.tensor(model, device=self._device)
        begin = 0
        with torch.no_grad():
            for parameter in self._parameters:
                end = begin + parameter.numel()
                parameter.copy_(flat[begin:end].view(parameter.shape))
                begin = end
        return flat


def _made(module: torch.nn.Module | Callable[[], torch.nn.Module], seed: int) -> torch.nn.Module:
    if not isinstance(module, torch.nn.Module):
        with torch.random.fork_rng(devices=[]):  # the user's own random numbers go on as if nothing had been drawn
            torch.manual_seed(seed)
            module = module()
    if not isinstance(module, torch.nn.Module):
        raise DracoError(f"a TorchLearner's module is an object of type {type(module).__name__}, not an nn.Module")
    for name, part in module.named_modules():
        if getattr(part, "running_mean", None) is not None:
            raise DracoError(
                f"{type(part).__name__} {name!r} keeps running statistics, which peers do not share; take GroupNorm, "
                "LayerNorm or track_running_stats=False"
            )
    return module


def _trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise DracoError(f"parameter {name!r} has dtype {parameter.dtype}; peers exchange float32: use .float()")
    found = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not found:
        raise DracoError(f"the module {type(module).__name__} has no parameters to train")
    return found


def _endless(loader: Batches) -> Iterator[Any]:
    while True:
        is_empty = True
        for batch in loader:
            is_empty = False
            yield batch
        if is_empty:
            raise DracoError("the loader gave no batch; it must be possible to go through it again and again")


def _are_classes(outputs: torch.Tensor, targets: torch.Tensor) -> bool:
    whole = not (targets.is_floating_point() or targets.is_complex())
    return whole and outputs.ndim == 2 and targets.shape == outputs.shape[:1]


def _to_numpy(flat: torch.Tensor) -> np.ndarray:
    numbers: np.ndarray = flat.cpu().numpy()
    return numbers
