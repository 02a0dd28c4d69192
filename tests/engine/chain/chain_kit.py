"""What the tests of chains share: middleware that log what happens to them."""


class Marker:
    """Logs `number`, then `-number` in its second half, or that it was closed; an object without ``__name__``."""

    def __init__(self, log, number):
        self.log, self.number = log, number

    def __call__(self, ctx):
        self.log.append(self.number)
        try:
            yield
        except GeneratorExit:
            self.log.append(f"closed {self.number}")
            raise
        self.log.append(-self.number)


def marker(log, number):
    """The same as a function."""

    def mark(ctx):
        yield from Marker(log, number)(ctx)

    return mark


def fail(ctx):
    raise ValueError("broken")
