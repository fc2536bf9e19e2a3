"""The error that a user of the training run can mend."""


class RunError(ValueError):
    """Bad input to a run: its message names what was wrong and expected."""
