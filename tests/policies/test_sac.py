"""SAC: one step against float64 NumPy, the temperature."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of

pytestmark = pytest.mark.eager

CONTRACT = {"sac": (VECTOR, space_of(3), {}), "sac, SimBa": (VECTOR, space_of(3), {"policy.model.block": "residual"})}
LEARNS = {**kit.LEARNS, "policy.learn.learning_rate": 0.003, "policy.learn.alpha": 0.02}
RESUMES = {"SAC, random steps first": ("Pendulum-v1", ("policy.collect.random_steps=32",))}

built, bench = kit.critic_benches("sac", "targets", alpha=0.2)


class TestSAC(kit.CriticTests):
    Step = kit.SoftStep

    def test_the_temperature_moves_the_entropy_to_its_target(self, bench):
        log_std, rows = bench.root.net.head.log_std.bias.asnumpy(), self.rows(bench)
        for bias, sign in ((0.0, -1), (-8.0, 1)):
            log_std[:] = bias
            before = float(bench.root.log_alpha.asnumpy())
            metrics = self.learn(bench, rows).metrics
            assert (metrics["entropy"] > bench.policy.target_entropy) == (sign < 0)
            assert np.sign(float(bench.root.log_alpha.asnumpy()) - before) == sign


def test_the_target_entropy_is_configurable():
    assert kit.make_policy("sac").target_entropy == -2.0
    assert kit.make_policy("sac", learn={"target_entropy": -0.5}).target_entropy == -0.5
