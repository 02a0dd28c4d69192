"""Families of algorithms: for each, the gradient step and the policy that its algorithms share."""
