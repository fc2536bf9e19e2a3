"""The training run: ``python -m toyml.train``.

``config`` says what a run is, ``data`` what it learns from, ``objective``
which law draws its masks, ``optimizer`` how the weights move, ``step`` the
loss and gradient of one batch, ``ranks`` several processes, ``checkpoint``
how a run survives a stop, ``run`` the loop, ``evaluate`` how good the network
is, ``samples`` what it writes, ``report`` what is left behind.
"""
