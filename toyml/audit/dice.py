"""Control of the random numbers that a loss draws from torch.

Inside ``Dice`` every random operation of torch is seen. It can be recorded;
row 0 can keep its numbers while the other rows get new ones; or the uniform
numbers can be set. A loss that draws from numpy or from ``random`` escapes
it; the audit then falls back on statistics.
"""

import random
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class AbortError(Exception):
    """The loss draws what the audit cannot set."""


@contextmanager
def seeded(seed):
    """Seed torch, numpy and random; restore all three states afterwards.

    One thread meanwhile: tensors are tiny, and threads wait for each other.
    """
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    reseed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        torch.set_num_threads(threads)


def reseed(seed):
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


class Dice(TorchDispatchMode):
    """policy(name, func, args, kwargs, result) -> result, for random ops."""

    def __init__(self, policy):
        super().__init__()
        self.policy, self.log = policy, []

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else torch imports its compiler, for a second or two

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tags = getattr(func, "tags", ())
        if torch.Tag.nondeterministic_seeded not in tags:
            return func(*args, **kwargs)
        if "generator" in kwargs:
            kwargs = kwargs | {"generator": None}
        args = tuple(
            None if isinstance(a, torch.Generator) else a for a in args
        )
        name = func._schema.name.split("::")[-1]
        result = self.policy(name, func, args, kwargs)
        self.log.append((name, tuple(result.shape)))
        return result


def plain(name, func, args, kwargs):
    return func(*args, **kwargs)


class Mates:
    """Row 0 draws from one stream, the other rows from another.

    Two runs with the same ``own`` and different ``others`` differ in the
    random numbers of the batch mates alone.
    """

    def __init__(self, batch, own, others):
        self.batch = batch
        self.own = torch.Generator().manual_seed(own)
        self.others = torch.Generator().manual_seed(others)

    def __call__(self, name, func, args, kwargs):
        out = self._run(self.own, func, args, kwargs).clone()
        rows = out.shape[:1] == (self.batch,)
        if rows and not name.startswith("randperm"):
            out[1:] = self._run(self.others, func, args, kwargs)[1:]
        return args[0].copy_(out) if name.endswith("_") else out

    def _run(self, generator, func, args, kwargs):
        """One draw from a stream of its own, through the global state."""
        before = torch.get_rng_state()
        torch.set_rng_state(generator.get_state())
        try:
            if func._schema.name.endswith("_"):
                args = (args[0].clone(), *args[1:])
            return func(*args, **kwargs)
        finally:
            generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)


class Fixed:
    """Sets the uniform numbers of a loss that draws times, then noise.

    times: float [n]; a draw of n numbers, or of fewer, gets these. noise:
    [B, L]; a draw of B L numbers gets these. A random integer in [low, high)
    becomes low + floor(u (high - low)). Anything else raises ``AbortError``.
    """

    def __init__(self, shape, times, noise):
        self.size, self.times, self.noise = shape, times, noise
        self.range, self.time_draws, self.draws = None, 0, 0

    def __call__(self, name, func, args, kwargs):
        self.draws += 1
        if self.draws > 50:
            raise AbortError("too many draws")
        if name.startswith("bernoulli"):
            return self._bernoulli(name, args)
        out = func(*args, **kwargs)
        if name == "uniform_":
            ends = [*args[1:], 0, 1][:2] if len(args) > 2 else (0, 1)
            u = self._numbers(out)
            return out.copy_(ends[0] + u * (ends[1] - ends[0]))
        if name in ("rand", "rand_like"):
            return out.copy_(self._numbers(out))
        if name == "randint":
            ends = [a for a in args if isinstance(a, int)]
            low, high = ends if len(ends) == 2 else (0, ends[0])
            u = self._numbers(out, high - low)
            return out.copy_(torch.floor(low + u * (high - low)))
        raise AbortError(name)

    def _bernoulli(self, name, args):
        p = args[1] if len(args) > 1 else args[0]
        u = self._numbers(args[0], noise=True)
        hit = (u < p).to(args[0].dtype)
        return args[0].copy_(hit) if name.endswith("_") else hit

    def _numbers(self, out, integers=None, noise=False):
        n, count = out.numel(), int(np.prod(self.size))
        if n == count and n > len(self.times):
            if integers:
                raise AbortError("integer noise")
            values = self.noise
        elif n <= len(self.times) and not noise:
            self.time_draws += 1
            self.range = integers or self.range
            values = self.times[:n]
            if self.time_draws > 1:
                raise AbortError("two draws of a time")
        else:
            raise AbortError(f"a draw of {n} numbers")
        return torch.as_tensor(values).reshape(out.shape).to(torch.float64)
