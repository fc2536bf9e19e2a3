"""The 4 x 4 grids against a search cell by cell."""

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import seeds
from toyml.sources import Sudoku4

SOURCE, MASK = Sudoku4(), 4


def search(cells=()):
    """Every way to fill the cells in reading order."""
    if len(cells) == 16:
        yield cells
        return
    row, column = divmod(len(cells), 4)
    for symbol in range(4):
        seen = (
            symbol == other
            and (
                i // 4 == row
                or i % 4 == column
                or (i // 8, i % 4 // 2) == (row // 2, column // 2)
            )
            for i, other in enumerate(cells)
        )
        if not any(seen):
            yield from search((*cells, symbol))


GRIDS = list(search())


def test_all_grids():
    assert len(GRIDS) == 288
    assert SOURCE.grids.shape == (288, 16)
    assert set(map(tuple, SOURCE.grids)) == set(GRIDS)
    assert (SOURCE.length, SOURCE.vocab_size) == (16, 4)


def by_hand(tokens):
    """[16, 4] by going through the grids."""
    out = np.zeros((16, 4))
    for grid in GRIDS:
        if all(v in (MASK, w) for v, w in zip(tokens, grid, strict=True)):
            for i, symbol in enumerate(grid):
                out[i, symbol] += 1
    return out / out[0].sum()


@settings(max_examples=25)
@given(st.lists(st.tuples(seeds, st.integers(0, 16)), min_size=1, max_size=4))
def test_conditionals(rows):
    tokens = []
    for seed, masks in rows:
        rng = np.random.default_rng(seed)
        grid = np.array(GRIDS[rng.integers(288)])
        grid[rng.permutation(16)[:masks]] = MASK
        tokens.append(grid)
    got = SOURCE(np.array(tokens), t=0.5)
    wanted = np.array([by_hand(row) for row in tokens])
    assert np.allclose(got, wanted, rtol=0, atol=1e-15)


def test_conditionals_by_hand():
    blank = np.full((1, 16), MASK)
    assert np.all(SOURCE(blank) == 0.25)
    three = blank.copy()
    three[0, :3] = 2, 0, 3  # the fourth of the row is forced
    assert SOURCE(three)[0, 3].tolist() == [0, 1, 0, 0]
    # the box of 2 and 0 leaves 1 and 3 for its second row
    assert SOURCE(three)[0, 4].tolist() == [0, 0.5, 0, 0.5]


@pytest.mark.parametrize("places", [(0, 3), (0, 12), (0, 5), (11, 14)])
def test_impossible_evidence(places):
    """A symbol twice in a row, in a column, in a box."""
    tokens = np.full((3, 16), MASK)
    tokens[1, list(places)] = 2
    with pytest.raises(ValueError, match="^row 1, .*probability 0"):
        SOURCE(tokens)


def test_a_contradiction_that_no_pair_shows():
    """0 1 | . . over . . | 2 . : nothing is left for the first row's 2."""
    tokens = np.full((1, 16), MASK)
    tokens[0, [0, 1, 6, 11]] = 0, 1, 2, 2
    with pytest.raises(ValueError, match="^row 0, "):
        SOURCE(tokens)


def test_log_prob_and_entropy():
    assert SOURCE.entropy() == pytest.approx(log(288), rel=1e-15)
    off = np.array(GRIDS[0])
    off[[0, 1]] = off[[1, 0]]
    got = SOURCE.log_prob(np.array([GRIDS[5], off, GRIDS[287]]))
    assert got == pytest.approx([-log(288), -np.inf, -log(288)], rel=1e-15)
    masked = np.array(GRIDS[:1])
    masked[0, 3] = MASK
    with pytest.raises(ValueError, match="^tokens of shape"):
        SOURCE.log_prob(masked)


def test_samples():
    n = 28_800
    rng = np.random.default_rng(0)
    drawn = SOURCE.sample(n, rng)
    assert drawn.shape == (n, 16) and drawn.dtype == np.int64
    grids, seen = np.unique(drawn, axis=0, return_counts=True)
    assert set(map(tuple, grids)) == set(GRIDS)
    assert np.all(abs(seen - 100) <= 5 * sqrt(100))
    drawn[:] = 0  # a sample is the caller's own
    assert set(map(tuple, Sudoku4().grids)) == set(GRIDS)


@pytest.mark.parametrize(
    "tokens", [np.zeros((1, 15), int), np.zeros((1, 16)), np.full((1, 16), 5)]
)
def test_bad_tokens(tokens):
    with pytest.raises(ValueError, match="^tokens of shape"):
        SOURCE(tokens)
