"""Several processes on one batch: torchrun and DistributedDataParallel."""

import os
from dataclasses import dataclass

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from .errors import RunError


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many, on which device.

    Every rank draws the whole batch and keeps its slice, so that the draws do
    not depend on the number of ranks.
    """

    rank: int
    world: int
    device: torch.device

    @classmethod
    def start(cls, config):
        """Join the other processes that torchrun started, if any."""
        device = pick_device(config)
        world = int(os.environ.get("WORLD_SIZE", 1))
        rank = int(os.environ.get("RANK", 0))
        if config.batch % world:
            raise RunError(
                f"batch = {config.batch}: expected a multiple of the "
                f"{world} processes"
            )
        if world > 1 and not distributed.is_initialized():
            if device.type == "cuda":
                local = int(os.environ["LOCAL_RANK"])
                torch.cuda.set_device(local)
                device = torch.device("cuda", local)
            backend = "nccl" if device.type == "cuda" else "gloo"
            distributed.init_process_group(backend)
        return cls(rank, world, device)

    @property
    def is_first(self):
        """Whether this is rank 0."""
        return self.rank == 0

    def slice(self, *arrays):
        """This rank's rows of arrays over the whole batch."""
        n = len(arrays[0]) // self.world
        rows = slice(self.rank * n, (self.rank + 1) * n)
        return tuple(array[rows] for array in arrays)

    def wrap(self, net):
        """The network whose backward averages gradients over the ranks."""
        return DistributedDataParallel(net) if self.world > 1 else net

    def total(self, value):
        """The sum of a scalar tensor over the ranks."""
        if self.world > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def any(self, flag):
        """Whether any rank raised its flag, so that all stop together."""
        return bool(self.total(torch.tensor(float(flag), device=self.device)))

    @staticmethod
    def close():
        """End the group of processes, if there is one."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


def pick_device(config):
    """The device of a configuration; RunError for a GPU that is not there."""
    if config.device != "cpu" and torch.cuda.is_available():
        return torch.device("cuda")
    if config.device == "cuda":
        raise RunError(
            f"device = 'cuda' (preset {config.preset}): this machine has no "
            "usable GPU; expected one, or --device cpu"
        )
    return torch.device("cpu")
