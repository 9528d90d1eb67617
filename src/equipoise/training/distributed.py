"""One training in several processes: what a process group means for a fit.

Every process holds the whole table and the same model. A batch is that of a training in one process; each process takes
its rows of it, with the random numbers that they have there, and the gradients are added up: the model follows that of
one process to rounding. The first process (rank 0) alone writes and speaks.

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

PATIENCE = timedelta(minutes=10)  # with a process that neither answers nor ends


class LostProcessError(TrainingError):
    """A process of a joint training has ended before its time."""


@dataclass(frozen=True)
class Group:
    """The processes that train one model together; by default one, alone.

    Args:
        rank: Number of this process; 0 is the one that writes and speaks.
        size: How many there are.
        store: What they have in common besides sums; None for one alone.

    Example:
        >>> [Group(rank, 3).share_of(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
    """

    rank: int = 0
    size: int = 1
    store: Any = None

    def share_of(self, n_rows: int) -> slice:
        """Which of the rows of a batch this process takes: none, if there are more processes than rows."""
        return slice(self.rank * n_rows // self.size, (self.rank + 1) * n_rows // self.size)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of what all processes give, the same bits in each."""
        if self.size == 1:
            return values
        total = values.detach().clone()
        with _all_there():
            dist.all_reduce(total)
        return total

    def sum_gradients(self, parameters: Sequence[nn.Parameter], loss: Tensor, weight: float = 1.0) -> Tensor:
        """Leave `Σ weight · gradient` over processes in every `.grad`; returns `Σ weight · loss`. One message.

        A process of weight 0 had no rows; what its parameters hold from before does not count.
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
        """Give parameters the values that they have in the first process: processors need not round alike."""
        for parameter in parameters if self.size > 1 else ():
            with _all_there():
                dist.broadcast(parameter.data, src=0)

    def from_first(self, state: Any) -> Any:
        """Tensors and plain values of the first process, in all of them; unpacked without running code."""
        if self.size == 1:
            return state
        packed = io.BytesIO()
        torch.save(state if self.rank == 0 else None, packed)
        length = self.sum(torch.tensor([len(packed.getbuffer()) if self.rank == 0 else 0]))
        content = torch.zeros(int(length), dtype=torch.uint8)
        if self.rank == 0:
            content = torch.frombuffer(packed.getbuffer(), dtype=torch.uint8).clone()
        with _all_there():
            dist.broadcast(content, src=0)
        return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)

    def check_same(self, fingerprint: str) -> None:
        """Raise in every process unless all of them start from the same."""
        differs = torch.tensor([float(self.from_first(fingerprint) != fingerprint)])
        if float(self.sum(differs)) > 0:
            raise TrainingError(
                "Processes that train together must start from the same rows, settings and seed, but got different "
                "ones. Give all of them the same table, and random_state a number."
            )

    def tells_first(self) -> bool:
        """Whether this is the first process that has a problem to tell: the others end because of it."""
        if self.store is None:
            return True
        try:
            return self.store.add("equipoise: problems told", 1) == 1
        except RuntimeError:  # who kept the store has ended, perhaps without a word: better told twice than not
            return True

    def own_device(self, device: Any) -> Any:
        """Where this process computes: of several on one machine, each on its own GPU."""
        if self.size == 1 or str(device) != "cuda":
            return device
        return f"cuda:{os.environ.get('LOCAL_RANK', self.rank)}"


ALONE = Group()
_current: ContextVar[Group] = ContextVar("equipoise_group", default=ALONE)


def current() -> Group:
    """The group whose processes train together here: that of the surrounding `joined`."""
    return _current.get()


@contextmanager
def joined() -> Iterator[Group]:
    """What is trained inside is trained together by all processes that `torchrun` started; alone if there are none.

    Every process must train the same: same rows, settings and seed.

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
        with _ended_when_told():
            yield group
    finally:
        _current.reset(token)
        with suppress(RuntimeError):  # where another process is gone
            dist.destroy_process_group()


def _join() -> Group:
    """The group of those that `torchrun`'s environment speaks of."""
    if not dist.is_available():
        raise TrainingError("Training in several processes needs torch.distributed, but this torch was built without.")
    if dist.is_initialized():
        raise TrainingError("Processes must not belong to another group yet, but got one. Leave it, then join.")
    from torch.distributed.rendezvous import rendezvous

    with _all_there():
        store, rank, size = next(iter(rendezvous("env://", timeout=PATIENCE)))
        # torchrun's store outlives the processes that it starts again: they must not find addresses of those before
        start = f"equipoise, start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        store = dist.PrefixStore(start, store)  # type: ignore[reportPrivateImportUsage]
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    return Group(rank, size, store)


@contextmanager
def _all_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # that of gloo and NCCL when another process is gone
        raise LostProcessError(_LOST) from error


_LOST = "All processes of a joint training must stay to its end, but one of them ended before. Start them again."
_TOLD = (
    "All processes of a joint training must stay to its end, but this one was told to stop: by torchrun, where another "
    "ended before, or by whoever ends torchrun. Start them again."
)


@contextmanager
def _ended_when_told() -> Iterator[None]:
    """`torchrun` ends the other processes by a signal, often before they see that one is gone."""

    def end(number: int, frame: object) -> None:
        raise LostProcessError(_TOLD)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
