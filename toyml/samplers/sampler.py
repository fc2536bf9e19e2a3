"""The sampler: its steps, how it sharpens, and its two ways to run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .choice import check_choice
from .law import check_states, exact_law
from .simulate import bar, simulate


@dataclass(frozen=True)
class Sampler:
    """A sampler. Build one by the functions of this package.

    steps(length): the steps for a sequence, or a block, of that length.
    temperature, top_p: see ``sharpen``.
    """

    name: str
    steps: Callable
    temperature: float = 1
    top_p: float = 1

    def __post_init__(self):
        check_choice(self.temperature, self.top_p)

    def sharpened(self, temperature=1, top_p=1):
        """The same sampler with tokens drawn at this temperature and top-p.

        Which positions are revealed is still decided on the conditionals as
        the denoiser gives them. Errors as for ``sharpen``.
        """
        return replace(self, temperature=temperature, top_p=top_p)

    def sample(
        self,
        denoiser,
        n,
        length,
        vocab_size,
        rng,
        prompt=None,
        batch=None,
        progress=None,
    ):
        """n sequences, int64 [n, length], clean tokens only.

        prompt: int [length] or [n, length], the mask id ``vocab_size`` where
            something is to be filled in; None for all masks. Its visible
            tokens never change.
        batch: the denoiser is asked about at most so many rows at once; None
            for all. The result does not depend on it if the denoiser's answer
            to a row does not depend on the other rows.
        progress: True for a progress bar on stderr, which goes away at the
            end (needs tqdm); or a function, called as ``progress(done,
            total)``, in rows times steps, after each call of the denoiser
            and at the end.

        Each step asks once about every row that still has a mask there, with
        t a float, or float64 [rows] where each row has its own time, or left
        out where the sampler has no time; once nothing is masked it is not
        asked again. Raises ValueError for bad
        arguments, for an answer that is no distribution, and for a sampler
        that leaves masks.
        """
        batch = n if batch is None else batch
        for name, value in (("n", n), ("batch", batch)):
            if value < 1:
                raise ValueError(f"{name} = {value}: expected at least 1")
        start = _start(prompt, (n, length), vocab_size)
        run = partial(simulate, self, denoiser, start, vocab_size, rng, batch)
        if progress is not True:
            return run(progress or None)
        with bar(self.name) as show:
            return run(show)

    def law(self, denoiser, length, vocab_size, prompt=None):
        """The exact law of the sample, [V] * length, which sums to 1.

        A dynamic programme over the (V + 1)^L states. float64, or Fractions
        where the denoiser answers in Fractions and the sampler's numbers are
        exact too. prompt: int [length], as in ``sample``. For first-hitting
        the denoiser is called without t: the law is that of a denoiser that
        ignores time.

        Raises ValueError past MAX_STATES states, for float times, temperature
        or top-p with an exact denoiser, and as ``sample`` does.
        """
        check_states(length, vocab_size)
        start = _start(prompt, (length,), vocab_size)
        return exact_law(self, denoiser, start, vocab_size)


def _start(prompt, shape, vocab_size):
    """The tokens to begin with, int64, a new array of the given shape."""
    if shape[-1] < 1 or vocab_size < 1:
        raise ValueError(
            f"length = {shape[-1]}, vocab_size = {vocab_size}: expected at "
            "least 1"
        )
    if prompt is None:
        return np.full(shape, vocab_size, np.int64)
    prompt = np.asarray(prompt)
    if (
        prompt.shape not in (shape[-1:], shape)
        or prompt.dtype.kind not in "iu"
    ):
        raise ValueError(
            f"prompt has shape {prompt.shape} and dtype {prompt.dtype}; "
            f"expected integers of shape {shape[-1:]} or {shape}"
        )
    if np.any((prompt < 0) | (prompt > vocab_size)):
        raise ValueError(
            f"prompt holds {prompt.min()} to {prompt.max()}; expected tokens "
            f"in 0..{vocab_size} (mask id {vocab_size})"
        )
    return np.broadcast_to(prompt, shape).astype(np.int64)
