"""Models that estimate rewards, for `middleware.reward_estimator`; none of them acts."""
