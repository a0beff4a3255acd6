"""The policy: Megatron-Core language model, vision tower, boundary attention, log probabilities."""
