"""These tests need no engine; the process is prepared for Megatron-Core and transformers all the same."""

from rollplex.environment import prepare

prepare()
