"""Block diffusion: left to right over blocks, an inner law within each."""

from dataclasses import dataclass

import numpy as np
import sympy

from ..lattice import MaskLattice
from .laws import Objective, editable_positions
from .uniforms import draw_uniforms


@dataclass(frozen=True)
class BlockDiffusion:
    """Blocks of ``size`` positions, one pass each; see ``block_diffusion``."""

    size: int
    inner: Objective

    @property
    def name(self):
        return f"block_diffusion({self.size}, {self.inner.name})"

    def law(self, length):
        """The exact law, a ``BlockLaw``; the last block may be shorter."""
        full, rest = divmod(length, self.size)
        lengths = [self.size] * full + [rest] * (rest > 0)
        laws = {n: self.inner.law(n) for n in set(lengths)}
        return BlockLaw(self.size, length, tuple(laws[n] for n in lengths))

    def draw(self, batch, length, rng, editable=None, coupling="independent"):
        """masked and weight [batch, passes, length], a pass for each block.

        editable: bool [length] or [batch, length]; blocks are cut from these
        positions alone, the others stay visible. passes is the largest number
        of blocks of a row; a row with fewer has empty passes at the end. The
        blocks of a sequence are drawn independently; coupling joins the same
        block of different sequences. Weights as for ``Objective.draw``.
        """
        allowed = editable_positions(batch, length, editable)
        rank = allowed.cumsum(axis=1) - 1
        block = np.where(allowed, rank // self.size, -1)
        passes = block.max() + 1
        masked = block[:, None] > np.arange(passes)[None, :, None]
        weight = np.zeros(masked.shape)
        for j in range(passes):
            inside = block == j
            rows = inside.any(axis=1)
            u = draw_uniforms(batch, rng, coupling)[rows]
            given = self.inner.given(u, inside[rows].sum(axis=1))
            hidden, weight[rows, j] = given.draw(inside[rows], rng)
            masked[rows, j] |= hidden
        return masked, weight / batch


@dataclass(frozen=True)
class BlockLaw:
    """The law of ``BlockDiffusion`` on sequences of one length.

    Given the sequence the blocks are independent: means add up, and so do
    variances. Block j has a lattice of its own, the rows of the whole one in
    which earlier blocks are visible and later ones masked, and laws[j], the
    inner law of its length.
    """

    size: int
    length: int
    laws: tuple

    def blocks(self, lattice):
        """The lattices of the blocks, from left to right."""
        if lattice.length != self.length:
            raise ValueError(
                f"lattice.length = {lattice.length}: expected "
                f"{self.length}, the length of the law"
            )
        out, full = [], (1 << self.length) - 1
        for start in range(0, self.length, self.size):
            stop = min(start + self.size, self.length)
            later = full >> stop << stop
            rows = (np.arange(1 << (stop - start)) << start) | later
            out.append(MaskLattice(lattice.table[rows, start:stop]))
        return out

    def mean(self, lattice):
        """Mean loss on the lattice's sequence, in nats."""
        return sum(
            law.mean(block)
            for law, block in zip(self.laws, self.blocks(lattice), strict=True)
        )

    def second_moment(self, lattice):
        """Mean squared loss, in nats^2; inf where it diverges."""
        mean = spread = 0
        for law, block in zip(self.laws, self.blocks(lattice), strict=True):
            own = law.mean(block)
            mean += own
            spread += law.second_moment(block) - own**2
        if lattice.is_exact:
            spread = sympy.expand(spread)
        return spread + mean**2


def block_diffusion(size, inner):
    """Blocks from left to right, each by ``inner`` given the earlier ones.

    The positions are cut into blocks of ``size``; the last may be shorter.
    In the pass of a block the earlier blocks are visible, the later ones are
    masked with weight 0, and within the block ``inner`` draws masks and
    weights, as if the block were the sequence. Passes are summed. Where the
    mean of inner is the NELBO, the mean is the average loss of the orders
    that finish each block before the next. Size 1 with ``uniform_count`` is
    ``autoregressive``; a size of the whole length or more is inner itself.
    inner: an ``Objective`` of one pass. Raises ValueError for another inner,
    or a size that is not a whole number of at least 1.
    Source: Block Diffusion (Arriola et al. 2025).
    """
    whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
    if not whole or size < 1:
        raise ValueError(
            f"size = {size}: expected a whole number, at least 1"
        )
    if not isinstance(inner, Objective):
        raise ValueError(
            f"inner = {inner!r}: expected an Objective of one pass, such as "
            "uniform_count()"
        )
    return BlockDiffusion(int(size), inner)
