import pytest

from rollplex.rollout.protocol import Sampling


@pytest.mark.parametrize("temperature", [0.0, -1.0, 0.009, float("nan"), float("inf")])
def test_temperature_that_vllm_would_change_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"rollout\.temperature is .*; it must be at least 0\.01"):
        Sampling(temperature=temperature)


def test_limit_of_no_token_is_refused() -> None:
    with pytest.raises(ValueError, match=r"response limit of 0 tokens; rollout\.maxTokens"):
        Sampling(max_tokens=0)
    with pytest.raises(ValueError, match="response limit of 0 tokens"):
        Sampling(limits=((4, 3), (1, 0)))


def test_limits_take_the_place_of_max_tokens() -> None:
    assert Sampling(max_tokens=7).limit(3, 2) == 7
    assert Sampling(max_tokens=7, limits=((1, 2), (3, 4))).limit(1, 0) == 3


def test_greedy_group_of_several_is_refused() -> None:
    Sampling(greedy=True).refuse_greedy_group(1)
    Sampling().refuse_greedy_group(4)
    with pytest.raises(ValueError, match="one response a prompt, not 4"):
        Sampling(greedy=True).refuse_greedy_group(4)
