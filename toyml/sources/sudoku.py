"""The 4 x 4 Sudoku grids, all 288 of them, equally likely."""

from functools import cache
from itertools import permutations, product

import numpy as np

from .checks import check_tokens, fill_visible, impossible


class Sudoku4:
    """The uniform law on 4 x 4 Sudoku grids, read row by row: L = 16, V = 4.

    Each row, column and 2 x 2 box holds each of the four symbols once.
    """

    vocab_size = 4
    length = 16

    def __init__(self):
        self.grids = _grids()

    def __call__(self, tokens, t=None):
        """p(x_i | visible tokens), [B, 16, 4]; impossible rows raise."""
        tokens = check_tokens(self, tokens)
        hidden = (tokens == self.vocab_size)[:, None, :]
        fits = (hidden | (tokens[:, None, :] == self.grids)).all(axis=2)
        ways = fits.sum(axis=1)
        if not ways.all():
            row = int(np.argmin(ways))
            raise impossible(row, tokens[row])
        symbols = self.grids[:, :, None] == np.arange(self.vocab_size)
        counts = fits.astype(float) @ symbols.reshape(len(self.grids), -1)
        out = counts.reshape(*tokens.shape, -1) / ways[:, None, None]
        return fill_visible(out, tokens)

    def log_prob(self, sequences):
        """log p(x) in nats for clean sequences [B, 16]; -inf off the grids."""
        x = check_tokens(self, sequences, clean=True)
        valid = (x[:, None, :] == self.grids).all(axis=2).any(axis=1)
        return np.where(valid, -self.entropy(), -np.inf)

    def entropy(self):
        """Entropy in nats per sequence: ln 288."""
        return float(np.log(len(self.grids)))

    def sample(self, n, rng):
        """n grids, int64 [n, 16]."""
        return self.grids[rng.integers(len(self.grids), size=n)]


@cache
def _grids():
    """Every grid, int64 [288, 16], built from rows that fit together."""
    rows = list(permutations(range(4)))
    grids = []
    for a, b in product(rows, repeat=2):
        if any({*a[c : c + 2]} & {*b[c : c + 2]} for c in (0, 2)):
            continue
        for c, d in product(rows, repeat=2):
            columns = zip(a, b, c, d, strict=True)
            if all(len(set(column)) == 4 for column in columns) and all(
                not {*c[k : k + 2]} & {*d[k : k + 2]} for k in (0, 2)
            ):
                grids.append([*a, *b, *c, *d])
    out = np.array(grids, dtype=np.int64)
    out.flags.writeable = False
    return out
