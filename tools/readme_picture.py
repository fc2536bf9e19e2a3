"""Draw the picture of the README: python tools/readme_picture.py FILE."""

import sys

import matplotlib.pyplot as plt

from toyml import figures
from toyml.lattice import MaskLattice
from toyml.sources import TeachingTable

ANSWERS = {(0, ()): 0.2, (1, ()): 0.1, (0, (1,)): 0.5, (1, (0,)): 0.8}
PATHS = {
    (3, 0): "left_to_right",
    (2, 1): "left_to_right",
    (3, 1): "right_to_left",
    (1, 0): "right_to_left",
}


def draw(path):
    table = TeachingTable(ANSWERS, length=2)
    lattice = MaskLattice.from_denoiser(table, [0, 0], vocab_size=2)
    figures.use()
    fig, ax = plt.subplots(figsize=(4.8, 3.8))
    figures.lattice(ax, lattice.table, ["hot", "tea"], PATHS)
    left, right = lattice.order_loss([0, 1]), lattice.order_loss([1, 0])
    for x, side, name, loss in (
        (-0.55, "right", "left to right", left),
        (0.55, "left", "right to left", right),
    ):
        ax.text(x, 1.6, f"{name}\n{loss:.3f} nats", ha=side, va="center")
    ax.set_title(
        f"their mean is the NELBO, {lattice.nelbo():.3f};\n"
        f"the generator's NLL is {lattice.generator_nll():.3f}"
    )
    fig.savefig(path)


if __name__ == "__main__":
    draw(sys.argv[1])
