"""What does a masked-diffusion training loss really optimise?

``audit(loss_fn)`` runs someone's own loss on a toy model and returns a
``Report``; ``python -m toyml.audit package.module:loss_fn`` prints it. Needs
torch. The loss's name and source are never read.
"""

from .report import Report
from .run import audit

__all__ = ["Report", "audit"]
