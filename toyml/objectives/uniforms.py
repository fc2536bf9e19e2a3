"""The uniform numbers of a batch, and how they hang together.

Every law with a random rate or count is a function of one uniform number u
per sequence. Couplings keep each u uniform and spread the batch evenly.
"""

import numpy as np

COUPLINGS = ("independent", "stratified", "lattice", "antithetic")


def draw_uniforms(batch, rng, coupling="independent"):
    """u in [0, 1), float64 [batch].

    independent: B separate draws. stratified: one in each of B equal cells,
    the cells in random order. lattice: one draw, shifted by multiples of
    1 / B and wrapped (a rotated lattice). antithetic: pairs (u, 1 - u), even
    batch only. In each coupling every u alone is uniform.
    """
    if coupling == "independent":
        return rng.random(batch)
    if coupling == "stratified":
        return _below_one((rng.permutation(batch) + rng.random(batch)) / batch)
    if coupling == "lattice":
        return (rng.random() + np.arange(batch) / batch) % 1
    if coupling == "antithetic":
        if batch % 2:
            raise ValueError(
                f"batch = {batch}: expected an even batch for antithetic pairs"
            )
        half = rng.random(batch // 2)
        return _below_one(np.stack([half, 1 - half], axis=1).ravel())
    raise ValueError(
        f"coupling = {coupling!r}: expected one of {', '.join(COUPLINGS)}"
    )


def _below_one(u):
    """A sum or difference of floats may round to 1, where 1 / (1 - u) fails.

    The largest float below 1 serves instead.
    """
    return np.minimum(u, np.nextafter(1, 0))
