"""The compute lane's work: what each item does, and what it holds from one item to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rollplex.algorithms.base import Algorithm, Scored, Settings
from rollplex.algorithms.loss import TokenLoss, token_loss
from rollplex.algorithms.normalization import token_weight
from rollplex.batch import Prompt, Response
from rollplex.policy.cut import Boundary, Features
from rollplex.policy.pack import Member, Pack, PackGroup, build_pack, input_tokens, split_by_budget
from rollplex.policy.policy import Policy
from rollplex.step.features import FeatureCache
from rollplex.step.parity import Parity
from rollplex.step.work import ACTOR_MEDIA, REFERENCE_MEDIA, Item, Kind, StepPlan


@dataclass(frozen=True)
class Loss:
    """How tokens are scored and weighed.

    ``by_rollout``: the engine's log probabilities are the behaviour policy; else it is the policy itself, since one
    rollout is used for one update.
    """

    temperature: float
    algorithm: Algorithm
    settings: Settings
    by_rollout: bool = False


@dataclass
class TokenSums:
    """Sums over the response tokens of a step; ``loss`` is weighed but not yet scaled by the batch's denominator."""

    loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    capped: float = 0.0
    clipped: float = 0.0
    tokens: int = 0
    passes: dict[str, int] = field(default_factory=lambda: {"prefix": 0, "suffix": 0, "vision": 0})
    prefix_saved: int = 0

    def add(self, loss: torch.Tensor, tokens: TokenLoss, cap: float) -> None:
        """One pass more: its weighed sum and what it is made of."""
        self.loss += float(loss.detach())
        self.kl += 0.0 if tokens.kl is None else float(tokens.kl.sum())
        self.ratio += float(tokens.ratio.sum())
        self.ratio_max = max(self.ratio_max, float(tokens.ratio.max()))
        self.capped += float((tokens.ratio > cap).sum())
        self.clipped += float(tokens.clipped.sum())
        self.tokens += tokens.ratio.numel()


class StepCompute:
    """Runs encode, prefix, suffix and backward items of one step and holds their tensors while they live."""

    def __init__(
        self,
        plan: StepPlan,
        prompts: Sequence[Prompt],
        actor: Policy,
        reference: Policy | None,
        loss: Loss,
        pack_tokens: int,
        cache: FeatureCache,
    ) -> None:
        self._plan = plan
        self._prompts = prompts
        self._actor = actor
        self._reference = reference
        self._loss = loss
        self._pack_tokens = pack_tokens
        self._cache = cache
        self._media = {
            name: media
            for unit in plan.units
            for names in (unit.actor_media, unit.reference_media)
            for name, media in zip(names, prompts[unit.group].media, strict=True)
        }
        self._features: dict[str, Features] = {name: held for name in plan.held_media if (held := cache.get(name))}
        self._actor_prefix: dict[int, Boundary] = {}
        self._reference_prefix: dict[int, Boundary] = {}
        self._reference_logps: dict[tuple[int, int], torch.Tensor] = {}  # (group, sample) -> [R]
        self.responses: Mapping[tuple[int, int], Response] = {}
        self.advantages: Mapping[int, Sequence[float]] = {}
        self.sums = TokenSums()
        self.parity = Parity()

    @property
    def has_reference(self) -> bool:
        return self._reference is not None

    @property
    def by_rollout(self) -> bool:
        """Importance ratios are against the engine's log probabilities."""
        return self._loss.by_rollout

    def cost(self, item: Item) -> int:
        """Input tokens of a suffix item, known once its responses are."""
        unit = self._plan.units[item.index]
        prompt = self._prompts[unit.group]
        return sum(
            input_tokens(prompt, self.responses[unit.group, member].token_ids, unit.split) for member in unit.members
        )

    def run(self, items: Sequence[Item]) -> int:
        """Run items of one kind as one piece of work; returns the tokens that went through a model."""
        first = items[0]
        match first.kind:
            case Kind.ENCODE:
                return self._encode(first.media)
            case Kind.REF_PREFIX:
                with torch.no_grad():
                    assert self._reference is not None
                    return self._prefix(first.index, self._reference, self._reference_prefix, for_reference=True)
            case Kind.ACTOR_PREFIX:
                return self._prefix(first.index, self._actor, self._actor_prefix, for_reference=False)
            case Kind.REF_SUFFIX:
                return self._reference_suffix([item.index for item in items])
            case Kind.ACTOR_SUFFIX:
                return self._actor_suffix([item.index for item in items])
            case Kind.PREFIX_BACKWARD:
                return self._prefix_backward(first.index)
            case Kind.ENCODE_BACKWARD:
                features = self._features.pop(first.media)
                features.backward()
                return features.tensor.size(0)
            case _:
                raise AssertionError(f"{first.kind} is not work of the compute lane's models")

    def drop(self, items: Iterable[Item]) -> None:
        """Let go of what was made for items that will not run."""
        for item in items:
            if item.kind is Kind.PREFIX_BACKWARD:
                self._actor_prefix.pop(item.index, None)
            elif item.kind is Kind.REF_SUFFIX:
                self._reference_prefix.pop(item.index, None)
            elif item.kind is Kind.ACTOR_SUFFIX:
                unit = self._plan.units[item.index]
                for member in unit.members:
                    self._reference_logps.pop((unit.group, member), None)
            elif item.kind is Kind.ENCODE_BACKWARD:
                self._features.pop(item.media, None)

    def _encode(self, name: str) -> int:
        policy = self._reference if name.startswith(REFERENCE_MEDIA) else self._actor
        assert policy is not None
        # a frozen tower leaves no graph: nothing in it requires a gradient
        features = policy.encode(self._media[name])
        self._features[name] = features
        if not name.startswith(ACTOR_MEDIA) and "#" not in name:
            self._cache.put(name, features)
        self.sums.passes["vision"] += features.tensor.size(0)
        return features.tensor.size(0)

    def _prefix(self, index: int, policy: Policy, into: dict[int, Boundary], for_reference: bool) -> int:
        unit = self._plan.units[index]
        prompt = self._prompts[unit.group]
        names = unit.reference_media if for_reference else unit.actor_media
        boundary = policy.prefix(prompt, [self._features[name] for name in names])
        assert boundary is not None, "a one-token prompt is not split"
        into[index] = boundary
        self.sums.passes["prefix"] += boundary.length
        self.sums.prefix_saved += boundary.length * (len(unit.members) - 1)
        return boundary.length

    def _packs(self, indices: Sequence[int]) -> list[Pack]:
        groups = []
        for index in indices:
            unit = self._plan.units[index]
            members = tuple(Member(i, self.responses[unit.group, i].token_ids) for i in unit.members)
            groups.append(PackGroup(index, self._prompts[unit.group], members, unit.split))
        packs = (build_pack(part, self._actor.device) for part in split_by_budget(groups, self._pack_tokens))
        return [pack for pack in packs if pack is not None]

    def _unsplit_features(self, pack: Pack, for_reference: bool) -> dict[tuple[int, int], Features]:
        found = {}
        for index, medium, _ in pack.media_rows:
            unit = self._plan.units[index]
            names = unit.reference_media if for_reference else unit.actor_media
            found[index, medium] = self._features[names[medium]]
        return found

    @torch.no_grad()
    def _reference_suffix(self, indices: Sequence[int]) -> int:
        assert self._reference is not None
        rows = 0
        for pack in self._packs(indices):
            features = self._unsplit_features(pack, for_reference=True)
            logp, _ = self._reference.score(pack, self._reference_prefix, features, self._loss.temperature)
            for index, sample, tokens in pack.owners:
                self._reference_logps[self._plan.units[index].group, sample] = logp[tokens]
            rows += pack.token_ids.numel()
        for index in indices:
            self._reference_prefix.pop(index, None)
        self.sums.passes["suffix"] += rows
        return rows

    def _actor_suffix(self, indices: Sequence[int]) -> int:
        rows = 0
        for pack in self._packs(indices):
            features = self._unsplit_features(pack, for_reference=False)
            logp, entropy = self._actor.score(pack, self._actor_prefix, features, self._loss.temperature)
            loss = self._loss_of(pack, logp)
            if loss.requires_grad:  # not so for text alone under a frozen language model
                loss.backward()
            for cut in [*(self._actor_prefix[i] for i in pack.groups), *features.values()]:
                cut.absorb()
            self.sums.entropy += float(entropy.sum())
            rows += pack.token_ids.numel()
        self.sums.passes["suffix"] += rows
        return rows

    def _loss_of(self, pack: Pack, logp: torch.Tensor) -> torch.Tensor:
        owners = [(self._plan.units[index].group, sample, tokens) for index, sample, tokens in pack.owners]
        lengths = tuple(tokens.stop - tokens.start for _, _, tokens in owners)
        repeats = torch.tensor(lengths, device=logp.device)

        def per_token(values: Sequence[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=logp.dtype, device=logp.device).repeat_interleave(repeats)

        reference = None
        if self._reference is not None:
            reference = torch.cat([self._reference_logps.pop((group, sample)) for group, sample, _ in owners])
        own = logp.detach()
        behaviour = self._engine_logps(owners, logp) if self._loss.by_rollout else own
        advantage = per_token([self.advantages[group][sample] for group, sample, _ in owners])
        scored = Scored(logp, behaviour, advantage, lengths, reference)
        result = token_loss(self._loss.algorithm, scored, self._loss.settings)
        weight = per_token([token_weight(self._loss.settings.normalization, length) for length in lengths])
        loss = (result.loss * weight).sum()
        for group, sample, tokens in owners:
            self.parity.add(self.responses[group, sample], own[tokens])
        self.sums.add(loss, result, self._loss.settings.cap)
        return loss

    def _engine_logps(self, owners: Sequence[tuple[int, int, slice]], like: torch.Tensor) -> torch.Tensor:
        values = [logp for group, sample, _ in owners for logp in self.responses[group, sample].logprobs]
        return torch.tensor(values, dtype=like.dtype, device=like.device)

    def _prefix_backward(self, index: int) -> int:
        boundary = self._actor_prefix.pop(index)
        boundary.backward()
        for name in self._plan.units[index].actor_media:
            self._features[name].absorb()
        return boundary.length
