"""What steps N environments: a loop here, worker processes, vector environments, EnvPool; and what these share."""
