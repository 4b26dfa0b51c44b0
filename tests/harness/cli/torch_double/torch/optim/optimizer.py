"""Steps of optimizers, and who wants to know of them."""

hooks = []
register_optimizer_step_post_hook = hooks.append


def step():
    for hook in hooks:
        hook()
