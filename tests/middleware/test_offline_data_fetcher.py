"""Minibatches of recorded data: each step once in a pass, from any place on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minding.engine.chain.context import OfflineRLContext
from minding.middleware import offline_data_fetcher


class Numbered:
    """The numbers of the steps in place of their rows."""

    def __init__(self, steps, digest="a"):
        self.steps, self.digest = steps, digest

    def __len__(self):
        return self.steps

    def batch(self, index):
        return index


@pytest.fixture(scope="module")
def fetcher(tiny_config):
    def make(steps, batch_size, seed=0, digest="a", steps_per_call=1, limit=10_000, epochs=None):
        keys = {"policy.learn.batch_size": batch_size, "policy.learn.steps_per_call": steps_per_call}
        cfg = tiny_config("bc", seed=seed, **keys)
        cfg.run.max_train_iter, cfg.run.max_train_epoch = limit, epochs
        return offline_data_fetcher(cfg, Numbered(steps, digest))

    return make


def drawn(fetch, count, ctx=None):
    """The numbers of the minibatches of `count` iterations, and the context after them."""
    ctx = OfflineRLContext() if ctx is None else ctx
    numbers = []
    for _ in range(count):
        fetch(ctx)
        numbers += ctx.train_data.tolist()
        ctx.train_iter += len(ctx.train_data)
        ctx = ctx.renew()
    return numbers, ctx


@settings(max_examples=50, deadline=None)
@given(steps=st.integers(1, 40), share=st.floats(0, 1), count=st.integers(1, 30))
def test_every_pass_takes_every_step_once(fetcher, steps, share, count):
    batch_size = max(1, round(share * steps))
    batches, ctx = drawn(fetcher(steps, batch_size), count)
    assert [len(batch) for batch in batches] == [batch_size] * count
    numbers = [number for batch in batches for number in batch]
    for start in range(0, len(numbers) - steps + 1, steps):
        assert sorted(numbers[start : start + steps]) == list(range(steps))
    assert (ctx.train_epoch, ctx.epoch_row) == divmod(len(numbers), steps)


def test_passes_have_orders_that_the_seed_decides(fetcher):
    batches, _ = drawn(fetcher(8, 8), 2)
    assert batches[0] != batches[1]
    assert drawn(fetcher(8, 8), 2)[0] == batches
    assert drawn(fetcher(8, 8, seed=1), 2)[0] != batches


@pytest.mark.parametrize("before", [1, 3, 4])
def test_it_goes_on_from_the_counters_alone(fetcher, before):
    whole, _ = drawn(fetcher(10, 4), 8)
    _, ctx = drawn(fetcher(10, 4), before)
    resumed = OfflineRLContext()
    resumed.load_state_dict(ctx.state_dict())
    assert drawn(fetcher(10, 4), 8 - before, resumed)[0] == whole[before:]


@settings(max_examples=50, deadline=None)
@given(steps=st.integers(1, 40), share=st.floats(0, 1), per_call=st.integers(2, 50), calls=st.integers(1, 4))
def test_minibatches_do_not_depend_on_their_number(fetcher, steps, share, per_call, calls):
    batch_size = max(1, round(share * steps))
    one_by_one, expected = drawn(fetcher(steps, batch_size), calls * per_call)
    together, ctx = drawn(fetcher(steps, batch_size, steps_per_call=per_call), calls)
    assert together == one_by_one
    assert (ctx.train_epoch, ctx.epoch_row) == (expected.train_epoch, expected.epoch_row)


# Two passes over ten steps end within the fifth minibatch of four.
@pytest.mark.parametrize(("limits", "sizes"), [({"limit": 8}, [3, 3, 1, 1, 3]), ({"epochs": 2}, [3, 1, 1, 3, 3])])
def test_the_last_steps_of_a_run_are_made_one_by_one(limits, sizes, fetcher):
    fetch, ctx, made = fetcher(10, 4, steps_per_call=3, **limits), OfflineRLContext(), []
    for _ in range(5):
        fetch(ctx)
        made.append(len(ctx.train_data))
        ctx.train_iter += made[-1]
    # Past its end, where the program goes on nevertheless, there is no limit.
    assert made == sizes
