"""What all handlers share: one served model, its engine, its text side, and the counters."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import jinja2

from firsttoken_api import errors, names
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import EngineState, Phase
from firsttoken_runtime import guidance
from firsttoken_runtime.model import checkpoint, config, eos
from firsttoken_runtime.model.errors import ModelUnreadable
from firsttoken_runtime.server import admission, grammar_check, pins, tenant, tokenizer, tracing
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.classes import Classes, Resolved
from firsttoken_runtime.server.engine_client import EngineClient
from firsttoken_runtime.server.metrics import Metrics
from firsttoken_runtime.server.openai_models import Body, UnknownNames, parse
from firsttoken_runtime.server.request_timer import RequestTimer
from firsttoken_runtime.server.stream import KEEP_ALIVE_S
from firsttoken_runtime.settings import DEFAULT_TTFT_P95_S

log = logging.getLogger(__name__)

MAX_OPEN_REQUESTS = 1024
PREFIX_CACHE = "prefix-cache"
TOKENIZER_THREADS = 2
PARSED_AT_ONCE_BYTES = 64 * 2**10
TRACE_HEADERS = ("traceparent", "tracestate")

ResultT = TypeVar("ResultT")
BodyT = TypeVar("BodyT", bound=Body)


class Service:
    """One served model. Ready when both its engine and its tokenizer are."""

    def __init__(
        self,
        served_name: str,
        client: EngineClient,
        metrics: Metrics,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        max_open_requests: int = MAX_OPEN_REQUESTS,
        tracer: tracing.Tracer | None = None,
        is_behind_sidecar: bool = False,
    ) -> None:
        self.served_name = served_name
        self.client = client
        self.metrics = metrics
        self.created_at = int(time.time())
        self.keep_alive_s = keep_alive_s
        self.unknown_names = UnknownNames()
        self.tracer = tracer or tracing.NO_TRACER
        self.tenants = tenant.Tenants(is_believed=is_behind_sidecar)
        self.pins = pins.Pins()
        self._keeps_pins: asyncio.Task[None] | None = None
        self.template: ChatTemplate | None = None
        self._text_model: tokenizer.TextModel | None = None
        self._max_open_requests = max_open_requests
        self._open_requests = 0
        self.grammars = grammar_check.GrammarCheck(self._text_for_grammars)
        self._classes_of: HotSettings | None = None
        self._classes = Classes()
        self._threads = ThreadPoolExecutor(TOKENIZER_THREADS, "tokenizer")

    async def load_text(self, model_path: Path) -> None:
        """Read tokenizer and chat template. Raises `model.errors.ModelError` or OSError.

        The configuration comes first: that a model is of an unknown kind says more than its tokenizer does.
        """

        def load() -> tokenizer.TextModel:
            source = checkpoint.open_checkpoint(model_path)
            config.read(source)
            return replace(tokenizer.load(source), eos_token_ids=eos.read(source))

        self.use_text(await self.in_thread(load))

    def use_text(self, text_model: tokenizer.TextModel) -> None:
        """Raises ModelUnreadable if the chat template cannot be compiled."""
        if text_model.chat_template is not None:
            try:
                self.template = ChatTemplate(text_model.chat_template, text_model.special_tokens)
            except jinja2.TemplateError as error:
                raise ModelUnreadable(f"the model's chat template is wrong: {error}") from error
        else:
            log.warning("the model has no chat template: /v1/chat/completions answers 400")
        self._text_model = text_model

    async def pin(self, entries: list[pins.Entry]) -> None:
        """Keep these prompts in the cache. Raises PinsError, and UnavailableError if the engine is gone."""
        if not entries:
            return
        self.check_ready()
        assert self.client.ready is not None
        vocabulary_size, capacity = self.client.ready.vocabulary_size, self.client.token_capacity
        prompts = await self.in_thread(
            lambda: pins.tokenize(
                entries,
                self.text_model,
                self.template,
                vocabulary_size=vocabulary_size,
                capacity=capacity,
            )
        )
        self.pins.use(prompts, self.client)
        self._keeps_pins = asyncio.create_task(self.pins.keep_computing(self.client), name="pins")

    @property
    def text_model(self) -> tokenizer.TextModel:
        assert self._text_model is not None, "check_ready comes first"
        return self._text_model

    @property
    def is_ready(self) -> bool:
        return self.client.life.is_ready and self._text_model is not None

    def check_ready(self) -> None:
        """Raises ModelLoadingError or UnavailableError."""
        self.client.check_ready()
        if self._text_model is None:
            raise errors.ModelLoadingError("the tokenizer is loading", retry_after_s=1)

    @contextmanager
    def room(self) -> Iterator[None]:
        """Around a request from before its prompt is tokenized, so that those that wait for a thread count.

        Raises TooManyRequestsError when too many requests are open already.
        """
        if self._open_requests >= self._max_open_requests:
            self.metrics.refused("open_requests")
            raise errors.TooManyRequestsError(
                f"{self._max_open_requests} requests are open already", retry_after_s=1
            )
        self._open_requests += 1
        try:
            yield
        finally:
            self._open_requests -= 1

    def check_model(self, name: str | None) -> None:
        """Raises UnknownModelError. No name means the one model that is served."""
        if name is not None and name != self.served_name:
            raise errors.UnknownModelError(
                f"the model {name[:128]!r} does not exist; this server serves {self.served_name!r} "
                "and no adapters of it",
                param="model",
            )

    def timer(self, operation: str, headers: Mapping[str, str]) -> RequestTimer:
        """The clock of a request that has just arrived. operation: `chat` or `text_completion`."""
        trace = {name: headers[name] for name in TRACE_HEADERS if name in headers}
        return RequestTimer(self.metrics, on_end=self.tracer.record, operation=operation, trace_headers=trace)

    @property
    def classes(self) -> Classes:
        """Classes and routes of the hot settings in force."""
        settings = self.client.settings_in_force
        if settings is not self._classes_of:
            self._classes, self._classes_of = Classes(settings), settings
        return self._classes

    @property
    def shares_prompts(self) -> bool:
        """Whether equal prompts that are sent together are computed once."""
        return PREFIX_CACHE in self.client.flags.enabled

    def resolve(self, headers: Mapping[str, str], model: str | None) -> Resolved:
        """Class and defaults of a request. Raises UnknownModelError, and BadRequestError for a wrong name."""
        classes = self.classes
        name, route = classes.split_model(model, self.served_name)
        self.check_model(name)
        return classes.resolve(headers.get(names.HEADER_CLASS), headers.get(names.HEADER_ROUTE, route))

    def admit(self, prompt_lengths: Sequence[int], resolved: Resolved) -> None:
        """Before a request is submitted. Raises ObjectiveUnreachableError if it would wait too long.

        prompt_lengths: tokens to be computed of the prompt of each of its sequences.
        """
        settings, stats = self.client.settings_in_force, self.client.stats
        objective_s = resolved.ttft_s
        if objective_s is None:
            objective_s = settings.objective.ttft_p95_s if settings is not None else DEFAULT_TTFT_P95_S
        refusal = admission.refusal(
            stats,
            prompt_tokens=sum(prompt_lengths) - max(prompt_lengths),
            ahead=self.tokens_ahead(resolved.request_class),
            limit_s=admission.wait_limit_s(objective_s),
        )
        if refusal is not None:
            self.metrics.refused("wait")
            raise errors.ObjectiveUnreachableError(str(refusal), retry_after_s=refusal.retry_after_s)

    def tokens_ahead(self, request_class: str) -> int:
        """Uncomputed prompt tokens that the scheduler places before a request of this class, as the engine
        last reported or, in a burst that its report does not have, as was sent since.

        The engine leaves out what it expects to find in its cache. Of a prompt that it has not seen, nobody
        tells what will be found; whoever can sets `Wanted.expected_uncached_tokens`.
        """
        stats = self.client.stats
        if stats is None:
            return 0
        own = self.classes.priority_of(request_class)

        def ahead(tokens_by_class: Mapping[str, int]) -> int:
            return sum(
                tokens for name, tokens in tokens_by_class.items() if self.classes.priority_of(name) >= own
            )

        reported = ahead(stats.backlog_by_class) if stats.backlog_by_class else stats.backlog_tokens
        return max(reported, ahead(self.client.unseen_tokens))

    def state(self) -> EngineState:
        """The document of `GET /state`. Loading until the text side is loaded too."""
        state = self.client.state()
        phase = Phase.LOADING if state.phase is Phase.READY and not self.is_ready else state.phase
        return state.model_copy(update={"model": self.served_name, "phase": phase})

    async def parse(self, kind: type[BodyT], raw: bytes) -> BodyT:
        """The checked body of a request. Raises BadRequestError that names the parameter.

        A large one is read beside the event loop: a body of a million small lists takes seconds.
        """
        if len(raw) <= PARSED_AT_ONCE_BYTES:
            return parse(kind, raw, self.unknown_names)
        return await self.in_thread(lambda: parse(kind, raw, self.unknown_names))

    async def in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Run slow text work beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _text_for_grammars(self) -> grammar_check.ModelText:
        assert self.client.ready is not None
        text_model = self.text_model
        return grammar_check.ModelText(
            guidance.tokenizer_json(text_model.tokenizer),
            self.client.ready.vocabulary_size,
            text_model.eos_token_ids,
        )

    async def close(self) -> None:
        if self._keeps_pins is not None:
            self._keeps_pins.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeps_pins
        await self.grammars.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
