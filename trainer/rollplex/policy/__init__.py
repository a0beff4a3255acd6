"""The policy: Megatron-Core language model, vision tower, boundary attention, log probabilities."""

from rollplex.environment import prepare

# Megatron-Core and transformers are imported by every module here; both need this first.
prepare()
