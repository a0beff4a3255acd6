"""The Rollplex operator: a RollplexJob becomes pods that train, survive and finish."""
