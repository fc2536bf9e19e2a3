"""The notebooks that train, run again as on a CPU without vector units.

torch picks its kernels by the CPU. The last digits of a fit then differ, and
a printed digit that rests on them would differ between machines.
"""

import os
import subprocess
import sys

import pytest

from notebook_checks import ROOT

TRAINS = [
    "notebooks/06_weights_compared.ipynb",
    "notebooks/10_what_the_network_learns.ipynb",
    "notebooks/12_a_known_answer.ipynb",
    "notebooks/14_text.ipynb",
    "notebooks/15_orders_and_their_cost.ipynb",
    "notebooks/16_parallel_decoding.ipynb",
    "notebooks/17_order_confidence_blocks.ipynb",
]


@pytest.mark.parametrize("notebook", TRAINS)
def test_same_outputs_without_vector_units(notebook):
    """nbval finds no difference with ATEN_CPU_CAPABILITY=default."""
    command = [sys.executable, "-m", "pytest", "--nbval", notebook, "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
