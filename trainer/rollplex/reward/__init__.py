"""Rewards: named rewards and own functions, scored in processes with a hard time limit per sample."""
