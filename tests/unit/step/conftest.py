"""The compute lane imports the policy, and with it Megatron-Core; its imports need a prepared process."""

from rollplex.environment import prepare

prepare()
