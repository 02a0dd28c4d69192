"""Independent Q-learning on PettingZoo's simple_spread_v3: three agents cover three landmarks (extra mpe).

The target is half of the way from random play, -79, to a hand-coded controller, -31.
"""

from minding.configs import load_preset

main_config = load_preset("simple_spread_qmix")
main_config.run.target = -55.0
main_config.policy.type = "idqn"
