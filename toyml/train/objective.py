"""The objective of a run, by name; a path changes as the run goes on."""

from .. import objectives


def objective_at(config, progress):
    """The law that draws the masks when a share of the run is behind.

    progress: in [0, 1). "path" starts at e(k) ~ k, where every masked token
    counts alike, and moves to e(k) = 1, the NELBO, at ``path_end``; from
    there on its mean is the bound.
    """
    if config.objective == "path":
        left = 1 - progress / config.path_end if config.path_end else 0
        return objectives.power_count(config.draw_power, max(0.0, left))
    if config.objective == "power_count":
        return objectives.power_count(config.draw_power)
    if config.objective == "pooled_mean":
        return objectives.pooled_mean(config.batch)
    return getattr(objectives, config.objective)()
