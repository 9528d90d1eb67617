"""One training in several processes.

Every process holds the whole table and the same model. Batches are those of a training in one process; each process
takes its share of a batch, with the random numbers that these rows would have in one process, and the gradients are
added up: the model equals that of one process to rounding. Only the first process (rank 0) writes files and messages.

`torchrun` starts the processes, and `joined` makes one group of them::

    torchrun --nproc-per-node 2 -m equipoise fit job.toml

Sums go through gloo on processors and through NCCL on GPUs.
"""

import io
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed as dist, nn

from equipoise.training.checkpoint import TrainingError

PATIENCE = timedelta(minutes=10)  # to wait for a process that neither answers nor ends


class LostProcessError(TrainingError):
    """Raised where a process of a joint training has ended before the others."""


@dataclass(frozen=True)
class Group:
    """The processes that train one model together; by default one, alone.

    Args:
        rank: Number of this process; process 0 writes files and messages.
        size: Number of processes.
        store: Key-value store that the processes share; None for a single one.

    Example:
        >>> [Group(rank, 3).share_of(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
    """

    rank: int = 0
    size: int = 1
    store: Any = None

    def share_of(self, n_rows: int) -> slice:
        """Return the rows of a batch that this process takes; none if there are more processes than rows."""
        return slice(self.rank * n_rows // self.size, (self.rank + 1) * n_rows // self.size)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over all processes, with the same bits in each."""
        if self.size == 1:
            return values
        total = values.detach().clone()
        with _all_connected():
            dist.all_reduce(total)
        return total

    def sum_gradients(self, parameters: Sequence[nn.Parameter], loss: Tensor, weight: float = 1.0) -> Tensor:
        """Set every `.grad` to `Σ weight · gradient` over processes and return `Σ weight · loss`, in one message.

        A process without rows has weight 0, so that gradients of earlier steps do not count.

        Args:
            parameters: Parameters with gradients of this process.
            loss: Loss of this process, a scalar.
            weight: Weight of this process.
        """
        if self.size == 1:
            return loss
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([part.detach().double().flatten() for part in (*own, loss)])
        total = self.sum(flat * weight)
        *gradients, summed = total.split([part.numel() for part in (*own, loss)])
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
        return summed.view_as(loss).to(loss.dtype)

    @torch.no_grad()
    def follow_first(self, parameters: Sequence[nn.Parameter]) -> None:
        """Set parameters to their values in the first process, since processors may round differently."""
        for parameter in parameters if self.size > 1 else ():
            with _all_connected():
                dist.broadcast(parameter.data, src=0)

    def from_first(self, state: Any) -> Any:
        """Return the first process's state, of tensors and plain values, in all processes; no code in it is run."""
        if self.size == 1:
            return state
        packed = io.BytesIO()
        torch.save(state if self.rank == 0 else None, packed)
        length = self.sum(torch.tensor([len(packed.getbuffer()) if self.rank == 0 else 0]))
        content = torch.zeros(int(length), dtype=torch.uint8)
        if self.rank == 0:
            content = torch.frombuffer(packed.getbuffer(), dtype=torch.uint8).clone()
        with _all_connected():
            dist.broadcast(content, src=0)
        return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)

    def check_same(self, fingerprint: str) -> None:
        """Check that all processes have the same fingerprint.

        Raises:
            TrainingError: In every process, if one has another fingerprint.
        """
        differs = torch.tensor([float(self.from_first(fingerprint) != fingerprint)])
        if float(self.sum(differs)) > 0:
            raise TrainingError(
                "Processes that train together must start from the same rows, settings and seed, but got different "
                "ones. Give all of them the same table, and random_state a number."
            )

    def tells_first(self) -> bool:
        """Return whether this is the first process to report a problem: the others end because of it."""
        if self.store is None:
            return True
        try:
            return self.store.add("equipoise: problems told", 1) == 1
        except RuntimeError:  # the store's process has ended, perhaps without a report: two are better than none
            return True

    def own_device(self, device: Any) -> Any:
        """Return the device of this process: of several processes on one machine, each has its own GPU."""
        if self.size == 1 or str(device) != "cuda":
            return device
        return f"cuda:{os.environ.get('LOCAL_RANK', self.rank)}"


ALONE = Group()
_current: ContextVar[Group] = ContextVar("equipoise_group", default=ALONE)


def current() -> Group:
    """Return the group of processes that train together in the surrounding `joined`; a single process without it."""
    return _current.get()


@contextmanager
def joined() -> Iterator[Group]:
    """Train within the block together with all processes that `torchrun` started; alone if there are none.

    Every process must run the same training: same rows, settings and seed.

    Raises:
        LostProcessError: If another process ends early, or if this one is told to stop.
        TrainingError: If the processes do not start from the same rows, settings and seed.

    Example:
        >>> with joined() as group:  # not started by torchrun
        ...     group.size
        1
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    group = _join()
    token = _current.set(group)
    try:
        with _stopped_by_signal():
            yield group
    finally:
        _current.reset(token)
        with suppress(RuntimeError):  # where another process is gone
            dist.destroy_process_group()


def _join() -> Group:
    """Join the group of processes that `torchrun`'s environment variables describe."""
    if not dist.is_available():
        raise TrainingError("Training in several processes needs torch.distributed, but this torch was built without.")
    if dist.is_initialized():
        raise TrainingError("Processes must not belong to another group yet, but got one. Leave it, then join.")
    from torch.distributed.rendezvous import rendezvous

    with _all_connected():
        store, rank, size = next(iter(rendezvous("env://", timeout=PATIENCE)))
        # torchrun's store outlives the processes that it starts again: they must not find addresses of those before
        start = f"equipoise, start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        store = dist.PrefixStore(start, store)  # type: ignore[reportPrivateImportUsage]
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    return Group(rank, size, store)


@contextmanager
def _all_connected() -> Iterator[None]:
    """Raise `LostProcessError` if another process is gone."""
    try:
        yield
    except RuntimeError as error:  # by gloo and NCCL
        raise LostProcessError(_LOST_MESSAGE) from error


_LOST_MESSAGE = (
    "All processes of a joint training must stay to its end, but one of them ended before. Start them again."
)
_STOPPED_MESSAGE = (
    "All processes of a joint training must stay to its end, but this one was told to stop: by torchrun, where another "
    "ended before, or by whoever ends torchrun. Start them again."
)


@contextmanager
def _stopped_by_signal() -> Iterator[None]:
    """Raise `LostProcessError` on SIGTERM: `torchrun` ends the other processes by it once one is gone."""

    def end(number: int, frame: object) -> None:
        raise LostProcessError(_STOPPED_MESSAGE)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
