"""Where requests ask to be let in: joins the books with the rule.

Pure: times come in, answers go out, so that a whole service can be simulated. `admitter` stands between it
and the world.
"""

import math
from dataclasses import dataclass

from firsttoken_api import overtaking, ttft_estimate
from firsttoken_api.state import EngineState, LoadState
from firsttoken_sidecar import (
    admission,
    backlog,
    correction,
    fairness,
    lengths,
    pace,
    promises,
    reservations,
    step_mirror,
    work_speed,
    yielding,
)
from firsttoken_sidecar.demand_rate import DemandRate

LEAST_LEFT_PART = 0.1
"""Of the engine's speed, what less urgent requests are promised whatever the urgent take."""
HEADROOM_HORIZON_S = 1.0
SCARCE_SLOTS = 0.8
"""When so many are taken, who goes first takes the next one that becomes free."""
NEAR_PART = 0.6
"""Of the limit: what is expected later than that says whether estimates are too timid."""
LOWEST = -(2**31)
"""Less urgent than any class."""


@dataclass(slots=True)
class Request:
    """What asks to be let in."""

    tenant: str
    weight: float
    body_hash: bytes
    """Empty: not known, and then no place can be kept for it."""
    request_class: str
    priority: int
    limit_s: float
    arrival_s: float
    prompt_tokens: int
    max_tokens: int | None


class Desk:
    """The books of one engine's line."""

    def __init__(self) -> None:
        self.backlog = backlog.Backlog()
        self.pace = pace.Pace()
        self.steps = step_mirror.StepMirror(self.backlog, self.pace)
        self.lengths = lengths.AnswerLengths()
        self.reservations = reservations.Reservations()
        self.fairness = fairness.Fairness()
        self._corrections: dict[str, correction.Correction] = {}
        self._tokens = DemandRate()
        self._yielding = yielding.Yielding()
        self._speed = work_speed.WorkSpeed()

    def hear(self, state: EngineState, now: float) -> None:
        """The engine's report."""
        self.pace.hear(state)
        self.lengths.medians = state.output_tokens_by_class
        self.backlog.reconcile(state.backlog_tokens, now)

    def decide(
        self, request: Request, cached_tokens: int, now: float
    ) -> admission.Admitted | admission.Refused:
        """Changes nothing. cached_tokens: what of its prompt the engine is expected to find."""
        return admission.decide(self._facts(request, cached_tokens, now), request.limit_s)

    def admit(
        self, request: Request, cached_tokens: int, estimate: admission.Estimate | None, now: float
    ) -> backlog.Entry:
        """It is let in."""
        self.fairness.note_asked(request.tenant, request.weight, now)
        uncached = max(request.prompt_tokens - cached_tokens, 1)
        self._came(request, self._cost_s(request, uncached), now)
        age_s = now - request.arrival_s
        entry = backlog.Entry(
            tenant=request.tenant,
            weight=request.weight,
            request_class=request.request_class,
            priority=request.priority,
            arrival_s=request.arrival_s,
            admitted_s=now,
            prompt_tokens=request.prompt_tokens,
            uncached_tokens=uncached,
            max_tokens=request.max_tokens,
            output_tokens=self.lengths.expected(request.request_class, request.max_tokens),
            start_by_s=self._start_by_s(request, uncached),
            expected_s=max(estimate.expected_s - age_s, 0.0) if estimate is not None else 0.0,
            likely_s=max(estimate.likely_s - age_s, 0.0) if estimate is not None else 0.0,
            limit_s=request.limit_s,
            cost_s=self._cost_s(request, uncached),
        )
        self.fairness.note_let_in(request.tenant, entry.cost_s, now)
        ahead = self.backlog.ahead(entry.priority, entry.start_by_s, self.steps.given)
        delay_s = self._delay_s(uncached, entry.cost_s)
        for pushed in ahead.pushed:
            pushed.pushed_s += delay_s
        self.backlog.add(entry)
        self._speed.joined(now)
        self._tokens.add(0, uncached, now)
        self.steps.wake(now)
        self._count()
        return entry

    def refuse(self, request: Request, cached_tokens: int, refused: admission.Refused, now: float) -> int:
        """-> Retry-After, whole seconds."""
        self.fairness.note_asked(request.tenant, request.weight, now)
        cost_s = self._cost_s(request, max(request.prompt_tokens - cached_tokens, 1))
        self._came(request, cost_s, now)
        if refused.reason is admission.Reason.YIELDED:
            self._yielding.yielded(request.request_class)
        elif refused.reason in (admission.Reason.OBJECTIVE, admission.Reason.RESERVED):
            self._yielding.overloaded(request.request_class)
        speed = self._speed.per_s
        left_part = 1 - self.backlog.demand.above(request.priority, speed, now).share
        return self.reservations.refuse(
            (request.tenant, request.body_hash),
            cost_s,
            now=now,
            wait_s=refused.room_in_s,
            speed=speed * max(left_part, LEAST_LEFT_PART),
            priority=request.priority,
            share=self.fairness.share(request.tenant, request.weight, now),
        )

    def first_content(self, entry: backlog.Entry, uncached_tokens: int | None, now: float) -> None:
        """Its first token is there. uncached_tokens: what it took, where the engine says so."""
        if entry not in self.backlog.waiting:
            return
        self.steps.seen(now)
        self.backlog.started(entry, now, self.steps.number)
        if uncached_tokens is not None:
            entry.uncached_tokens = max(uncached_tokens, 1)
        if entry.expected_s > 0:
            expected_s = entry.expected_s + entry.pushed_s
            self._correction(entry.request_class).note(expected_s, now - entry.admitted_s, now)
        self._decided(entry, now)
        self._speed.started(entry.cost_s, now, is_line_empty=not self.backlog.line)
        self._count()
        self.steps.seen(now)

    def closed(self, entry: backlog.Entry, completion_tokens: int | None, now: float) -> None:
        """It ended; completion_tokens: where they are known."""
        waited_s = now - entry.admitted_s
        if entry in self.backlog.waiting and entry.expected_s > 0 and entry.likely_s < waited_s:
            self._correction(entry.request_class).note(entry.expected_s, waited_s, now)
            self._decided(entry, now)
        if completion_tokens is not None and entry.first_content_s is not None:
            self.lengths.note(entry.request_class, entry.max_tokens, completion_tokens)
        self.backlog.close(entry, now)
        self._speed.left(is_line_empty=not self.backlog.line)
        self._count()
        self.steps.seen(now)

    def load(self, now: float) -> LoadState:
        """What a request would find."""
        mine, pace_now = self.backlog, self.pace
        rest_s = self.steps.rest_s(now)
        tokens: dict[str, int] = {}
        requests: dict[str, int] = {}
        for one in mine.waiting:
            key = str(one.priority)
            tokens[key] = tokens.get(key, 0) + one.uncached_tokens
            requests[key] = requests.get(key, 0) + 1
        rate = pace_now.prefill_tokens_per_s
        if pace_now.step_time is not None and pace_now.chunk_tokens:
            rate = pace_now.step_time.prefill_tokens_per_s(
                pace_now.chunk_tokens, pace_now.decoding, pace_now.context_tokens
            )
        return LoadState(
            ahead_tokens_by_priority=tokens,
            ahead_requests_by_priority=requests,
            arriving_share_by_priority={
                str(key): mine.demand.share(key, now) / self._speed.per_s for key in mine.demand.priorities()
            },
            step_time=pace_now.step_time,
            chunk_tokens=pace_now.chunk_tokens,
            max_prefill_batch=pace_now.max_prefill_batch,
            max_num_seqs=pace_now.max_num_seqs,
            decoding=pace_now.decoding,
            context_tokens=pace_now.context_tokens,
            prefill_tokens_per_s=rate,
            slot_wait_s=self._slot_wait_s(LOWEST, 0, mine.ahead(LOWEST, math.inf, self.steps.given), rest_s),
            running=len(mine.running),
            waiting=len(mine.waiting),
        )

    def _facts(self, request: Request, cached_tokens: int, now: float) -> admission.Facts:
        uncached = max(request.prompt_tokens - cached_tokens, 1)
        rest_s = self.steps.rest_s(now)
        ahead = self.backlog.ahead(request.priority, self._start_by_s(request, uncached), self.steps.given)
        cost_s = self._cost_s(request, uncached)
        base_s = ttft_estimate.seconds(
            self.pace, ahead_tokens=0, ahead_requests=0, uncached_tokens=uncached, rest_s=rest_s
        )
        slot_wait_s = self._slot_wait_s(request.priority, request.prompt_tokens, ahead, rest_s)
        arriving = self.backlog.demand.above(request.priority, self._speed.per_s, now)
        # Who returns was promised its turn: more urgent ones yield to it rather than it to them.
        is_returning = self._place(request, now) is not None
        meanwhile = overtaking.NOBODY if is_returning else arriving

        def seconds(arriving: overtaking.Arriving) -> float:
            return ttft_estimate.seconds(
                self.pace,
                ahead_tokens=ahead.tokens,
                ahead_requests=ahead.requests,
                uncached_tokens=uncached,
                slot_wait_s=slot_wait_s,
                arriving=arriving,
                deviations=promises.DEVIATIONS,
                rest_s=rest_s,
                joining_tokens=ahead.behind_tokens + self._tokens.share(0, now) * rest_s,
            )

        spread = self._correction(request.request_class).spread(
            request.limit_s, now, self._late(request, now)
        )
        delay_s = self._delay_s(uncached, cost_s)
        like_it = [one for one in ahead.pushed if one.priority == request.priority]
        less_urgent = [one for one in ahead.pushed if one.priority < request.priority]

        def makes_late(others: list[backlog.Entry]) -> bool:
            return any(
                promises.is_broken(
                    one, delay_s, self._correction(one.request_class).kept_spread, meanwhile, now
                )
                for one in others
            )

        part = self._part(request, cost_s, now)
        return admission.Facts(
            age_s=now - request.arrival_s,
            expected_s=seconds(overtaking.NOBODY),
            overtaken_s=seconds(meanwhile),
            base_s=base_s,
            alone_s=self._alone_s(uncached),
            spread=spread,
            part=part,
            has_less_than_share=part >= 1 and self.fairness.share(request.tenant, request.weight, now) < 1,
            headroom_s=self.reservations.expected_s(now, HEADROOM_HORIZON_S, request.priority)
            / self._speed.per_s,
            is_returning=is_returning,
            makes_others_late=makes_late(like_it),
            yields=self._yielding.may_yield(request.request_class) and makes_late(less_urgent),
        )

    def _alone_s(self, uncached: int) -> float:
        idle = pace.Pace(
            self.pace.step_time,
            self.pace.chunk_tokens,
            self.pace.max_prefill_batch,
            prefill_tokens_per_s=self.pace.prefill_tokens_per_s,
        )
        return ttft_estimate.seconds(
            idle, ahead_tokens=0, ahead_requests=0, uncached_tokens=uncached, slot_wait_s=0.0
        )

    def _slot_wait_s(self, priority: int, prompt_tokens: int, ahead: backlog.Ahead, rest_s: float) -> float:
        free = float("inf")
        if self.pace.kv_tokens_total:
            waiting_tokens = sum(one.prompt_tokens for one in self.backlog.waiting)
            free = self.pace.kv_tokens_total - self.pace.kv_tokens_used - waiting_tokens
        steps = self.backlog.steps_until_room(
            step=self.steps.number,
            priority=priority,
            requests_ahead=ahead.requests + ahead.in_step,
            prompt_tokens=prompt_tokens,
            max_num_seqs=self.pace.max_num_seqs,
            free_kv_tokens=free,
        )
        return rest_s + (steps - 1) * self.pace.token_s if steps > 0 else 0.0

    def _late(self, request: Request, now: float) -> list[tuple[float, float]]:
        return [
            (one.expected_s, now - one.admitted_s)
            for one in self.backlog.waiting
            if one.request_class == request.request_class
            and one.expected_s > 0
            and one.likely_s < now - one.admitted_s
        ]

    def _decided(self, entry: backlog.Entry, now: float) -> None:
        self._correction(entry.request_class).decided(
            now,
            is_breach=now - entry.arrival_s > entry.limit_s,
            is_near=entry.likely_s + entry.pushed_s > NEAR_PART * entry.limit_s,
        )

    def _delay_s(self, uncached: int, cost_s: float) -> float:
        """By how much a request holds up those that are taken after it."""
        slots = self.pace.max_num_seqs
        if slots and len(self.backlog.running) + len(self.backlog.line) >= SCARCE_SLOTS * slots:
            return cost_s / self._speed.per_s
        step, chunk = self.pace.step_time, self.pace.chunk_tokens
        if step is None or not chunk:
            return cost_s
        beside_s = step.seconds(0, self.pace.decoding, self.pace.context_tokens)
        return uncached * (step.per_prefill_token_s + beside_s / chunk)

    def _part(self, request: Request, cost_s: float, now: float) -> float:
        return self.fairness.part(
            request.tenant, request.weight, cost_s, backlog.work_by_tenant(self.backlog.waiting), now
        )

    def _came(self, request: Request, cost_s: float, now: float) -> None:
        """Who was told to come again was counted then."""
        place = self._place(request, now)
        if place is not None:
            self.reservations.take(place)
        else:
            self.backlog.demand.add(request.priority, cost_s, now)
            self._yielding.asked(request.request_class)

    def _place(self, request: Request, now: float) -> reservations.Place | None:
        if not request.body_hash:
            return None
        return self.reservations.claim((request.tenant, request.body_hash), now)

    def _start_by_s(self, request: Request, uncached: int) -> float:
        rate = self.pace.prefill_tokens_per_s
        output = self.lengths.as_scheduled(request.request_class, request.max_tokens)
        return backlog.start_by_s(
            request.arrival_s, uncached / rate if rate > 0 else 0.0, output * self.pace.tpot_mean_s
        )

    def _cost_s(self, request: Request, uncached: int) -> float:
        return self.pace.cost_s(uncached, self.lengths.expected(request.request_class, request.max_tokens))

    def _correction(self, request_class: str) -> correction.Correction:
        return self._corrections.setdefault(request_class, correction.Correction())

    def _count(self) -> None:
        self.pace.decoding = self.pace.running = len(self.backlog.running)
        self.pace.waiting = len(self.backlog.waiting)
