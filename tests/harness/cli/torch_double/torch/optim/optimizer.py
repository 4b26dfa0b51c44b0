"""Steps of optimizers, and who wants to know of them."""

before, after = [], []
register_optimizer_step_pre_hook = before.append
register_optimizer_step_post_hook = after.append


class Adam:
    """Has a name."""


def step():
    for hook in before + after:
        hook(Adam(), (), {})
