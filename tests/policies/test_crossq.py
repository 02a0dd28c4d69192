"""CrossQ: one step against float64 NumPy, the averages of moments, acting with them."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import moved

pytestmark = pytest.mark.eager

CONTRACT = {"crossq": (VECTOR, space_of(3), {"policy.model.normalize_obs": True, "policy.learn.policy_delay": 1})}
RESUMES = {}
MOVES = {"policy.learn.policy_delay": 1}

ALPHA, SHARE = 0.2, 0.01


def shift_averages(bench):
    """Averages that differ from the moments of a batch, so that corrections are not those of the start."""
    rng = np.random.default_rng(5)
    for name, p in bench.policy.params.items():
        if name.endswith((".mean", ".variance")) and "optim" not in name and "renorms" in name:
            p.asnumpy()[...] = rng.uniform(0.2, 0.6, p.shape)


built, bench = kit.benches(
    "crossq",
    action=space_of(kit.SIZE),
    prepare=shift_averages,
    learn={"learning_rate": kit.RATE, "alpha": ALPHA, "policy_delay": 1, "renorm_after": 1000},
)


def normalized(p, name, x, learns, renorm, kept):
    """One normalization. `learns`: by the moments of the batch, which are added to `kept`, with their corrections."""
    mean, std = p[f"{name}.mean"], np.sqrt(p[f"{name}.variance"] + 1e-3)
    if not learns:
        return (x - mean) / std * p[f"{name}.weight"] + p[f"{name}.bias"]
    own_mean, own_variance = x.mean(axis=0), x.var(axis=0)
    own = np.sqrt(own_variance + 1e-3)
    if name not in kept:
        r = np.clip(own / std, 1 / 3, 3) if renorm else 1.0
        d = np.clip((own_mean - mean) / std, -5, 5) if renorm else 0.0
        kept[name] = (r, d, own_mean, own_variance)
    r, d = kept[name][:2]
    return ((x - own_mean) / own * r + d) * p[f"{name}.weight"] + p[f"{name}.bias"]


def torso(p, name, x, learns=False, renorm=False, kept=None):
    x = normalized(p, f"{name}.renorms.0", x, learns, renorm, kept)
    x = np.maximum(x @ p[f"{name}.layers.0.weight"].T + p[f"{name}.layers.0.bias"], 0.0)
    return normalized(p, f"{name}.renorms.1", x, learns, renorm, kept)


class Step(kit.SoftStep):
    critics_first = True

    def __init__(self, bench, rows):
        super().__init__(bench, rows)
        self.renorm = self.settings["renorm_after"] == 0
        # Corrections are constants of a gradient: those of the parameters for which they were first computed.
        self.kept = {}

    def drawn(self, p, obs=None, noise=None, learns=True):
        obs, noise = (self.obs, self.own) if obs is None else (obs, noise)
        x = torso(p, "net.torso", obs, learns, self.renorm, self.kept)
        mean, log_std = (
            x @ p[f"net.head.{part}.weight"].T + p[f"net.head.{part}.bias"] for part in ("mean", "log_std")
        )
        log_std, noise = np.clip(log_std, -20.0, 2.0), noise.astype(np.float64)
        action = np.tanh(mean + np.exp(log_std) * noise)
        log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1.0 - action**2)
        return action, log_prob.sum(axis=1)

    def value(self, p, name, action, obs, learns):
        x = torso(p, f"{name}.torso", np.concatenate([obs, action], axis=1), learns, self.renorm, self.kept)
        return (x @ p[f"{name}.value.weight"].T + p[f"{name}.value.bias"])[:, 0]

    def passes(self, p):
        """Values of both halves of the batch, (B,) each, of each critic."""
        if not hasattr(self, "next"):
            self.next = self.drawn(p, self.next_obs, self.following, False)
        action = np.concatenate([self.action, self.next[0]])
        obs = np.concatenate([self.obs, self.next_obs])
        return [np.split(self.value(p, name, action, obs, True), 2) for name in self.critics]

    def target(self, p):
        q = np.min([following for _, following in self.passes(p)], axis=0)
        return self.bootstrapped(q - ALPHA * self.next[1])

    def critic_loss(self, p, target):
        return 0.5 * sum(np.mean((q - target) ** 2) for q, _ in self.passes(p))

    def q_value(self, p):
        return self.passes(p)[0][0].mean()

    def worth(self, p, action):
        return np.min([self.value(p, name, action, self.obs, False) for name in self.critics], axis=0)


def gradient_of(bench, group):
    """Adam's first moment is half of the first gradient."""
    optim = bench.root.optim
    return [m.asnumpy().astype(np.float64) / 0.5 for m in optim.steps[optim.names.index(group)].m]


def trained(p, part):
    return [name for name in p if name.startswith(f"{part}.") and not name.endswith((".mean", ".variance"))]


class TestCrossQ(kit.CriticTests):
    Step = Step

    @pytest.mark.shared_graphs
    @pytest.mark.parametrize("renorm_after", [0, 1000])
    def test_metrics_and_gradients_are_those_of_the_formulas(self, bench, renorm_after):
        bench.settings["renorm_after"] = renorm_after
        rows, p = self.rows(bench), bench.params
        step = Step(bench, rows)
        output = self.learn(bench, rows)
        after = bench.params
        kit.check_metrics(output.metrics, step.metrics(p, after), rel=2e-5)
        target = step.target(p)
        losses = {
            "critics": (lambda x: step.critic_loss(x, target), p),
            "net": (step.actor_loss, step.judging(p, after)),
        }
        for part, (loss, at) in losses.items():
            found = gradient_of(bench, "actor" if part == "net" else part)
            kit.check_slopes(loss, at, trained(p, part), found, rel=1e-3, abs=1e-3)
        for name, (_, _, mean, variance) in step.kept.items():
            for part, moment in (("mean", mean), ("variance", variance)):
                old = p[f"{name}.{part}"]
                np.testing.assert_allclose(after[f"{name}.{part}"], old + SHARE * (moment - old), rtol=1e-5, atol=1e-6)
        # The critics normalize both halves of a batch together.
        assert len(step.kept) == 6

    def test_every_part_moves_and_targets_follow_their_share(self, bench):
        old = bench.params
        self.learn(bench, self.rows(bench))
        assert moved(old, bench.params) == {"net", "critics", "log_alpha"} == kit.parts_of(bench)

    def test_actor_and_averages_move_only_in_steps_that_are_due(self, bench):
        self.check_due_steps(bench, {"critics"})
