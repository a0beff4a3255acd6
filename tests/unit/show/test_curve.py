import pytest

from rollplex.show.curve import HEIGHT, WIDTH, curve


def test_curve_puts_steps_and_rewards_in_their_places() -> None:
    rows: list[dict[str, float | None]] = [
        {"step": 1, "reward/mean": 0.0},
        {"step": 2, "reward/mean": None},
        {"step": 3, "reward/mean": 1.0},
    ]
    found = curve([*rows, {"step": 4, "reward/mean": 0.5, "eval/reward/mean": 0.25}], step=3)
    assert found is not None
    points = [tuple(map(float, point.split(","))) for point in found.reward.split()]
    (x1, y1), (x3, y3), (x4, y4) = points
    assert found.left == x1 < x3 < x4 == found.right
    assert (x3 - x1) / (x4 - x1) == pytest.approx(2 / 3, abs=1e-3)
    assert found.bottom == y1 > y4 > y3 == found.top
    assert y4 == pytest.approx((y1 + y3) / 2, abs=0.02)
    assert found.shown_x == x3
    assert [label for _, label in found.y_ticks] == ["0.00", "0.50", "1.00"]
    assert [label for _, label in found.x_ticks] == ["1", "2", "4"]
    [(x, y, label)] = found.evaluated
    assert (x, label) == (x4, "step 4: held-out 0.250")
    assert y4 < y < y1


def test_curve_of_equal_rewards_and_of_one_step_stays_inside() -> None:
    found = curve([{"step": 7, "reward/mean": 0.5}], step=7)
    assert found is not None
    x, y = map(float, found.reward.split(","))
    assert 0 < x < WIDTH
    assert 0 < y < HEIGHT
    assert len(found.x_ticks) == 1


def test_curve_without_the_shown_step_has_no_mark() -> None:
    found = curve([{"step": 1, "reward/mean": 0.5}], step=2)
    assert found is not None
    assert found.shown_x is None


@pytest.mark.parametrize("rows", [[], [{"step": 1}], [{"step": 1, "reward/mean": None}]])
def test_curve_of_nothing_is_none(rows: list[dict[str, float | None]]) -> None:
    assert curve(rows, step=1) is None
