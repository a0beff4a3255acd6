"""The decode lane: a thread that steps the rollout engine while the compute lane works in the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from rollplex.batch import Response
from rollplex.rollout.protocol import Rollout
from rollplex.step.timeline import Timeline


class DecodeLane:
    """Steps ``rollout`` until nothing is unfinished and hands finished responses over, from its own thread.

    ``finished`` gets the responses of one engine step; ``ended`` is called once, with the error that ended the lane or
    None. Both are called on the lane's thread.
    """

    def __init__(
        self,
        rollout: Rollout,
        timeline: Timeline,
        finished: Callable[[Sequence[Response]], None],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._rollout = rollout
        self._timeline = timeline
        self._finished = finished
        self._ended = ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="decode-lane", daemon=True)
        self.tokens = 0  # response tokens so far

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the engine step in flight; what is unfinished is given up by the caller."""
        self._stop.set()
        self._thread.join()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._rollout.unfinished and not self._stop.is_set():
                self._step()
        except BaseException as caught:  # noqa: BLE001 (raised again in the compute lane)
            error = caught
        self._ended(error)
        # They are methods of the owner, which holds this lane: a circle that would keep a step's pixels and activations
        # until Python next looks for circles, many steps later.
        del self._finished, self._ended

    def _step(self) -> None:
        start = time.perf_counter()
        responses = self._rollout.step()
        end = time.perf_counter()
        sequences, tokens, prefill = (
            self._rollout.decode_batch,
            self._rollout.decode_tokens,
            self._rollout.prefill_tokens,
        )
        if prefill:
            # an engine step that also reads prompts costs by its tokens, not by its sequences
            self._timeline.record("decode", "prefill", "", start, end, prefill + tokens, sequences)
        elif sequences:
            self._timeline.record("decode", "decode", "", start, end, tokens, sequences)
        self.tokens += tokens
        if responses:
            self._finished(responses)
